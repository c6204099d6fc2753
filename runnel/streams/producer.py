"""A producer of a stream: the key decides the segment, and a sealed segment's records move on.

It is a producer with one sender for each segment. The leader of a sealed segment refuses batches,
each for certain: what it took before the seal, it still recognises. The producer then asks for the
successors of the segment, sends later records of its keys there, and *holds* the senders of these
until the last batch of the old segment has an outcome. The refused batches are taken apart by key,
and go first. So records of one key keep their order across any number of splits and merges.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic, time_ns
from typing import Any, Final

import numpy as np
import pyarrow as pa

from runnel.fork import tell_forks
from runnel.net.routing import TopicRoute
from runnel.produce.counts import SendCounts
from runnel.produce.delivery import MOVED, Batch, Delivery, OnDelivery, Outcome
from runnel.produce.producer import Producer, Progress
from runnel.produce.send import as_bytes
from runnel.produce.sender import PartitionSender
from runnel.produce.settings import ProducerSettings
from runnel.records.record import Value
from runnel.records.tables import (
    ROW_OVERHEAD_BYTES,
    SizedRows,
    check_sizes,
    chunks,
    measured,
    record_sizes,
    record_table,
)
from runnel.streams.segment_table import SegmentTable
from schemas.backoff import backoff_s
from schemas.control.streams import SegmentHistory, segment_of
from schemas.errors import (
    DeadlineExceededError,
    InvalidRequestError,
    OverloadedError,
    RetryableError,
    RunnelError,
    SealedError,
)
from schemas.streams.epochs import Segment, number_of, segment_text
from schemas.wire.batch import Buffer
from schemas.wire.partitioner import hash_key, hash_keys
from schemas.wire.payload import decode_records

#: Records without a key that go to one segment before the next one's turn.
_RUN: Final = 256
_BACKOFF_MS: Final = (20.0, 1_000.0)

AskSegment = Callable[[str], Awaitable[SegmentHistory]]


@dataclass(slots=True)
class _Seal:
    """What is known of a segment that was found sealed: the batches that it refused, in order, and
    the task that moves them. ``final``: nothing succeeds it, so what comes fails with this."""

    refused: list[tuple[Batch, list[Buffer]]] = field(default_factory=list)
    task: asyncio.Task[None] | None = None
    final: RunnelError | None = None


class StreamProducer(Producer):
    """See the module's text. ``ask`` gives a segment with its successors."""

    def __init__(
        self,
        route: TopicRoute,
        settings: ProducerSettings,
        table: SegmentTable,
        ask: AskSegment,
        *,
        wait_for_room: bool = False,
        closed: Callable[[Producer], None] = lambda _producer: None,
        total: SendCounts | None = None,
    ) -> None:
        if settings.acks == "none":
            raise InvalidRequestError(
                "acks: a producer of a stream must hear that a segment was sealed; use committed or"
                " leader"
            )
        random_id = secrets.randbits(64) or 1
        super().__init__(route, settings, random_id=random_id, closed=closed, total=total)
        self._on_sealed = self._refused
        self._table = table
        #: The ids of all segments that were ever met, by their numbers.
        self._ids = {number_of(segment): segment for segment in table.segments}
        self._ask = ask
        self._waits = wait_for_room
        #: Held while a record is given its segment, and while segments are replaced.
        self._routing = threading.Lock()
        self._turn = 0
        self._seals: dict[int, _Seal] = {}
        #: By the number of a segment: the sealed ones whose records go there first.
        self._held_for: dict[int, set[int]] = {}
        #: Batches that were made of refused ones, and these, with how many of them have no outcome.
        self._parents: dict[Batch, Batch] = {}
        self._parts_left: dict[Batch, int] = {}
        self._moved_on = asyncio.Event()
        tell_forks(self)

    def forked(self) -> None:
        """Let `send` come to its error: another thread of the parent may have held the lock."""
        self._routing = threading.Lock()

    def send(
        self,
        value: Value | None,
        key: bytes | str | None = None,
        timestamp: int | datetime | None = None,
        headers: Mapping[str, bytes | None] | Sequence[tuple[str, bytes | None]] | None = None,
        partition: int | None = None,
        transaction_id: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Delivery:
        """Add one record; as `runnel.produce.send.RecordSender.send`, but the key decides the
        segment: ``partition`` and ``transaction_id`` are refused."""
        if partition is not None or transaction_id is not None:
            raise InvalidRequestError(
                "partition, transaction_id: a stream's keys decide where records go; leave both out"
            )
        data = None if value is None else as_bytes("value", value)
        known = None if key is None else as_bytes("key", key)
        place = None if known is None else hash_key(known)
        while True:
            with self._routing:
                segment = self._next_of_all() if place is None else self._table.at(place)
                try:
                    return self._send_buffer.put(
                        data, known, timestamp, headers, number_of(segment), None, on_delivery
                    )
                except OverloadedError:
                    if not self._waits or threading.get_ident() == self._send_buffer.loop_thread:
                        raise
            # Without the lock: the loop, which makes room, takes it when it replaces segments.
            self._send_buffer.wait_for_room()

    def _next_of_all(self) -> int:
        """The segment of a record without a key: all in turn."""
        self._turn += 1
        return self._table.segments[self._turn // _RUN % len(self._table.segments)]

    def table_pieces(
        self,
        table: Any,
        transaction_ids: Any = None,
        on_progress: Progress | None = None,
        partition: int | None = None,
    ) -> Iterator[Callable[[], list[Batch]]]:
        """As `Producer.table_pieces`; keys decide the segments."""
        if transaction_ids is not None or partition is not None:
            raise InvalidRequestError(
                "partition, transaction_ids: a stream's keys decide where records go; leave both"
                " out"
            )
        parts = measured(record_table(table, time_ns() // 1000))
        check_sizes(parts, self._route.topic.max_record_size, self.topic)
        sent_records = sent_bytes = 0

        def add(piece: SizedRows) -> list[Batch]:
            nonlocal sent_records, sent_bytes
            made: list[Batch] = []
            with self._routing:
                for number, some in self._by_segment(self._table, piece):
                    made.extend(self._send_buffer.add_table(some, partition=number))
            if on_progress is not None:
                sent_records += piece.rows.num_rows
                sent_bytes += sum(batch.size for batch in made)
                on_progress(sent_records, sent_bytes)
            return made

        wanted = self.settings.batch_bytes * min(len(self._table.segments), 16)
        piece_bytes = max(min(wanted, self.settings.buffer_bytes // 2), 1)
        for piece in chunks(parts, piece_bytes):
            yield lambda piece=piece: add(piece)  # type: ignore[misc]

    def _by_segment(self, table: SegmentTable, piece: SizedRows) -> Iterator[tuple[int, SizedRows]]:
        """Rows by the number of their segment, in their order."""
        keys = piece.rows.column("key")
        numbers = table.numbers_at(hash_keys(keys))
        if keys.null_count:
            self._turn += _RUN
            numbers[np.asarray(keys.is_null())] = number_of(self._next_of_all())
        for number in np.unique(numbers).tolist():
            chosen = np.flatnonzero(numbers == number)
            yield number, SizedRows(piece.rows.take(pa.array(chosen)), piece.sizes[chosen])

    # In the event loop

    def _sender(self, partition: int) -> PartitionSender:
        sender = super()._sender(partition)
        sender.held = bool(self._held_for.get(partition))
        return sender

    def _refused(self, batch: Batch, pieces: list[Buffer]) -> None:
        """A sealed segment took none of this batch."""
        seal = self._seals.setdefault(batch.partition, _Seal())
        if seal.final is not None:
            self._fail(batch, seal.final)
            return
        seal.refused.append((batch, pieces))
        # Again, if the last batch had an outcome before: a segment that replaced several is met
        # once more when another one of these is found sealed.
        if seal.task is None or seal.task.done():
            segment = self._ids[batch.partition]
            seal.task = self._loop.create_task(
                self._replace(segment, seal), name=f"segments of {self.topic}"
            )
            self._tasks.append(seal.task)
        self._moved_on.set()

    async def _replace(self, segment: int, seal: _Seal) -> None:
        """Have the successors of a sealed segment take its keys, in order."""
        number = number_of(segment)
        try:
            successors = await self._successors(segment, seal)
            if not successors:
                raise SealedError(
                    f"stream {self.topic} is sealed: it takes no more records; write to another"
                    " stream"
                )
        except RunnelError as error:
            seal.final = error
            for batch, _ in seal.refused:
                self._fail(batch, error)
            seal.refused.clear()
            return
        self._ids.update((one.number, one.id) for one in successors)
        with self._routing:
            self._table = self._table.replaced(segment, successors)
            count = 1 + max(one.number for one in successors)
            if count > self._route.partition_count:
                self._route.grow(count)
                self._send_buffer.grow(count)
            for one in successors:
                # What is known of leaders is older than these.
                self._route.suspect(one.number)
                self._held_for.setdefault(one.number, set()).add(number)
                self._sender(one.number).held = True
            # From here on nothing new comes for the old one.
            self._send_buffer.seal_all()
        self._pump()
        old = self._sender(number)
        # One that is held has nothing to send yet, but gets batches that it must refuse first.
        while old.held or not old.idle:
            self._moved_on.clear()
            await self._moved_on.wait()
        parts: dict[int, list[Batch]] = {one.number: [] for one in successors}
        part_table = SegmentTable.of(successors)
        low = part_table.lows[0]
        for batch, pieces in seal.refused:
            self._take_apart(batch, pieces, part_table, parts, low)
        seal.refused.clear()
        for one in successors:
            sender = self._sender(one.number)
            sender.put_first(parts[one.number])
            waiting = self._held_for[one.number]
            waiting.discard(number)
            if not waiting:
                sender.release()
        self._moved_on.set()

    async def _successors(self, segment: int, seal: _Seal) -> tuple[Segment, ...]:
        """The segments that have the keys of one now; none if the stream is sealed. While no SC
        answers, batches whose time is over fail."""
        attempt = 0
        while True:
            try:
                found = await self._ask(segment_text(segment))
            except RetryableError as error:
                self._fail_late(seal, error)
                base_ms, cap_ms = _BACKOFF_MS
                await asyncio.sleep(backoff_s(attempt, base_ms, cap_ms, self._route.random()))
                attempt += 1
                continue
            return tuple(map(segment_of, found.successors))

    def _fail_late(self, seal: _Seal, error: RunnelError) -> None:
        timeout_s = self.settings.delivery_timeout_ms / 1000
        late = [one for one in seal.refused if monotonic() >= one[0].opened_at + timeout_s]
        for one in late:
            seal.refused.remove(one)
            self._fail(
                one[0],
                DeadlineExceededError(
                    f"a batch of {one[0].count} records of stream {self.topic} was not acknowledged"
                    f" within {timeout_s:g} s; it was not written: its segment was sealed, and the"
                    f" next ones are not known: {error.message}",
                    outcomeUnknown=False,
                ),
            )

    def _take_apart(
        self,
        batch: Batch,
        pieces: list[Buffer],
        table: SegmentTable,
        parts: dict[int, list[Batch]],
        low: int,
    ) -> None:
        """Make batches for the successors of the segment that refused one."""
        rows = decode_records(memoryview(b"".join(pieces)))
        keys = rows.column("key")
        places = hash_keys(keys)
        if keys.null_count:
            places[np.asarray(keys.is_null())] = low
        numbers = table.numbers_at(places)
        sizes = record_sizes(rows) + ROW_OVERHEAD_BYTES
        moved: list[tuple[Batch, int]] = [(batch, 0)] * rows.num_rows
        made = 0
        for number in np.unique(numbers).tolist():
            chosen = np.flatnonzero(numbers == number)
            part = Batch(
                number,
                Outcome(self.topic),
                batch.opened_at,
                rows.take(pa.array(chosen)),
                int(sizes[chosen].sum()),
            )
            for index, row in enumerate(chosen.tolist()):
                moved[row] = (part, index)
            parts[number].append(part)
            self._parents[part] = batch
            made += 1
        batch.moved = moved
        self._parts_left[batch] = made

    def _settled(self, batch: Batch) -> None:
        self._moved_on.set()
        parent = self._parents.pop(batch, None)
        if parent is None:
            super()._settled(batch)
            return
        failure = None if batch.moved is not None else batch.outcome.exception()
        if failure is not None:
            self._note_failure(batch, failure)
        self._parts_left[parent] -= 1
        if not self._parts_left[parent]:
            del self._parts_left[parent]
            parent.outcome.set_result(MOVED)
            self._settled(parent)

    def _fail(self, batch: Batch, error: RunnelError) -> None:
        self._counts.failed(batch.count)
        batch.outcome.set_exception(error)
        self._settled(batch)

    async def abort(self) -> None:
        """End without waiting; records without an outcome fail."""
        refused = [batch for seal in self._seals.values() for batch, _ in seal.refused]
        try:
            await super().abort()
        finally:
            closed = DeadlineExceededError(
                f"the producer was closed before these records of stream {self.topic} were sent to"
                " another segment than their sealed one; they were not written",
                outcomeUnknown=False,
            )
            for batch in refused:
                if not batch.outcome.done() and batch.moved is None:
                    with suppress(RunnelError):
                        self._fail(batch, closed)
