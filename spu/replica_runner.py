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
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, Protocol, assert_never

from schemas.batch import build_control, read_header
from schemas.errors import (
    NotReadyError,
    OffsetOutOfRangeError,
    RunnelError,
    StorageFailedError,
)
from schemas.ids import PartitionUid, StorageId, election_term, format_term
from schemas.logs import get_logger
from schemas.messages import Assignment
from schemas.topic import Durability, LogSettings
from spu.follower_pushes import FollowerPushes
from spu.group_commit import GroupCommit
from spu.idle_checkpoints import IdleCheckpoints
from spu.journal_writer import JournalWriter
from spu.peer_connection import PeerConnection
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
from spu.space_watch import SpaceWatch
from spu.storage.data_dir import PartitionMeta, new_storage_id
from spu.storage.file_pool import FilePool
from spu.storage.journal import JournalChange, JournalEntry
from spu.storage.log import PartitionLog, RetiredFiles
from spu.storage.recovery import RecoveredLog
from spu.storage.segment import Damage
from spu.storage.space import Room
from spu.storage.sync_plan import CheckpointFailedError

_log = get_logger("spu.replica_runner")

#: What is not quiet is told so often that time has passed.
TICK_MS: Final = 1_000
#: An idle log gets a checkpoint at most so often.
_CHECKPOINT_IDLE_US: Final = 60_000_000
_DISK_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


class Surroundings(Protocol):
    """What an SPU gives all its replicas."""

    def connection(self, peer: int) -> PeerConnection | None:
        """The connection to another SPU, if there is one."""

    def ask(self, uid: PartitionUid, request: AskLrs | AskElection) -> None:
        """Ask the SC; the request may get lost."""


@dataclass(frozen=True, slots=True)
class ReplicaHome:
    """What all replicas of an SPU share. ``record_storage`` durably notes another storage id in a
    replica's directory, and blocks."""

    spu_id: int
    files: FilePool
    storage: Executor
    reads: Executor
    journal: JournalWriter
    clock_us: Callable[[], int]
    clock_ms: Callable[[], int]
    around: Surroundings
    record_storage: Callable[[PartitionMeta], None]
    space: SpaceWatch
    checkpoints: IdleCheckpoints


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
        self._commit = self._group_commit()
        self._inputs: deque[Input] = deque()
        self._stepping = False
        # Whether the log is longer than the core was told.
        self._untold = False
        self._ticked_ms = home.clock_ms()
        # When it got a checkpoint for being idle.
        self._checkpointed_us = -_CHECKPOINT_IDLE_US
        self._write: asyncio.Future[None] | None = None
        self._work: deque[tuple[Callable[[], None], Input]] = deque()
        self._working: asyncio.Task[None] | None = None
        self._cold: set[asyncio.Task[None]] = set()
        # The truncation that was looked up last.
        self._truncating = -1

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
        kept = self._newest.assignment if assignment is None else assignment
        entry = replace(self._newest, assigned=assignment is not None, assignment=kept)
        news = entry != self._newest
        self._newest = entry
        if assignment is not None:
            self.log.settings = assignment.log
        self.feed(Left() if learned is None else learned)
        self._truncate()
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
        self._commit.wake()
        self.idle = False
        if not self._untold:
            self._untold = True
            asyncio.get_running_loop().call_soon(self._tell_now)

    def tick(self, now_us: int) -> None:
        """Let time pass: the core's, truncation, retention, ``segment.time``, background fsyncs,
        deletion of what was truncated."""
        if not self._takes_part():
            self.idle = self._working is None
            return
        if not self.is_quiet:
            self._ticked_ms = self._home.clock_ms()
            self.feed(Tick())
        if not self._takes_part() or self._working is not None:
            return
        if self.log.roll_is_due(now_us):
            try:
                self.log.begin_next(now_us)
            except OSError as error:
                self.halt(f"a new segment cannot be made: {error}", error)
                return
        if self.state.leading is not None:
            self.log.apply_retention(now_us, self.state.lac + 1)
        self._truncate()
        self._commit.sync_now()
        if self.idle and not self.log.is_checkpointed:
            self._want_checkpoint(now_us)
        self._delete(self.log.take_expired(now_us))
        self.idle = self.is_quiet and not self.log.needs_sync

    def _want_checkpoint(self, now_us: int) -> None:
        """A log that gets a record now and then does not get a checkpoint for each, and what room
        is left is for what must be."""
        due = now_us - self._checkpointed_us >= _CHECKPOINT_IDLE_US
        if due and self._home.space.room is not Room.NONE:
            self._checkpointed_us = now_us
            self._home.checkpoints.want(self._checkpoint)

    async def _checkpoint(self) -> None:
        if self.idle and self._takes_part() and self._working is None:
            await self._commit.checkpoint()

    def free_space(self) -> None:
        """Delete what was truncated now, whatever its grace."""
        self._delete(self.log.take_expired(self._home.clock_us(), all_of_them=True))

    @property
    def visible_start(self) -> int:
        """The first offset that readers are shown: that of the SC's truncation, as far as all
        before it is committed. The log itself begins with the batch that holds it, or before."""
        return max(self.log.log_start, self.truncated)

    @property
    def truncated(self) -> int:
        """How far the SC's truncation has taken effect: never above what is committed."""
        assignment = self._newest.assignment
        wanted = 0 if assignment is None else assignment.truncate_before
        return min(wanted, self.state.lac + 1)

    def _truncate(self) -> None:
        """Let the log begin where readers are shown it. Each replica does so by itself, when it
        hears of it, however long it was away."""
        start = self.visible_start
        due = start > self.log.log_start and start != self._truncating
        if due and self._takes_part() and self._working is None:
            self._truncating = start
            self._cold.add(task := asyncio.create_task(self._truncate_to(start)))
            task.add_done_callback(self._cold.discard)

    async def _truncate_to(self, start: int) -> None:
        loop = asyncio.get_running_loop()
        try:
            start = await loop.run_in_executor(self._home.reads, self.log.batch_start, start)
        except (OffsetOutOfRangeError, NotReadyError, FileNotFoundError):
            # The log is another one by now: the next tick looks again.
            self._truncating = -1
        except (Damage, OSError) as error:
            self.fail(str(error))
        else:
            if self._takes_part() and self._working is None:
                self.log.truncate_prefix(start)
                self._commit.wake()

    def _delete(self, files: RetiredFiles) -> None:
        if files:
            loop = asyncio.get_running_loop()
            deletion = loop.run_in_executor(self._home.storage, self.log.delete_files, files)
            deletion.add_done_callback(self._deleted)

    def _deleted(self, deletion: asyncio.Future[None]) -> None:
        if (error := deletion.exception()) is not None:
            # They are no part of the log; the next start finds them again.
            name = self.meta.name
            _log.warning("could not delete truncated segments", partition=name, error=str(error))

    def _takes_part(self) -> bool:
        return self.halted is None and self.unfit is None and self.assigned

    def fail(self, reason: str) -> None:
        """Damage, or a failed fsync: unfit from now on, and what was being done to repair it is
        begun anew."""
        _log.error("replica is unfit", partition=self.meta.name, reason=reason)
        self._commit.stop()
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
        sound = self.unfit is None and self._damage is None and not self._commit.held
        if keep and sound:
            await self._commit.finish()
        self._commit.stop()
        await self._commit.quiet()
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
                self._commit.wake()
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
        assignment = self._newest.assignment
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
        self._commit.wake()
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
        self._commit.hold()
        self._work.append((work, done))
        if self._working is None:
            loop = asyncio.get_running_loop()
            self._working = loop.create_task(self._work_off(), name=f"cut {self.meta.name}")

    async def _work_off(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._work:
                work, done = self._work.popleft()
                await self._commit.quiet()
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
                    self._commit = self._group_commit()
                    self._damage = None
                if not self._work:
                    self._commit.release()
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
