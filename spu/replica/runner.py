"""Runs the replication core of one replica: inputs in, outputs to the disk, the peers and the SC.

The core (`spu.replication.core`) decides; this carries out, in order, what it puts out, and tells
it what became of that. Invariants that the core asks of whoever runs it:

- what was appended (`wrote`) is told before anything else is. All that arrives in one turn of the
  loop is told at once: many small batches cost the core one input;
- no fsync that began before a cut is told after it: runs of group commit are held back while the
  log is cut or replaced, in a storage thread, one such work after the other;
- a promise is told as durable when the journal's write of it is done, in order.

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
from spu.replica.context import ReplicaHome
from spu.replica.follower_push import FollowerPushes
from spu.replica.group_commit import GroupCommit
from spu.replica.log_maintenance import LogUpkeep
from spu.replication.core import step
from spu.replication.events import (
    AppendControl,
    AskElection,
    AskLrs,
    Committed,
    CutLog,
    Dropped,
    DropPrefix,
    Failed,
    Input,
    LeadsOn,
    Learned,
    Left,
    Output,
    Promised,
    Push,
    Rebuild,
    Rebuilt,
    Record,
    Repair,
    Resume,
    Send,
    SteppedDown,
    Store,
    Synced,
    Tick,
    Truncated,
    WantStorage,
    Wrote,
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


class Watcher(Protocol):
    """Who serves clients from the replica."""

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
        """Inputs were worked off: what a report says may be different."""


class ReplicaRunner:
    """See the module's text. ``entry`` is what the journal holds, ``state`` what the core knows."""

    def __init__(
        self,
        home: ReplicaHome,
        meta: PartitionMeta,
        entry: JournalEntry,
        directory: Path,
        found: RecoveredLog,
        watcher: Watcher,
    ) -> None:
        self.meta = meta
        self.entry = entry
        self.halted: RunnelError | None = None
        self.awaits_room = False
        #: Nothing happened since a tick that left nothing but what time alone brings.
        self.idle = False
        self._home = home
        self._watcher = watcher
        self._damage = found.unfit
        # The newest entry on its way to the journal: each write holds all of it.
        self._newest = entry
        settings = entry.assignment.log if entry.assignment else meta.log
        self.log = PartitionLog(directory, settings, home.files, found)
        view = LogView(found.log_start, found.leo, found.leo, found.history)
        lac = max(found.lac, found.log_start - 1)
        boot = f"{random.getrandbits(64):016x}"
        self.state: ReplicaState = recovered(home.spu_id, boot, entry.promise, view, lac)
        self.pushes = FollowerPushes(self, meta.uid, meta.name, home.reads, home.storage)
        self.upkeep = LogUpkeep(self, home)
        self.commit = self._group_commit()
        self._inputs: deque[Input] = deque()
        self._stepping = False
        # Whether the log is longer than the core was told.
        self._untold = False
        self._ticked_ms = home.clock_ms()
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
        others = (spu for spu in state.promise.replicas if spu != state.spu)
        return all(self._is_settled(leading, spu) for spu in others)

    def _is_settled(self, leading: Leading, spu: int) -> bool:
        """Whether a follower is live and has everything, or is away and nobody waits for it."""
        state = self.state
        progress = progress_of(leading, spu)
        live = any(member.spu == spu for member in state.promise.lrs)
        if spu not in state.links:
            return not live
        return (
            progress is not None
            and progress.matched
            and progress.position == state.log.leo
            and progress.told == state.lac
            and progress.member in state.promise.lrs
        )

    # What it is told

    def feed(self, event: Input) -> None:
        """Take an input, and carry out everything that follows from it before this returns,
        unless it comes while others are worked off: then it is the next."""
        self.idle = False
        if not self._stepping:
            self._tell_of_writes()
            if not isinstance(event, Tick):
                self.tell_time()
        self._inputs.append(event)
        self._work_off_inputs()

    def tell_time(self) -> None:
        """While all was quiet time was not told, and nobody may be taken for late for that. Before
        a record is written: what is written is told before time is."""
        if self._untold or self.state.leading is None:
            return
        now_ms = self._home.clock_ms()
        if now_ms - self._ticked_ms >= 2 * TICK_MS:
            self._ticked_ms = now_ms
            self.feed(Tick())

    def begin(self, how: Resume | Failed) -> None:
        """Tell it first of all what its log is like: damaged, or what ``how`` says."""
        self.feed(how if self._damage is None else Failed(self._damage))

    def hold(self, assignment: Assignment | None, learned: Learned | None) -> None:
        """Be assigned as ``assignment`` says, and take what it says of leader and set; None: not
        assigned any more, and its settings stay. `recorded` waits for the journal."""
        kept = self.assignment if assignment is None else assignment
        entry = replace(self._newest, assigned=assignment is not None, assignment=kept)
        news = entry != self._newest
        self._newest = entry
        if assignment is not None:
            self.log.settings = assignment.log
        self.feed(Left() if learned is None else learned)
        self.upkeep.truncate()
        if news and self._newest is entry:
            self._submit(entry)

    async def recorded(self) -> None:
        """Wait until what it was told is in the journal. Raises StorageFailedError."""
        while (write := self._write) is not None and not write.done():
            await asyncio.wait([write])
        if write is not None:
            write.result()

    def wrote(self) -> None:
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
            self._ticked_ms = self._home.clock_ms()
            self.feed(Tick())
        if not self.may_write:
            return
        self.upkeep.tick(now_us)
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
        self.feed(Failed(reason))

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
            self._carry_out(output)
        # What it promised stays: after a restart it goes on leading.
        self.state = replace(self.state, leading=None, becoming=None, following=None)
        self._watcher.stepped_down(error.message)
        self._watcher.moved()

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
        self._work_off_inputs()

    def _tell_of_writes(self) -> None:
        """Have what was appended be the next input, if it was not told yet."""
        if self._untold:
            self._untold = False
            self._inputs.append(Wrote(self.log.leo))
            if self.settings.durability is Durability.REPLICATED:
                # The page cache is enough.
                self._inputs.append(Synced(self.log.orderly_leo))

    def _work_off_inputs(self) -> None:
        if self._stepping or not self._inputs:
            return
        self._stepping = True
        try:
            while self._inputs:
                self._step(self._inputs.popleft())
        finally:
            self._stepping = False
        self._watcher.moved()

    def _step(self, event: Input) -> None:
        if self.halted is not None and not isinstance(event, Learned | Left | Promised):
            return
        self.state, outputs = step(self.state, event, self._home.clock_ms())
        for output in outputs:
            if self.halted is not None and not isinstance(output, Record):
                continue
            try:
                self._carry_out(output)
            except OSError as error:
                # A full disk loses nothing that was acknowledged.
                self.halt(f"a write failed: {error}", error)
            except RunnelError as error:
                self.halt(f"the log does not take what its leader sent: {error.message}")

    def _carry_out(self, output: Output) -> None:
        match output:
            case Record(promise):
                self._submit(replace(self._newest, promise=promise))
            case AppendControl(term):
                self._append_control(term)
            case LeadsOn(term):
                _log.debug("leading again", partition=self.meta.name, term=format_term(term))
            case Store(batches):
                self._home.space.require_last_room()
                now_us = self._home.clock_us()
                self.log.append_batches([batch.data for batch in batches], now_us)
                self._watcher.written()
                self._follow_up()
            case CutLog(leo):
                self._replace_log(partial(self.log.truncate_suffix, leo), Truncated())
            case Rebuild():
                self._replace_log(partial(self._rebuild, output), Rebuilt(output.storage))
            case DropPrefix(start):
                self.log.truncate_prefix(start)
                self.commit.wake()
            case WantStorage():
                self.feed(Repair(new_storage_id()))
            case Send(to, message):
                if (connection := self._home.around.connection(to)) is None:
                    return
                if isinstance(message, Reset):
                    producers = self.log.known_before(message.start)
                    message = replace(message, producers=producers)
                connection.send(self.meta.uid, message)
            case Push():
                if (connection := self._home.around.connection(output.to)) is not None:
                    connection.push(partial(self.pushes.push, output, connection))
            case AskLrs() | AskElection():
                self._home.around.ask(self.meta.uid, output)
            case Committed():
                self._watcher.committed()
            case SteppedDown(reason):
                _log.info("leads no longer", partition=self.meta.name, reason=reason)
                self._watcher.stepped_down(reason)
            case _:
                assert_never(output)

    def _append_control(self, term: int) -> None:
        now_us = self._home.clock_us()
        assignment = self.assignment
        # Whoever reads the log can see where an unclean election may have taken records away.
        elected = election_term(term)
        begins = election_term(self.log.last_term) < elected
        unclean = begins and assignment is not None and assignment.unclean_term == elected
        control = build_control("unclean term" if unclean else "term", now_us)
        offset = self.log.append(memoryview(control), read_header(control), term, now_us)
        name = self.meta.name
        _log.info("leading", partition=name, term=format_term(term), offset=offset)
        self._watcher.written()
        self._follow_up()

    # The journal

    def _submit(self, entry: JournalEntry) -> None:
        self._newest = entry
        self._write = self._home.journal.submit(JournalChange((entry,)))
        self._write.add_done_callback(partial(self._recorded, entry))

    def _recorded(self, entry: JournalEntry, write: asyncio.Future[None]) -> None:
        error = write.exception()
        if error is not None:
            self.halt(f"the journal cannot be written: {error}")
            return
        self.entry = entry
        self.feed(Promised(entry.promise))

    # The log

    def _follow_up(self) -> None:
        """Something was written: make it durable, or count it where the page cache is enough."""
        self.commit.wake()
        if self.settings.durability is Durability.REPLICATED:
            self.feed(Synced(self.log.orderly_leo))

    def _synced(self) -> None:
        if self.log.log_start > self.state.log.start:
            self.feed(Dropped(self.log.log_start))
        fsync = self.settings.durability is Durability.FSYNC
        self._watcher.synced()
        self.feed(Synced(self.log.durable_leo if fsync else self.log.orderly_leo))

    def _sync_failed(self, error: BaseException) -> None:
        if isinstance(error, CheckpointFailedError):
            # The log itself is whole: the next start reads more of it, and that is all.
            self.halt(f"a checkpoint cannot be written: {error}", error)
        else:
            self.fail(f"an fsync failed: {error}")

    def _group_commit(self) -> GroupCommit:
        return GroupCommit(
            self.log,
            self._home.storage,
            lac=lambda: self.state.durable_lac,
            clock_us=self._home.clock_us,
            synced=self._synced,
            failed=self._sync_failed,
        )

    def _replace_log(self, work: Callable[[], None], done: Input) -> None:
        """Cut or replace the log in a storage thread, after what is being done to it."""
        self.commit.hold()
        self._work.append((work, done))
        if self._working is None:
            loop = asyncio.get_running_loop()
            self._working = loop.create_task(self._work_off(), name=f"cut {self.meta.name}")

    async def _work_off(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._work:
                work, done = self._work.popleft()
                await self.commit.quiet()
                try:
                    await loop.run_in_executor(self._home.storage, work)
                except (Damage, OSError, RunnelError) as error:
                    if isinstance(error, OSError) and error.errno in _DISK_FULL:
                        self.halt(f"the log cannot be cut: {error}", error)
                    else:
                        self.fail(f"the log cannot be cut: {error}")
                    continue
                if isinstance(done, Rebuilt):
                    # The one before may have ended with the log that it was for.
                    self.commit = self._group_commit()
                    self._damage = None
                if not self._work:
                    self.commit.release()
                self._watcher.log_replaced()
                self.feed(done)
                # What a cut leaves is durable.
                self.feed(Synced(self.log.durable_leo))
        finally:
            self._working = None

    def _rebuild(self, wish: Rebuild) -> None:
        """Begin anew under another storage id, which is in the journal already. Blocks."""
        self.meta = replace(self.meta, storage_id=StorageId(wish.storage))
        if (self.state.newest.unfit or "").startswith(RETRACTED):
            place = self.log.set_aside(self.state.promise.storage)
            _log.warning("set committed records aside", partition=self.meta.name, path=str(place))
        self._home.record_storage(self.meta)
        self.log.rebuild(wish.start, wish.last_term, wish.producers)
