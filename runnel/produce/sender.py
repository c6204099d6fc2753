"""Sending the batches of one partition: in order, once, with retries.

Normally up to ``max_in_flight`` batches are in flight on one connection; the leader appends a
producer's batches by their sequence, so a later one cannot overtake an earlier one. The first batch
of an epoch goes alone, because a leader that does not know the producer yet would take any of them
for the first.

When an attempt fails, the sender sends nothing new until every batch in flight has an outcome. It
then sends the remaining batches again, one at a time, in order, with their old sequences: the
leader recognises a batch that is in the log already and answers with its offset. Only the first of
them waits for a leader: once that is accepted, the others follow at once. A batch is *uncertain*
once an attempt ended without saying whether it was appended; an error for too few live replicas
says that it was not. If one fails for good, the uncertain ones after it fail with it (with new
numbers they could be written twice), and the rest is numbered in a new epoch.

A leader may have lost batches that were acknowledged. That shows when a batch is sent alone and the
leader still misses an earlier one, or gives it an offset below one that was acknowledged. The batch
then fails with DivergedError, so that the user hears of it at once; later ones are sent in a new
epoch.

With acks ``none`` nothing is numbered or repeated. With ``leader``, acknowledged records can be
lost when the leader changes or its host loses power. The leader then misses sequences that will
never come, and says so: the rest is sent in a new epoch. If a later leader has what that one
missed, a batch can be there twice.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from runnel.net.connection import Response
from runnel.net.routing import NotHereError, SegmentGoneError, TopicRoute, may_retry
from runnel.produce.counts import SendCounts
from runnel.produce.delivery import Batch
from schemas.errors import (
    LOST_RECORDS,
    DeadlineExceededError,
    DivergedError,
    NotEnoughReplicasError,
    OverloadedError,
    RunnelError,
    SealedError,
    StorageFullError,
)
from schemas.wire.batch import Buffer, build_pieces, read_header
from schemas.wire.protocol import Api
from schemas.wire.record_requests import Acks, ProduceRequest, ProduceResponse

#: How much longer than the leader the client waits, so that the leader's own answer is heard.
_ANSWER_SLACK_S: Final = 2.0
#: With acks none, the greatest age of the knowledge about the leader.
_VERIFY_LEADER_S: Final = 5.0
_SEQUENCES: Final = 1 << 32
#: Temporary errors that refuse a batch before it is appended.
_NOT_APPENDED: Final = (NotEnoughReplicasError, NotHereError, OverloadedError, StorageFullError)
UNKNOWN_OUTCOME: Final = (
    "their outcome is unknown: the records may be in the log, or may still be appended."
    " Read the end of the partition before you send them again, or they may be written twice; a"
    " longer delivery_timeout_ms outlasts longer failures"
)


@dataclass(frozen=True, slots=True)
class SenderSettings:
    """``producer_id`` is random and not 0, or 0 if leaders need not recognise duplicates."""

    producer_id: int
    acks: Acks
    codec: str
    max_in_flight: int
    delivery_timeout_ms: int
    request_timeout_ms: int


@dataclass(slots=True)
class _Attempted:
    batch: Batch
    pieces: list[Buffer]
    call: asyncio.Future[Response] | None = None
    uncertain: bool = False
    error: RunnelError | None = None


@dataclass(slots=True)
class PartitionSender:
    """Run `run` as a task. ``settled`` is called with every batch that was delivered or failed.

    ``clock`` is the one that stamped the batches, in seconds. ``on_sealed`` takes each batch that a
    sealed log refuses, in order, with its bytes: it does not fail then. While ``held``, nothing new
    is sent.
    """

    index: int
    route: TopicRoute
    settings: SenderSettings
    counts: SendCounts
    settled: Callable[[Batch], None]
    clock: Callable[[], float]
    on_sealed: Callable[[Batch, list[Buffer]], None] | None = None
    held: bool = False
    _queue: deque[Batch] = field(default_factory=deque)
    #: Those of `put_first` that wait. They go before the queue, and keep the order of the calls.
    _first: deque[Batch] = field(default_factory=deque)
    _window: deque[_Attempted] = field(default_factory=deque)
    _event: asyncio.Event = field(default_factory=asyncio.Event)
    _epoch: int = 0
    _sequence: int = 0
    _acknowledged: bool = False
    _acknowledged_term: int = -1
    #: The offset after the last record that was acknowledged as committed.
    _acknowledged_end: int = 0
    _leader_term: int = -1
    _verify_leader_at: float = 0.0
    _ended: RunnelError | None = None
    #: Whether the log is known to take no more records.
    _sealed: bool = False

    def put(self, batch: Batch) -> None:
        """Send a batch after those that were put before."""
        if self._ended is not None:
            self._fail(batch, self._ended)
            return
        self._queue.append(batch)
        self._event.set()

    def put_first(self, batches: Sequence[Batch]) -> None:
        """Send these batches, in order, before those of `put` that wait. Those of an earlier call
        go first."""
        if self._ended is not None:
            for batch in batches:
                self._fail(batch, self._ended)
            return
        self._first.extend(batches)
        self._event.set()

    def release(self) -> None:
        """Send what was held back."""
        self.held = False
        self._event.set()

    @property
    def idle(self) -> bool:
        """Whether no batch waits or is under way."""
        return not self._first and not self._queue and not self._window

    async def run(self) -> None:
        """Send batches from `put` until cancelled; call `end` after that."""
        try:
            while True:
                await self._event.wait()
                self._event.clear()
                await self._step()
        except Exception as bug:
            self.end(f"the producer failed: {bug!r}")
            raise

    def end(self, why: str) -> None:
        """Fail everything without an outcome, and every batch put from now on."""
        if self._ended is not None:
            return
        place = f"{self.route.name}/{self.index}"
        self._ended = DeadlineExceededError(
            f"{why} before these records for partition {place} were acknowledged;"
            f" {UNKNOWN_OUTCOME}",
            outcomeUnknown=True,
        )
        under_way = (attempted.batch for attempted in self._window)
        for batch in [*under_way, *self._first, *self._queue]:
            if not batch.outcome.done():
                self._fail(batch, self._ended)
        self._window.clear()
        self._first.clear()
        self._queue.clear()

    async def _step(self) -> None:
        failed = self._collect()
        while (
            failed is None
            and (waiting := self._first or self._queue)
            and self._has_room()
            and not self.held
        ):
            attempted = self._number(waiting.popleft())
            if self._sealed and self.on_sealed is not None:
                # It was never sent, so the leader has nothing to say of it.
                self.on_sealed(attempted.batch, attempted.pieces)
            else:
                failed = await self._start(attempted)
        if failed is not None:
            await self._recover()
            self._event.set()

    def _has_room(self) -> bool:
        limit = self.settings.max_in_flight if self._acknowledged else 1
        return len(self._window) < limit

    def _collect(self) -> _Attempted | None:
        """Finish answered batches, in order; gives the first that failed, if one did."""
        while self._window and (call := self._window[0].call) is not None and call.done():
            head = self._window[0]
            if (error := call.exception()) is not None:
                head.error = self._judged(error)
                return head
            self._window.popleft()
            self._succeed(head, call.result())
        return None

    def _number(self, batch: Batch) -> _Attempted:
        """Encode a batch with the next sequence."""
        pieces = batch.encode(
            self.settings.codec, self.settings.producer_id, self._epoch, self._sequence
        )
        self._sequence = (self._sequence + 1) % _SEQUENCES
        return _Attempted(batch, pieces)

    def _renumber(self, attempted: _Attempted) -> None:
        """Give a batch that was encoded before the next sequence of the current epoch."""
        if not self.settings.producer_id:
            return
        header, payload = read_header(attempted.pieces[0]), attempted.pieces[1:]
        attempted.pieces = build_pieces(
            payload,
            record_count=header.record_count,
            first_timestamp_us=header.first_timestamp_us,
            last_timestamp_us=header.last_timestamp_us,
            codec=header.codec,
            flags=header.flags,
            schema_id=header.schema_id,
            producer_id=self.settings.producer_id,
            producer_epoch=self._epoch,
            sequence=self._sequence,
            first_transaction_id=header.first_transaction_id,
            last_transaction_id=header.last_transaction_id,
        )
        self._sequence = (self._sequence + 1) % _SEQUENCES

    async def _start(self, attempted: _Attempted) -> _Attempted | None:
        """Write a produce request; ``attempted`` itself if that failed. It is in the window."""
        self._window.append(attempted)
        try:
            call = await self._write(attempted)
        except RunnelError as error:
            attempted.error = self._judged(error)
            return attempted
        if call is None:
            self._window.pop()
            self._finish(attempted, -1)
        else:
            call.add_done_callback(self._answered)
        return None

    async def _write(self, attempted: _Attempted) -> asyncio.Future[Response] | None:
        """Send a batch to the leader; None if no answer will come."""
        timeout_s = self._timeout_s(attempted)
        silent = self.settings.acks is Acks.NONE
        if silent and self.clock() >= self._verify_leader_at:
            # No answer will ever say that the leader has changed.
            self.route.suspect(self.index)
            self._verify_leader_at = self.clock() + _VERIFY_LEADER_S
        connection, leader = await self.route.connect(self.index, timeout_s)
        self._leader_term = leader.term
        request = ProduceRequest(leader.uid, self.settings.acks, round(timeout_s * 1000)).pack()
        if silent:
            await connection.post(Api.PRODUCE, request, *attempted.pieces, timeout_s=timeout_s)
            return None
        attempted.call = await connection.start(
            Api.PRODUCE, request, *attempted.pieces, timeout_s=timeout_s + _ANSWER_SLACK_S
        )
        self.route.watch_over(self.index, leader, attempted.call, 0.0)
        return attempted.call

    def _timeout_s(self, attempted: _Attempted) -> float:
        left_s = self._deadline(attempted) - self.clock()
        return max(0.001, min(self.settings.request_timeout_ms / 1000, left_s))

    def _deadline(self, attempted: _Attempted) -> float:
        return attempted.batch.opened_at + self.settings.delivery_timeout_ms / 1000

    def _answered(self, _call: asyncio.Future[Response]) -> None:
        self._event.set()

    def _judged(self, error: BaseException) -> RunnelError:
        if not isinstance(error, RunnelError):
            raise error
        self.counts.refused(error)
        return self.route.judge(self.index, error)

    async def _recover(self) -> None:
        """Wait for everything in flight, then send the remaining batches again, one at a time."""
        left: deque[_Attempted] = deque()
        for attempted in self._window:
            if attempted.call is not None and attempted.error is None:
                await asyncio.wait([attempted.call])
                if (error := attempted.call.exception()) is None:
                    left.append(attempted)
                    continue
                attempted.error = self._judged(error)
            if attempted.call is not None and attempted.error is not None:
                attempted.uncertain = _may_stand(attempted.error)
            left.append(attempted)
        # The window does not change until here, so that a cancelled wait loses nothing.
        self._window = left
        answers = False
        while self._window:
            head = self._window[0]
            if head.error is None and head.call is not None:
                self._window.popleft()
                self._succeed(head, head.call.result())
                continue
            failure = await self._repeat(head, at_once=answers)
            answers = failure is None
            self._window.popleft()
            if failure is not None:
                self._give_up(head, failure)

    async def _repeat(self, head: _Attempted, *, at_once: bool) -> RunnelError | None:
        """Send one batch until it is in the log; gives the error if it failed.

        ``at_once``: the leader has just accepted the batch before, so there is nothing to wait for.
        """
        error, attempt = head.error, 0
        began_s = head.batch.opened_at
        while True:
            if error is not None:
                if not may_retry(error):
                    return error
                if self.clock() >= self._deadline(head):
                    return self._too_late(head, error)
                self.route.tell_of_wait("send to", self.index, error, began_s)
                if not at_once:
                    left_s = self._deadline(head) - self.clock()
                    attempt = await self.route.pause(self.index, attempt, left_s)
                at_once = False
                self.counts.repeated()
            error = await self._once(head)
            if error is None:
                return None
            if (lost := await self._lost_behind(head, error)) is not None:
                return lost
            await self._forget_lost(error)

    async def _once(self, head: _Attempted) -> RunnelError | None:
        """One attempt and its answer; None once the batch is in the log."""
        head.call = None
        try:
            call = await self._write(head)
        except RunnelError as failure:
            head.error = self._judged(failure)
            return head.error
        if call is None:
            self._finish(head, -1)
            return None
        try:
            response = await call
        except RunnelError as failure:
            head.error = self._judged(failure)
            head.uncertain |= _may_stand(head.error)
            return head.error
        self._succeed(head, response)
        return None

    async def _lost_behind(self, head: _Attempted, error: RunnelError) -> RunnelError | None:
        """The final error if the leader, which was sent ``head`` alone, misses a batch before it:
        everything before it was acknowledged."""
        known_end = error.details.get("knownEnd")
        if not isinstance(known_end, int) or not self._acknowledged_end:
            return None
        if self._leader_term < self._acknowledged_term:
            # An SC that is behind named one that led before: it lacks what came after it.
            return None
        if await self.route.another_leads(self.index):
            return None
        head.uncertain = False
        not_written = f"this batch of {head.batch.count} records was not written"
        lost = self._lost(known_end, not_written)
        self._acknowledged_end = known_end
        return lost

    def _lost(self, end: int, this_batch: str) -> DivergedError:
        """The error if records at ``end`` and above were acknowledged to this producer and are not
        in the log."""
        place = f"{self.route.name}/{self.index}"
        return DivergedError(
            f"records for partition {place} that were acknowledged to this producer, up to offset"
            f" {self._acknowledged_end - 1}, are not in the log from offset {end} on:"
            f" {LOST_RECORDS}. Send them again if you still have them; {this_batch}",
            diverged_at=end,
        )

    async def _forget_lost(self, error: RunnelError) -> None:
        """With acks leader, do not wait for batches that the log lost: everything before the one
        that was sent alone was acknowledged. No batch is in the log that misses one before it, so
        all that are left may get new numbers."""
        if (
            self.settings.acks is Acks.LEADER
            and "expectedSequence" in error.details
            and self._leader_term >= self._acknowledged_term
            and not await self.route.another_leads(self.index)
        ):
            self._new_epoch()

    def _give_up(self, head: _Attempted, failure: RunnelError) -> None:
        if isinstance(failure, SealedError | SegmentGoneError) and self.on_sealed is not None:
            if isinstance(failure, SegmentGoneError) and head.uncertain:
                # It was sealed long ago, and nothing recognises the batch any more.
                unknown = DeadlineExceededError(
                    f"a batch of {head.batch.count} records was not acknowledged before"
                    f" {failure.message}; {UNKNOWN_OUTCOME}",
                    outcomeUnknown=True,
                )
                self._fail(head.batch, unknown)
            else:
                # The leader says of each batch that was sent, by its number, whether it came
                # before the seal.
                self._sealed = True
                self.on_sealed(head.batch, head.pieces)
            return
        if isinstance(failure, SealedError):
            self._fail(head.batch, failure)
            return
        self._fail(head.batch, failure)
        rest, self._window = self._window, deque()
        # Later batches that may be in the log already cannot get new numbers.
        for attempted in rest:
            if attempted.error is None and attempted.call is not None:
                self._succeed(attempted, attempted.call.result())
            elif attempted.uncertain:
                self._fail(attempted.batch, self._too_late(attempted, failure))
            else:
                self._window.append(attempted)
        self._new_epoch()

    def _new_epoch(self) -> None:
        """Number all remaining batches from 0, in a new epoch."""
        self._epoch += 1
        self._sequence = 0
        self._acknowledged = False
        for attempted in self._window:
            if attempted.error is not None or attempted.call is None:
                self._renumber(attempted)

    def _too_late(self, head: _Attempted, error: RunnelError) -> RunnelError:
        """The error of a batch whose time is over; ``error`` is the last one that it met."""
        message = (
            f"a batch of {head.batch.count} records for partition {self.route.name}/{self.index}"
            f" was not acknowledged within {self.settings.delivery_timeout_ms / 1000:g} s"
        )
        why = self.route.explained(self.index, error)
        if head.uncertain:
            return DeadlineExceededError(
                f"{message}; {UNKNOWN_OUTCOME}. Last error: {why}", outcomeUnknown=True
            )
        message = f"{message}; it was not written. Last error: {why}"
        if isinstance(error, _NOT_APPENDED):
            return type(error)(message, outcomeUnknown=False)
        return DeadlineExceededError(message, outcomeUnknown=False)

    def _succeed(self, attempted: _Attempted, response: Response) -> None:
        answer = ProduceResponse.unpack(response.fixed)
        self._acknowledged = True
        self._acknowledged_term = self._leader_term
        if self.settings.acks is Acks.COMMITTED:
            base_offset = answer.base_offset
            lost = None
            if base_offset < self._acknowledged_end:
                lost = self._lost(base_offset, f"this batch was written, at offset {base_offset}")
            self._acknowledged_end = base_offset + attempted.batch.count
            if lost is not None:
                self._fail(attempted.batch, lost)
                return
        self._finish(attempted, answer.base_offset)

    def _finish(self, attempted: _Attempted, base_offset: int) -> None:
        batch = attempted.batch
        size = sum(map(len, attempted.pieces))
        self.counts.delivered(batch.count, size, self.clock() - batch.opened_at)
        batch.outcome.set_result(base_offset)
        self.settled(batch)

    def _fail(self, batch: Batch, error: RunnelError) -> None:
        self.counts.failed(batch.count)
        batch.outcome.set_exception(error)
        self.settled(batch)


def _may_stand(error: RunnelError) -> bool:
    """May a batch be in the log that was answered with this error?

    A leader that lacks live replicas or room refuses a batch before it appends it, and so does one
    that misses a batch before it.
    """
    refused = isinstance(error, _NOT_APPENDED) or "expectedSequence" in error.details
    return may_retry(error) and not refused
