"""One partition on this SPU: its role, what it appends and when that counts.

A replica is idle, leads, or is stopped (not assigned any more, unfit, being deleted).
Invariants:

- A leadership's term, live replica set and revision are durable before it appends anything, and
  no term is used twice: where the disk holds the election term already, the restart count rises.
- The first record of a leadership is a control record of its own term. Until it is committed,
  committed produce and queries for the end are NOT_READY. The role LEADER is set last.
- Nothing above the last add confirmed (LAC) is shown to readers.
- A failed write or fsync stops the replica for good; it is never tried again.

The event loop owns all state. Disk work that may wait runs in threads: `spu.group_commit` for
fsyncs, the listener's read threads for old data.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from schemas.batch import BatchHeader, build_control, read_header
from schemas.errors import (
    ConflictError,
    FencedError,
    InvalidRequestError,
    NotEnoughReplicasError,
    NotFoundError,
    NotLeaderError,
    NotReadyError,
    OffsetOutOfRangeError,
    RunnelError,
    StorageFailedError,
)
from schemas.ids import Term, election_term, format_term
from schemas.logs import get_logger
from schemas.messages import Assignment, ReplicaReport, ReplicaRole
from schemas.partition import LiveReplica
from schemas.protocol import (
    EARLIEST,
    LATEST,
    MAX_FETCH_BYTES,
    NO_OFFSET,
    Acks,
    FetchRequest,
    FetchResponse,
    ListOffsetsResponse,
    ProduceRequest,
    ProduceResponse,
)
from schemas.topic import Durability, LogSettings
from spu.admission import admit
from spu.group_commit import GroupCommit
from spu.journal_writer import JournalWriter
from spu.replication.commit import CommitRule
from spu.replication.terms import next_term
from spu.storage.data_dir import PartitionMeta
from spu.storage.file_pool import FilePool
from spu.storage.journal import JournalChange, JournalEntry
from spu.storage.log import CheckpointFailedError, PartitionLog
from spu.storage.recovery import RecoveredLog
from spu.storage.segment import Damage
from spu.waiters import OffsetWaiters, RecordWaiters, Told, Waiter

_log = get_logger("spu.replica")

MAX_WAIT_MS: Final = 600_000

Answer = Callable[[ProduceResponse | RunnelError], None]


@dataclass(frozen=True, slots=True)
class ReplicaHome:
    """What all replicas of an SPU share. ``changed`` is called when a report would differ."""

    spu_id: int
    files: FilePool
    storage: Executor
    journal: JournalWriter
    clock_us: Callable[[], int]
    changed: Callable[[Replica], None]


@dataclass(frozen=True, slots=True)
class Found:
    """What a fetch found. ``enough``: answer now; otherwise more may come by waiting."""

    response: FetchResponse
    data: memoryview
    enough: bool


class Replica:
    """See the module's text. ``entry`` is what the journal holds of it."""

    def __init__(
        self,
        home: ReplicaHome,
        meta: PartitionMeta,
        entry: JournalEntry,
        directory: Path,
        found: RecoveredLog,
    ) -> None:
        self.meta = meta
        self.entry = entry
        self.lac = max(found.lac, found.log_start - 1)
        self.role = ReplicaRole.IDLE
        self._home = home
        self._me = (home.spu_id, meta.storage_id)
        self._found = found
        self._log = PartitionLog(directory, self.settings, home.files, found)
        self._commit = GroupCommit(
            self._log,
            home.storage,
            lac=lambda: self.lac,
            synced=self._synced,
            failed=self._sync_failed,
        )
        self._rule: CommitRule[tuple[int, str]] | None = None
        self._term = Term(0)
        self._stopped_by: RunnelError | None = None
        self._lead_lock = asyncio.Lock()
        self._commits = OffsetWaiters()
        self._writes = OffsetWaiters()
        self._records = RecordWaiters()
        # Next offset and byte count of appended batches that are not committed.
        self._uncommitted: deque[tuple[int, int]] = deque()
        self._committed_bytes = self._log.written_bytes if self.lac + 1 >= found.leo else 0
        self._waking = False
        unfit = found.unfit or entry.unfit
        if unfit is not None:
            self._stop(StorageFailedError(self._naming(unfit)))
        elif not entry.assigned:
            self._stop(self._unassigned())

    # What it is

    @property
    def settings(self) -> LogSettings:
        """The current log settings: of the assignment, or those it was made with."""
        return self.entry.assignment.log if self.entry.assignment else self.meta.log

    @property
    def fit(self) -> bool:
        return not isinstance(self._stopped_by, StorageFailedError)

    @property
    def can_resume(self) -> bool:
        """May it lead again without being told: it led, and needs nobody else for a commit?"""
        me = LiveReplica(spu_id=self._home.spu_id, storage_id=self.meta.storage_id)
        return self.entry.leading and self._stopped_by is None and self.entry.lrs == (me,)

    @property
    def is_serving(self) -> bool:
        """Leading, with the own-term control record committed."""
        return self._rule is not None and self.lac >= self._rule.control_offset

    @property
    def log_start(self) -> int:
        return self._log.log_start

    @property
    def leo(self) -> int:
        return self._log.leo

    @property
    def size_bytes(self) -> int:
        return self._log.size_bytes

    def report(self) -> ReplicaReport:
        """Its state for the SC."""
        return ReplicaReport(
            uid=self.meta.uid,
            storage_id=self.meta.storage_id,
            role=self.role,
            term=self.entry.term,
            revision=self.entry.revision,
            lrs=self.entry.lrs,
            log_start=self._log.log_start,
            leo=self._log.leo,
            last_term=Term(self._log.last_term),
            fit=self.fit,
            assigned=self.entry.assigned,
            reason=self._stopped_by.message if self._stopped_by else None,
        )

    # What it is told

    async def lead(self, term: Term, lrs: tuple[LiveReplica, ...], revision: int) -> None:
        """Begin a leadership at an election term; returns once its control record is written.

        A replica that leads at this term already, and was told a newer revision or this one,
        goes on as it is. In every other case the term's restart count rises if the disk holds
        the election term. Raises FencedError for an older term or revision and when the restart
        counts are used up, ConflictError if the set does not hold this storage,
        StorageFailedError if it is unfit.
        """
        async with self._lead_lock:
            if self._stopped_by is not None:
                raise self._stopped_by
            term = election_term(term)
            if self._rule is not None and election_term(self._term) == term:
                if revision <= self.entry.revision:
                    return
            elif revision < self.entry.revision:
                lrs, revision = self._newer_wish(term, revision)
            members = frozenset((member.spu_id, member.storage_id) for member in lrs)
            if self._me not in members:
                raise ConflictError(
                    f"{self.meta.name} cannot lead: storage {self.meta.storage_id} of SPU"
                    f" {self._home.spu_id} is not in the live replica set it was sent"
                )
            term = next_term(term, max(self.entry.term, self._log.last_term))
            # No appends between two terms: the role comes back when the new one is durable.
            self._rule = None
            self.role = ReplicaRole.IDLE
            entry = replace(self.entry, term=term, lrs=lrs, revision=revision, leading=True)
            await self._home.journal.record(JournalChange((entry,)))
            self.entry = entry
            if self._stopped_by is not None:
                raise self._stopped_by
            self._begin(term, members)

    def adopt(self, entry: JournalEntry) -> None:
        """Follow a journal entry that is durable now: settings, set, role, assignment."""
        was_assigned = self.entry.assigned
        self.entry = entry
        self._log.settings = self.settings
        if not entry.assigned:
            if self._stopped_by is None:
                self._stop(self._unassigned())
        elif not was_assigned and isinstance(self._stopped_by, NotLeaderError):
            self._stopped_by = None
            self.role = ReplicaRole.IDLE
        if self._rule is not None and not entry.leading:
            self._rule = None
            self.role = ReplicaRole.IDLE
            self._fail_waiters(self._not_leading())
        elif self._rule is not None:
            self._rule = replace(
                self._rule,
                members=frozenset((member.spu_id, member.storage_id) for member in entry.lrs),
                min_in_sync=self.settings.min_in_sync_replicas,
            )
            self._commit.wake()
            self._advance()
        self._home.changed(self)

    def wish(self, assignment: Assignment) -> JournalEntry | None:
        """The entry that an assignment asks for; None if it says nothing new."""
        entry = self.entry
        if assignment.revision < entry.revision or (
            assignment == entry.assignment and entry.assigned
        ):
            return None
        leads = (
            entry.leading
            and assignment.leader == self._home.spu_id
            and election_term(assignment.term) == election_term(entry.term)
        )
        return replace(
            entry,
            revision=assignment.revision,
            lrs=assignment.lrs or entry.lrs,
            leading=leads,
            assigned=True,
            assignment=assignment,
        )

    # What it serves

    def produce(self, request: ProduceRequest, batch: memoryview, answer: Answer) -> Waiter | None:
        """Append a batch as ``request`` asks; ``answer`` is called once, now or later.

        Gives the waiting request, or None if it was answered (``acks: none`` never is). The
        batch is stamped in place and not kept. Raises RunnelError for what is refused.
        """
        if self._rule is None:
            raise self._stopped_by or self._not_leading()
        if request.acks is Acks.COMMITTED:
            self._require_commits()
        header = admit(batch, self.settings.max_record_size, self.meta.name)
        if header.producer_id:
            duplicate = self._log.producers.check(header)
            if duplicate is not None:
                return self._when_committed(
                    duplicate.next_offset, request, duplicate.base_offset, answer
                )
        expected = request.expected_offset
        if expected not in (NO_OFFSET, self._log.leo):
            # The record at that offset decides; where there is none yet, nothing can change it.
            return self._when_committed(
                expected + 1 if expected < self._log.leo else 0,
                request,
                ConflictError(
                    f"the next offset of {self.meta.name} is not {expected}, but {self._log.leo}"
                ),
                answer,
            )
        base_offset = self._append(batch, header)
        next_offset = base_offset + header.record_count
        match request.acks:
            case Acks.COMMITTED:
                return self._when_committed(next_offset, request, base_offset, answer)
            case Acks.LEADER if self._log.orderly_leo < next_offset:
                told = partial(self._answer, base_offset, answer)
                loop = asyncio.get_running_loop()
                return self._writes.add(
                    loop, next_offset, min(request.timeout_ms, MAX_WAIT_MS), told
                )
            case Acks.LEADER:
                answer(ProduceResponse(base_offset, self.lac))
            case Acks.NONE:
                pass
        return None

    def fetch(self, request: FetchRequest, *, wait: bool = False) -> Found:
        """What there is for a fetch now. With ``wait`` call it from a thread.

        Raises BlockingIOError without ``wait`` if the disk is needed, OffsetOutOfRangeError,
        NotLeaderError; StorageFailedError stops the replica.
        """
        if self._rule is None:
            raise self._stopped_by or self._not_leading()
        if request.offset < 0:
            raise InvalidRequestError(f"offset {request.offset} is negative; ask from 0 on")
        lac = self.lac
        max_bytes = min(request.max_bytes, MAX_FETCH_BYTES)
        try:
            result = self._log.read(request.offset, max_bytes, lac + 1, wait=wait)
        except BlockingIOError:
            raise
        except FileNotFoundError as error:
            raise self._stopped_by or OffsetOutOfRangeError(
                f"offset {request.offset} was truncated meanwhile; the first one available is"
                f" {self._log.log_start}",
                firstAvailable=self._log.log_start,
            ) from error
        length = len(result.data)
        enough = length >= min(request.min_bytes, max_bytes) or (
            # The read ended at a segment's or the request's end, not at the end of the log.
            length > 0 and result.next_offset <= lac
        )
        return Found(FetchResponse(self._log.log_start, lac), result.data, enough)

    def when_more(self, request: FetchRequest, found_bytes: int, told: Told) -> Waiter:
        """Wait for what ``request`` lacks, at most for its time; told as in `RecordWaiters`."""
        return self._records.add(
            asyncio.get_running_loop(),
            max(request.offset, self.lac + 1),
            self._committed_bytes + min(request.min_bytes, request.max_bytes) - found_bytes,
            min(request.max_wait_ms, MAX_WAIT_MS),
            told,
        )

    def list_offsets(self, position: int) -> ListOffsetsResponse:
        """The offset `EARLIEST` or `LATEST` stands for. Raises NotReadyError, NotLeaderError."""
        if position == EARLIEST:
            if self._rule is None:
                raise self._stopped_by or self._not_leading()
            return self._bounds(self._log.log_start)
        if position != LATEST:
            raise InvalidRequestError(
                f"position {position} means nothing; ask for {EARLIEST} (earliest), {LATEST}"
                " (latest) or a timestamp in microseconds"
            )
        self._require_serving()
        return self._bounds(self.lac + 1)

    def offset_for_timestamp(self, timestamp_us: int) -> ListOffsetsResponse:
        """The first batch at or after a time. Blocks on the disk: call it from a thread."""
        self._require_serving()
        return self._bounds(self._log.offset_for_timestamp(timestamp_us, self.lac + 1))

    # What time does to it

    def tick(self, now_us: int) -> None:
        """Complete a segment that is old enough, apply retention, sync what lies about."""
        if self._stopped_by is not None:
            return
        if self._rule is not None:
            if self._log.roll_is_due(now_us):
                try:
                    self._log.begin_next(now_us)
                except OSError as error:
                    self._fail(f"a new segment cannot be made: {error}", lasting=False)
                    return
            self._log.apply_retention(now_us, self.lac + 1)
        self._commit.sync_now()

    def damaged(self, error: Damage | OSError) -> RunnelError:
        """A read met damage or a failing disk: stop for good. Gives the error for the client."""
        self._fail(str(error))
        return self._stopped_by or StorageFailedError(str(error))

    async def close(self) -> None:
        """Make all durable, write a checkpoint, give back the files."""
        if self._stopped_by is None:
            self._stop(NotLeaderError(f"SPU {self._home.spu_id} is shutting down"))
        if self._found.unfit is None:
            await self._commit.finish()
        self._log.close()

    async def abandon(self) -> None:
        """Stop because it is to be deleted: requests that wait get NotFoundError."""
        self._stop(NotFoundError(f"partition {self.meta.name} ({self.meta.uid}) was deleted"))
        self._commit.stop()
        await self._commit.quiet()
        self._log.close()

    # Leading

    def _newer_wish(self, term: int, revision: int) -> tuple[tuple[LiveReplica, ...], int]:
        """A lead that was overtaken by a newer assignment: what that one says, if it agrees."""
        newer = self.entry.assignment
        if (
            newer is not None
            and newer.revision == self.entry.revision
            and newer.leader == self._home.spu_id
            and election_term(newer.term) == term
        ):
            return newer.lrs, newer.revision
        raise FencedError(
            f"{self.meta.name} was told to lead by revision {revision}, but knows revision"
            f" {self.entry.revision}"
        )

    def _begin(self, term: Term, members: frozenset[tuple[int, str]]) -> None:
        now_us = self._home.clock_us()
        self._log.roll(now_us)
        control = build_control("term", now_us)
        self._term = term
        offset = self._write(memoryview(control), read_header(control))
        self._rule = CommitRule(members, self.settings.min_in_sync_replicas, offset)
        self.role = ReplicaRole.LEADER
        _log.info("leading", partition=self.meta.name, term=format_term(term), offset=offset)
        self._commit.wake()
        self._advance()
        self._home.changed(self)

    def _require_serving(self) -> None:
        if self._rule is None:
            raise self._stopped_by or self._not_leading()
        if not self.is_serving:
            raise NotReadyError(
                f"the leader of {self.meta.name} has not committed its first record yet; try again"
            )

    def _require_commits(self) -> None:
        """Can a produce that waits for its commit be taken?"""
        assignment = self.entry.assignment
        if assignment is not None and len(assignment.replicas) > 1:
            raise NotEnoughReplicasError(
                "replication is not available in this version, and topic"
                f" {assignment.topic} has replication factor {len(assignment.replicas)}: use"
                " acks=leader, or a topic with replicationFactor 1"
            )
        self._require_serving()

    def _append(self, batch: memoryview, header: BatchHeader) -> int:
        base_offset = self._write(batch, header)
        self._commit.wake()
        if self.settings.durability is Durability.REPLICATED:
            self._advance()
        return base_offset

    def _write(self, batch: memoryview, header: BatchHeader) -> int:
        try:
            base_offset = self._log.append(batch, header, self._term, self._home.clock_us())
        except OSError as error:
            # A full disk loses nothing that was acknowledged: a restart finds the log fit.
            self._fail(f"a write failed: {error}", lasting=False)
            raise self._stopped_by or error from error
        self._uncommitted.append((self._log.leo, self._log.written_bytes))
        return base_offset

    # Committing

    def _synced(self) -> None:
        self._writes.release(self._log.orderly_leo)
        self._advance()

    def _advance(self) -> None:
        if self._rule is None:
            return
        fsync = self.settings.durability is Durability.FSYNC
        position = self._log.durable_leo if fsync else self._log.orderly_leo
        lac = self._rule.last_add_confirmed({self._me: position}, self.lac)
        if lac == self.lac:
            return
        was_serving = self.is_serving
        self.lac = lac
        uncommitted = self._uncommitted
        while uncommitted and uncommitted[0][0] <= lac + 1:
            self._committed_bytes = uncommitted.popleft()[1]
        self._commits.release(lac + 1)
        if len(self._records) and not self._waking:
            # Once for all that the loop has at hand: readers like batches too.
            self._waking = True
            asyncio.get_running_loop().call_soon(self._wake_readers)
        if not was_serving:
            self._home.changed(self)

    def _wake_readers(self) -> None:
        self._waking = False
        self._records.release(self.lac, self._committed_bytes)

    def _when_committed(
        self, until: int, request: ProduceRequest, result: int | RunnelError, answer: Answer
    ) -> Waiter | None:
        """Answer with a base offset or an error once everything below ``until`` is committed."""
        told = partial(self._answer, result, answer)
        if self.lac + 1 >= until and self.is_serving:
            if request.acks is not Acks.NONE:
                told(None)
            return None
        if request.acks is Acks.NONE:
            return None
        loop = asyncio.get_running_loop()
        return self._commits.add(loop, until, min(request.timeout_ms, MAX_WAIT_MS), told)

    def _answer(self, result: int | RunnelError, answer: Answer, error: RunnelError | None) -> None:
        if error is not None:
            answer(error)
        elif isinstance(result, RunnelError):
            answer(result)
        else:
            answer(ProduceResponse(result, self.lac))

    # Stopping

    def _sync_failed(self, error: BaseException) -> None:
        if isinstance(error, CheckpointFailedError):
            # The log itself is whole: the next start reads more of it, and that is all.
            self._fail(f"a checkpoint cannot be written: {error}", lasting=False)
        else:
            self._fail(f"an fsync failed: {error}")

    def _fail(self, reason: str, *, lasting: bool = True) -> None:
        """Stop for good. A ``lasting`` failure makes the replica unfit over restarts too."""
        if not self.fit:
            return
        _log.error("replica stopped", partition=self.meta.name, reason=reason)
        if lasting:
            self.entry = replace(self.entry, unfit=reason)
            self._home.journal.submit(JournalChange((self.entry,)))
        self._commit.stop()
        self._stop(StorageFailedError(self._naming(reason)))
        self._home.changed(self)

    def _stop(self, error: RunnelError) -> None:
        self._stopped_by = error
        self._rule = None
        self.role = ReplicaRole.STOPPED
        self._fail_waiters(error)

    def _fail_waiters(self, error: RunnelError) -> None:
        for waiters in (self._commits, self._writes, self._records):
            waiters.fail(error)

    def _naming(self, reason: str) -> str:
        return f"the replica of {self.meta.name} on SPU {self._home.spu_id} cannot serve: {reason}"

    def _unassigned(self) -> NotLeaderError:
        return NotLeaderError(
            f"{self.meta.name} is not assigned to SPU {self._home.spu_id} any more; its data is"
            " kept until the SC has it deleted"
        )

    def _not_leading(self) -> NotLeaderError:
        return NotLeaderError(
            f"SPU {self._home.spu_id} does not lead {self.meta.name}; ask the SC who does"
        )

    def _bounds(self, offset: int) -> ListOffsetsResponse:
        return ListOffsetsResponse(offset, self._log.log_start, self.lac, self._log.size_bytes)
