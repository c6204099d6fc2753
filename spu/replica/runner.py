"""Runs the replication core of one replica: inputs in, outputs to the disk, the peers and the SC.

The core (`spu.replication.core`) decides; the runner applies its outputs, in order, and tells the
core how they ended. Invariants that the core relies on:

- the core is told of appended records (`appended`) before any other input. Everything that arrives
  in one turn of the loop is one input: many small batches cost the core one step;
- the core is never told, after a cut, of an fsync that began before it: runs of group commit are
  held back while a storage thread cuts or replaces the log, one such task after another;
- the core is told that a hard state is durable once the journal has written it, in order.

A replica stops if something cannot be made durable. A failed fsync or damage makes it unfit, across
restarts, until it is repaired from its leader. A failed write, or a journal that cannot be written,
halts it until the SPU is restarted: what the disk holds is in order. The host reopens a replica
that a full disk or another shortage halted (`awaits_room`), as a restart would. A halted replica
still learns what the SC says, and becomes unfit if an fsync fails that had begun before, or as it
is closed.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, Protocol, assert_never

from schemas.control.messages import Assignment
from schemas.daemon.logs import get_logger
from schemas.errors import (
    RunnelError,
    StorageFailedError,
)
from schemas.ids import StorageId, election_term, format_term
from schemas.objects.topic import Durability, LogSettings
from schemas.replacing import replace
from schemas.wire.batch import build_control, build_seal, read_header
from spu.replica.context import ReplicaContext
from spu.replica.follower_push import FollowerPushes
from spu.replica.group_commit import GroupCommit
from spu.replica.log_maintenance import LogMaintenance
from spu.replication.attachments import progress_of
from spu.replication.core import step
from spu.replication.events import (
    AdvanceLogStart,
    AppendBatches,
    AppendControl,
    Appended,
    AppendSeal,
    Committed,
    Failed,
    Flushed,
    HardStatePersisted,
    Input,
    LeadsOn,
    LogReset,
    LogStartAdvanced,
    LogTruncated,
    NewStorageId,
    Output,
    PartitionUpdated,
    PersistHardState,
    Push,
    RequestElection,
    RequestLrsChange,
    ResetLog,
    Resume,
    Send,
    SteppedDown,
    StorageIdChosen,
    Tick,
    TruncateLog,
    Unassigned,
)
from spu.replication.follower import farewell
from spu.replication.messages import Reset
from spu.replication.state import (
    Leading,
    LogView,
    Phase,
    ReplicaState,
    recovered,
)
from spu.storage.data_dir import PartitionMeta, new_storage_id
from spu.storage.durable import FsyncFailedError, is_shortage
from spu.storage.journal import JournalChange, JournalEntry
from spu.storage.log import PartitionLog
from spu.storage.recovery import RecoveredLog
from spu.storage.segment import Damage
from spu.storage.sync_plan import CheckpointFailedError

_log = get_logger(__name__)

#: How often a replica that is not quiet is told that time has passed.
TICK_MS: Final = 1_000


class RunnerListener(Protocol):
    """What the runner notifies: the part of the replica that serves clients."""

    def written(self) -> None:
        """The log has become longer."""

    def synced(self) -> None:
        """More of the log is durable."""

    def committed(self) -> None:
        """The last add confirmed has moved."""

    def log_replaced(self) -> None:
        """The log was cut, or begins anew."""

    def stepped_down(self, reason: str) -> None:
        """It no longer leads."""

    def moved(self) -> None:
        """Inputs were applied: a report may differ now."""


class ReplicaRunner:
    """See the module's docstring. ``entry`` is the durable journal entry, ``state`` the core's."""

    def __init__(
        self,
        context: ReplicaContext,
        meta: PartitionMeta,
        entry: JournalEntry,
        directory: Path,
        found: RecoveredLog,
        listener: RunnerListener,
        *,
        fresh: bool = False,
    ) -> None:
        self.meta = meta
        self.entry = entry
        self.halted: RunnelError | None = None
        self.awaits_room = False
        #: Why it does not cut its log as its leader orders; None if it does.
        self.refuses_cut: str | None = None
        #: Whether nothing has happened since a tick that left nothing to do but wait.
        self.idle = False
        self._context = context
        self._listener = listener
        self._damage = found.unfit
        # The newest entry, which may not be durable yet: each write holds the whole entry.
        self._newest = entry
        settings = entry.assignment.log if entry.assignment else meta.log
        self.log = PartitionLog(directory, settings, context.files, found)
        view = LogView(found.log_start, found.leo, found.leo, found.history, found.sealed)
        lac = max(found.lac, found.log_start - 1)
        boot = f"{random.getrandbits(64):016x}"
        to_seal = entry.assignment is not None and bool(entry.assignment.sealed)
        self.state: ReplicaState = recovered(
            context.spu_id, boot, entry.hard_state, view, lac, fresh=fresh, to_seal=to_seal
        )
        self.pushes = FollowerPushes(
            self, meta.uid, meta.name, context.reads, context.storage, context.catch_up
        )
        self.maintenance = LogMaintenance(self, context)
        self.commit = self._group_commit()
        self._inputs: deque[Input] = deque()
        self._stepping = False
        # Whether the core was not yet told of the last appends.
        self._untold = False
        self._ticked_ms = context.clock_ms()
        self._write: asyncio.Future[None] | None = None
        self._work: deque[tuple[Callable[[], None], Input]] = deque()
        self._working: asyncio.Task[None] | None = None
        self._closed = False

    # State

    @property
    def settings(self) -> LogSettings:
        """The current log settings: those of the assignment, or those it was created with."""
        return self.log.settings

    @property
    def unfit(self) -> str | None:
        """Why it may not lead, follow or serve, until it is repaired."""
        return self.state.newest.unfit

    @property
    def assigned(self) -> bool:
        return self._newest.assigned

    @property
    def assignment(self) -> Assignment | None:
        """The last assignment, even if the replica is no longer assigned."""
        return self._newest.assignment

    @property
    def is_quiet(self) -> bool:
        """Whether it waits for nothing: the core need not be told that time passes."""
        state, leading = self.state, self.state.leading
        if leading is None:
            return True
        if (
            leading.proving
            or self._untold
            or state.lac + 1 < state.log.leo
            or state.newest.pending is not None
        ):
            return False
        others = (spu for spu in state.hard_state.replicas if spu != state.spu)
        return all(self._is_settled(leading, spu) for spu in others)

    def _is_settled(self, leading: Leading, spu: int) -> bool:
        """Whether a follower is live and has everything, or is away and not in the LRS."""
        state = self.state
        progress = progress_of(leading, spu)
        live = any(member.spu == spu for member in state.hard_state.lrs)
        if spu not in state.links:
            return not live
        return (
            progress is not None
            and progress.matched
            and progress.match_offset == state.log.leo
            and progress.last_sent_lac == state.lac
            and progress.member in state.hard_state.lrs
        )

    # Inputs

    def step(self, event: Input) -> None:
        """Take an input and apply all that follows from it before this returns. An input that comes
        while another is being applied is queued behind it."""
        self.idle = False
        if not self._stepping:
            self._tell_of_writes()
            if not isinstance(event, Tick):
                self.tell_time()
        self._inputs.append(event)
        self._drain_inputs()

    def tell_time(self) -> None:
        """Tell the core the time if it was quiet for long: nobody may seem late because of that.
        Call this before a record is written, because appends must be told before time is."""
        if self._untold or self.state.leading is None:
            return
        now_ms = self._context.clock_ms()
        if now_ms - self._ticked_ms >= 2 * TICK_MS:
            self._ticked_ms = now_ms
            self.step(Tick())

    def begin(self, how: Resume | Failed) -> None:
        """Give the core its first input: that the log is damaged, or else ``how``."""
        if self.unfit is not None:
            _log.error("replica is still unfit", partition=self.meta.name, reason=self.unfit)
        self.step(how if self._damage is None else Failed(self._damage))

    def hold(self, assignment: Assignment | None, update: PartitionUpdated | None) -> None:
        """Take an assignment, and tell the core its ``update`` of leader and LRS. None: the replica
        is no longer assigned, and keeps its settings. `recorded` waits for the journal."""
        kept = self.assignment if assignment is None else assignment
        entry = replace(self._newest, assigned=assignment is not None, assignment=kept)
        news = entry != self._newest
        self._newest = entry
        if assignment is not None:
            self.log.settings = assignment.log
        self.step(Unassigned() if update is None else update)
        self.maintenance.truncate()
        if news and self._newest is entry:
            self._submit(entry)

    async def recorded(self) -> None:
        """Wait until the newest entry is in the journal; write it again if that failed before.

        Raises StorageFailedError."""
        if self._write is not None and self._write.done() and self._write.exception() is not None:
            self._submit(self._newest)
        while (write := self._write) is not None and not write.done():
            await asyncio.wait([write])
        if write is not None:
            write.result()

    def appended(self) -> None:
        """The replica has appended a client's batch; the core is told later in this turn of the
        loop."""
        self.commit.wake()
        self.idle = False
        if not self._untold:
            self._untold = True
            asyncio.get_running_loop().call_soon(self._tell_now)

    def tick(self, now_us: int) -> None:
        """Let time pass, for the core and for the log."""
        if not self._takes_part():
            self.idle = self._working is None
            return
        if not self.is_quiet:
            self._ticked_ms = self._context.clock_ms()
            self.step(Tick())
        if not self.may_write:
            return
        self.maintenance.tick(now_us)
        self.idle = self.is_quiet and not self.log.needs_sync

    @property
    def may_write(self) -> bool:
        """Whether it takes part, and its log is not being cut or replaced."""
        return self._takes_part() and self._working is None

    def _takes_part(self) -> bool:
        return self.halted is None and self.unfit is None and self.assigned

    def fail(self, reason: str, cause: BaseException | None = None) -> None:
        """Become unfit because of damage or a failed fsync. A repair in progress begins again. If
        ``cause`` is a shortage, which says nothing about the disk, halt instead."""
        if is_shortage(cause):
            self.halt(reason, cause)
            return
        if self._closed:
            # It may have been opened again, or be deleted: its entry is not its own any more.
            return
        if self.unfit is not None:
            _log.error("replica is still unfit", partition=self.meta.name, reason=reason)
        self.commit.stop()
        self.step(Failed(reason))

    def write_failed(self, error: OSError) -> None:
        """Halt, because a full disk loses nothing that was acknowledged; or become unfit, if what
        was written before could not be synced."""
        if isinstance(error, FsyncFailedError):
            self.fail(f"an fsync failed: {error}", error)
        else:
            self.halt(f"a write failed: {error}", error)

    def halt(self, error: str | RunnelError, cause: BaseException | None = None) -> None:
        """Stop serving and replicating until it is reopened: what the disk holds is in order."""
        if self.halted is not None:
            return
        self.awaits_room = is_shortage(cause)
        if isinstance(error, str):
            _log.error("replica halted", partition=self.meta.name, reason=error)
            error = StorageFailedError(error)
        self.halted = error
        for output in farewell(self.state):
            self._apply(output)
        # Its hard state stays: a replica that led goes on leading after a restart.
        self.state = replace(self.state, leading=None, becoming=None, following=None)
        self._listener.stepped_down(error.message)
        self._listener.moved()

    async def close(self, *, keep: bool) -> None:
        """End all work on the log; with ``keep``, make it durable with a checkpoint."""
        # Work that has begun is finished first: until then, the log may not be the known one.
        while self._working is not None:
            await asyncio.wait([self._working])
        sound = self.unfit is None and self._damage is None and not self.commit.held
        if keep and sound:
            await self.commit.finish()
        self.commit.stop()
        await self.commit.quiet()
        if keep and self.unfit is None and (failure := self.log.failed_sync) is not None:
            self.fail(f"an fsync failed: {failure}", failure)
        self._closed = True
        self.log.close()

    # The core's inputs and outputs

    def _tell_now(self) -> None:
        self._tell_of_writes()
        self._drain_inputs()

    def _tell_of_writes(self) -> None:
        """Queue an input for the last appends, if the core was not told of them yet."""
        if self._untold:
            self._untold = False
            self._inputs.append(Appended(self.log.leo))
            if self.settings.durability is Durability.REPLICATED:
                # The page cache is enough.
                self._inputs.append(Flushed(self.log.syncable_leo))

    def _drain_inputs(self) -> None:
        if self._stepping or not self._inputs:
            return
        self._stepping = True
        try:
            while self._inputs:
                self._step_core(self._inputs.popleft())
        finally:
            self._stepping = False
        self._listener.moved()

    def _step_core(self, event: Input) -> None:
        if self.halted is not None and not isinstance(
            event, PartitionUpdated | Unassigned | HardStatePersisted | Failed
        ):
            return
        self.state, outputs = step(self.state, event, self._context.clock_ms())
        self._note_refused_cut()
        failed = False
        for output in outputs:
            stopped = failed or self.halted is not None
            if stopped and not isinstance(output, PersistHardState):
                continue
            try:
                self._apply(output)
            except OSError as error:
                failed = True
                self.write_failed(error)
            except RunnelError as error:
                self.halt(f"the leader sent batches that do not fit this log: {error.message}")

    def _note_refused_cut(self) -> None:
        """Say once why the log is not cut. A leader attaches again and again: until one is followed
        or none is left, the reason stays."""
        following = self.state.following
        if following is None or following.phase is Phase.MATCHED:
            self.refuses_cut = None
        elif following.refuses_cut not in (None, self.refuses_cut):
            self.refuses_cut = following.refuses_cut
            _log.error("keeps its log", partition=self.meta.name, reason=self.refuses_cut)

    def _apply(self, output: Output) -> None:
        match output:
            case PersistHardState(hard_state):
                if hard_state.unfit not in (None, self._newest.hard_state.unfit):
                    name = self.meta.name
                    _log.error("replica is unfit", partition=name, reason=hard_state.unfit)
                self._submit(replace(self._newest, hard_state=hard_state))
                self.pushes.hurry()
            case AppendControl(term):
                self._append_control(term)
            case AppendSeal(term):
                self._append_seal(term)
            case LeadsOn(term):
                _log.debug("leading again", partition=self.meta.name, term=format_term(term))
            case AppendBatches(batches):
                length = sum(len(one.data) for one in batches)
                self._context.space.require_last_room(length)
                now_us = self._context.clock_us()
                self.log.append_batches([batch.data for batch in batches], now_us)
                self._context.counters.replicated_bytes += length
                self._listener.written()
                self._follow_up()
            case TruncateLog(leo):
                self._replace_log(partial(self.log.truncate_suffix, leo), LogTruncated())
            case ResetLog():
                self._replace_log(partial(self._reset_log, output), LogReset(output.storage))
            case AdvanceLogStart(start):
                self.log.truncate_prefix(start)
                self.commit.wake()
            case NewStorageId():
                self.step(StorageIdChosen(new_storage_id()))
            case Send(to, message):
                if (connection := self._context.peers.connection(to)) is None:
                    return
                if isinstance(message, Reset):
                    producers = self.log.snapshot_before(message.start)
                    message = replace(message, producers=producers)
                connection.send(self.meta.uid, message)
            case Push():
                if (connection := self._context.peers.connection(output.to)) is not None:
                    connection.push(partial(self.pushes.push, output, connection))
            case RequestLrsChange() | RequestElection():
                if isinstance(output, RequestLrsChange):
                    self._tell_of_lines(output)
                self._context.peers.ask(self.meta.uid, output)
            case Committed():
                self._listener.committed()
            case SteppedDown(reason):
                _log.info("leads no longer", partition=self.meta.name, reason=reason)
                self._listener.stepped_down(reason)
            case _:
                assert_never(output)

    def _tell_of_lines(self, request: RequestLrsChange) -> None:
        """Log what is known of the lines to live replicas that are to go. One that is connected and
        does not keep up may have a line that carries nothing."""
        staying = {member.spu for member in request.lrs}
        for member in self.state.hard_state.lrs:
            if member.spu in staying:
                continue
            if (connection := self._context.peers.connection(member.spu)) is not None:
                _log.info(
                    "a connected replica does not keep up",
                    partition=self.meta.name,
                    peer=member.spu,
                    **connection.line(),
                )

    def _append_control(self, term: int) -> None:
        now_us = self._context.clock_us()
        assignment = self.assignment
        # A reader of the log can see where an unclean election may have removed records.
        elected = election_term(term)
        begins = election_term(self.log.last_term) < elected
        unclean = begins and assignment is not None and assignment.unclean_term == elected
        control = build_control("unclean term" if unclean else "term", now_us)
        offset = self.log.append(memoryview(control), read_header(control), term, now_us)
        name = self.meta.name
        _log.info("leading", partition=name, term=format_term(term), offset=offset)
        self._listener.written()
        self._follow_up()

    def _append_seal(self, term: int) -> None:
        now_us = self._context.clock_us()
        seal = build_seal(now_us)
        offset = self.log.append(memoryview(seal), read_header(seal), term, now_us)
        name = self.meta.name
        _log.info("sealing", partition=name, term=format_term(term), offset=offset)
        self._listener.written()
        self._follow_up()

    # The journal

    def _submit(self, entry: JournalEntry) -> None:
        self._newest = entry
        self._write = self._context.journal.submit(JournalChange((entry,)))
        self._write.add_done_callback(partial(self._recorded, entry))

    def _recorded(self, entry: JournalEntry, write: asyncio.Future[None]) -> None:
        error = write.exception()
        if error is not None:
            self.halt(f"the journal cannot be written: {error}", error)
            return
        self.entry = entry
        self.step(HardStatePersisted(entry.hard_state))

    # The log

    def _follow_up(self) -> None:
        """Something was written: make it durable, or count it at once if the page cache is
        enough."""
        self.commit.wake()
        if self.settings.durability is Durability.REPLICATED:
            self.step(Flushed(self.log.syncable_leo))

    def _synced(self) -> None:
        if self.log.log_start > self.state.log.start:
            self.step(LogStartAdvanced(self.log.log_start))
        fsync = self.settings.durability is Durability.FSYNC
        self._listener.synced()
        self.step(Flushed(self.log.durable_leo if fsync else self.log.syncable_leo))

    def _sync_failed(self, error: BaseException) -> None:
        if isinstance(error, CheckpointFailedError):
            # The log itself is whole: the next start only has to read more of it.
            self.halt(f"a checkpoint cannot be written: {error}", error)
        else:
            # Without descriptors, for example, there was no fsync that could fail.
            self.fail(f"an fsync failed: {error}", error)

    def _group_commit(self) -> GroupCommit:
        return GroupCommit(
            self.log,
            self._context.storage,
            lac=lambda: self.state.durable_lac,
            clock_us=self._context.clock_us,
            synced=self._synced,
            failed=self._sync_failed,
            took=self._context.counters.fsync,
        )

    def _replace_log(self, work: Callable[[], None], done: Input) -> None:
        """Cut or replace the log in a storage thread, after work on it that has begun."""
        self.commit.hold()
        self._work.append((work, done))
        if self._working is None:
            loop = asyncio.get_running_loop()
            self._working = loop.create_task(self._drain_work(), name=f"cut {self.meta.name}")

    async def _drain_work(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._work:
                work, done = self._work.popleft()
                await self.commit.quiet()
                try:
                    await loop.run_in_executor(self._context.storage, work)
                except (Damage, OSError, RunnelError) as error:
                    self.fail(f"the log cannot be cut: {error}", error)
                    continue
                if isinstance(done, LogReset):
                    # A failure of the old log may have stopped its group commit.
                    self.commit = self._group_commit()
                    self._damage = None
                if not self._work:
                    self.commit.release()
                self._listener.log_replaced()
                self.step(done)
                # A cut leaves only durable records.
                self.step(Flushed(self.log.durable_leo))
        finally:
            self._working = None

    def _reset_log(self, reset: ResetLog) -> None:
        """Begin again with an empty log under a new storage id, which the journal already holds.

        Blocks.
        """
        self.meta = replace(self.meta, storage_id=StorageId(reset.storage))
        if reset.aside:
            place = self.log.quarantine(reset.storage)
            _log.warning("set committed records aside", partition=self.meta.name, path=str(place))
        self._context.record_storage(self.meta)
        self.log.rebuild(reset.start, reset.last_term, reset.producers)
