"""Runs the replication core of one replica: inputs in, outputs to the disk, the peers and the SC.

The core (`spu.replication.core`) decides; this applies, in order, what it puts out, and tells it
what became of that. Invariants that the core asks of the one that runs it:

- what was appended (`appended`) is told before anything else is. All that arrives in one turn of
  the loop is told at once: many small batches cost the core one input;
- no fsync that began before a cut is told after it: runs of group commit are held back while the
  log is cut or replaced, in a storage thread, one such work after the other;
- a hard state is told as durable when the journal's write of it is done, in order.

What cannot be made durable ends it: a failed fsync or damage makes the replica unfit, over restarts
too, until it is repaired from its leader; a failed write or a journal that cannot be written halts
it until the SPU is restarted, as what the disk holds is in order. One that a full disk halted
(`awaits_room`) is opened again by the host, as after a restart. A halted replica still learns what
the SC says.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections import deque
from collections.abc import Callable
from dataclasses import replace
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
from schemas.wire.batch import build_control, read_header
from spu.replica.context import ReplicaContext
from spu.replica.follower_push import FollowerPushes
from spu.replica.group_commit import GroupCommit
from spu.replica.log_maintenance import LogMaintenance
from spu.replication.core import step
from spu.replication.events import (
    AdvanceLogStart,
    AppendBatches,
    AppendControl,
    Appended,
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
from spu.replication.leader import progress_of
from spu.replication.messages import Reset
from spu.replication.state import RETRACTED, Leading, LogView, ReplicaState, recovered
from spu.storage.data_dir import PartitionMeta, new_storage_id
from spu.storage.journal import JournalChange, JournalEntry
from spu.storage.log import PartitionLog
from spu.storage.recovery import RecoveredLog
from spu.storage.segment import Damage
from spu.storage.sync_plan import CheckpointFailedError

_log = get_logger(__name__)

#: What is not quiet is told so often that time has passed.
TICK_MS: Final = 1_000
_DISK_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


class RunnerListener(Protocol):
    """Serves clients from the replica, and hears what becomes of it."""

    def written(self) -> None:
        """The log has become longer."""

    def synced(self) -> None:
        """More of it is durable."""

    def committed(self) -> None:
        """The last add confirmed has moved."""

    def log_replaced(self) -> None:
        """The log was cut, or begins anew."""

    def stepped_down(self, reason: str) -> None:
        """It leads no longer."""

    def moved(self) -> None:
        """Inputs were applied: what a report says may be different."""


class ReplicaRunner:
    """See the module's text. ``entry`` is what the journal holds, ``state`` what the core knows."""

    def __init__(
        self,
        context: ReplicaContext,
        meta: PartitionMeta,
        entry: JournalEntry,
        directory: Path,
        found: RecoveredLog,
        listener: RunnerListener,
    ) -> None:
        self.meta = meta
        self.entry = entry
        self.halted: RunnelError | None = None
        self.awaits_room = False
        #: Nothing happened since a tick that left nothing but what time alone brings.
        self.idle = False
        self._context = context
        self._listener = listener
        self._damage = found.unfit
        # The newest entry on its way to the journal: each write holds all of it.
        self._newest = entry
        settings = entry.assignment.log if entry.assignment else meta.log
        self.log = PartitionLog(directory, settings, context.files, found)
        view = LogView(found.log_start, found.leo, found.leo, found.history)
        lac = max(found.lac, found.log_start - 1)
        boot = f"{random.getrandbits(64):016x}"
        self.state: ReplicaState = recovered(context.spu_id, boot, entry.hard_state, view, lac)
        self.pushes = FollowerPushes(self, meta.uid, meta.name, context.reads, context.storage)
        self.maintenance = LogMaintenance(self, context)
        self.commit = self._group_commit()
        self._inputs: deque[Input] = deque()
        self._stepping = False
        # Whether the log is longer than the core was told.
        self._untold = False
        self._ticked_ms = context.clock_ms()
        self._write: asyncio.Future[None] | None = None
        self._work: deque[tuple[Callable[[], None], Input]] = deque()
        self._working: asyncio.Task[None] | None = None

    # What it is

    @property
    def settings(self) -> LogSettings:
        """The current log settings: of the assignment, or those it was made with."""
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
        """What the SC said last, whether it is assigned any more or not."""
        return self._newest.assignment

    @property
    def is_quiet(self) -> bool:
        """Nothing is awaited from anybody: time may pass without its being told."""
        state, leading = self.state, self.state.leading
        if leading is None:
            return True
        if self._untold or state.lac + 1 < state.log.leo or state.newest.pending is not None:
            return False
        others = (spu for spu in state.hard_state.replicas if spu != state.spu)
        return all(self._is_settled(leading, spu) for spu in others)

    def _is_settled(self, leading: Leading, spu: int) -> bool:
        """Whether a follower is live and has everything, or is away and nobody waits for it."""
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

    # What it is told

    def step(self, event: Input) -> None:
        """Take an input, and apply everything that follows from it before this returns, unless it
        comes while others are applied: then it is the next."""
        self.idle = False
        if not self._stepping:
            self._tell_of_writes()
            if not isinstance(event, Tick):
                self.tell_time()
        self._inputs.append(event)
        self._drain_inputs()

    def tell_time(self) -> None:
        """While all was quiet time was not told, and nobody may be taken for late for that. Before
        a record is written: what is written is told before time is."""
        if self._untold or self.state.leading is None:
            return
        now_ms = self._context.clock_ms()
        if now_ms - self._ticked_ms >= 2 * TICK_MS:
            self._ticked_ms = now_ms
            self.step(Tick())

    def begin(self, how: Resume | Failed) -> None:
        """Tell it first of all what its log is like: damaged, or what ``how`` says."""
        self.step(how if self._damage is None else Failed(self._damage))

    def hold(self, assignment: Assignment | None, update: PartitionUpdated | None) -> None:
        """Be assigned as ``assignment`` says, and take what it says of leader and set; None: not
        assigned any more, and its settings stay. `recorded` waits for the journal."""
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
        """Wait until what it was told is in the journal. Raises StorageFailedError."""
        while (write := self._write) is not None and not write.done():
            await asyncio.wait([write])
        if write is not None:
            write.result()

    def appended(self) -> None:
        """Something was appended by whoever serves clients; what follows from it comes later in
        this turn of the loop."""
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

    def fail(self, reason: str) -> None:
        """Damage, or a failed fsync: unfit from now on, and what was being done to repair it is
        begun anew."""
        _log.error("replica is unfit", partition=self.meta.name, reason=reason)
        self.commit.stop()
        self.step(Failed(reason))

    def halt(self, error: str | RunnelError, cause: OSError | None = None) -> None:
        """Take no part any more until it is opened again: what is on the disk is in order."""
        if self.halted is not None:
            return
        self.awaits_room = cause is not None and cause.errno in _DISK_FULL
        if isinstance(error, str):
            _log.error("replica halted", partition=self.meta.name, reason=error)
            error = StorageFailedError(error)
        self.halted = error
        for output in farewell(self.state):
            self._apply(output)
        # Its hard state stays: after a restart it goes on leading.
        self.state = replace(self.state, leading=None, becoming=None, following=None)
        self._listener.stepped_down(error.message)
        self._listener.moved()

    async def close(self, *, keep: bool) -> None:
        """End all work on the log; make it durable with a checkpoint if it is kept."""
        # What is begun is finished: until then the log is not the one that is known.
        while self._working is not None:
            await asyncio.wait([self._working])
        sound = self.unfit is None and self._damage is None and not self.commit.held
        if keep and sound:
            await self.commit.finish()
        self.commit.stop()
        await self.commit.quiet()
        self.log.close()

    # The core's inputs and outputs

    def _tell_now(self) -> None:
        self._tell_of_writes()
        self._drain_inputs()

    def _tell_of_writes(self) -> None:
        """Have what was appended be the next input, if it was not told yet."""
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
            event, PartitionUpdated | Unassigned | HardStatePersisted
        ):
            return
        self.state, outputs = step(self.state, event, self._context.clock_ms())
        for output in outputs:
            if self.halted is not None and not isinstance(output, PersistHardState):
                continue
            try:
                self._apply(output)
            except OSError as error:
                # A full disk loses nothing that was acknowledged.
                self.halt(f"a write failed: {error}", error)
            except RunnelError as error:
                self.halt(f"the log does not take what its leader sent: {error.message}")

    def _apply(self, output: Output) -> None:
        match output:
            case PersistHardState(hard_state):
                self._submit(replace(self._newest, hard_state=hard_state))
            case AppendControl(term):
                self._append_control(term)
            case LeadsOn(term):
                _log.debug("leading again", partition=self.meta.name, term=format_term(term))
            case AppendBatches(batches):
                self._context.space.require_last_room()
                now_us = self._context.clock_us()
                self.log.append_batches([batch.data for batch in batches], now_us)
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
                self._context.peers.ask(self.meta.uid, output)
            case Committed():
                self._listener.committed()
            case SteppedDown(reason):
                _log.info("leads no longer", partition=self.meta.name, reason=reason)
                self._listener.stepped_down(reason)
            case _:
                assert_never(output)

    def _append_control(self, term: int) -> None:
        now_us = self._context.clock_us()
        assignment = self.assignment
        # Whoever reads the log can see where an unclean election may have taken records away.
        elected = election_term(term)
        begins = election_term(self.log.last_term) < elected
        unclean = begins and assignment is not None and assignment.unclean_term == elected
        control = build_control("unclean term" if unclean else "term", now_us)
        offset = self.log.append(memoryview(control), read_header(control), term, now_us)
        name = self.meta.name
        _log.info("leading", partition=name, term=format_term(term), offset=offset)
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
            self.halt(f"the journal cannot be written: {error}")
            return
        self.entry = entry
        self.step(HardStatePersisted(entry.hard_state))

    # The log

    def _follow_up(self) -> None:
        """Something was written: make it durable, or count it where the page cache is enough."""
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
            # The log itself is whole: the next start reads more of it, and that is all.
            self.halt(f"a checkpoint cannot be written: {error}", error)
        else:
            self.fail(f"an fsync failed: {error}")

    def _group_commit(self) -> GroupCommit:
        return GroupCommit(
            self.log,
            self._context.storage,
            lac=lambda: self.state.durable_lac,
            clock_us=self._context.clock_us,
            synced=self._synced,
            failed=self._sync_failed,
        )

    def _replace_log(self, work: Callable[[], None], done: Input) -> None:
        """Cut or replace the log in a storage thread, after what is being done to it."""
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
                    if isinstance(error, OSError) and error.errno in _DISK_FULL:
                        self.halt(f"the log cannot be cut: {error}", error)
                    else:
                        self.fail(f"the log cannot be cut: {error}")
                    continue
                if isinstance(done, LogReset):
                    # The one before may have ended with the log that it was for.
                    self.commit = self._group_commit()
                    self._damage = None
                if not self._work:
                    self.commit.release()
                self._listener.log_replaced()
                self.step(done)
                # What a cut leaves is durable.
                self.step(Flushed(self.log.durable_leo))
        finally:
            self._working = None

    def _reset_log(self, reset: ResetLog) -> None:
        """Begin anew under another storage id, which is in the journal already. Blocks."""
        self.meta = replace(self.meta, storage_id=StorageId(reset.storage))
        if (self.state.newest.unfit or "").startswith(RETRACTED):
            place = self.log.quarantine(self.state.hard_state.storage)
            _log.warning("set committed records aside", partition=self.meta.name, path=str(place))
        self._context.record_storage(self.meta)
        self.log.rebuild(reset.start, reset.last_term, reset.producers)
