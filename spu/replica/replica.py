"""One partition on this SPU, as clients see it: produce, fetch, and requests that wait.

The replication core, which `spu.replica.runner` runs, decides the replica's role (leader, follower,
unfit) and when a record is committed. This module serves what the core's state allows:

- Only a leader takes records, and acknowledges them when ``acks`` asks for it.
- Until a replica that takes over may append, produce requests wait (`spu.replica.held_produces`).
  Until the control record of its leadership is committed, nothing behind that is acknowledged with
  ``acks: committed``, and queries for the end of the log get NOT_READY.
- Readers see nothing above the last add confirmed (LAC). A follower serves the records that it
  knows to be committed, to readers that allow a follower.

The event loop owns all state. Disk work that may wait runs in threads: `spu.replica.group_commit`
for fsyncs, the listener's read threads for old data.

Neighbours: `spu.replica.appends` takes batches, `spu.replica.preconditions` and
`spu.replica.fetch_checks` say what is refused, `spu.replica.offsets` looks up offsets in the log,
and `spu.replica.status` says what to report to the SC.
"""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from schemas.control.messages import Assignment, Lead, ReplicaReport, ReplicaRole
from schemas.control.statistics import ReplicaNumbers
from schemas.errors import (
    NotFoundError,
    NotLeaderError,
    NotReadyError,
    OverloadedError,
    RunnelError,
    StorageFailedError,
)
from schemas.objects.topic import Durability, LogSettings
from schemas.wire.protocol import MAX_FETCH_BYTES
from schemas.wire.record_requests import (
    AnswerFlags,
    FetchFlags,
    FetchRequest,
    FetchResponse,
    ProduceRequest,
)
from spu.load.verdict import SegmentLoad
from spu.replica.appends import ReplicaAppends
from spu.replica.assignment import lead_event, update_event
from spu.replica.commit_watch import CommitWatch
from spu.replica.context import ReplicaContext
from spu.replica.fetch_checks import require_agreement, truncated
from spu.replica.held_produces import Answer, Cancellable
from spu.replica.offsets import ReplicaOffsets
from spu.replica.preconditions import Preconditions
from spu.replica.runner import ReplicaRunner
from spu.replica.status import ReplicaStatus
from spu.replica.waiters import (
    MAX_WAIT_MS,
    Callback,
    Listener,
    Listeners,
    RecordWaiters,
    Waiter,
)
from spu.replication.events import Failed, LinkDown, LinkUp, Received, Resume
from spu.replication.messages import Message
from spu.replication.state import UNCLEAN_BOOT, is_excused
from spu.replication.wire import Damaged
from spu.storage.data_dir import PartitionMeta
from spu.storage.durable import is_shortage
from spu.storage.journal import JournalEntry
from spu.storage.log import PartitionLog
from spu.storage.recovery import RecoveredLog
from spu.storage.segment import Damage


@dataclass(frozen=True, slots=True)
class Found:
    """What a fetch found. ``enough``: answer now; if it is False, waiting may bring more.

    ``data``: whole batches, or where they lie. ``next_offset`` and ``last_term`` are those of the
    last batch in it; if there is none, they are the requested offset and 0.
    """

    response: FetchResponse
    data: memoryview
    enough: bool
    next_offset: int
    last_term: int


class Replica:
    """See the module's docstring. ``changed`` is called when a report would differ. ``fresh``: its
    directory was created just now."""

    def __init__(
        self,
        context: ReplicaContext,
        meta: PartitionMeta,
        entry: JournalEntry,
        directory: Path,
        found: RecoveredLog,
        changed: Callable[[Replica], None],
        *,
        fresh: bool = False,
    ) -> None:
        self._context = context
        self._changed = changed
        self._records = RecordWaiters()
        self._listeners = Listeners()
        # These wait for a version of the log's segments.
        self._segments = RecordWaiters()
        self._runner = ReplicaRunner(context, meta, entry, directory, found, self, fresh=fresh)
        self._log = self._runner.log
        self._preconditions = Preconditions(context.spu_id, self._runner)
        self._commit_watch = CommitWatch()
        self._load = SegmentLoad()
        self._appends = ReplicaAppends(
            context, self._runner, self._preconditions, self._load, self.written
        )
        self._status = ReplicaStatus(self._runner, self._preconditions, context.space, self._load)
        #: Where offsets, times, transaction ids and segments are in its log.
        self.offsets = ReplicaOffsets(self._runner, self._preconditions)
        # Next offset and byte count of appended batches that are not committed.
        self._uncommitted: deque[tuple[int, int]] = deque()
        self._committed_bytes = self._log.written_bytes if self.lac + 1 >= found.leo else 0
        self._waking = False
        self._verifying: asyncio.Task[None] | None = None
        self._reported = self._status.summary()
        self._reported_refusal = self._status.refuses_because
        self._reported_end = found.leo

    # State

    @property
    def meta(self) -> PartitionMeta:
        return self._runner.meta

    @property
    def entry(self) -> JournalEntry:
        """Its entry in the journal."""
        return self._runner.entry

    @property
    def settings(self) -> LogSettings:
        return self._runner.settings

    @property
    def lac(self) -> int:
        """The last committed offset that it knows."""
        return self._runner.state.lac

    @property
    def fit(self) -> bool:
        return self._status.fit

    @property
    def role(self) -> ReplicaRole:
        return self._status.role

    @property
    def is_idle(self) -> bool:
        """Whether nothing has happened since the last tick, which left nothing to do soon."""
        return self._runner.idle

    @property
    def is_stalled(self) -> bool:
        """Whether it leads, and has committed nothing for a while although records wait."""
        return self._runner.state.leading is not None and self._commit_watch.stalled

    @property
    def is_halted(self) -> bool:
        """Whether a failed write halted it: not all that it holds can be made durable."""
        return isinstance(self._runner.halted, StorageFailedError)

    @property
    def is_kept(self) -> bool:
        """Once it is closed and the journal is written: whether all that it holds is on the disk,
        or the journal says that it may not be."""
        is_unfit = self.entry.hard_state.unfit is not None
        return is_unfit or not (self.is_halted or self._runner.commit.broken)

    @property
    def awaits_room(self) -> bool:
        """Whether a full disk or another shortage halted it, so that it may be opened again."""
        return self._runner.awaits_room

    @property
    def is_serving(self) -> bool:
        """Whether it leads and has committed the control record of its own term."""
        return self._preconditions.is_serving

    @property
    def peers(self) -> frozenset[int]:
        """The other SPUs that hold a replica; none if this one is not assigned."""
        held = self._runner.state.newest.replicas if self._runner.assigned else ()
        return frozenset(held) - {self._context.spu_id}

    @property
    def log_start(self) -> int:
        """The first offset that readers see."""
        return self._runner.maintenance.visible_start

    @property
    def leo(self) -> int:
        return self._log.leo

    @property
    def size_bytes(self) -> int:
        return self._log.size_bytes

    @property
    def stored_bytes(self) -> int:
        """Bytes of its files, truncated segments included."""
        return self._log.size_bytes + self._log.truncated.size_bytes

    def follower_lags(self) -> dict[int, int]:
        """If it leads: how many offsets of its log each follower, by its SPU's id, has not
        acknowledged in this leadership. Else nothing."""
        leading = self._runner.state.leading
        if leading is None:
            return {}
        leo, start = self._log.leo, self._log.log_start
        return {one.spu: max(0, leo - max(one.acked, start)) for one in leading.followers}

    def follows_since(self, term: int) -> bool:
        """Whether it knows of a leadership later than ``term`` that serves: of its term something
        is committed."""
        state = self._runner.state
        if state.leading is not None or not state.log.history:
            return False
        newest = state.log.history[-1]
        return newest.term > term and newest.start <= state.lac

    def free_space(self) -> None:
        """Delete truncated segments now, whatever their grace."""
        self._runner.maintenance.free_space()

    def report(self) -> ReplicaReport:
        """Its state for the SC."""
        return self._status.report()

    # Orders of the SC, and messages of peers

    def numbers(self) -> ReplicaNumbers:
        """Its numbers for the SC."""
        return ReplicaNumbers(
            self.meta.uid, self.log_start, self.lac + 1, self._log.leo, self._log.size_bytes
        )

    def begin(self, *, unclean_boot: bool) -> None:
        """Go on with the hard state from before the restart. Call this first, assigned or not, so
        that damage is known before the replica may lead. ``unclean_boot``: the host lost its
        page cache."""
        relies_on_memory = self.settings.durability is Durability.REPLICATED
        self._runner.begin(Failed(UNCLEAN_BOOT) if unclean_boot and relies_on_memory else Resume())

    def assign(self, assignment: Assignment | None, incarnation: int) -> None:
        """Hold the partition as ``assignment`` says; None: it is no longer assigned. An older
        assignment changes nothing. `recorded` waits until this is durable."""
        runner = self._runner
        if assignment is None:
            if runner.assigned:
                runner.hold(None, None)
                self._fail_waiters(self._preconditions.unassigned())
            return
        known = runner.state.newest
        version = (incarnation, assignment.revision)
        same = runner.assigned and runner.entry.assignment == assignment
        if version < known.version:
            return
        if same and version == known.version and runner.state.confirmed:
            return
        runner.hold(assignment, update_event(assignment, incarnation, known))

    async def recorded(self) -> None:
        """Wait until all its changes are in the journal. Raises StorageFailedError."""
        await self._runner.recorded()

    async def lead(self, lead: Lead, incarnation: int) -> None:
        """Begin a leadership at an election term; returns once its hard state is durable.

        A replica that already leads at this term goes on unchanged. In every other case the term's
        restart count rises if the disk holds the election term. Raises FencedError for an older
        term or revision, ConflictError if the set does not hold this storage, the error of a
        replica that serves no request at all, and StorageFailedError if the journal cannot be
        written.
        """
        unclean = lead.unclean_term == lead.term
        refusal = self._preconditions.failure
        excused = self._runner.halted is None and is_excused(self._runner.unfit)
        if refusal is not None and not (unclean and excused):
            raise refusal
        runner = self._runner
        assignment = runner.entry.assignment
        order = lead_event(self.meta.name, lead, incarnation, runner.state, assignment)
        runner.step(order)
        await runner.recorded()

    def linked(self, peer: int) -> None:
        """There is a connection to another SPU."""
        if peer in self.peers and peer not in self._runner.state.links:
            self._runner.step(LinkUp(peer))

    def unlinked(self, peer: int) -> None:
        """The connection to another SPU is gone."""
        if peer not in self._runner.state.links:
            return
        following = self._runner.state.following
        self._runner.step(LinkDown(peer))
        if following is not None and following.leader == peer:
            # The SC may have to elect a leader: it should know where this log ends.
            self._tell()

    def said(self, peer: int, message: Message | Damaged) -> None:
        """Take a message of another replica; ignored if this one is not assigned."""
        if not self._runner.assigned:
            return
        if isinstance(message, Damaged):
            if self._verifying is None or self._verifying.done():
                verifying = self._runner.pushes.verify_unacknowledged(peer, message)
                self._verifying = asyncio.get_running_loop().create_task(verifying)
        else:
            self._runner.step(Received(peer, message))

    # Requests

    def produce(
        self, request: ProduceRequest, batch: memoryview, answer: Answer
    ) -> Cancellable | None:
        """See `ReplicaAppends.produce`."""
        return self._appends.produce(request, batch, answer)

    def fetch(self, request: FetchRequest, *, wait: bool = False) -> Found:
        """The records that a fetch can get now. With ``wait``, call it from a thread.

        Raises BlockingIOError without ``wait`` if the disk is needed or the batches are to be
        verified, OffsetOutOfRangeError, NotLeaderError, DivergedError; Damage and OSError, which
        the caller passes to `damaged`.
        """
        began_s = perf_counter()
        found = self._find(request, wait=wait)
        if found.data:
            counters = self._context.counters
            histogram = counters.disk_read if wait else counters.cached_read
            histogram.observe(perf_counter() - began_s)
        return found

    def _find(self, request: FetchRequest, *, wait: bool) -> Found:
        # Read once: while a thread is in here, the state may change at any time.
        state = self._runner.state
        self._preconditions.require_readable(
            state, follower_ok=FetchFlags.FOLLOWER_OK in request.flags
        )
        require_agreement(self.meta.name, state, request)
        lac, log_start = state.lac, self.log_start
        if request.offset < log_start:
            raise truncated(self.meta.name, request.offset, log_start)
        max_bytes = min(request.max_bytes, MAX_FETCH_BYTES)
        verified = FetchFlags.VERIFIED in request.flags
        if verified and not wait:
            raise BlockingIOError(errno.EAGAIN, "the batches are to be verified")
        try:
            if FetchFlags.LOCATE in request.flags and not verified:
                place = self._log.place(request.offset, lac + 1, wait=wait)
                if place is not None:
                    response = FetchResponse(log_start, lac, AnswerFlags.LOCATED)
                    return Found(response, memoryview(place.pack()), True, request.offset, 0)
            result = (
                self._log.read_verified(request.offset, max_bytes, lac + 1)
                if verified
                else self._log.read(request.offset, max_bytes, lac + 1, wait=wait)
            )
        except BlockingIOError:
            raise
        except FileNotFoundError as error:
            gone = truncated(self.meta.name, request.offset, self.log_start)
            raise self._preconditions.failure or gone from error
        length = len(result.data)
        enough = length >= min(request.min_bytes, max_bytes) or (
            # The read stopped at the end of a segment or of the request, not of the log.
            length > 0 and result.next_offset <= lac
        )
        response = FetchResponse(log_start, lac)
        return Found(response, result.data, enough, result.next_offset, result.last_term)

    def when_more(self, request: FetchRequest, found_bytes: int, on_done: Callback) -> Waiter:
        """Wait for the bytes that ``request`` lacks, at most for its time; see `RecordWaiters`."""
        return self._records.add(
            asyncio.get_running_loop(),
            max(request.offset, self.lac + 1),
            self._committed_bytes + min(request.min_bytes, request.max_bytes) - found_bytes,
            min(request.max_wait_ms, MAX_WAIT_MS),
            on_done,
        )

    def listen(self, on_done: Callback) -> Listener:
        """Call ``on_done`` for every commit (None), and once with the error that ends it."""
        return self._listeners.add(on_done)

    def when_segments_change(self, max_wait_ms: int, on_done: Callback) -> Waiter:
        """Wait until a segment begins, is completed, truncated or deleted; see
        `RecordWaiters`."""
        loop = asyncio.get_running_loop()
        wait_ms = min(max_wait_ms, MAX_WAIT_MS)
        return self._segments.add(loop, self._log.version + 1, 0, wait_ms, on_done)

    def verifiable(self) -> tuple[PartitionLog, int]:
        """Its log, and the offset below which the log must be whole: everything below it is durable
        or committed. Threads may read there while the log is used.

        Raises the errors with which reads are refused, and NotReadyError while the log is cut or
        replaced.
        """
        state = self._runner.state
        self._preconditions.require_readable(state, follower_ok=True)
        if not state.log_is_steady:
            raise NotReadyError(f"the log of {self.meta.name} is being cut here; try again")
        return self._log, max(self._log.durable_leo, state.lac + 1)

    # Time, damage and the end

    def tick(self, now_us: int) -> None:
        """Let time pass. A follower that is not in the LRS yet reports where its log ends."""
        self._runner.tick(now_us)
        self._watch_commits()
        self._tell_of_segments()
        if self._status.refuses_because != self._reported_refusal:
            self.moved()
        state = self._runner.state
        measured = self.settings.load if state.may_append and state.sealed_end is None else None
        if self._load.tick(self._context.clock_ms(), measured):
            self.moved()
        joining = state.following is not None and state.me not in state.hard_state.lrs
        if joining and self._reported_end != state.log.durable:
            self._tell()

    def damaged(self, error: Damage | OSError) -> RunnelError:
        """A read met damage or a failing disk: become unfit. Returns the error for the client.

        A shortage of the process is neither: the client may try again."""
        if is_shortage(error):
            return OverloadedError(f"the SPU is short of resources: {error}")
        self._runner.fail(str(error))
        return self._preconditions.failure or StorageFailedError(str(error))

    async def close(self) -> None:
        """Make everything durable, write a checkpoint, close the files."""
        self._runner.halt(NotLeaderError(f"SPU {self._context.spu_id} is shutting down"))
        await self._runner.close(keep=True)

    async def abandon(self) -> None:
        """Stop before its deletion: requests that wait get NotFoundError."""
        gone = NotFoundError(f"partition {self.meta.name} ({self.meta.uid}) was deleted")
        self._fail_waiters(gone)
        self._runner.halt(gone)
        await self._runner.close(keep=False)

    # RunnerListener: called by the runner

    def written(self) -> None:
        self._uncommitted.append((self._log.leo, self._log.written_bytes))

    def synced(self) -> None:
        self._appends.synced()
        self._tell_of_segments()

    def committed(self) -> None:
        lac, uncommitted = self.lac, self._uncommitted
        while uncommitted and uncommitted[0][0] <= lac + 1:
            self._committed_bytes = uncommitted.popleft()[1]
        if self._runner.state.leading is not None:
            self._appends.committed()
        if (len(self._records) or len(self._listeners)) and not self._waking:
            # Once for all commits that the loop handles now: readers, too, gain from batches.
            self._waking = True
            asyncio.get_running_loop().call_soon(self._wake_readers)

    def log_replaced(self) -> None:
        end = self._log.leo
        self._uncommitted = deque(entry for entry in self._uncommitted if entry[0] <= end)

    def stepped_down(self, reason: str) -> None:
        self._fail_waiters(self._preconditions.failure or self._preconditions.not_leading())

    def moved(self) -> None:
        summary = self._status.summary()
        if summary != self._reported:
            self._reported = summary
            self._reported_refusal = self._status.refuses_because
            if (refusal := self._preconditions.failure) is not None:
                self._fail_waiters(refusal)
            self._tell()
        self._appends.moved()

    # How

    def _watch_commits(self) -> None:
        if self._runner.state.leading is None:
            self._commit_watch = CommitWatch()
        else:
            self._commit_watch.observe(self.lac, self._log.leo, self._context.clock_ms())

    def _tell(self) -> None:
        self._reported_end = self._runner.state.log.durable
        self._changed(self)

    def _tell_of_segments(self) -> None:
        self._segments.release(self._log.version, 0)

    def _wake_readers(self) -> None:
        self._waking = False
        self._records.release(self.lac, self._committed_bytes)
        self._listeners.release()

    def _fail_waiters(self, error: RunnelError) -> None:
        self._appends.fail(error)
        for waiters in (self._records, self._segments):
            waiters.fail(error)
        self._listeners.fail(error)
