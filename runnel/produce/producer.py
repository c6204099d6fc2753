"""The producer: gathers records into batches and sends them, one sender per partition.

`Producer.send` may be called from any thread and never waits: it leaves the record in a chunk and
returns a handle. The event loop is woken only when there is new work for it. Everything accepted
and not yet acknowledged counts against ``buffer_bytes``; at the limit `send` raises OverloadedError
until `drain` has made room (the blocking facade waits instead).

Neighbours: `runnel.produce.send_buffer` takes records from all threads,
`runnel.produce.accumulator` decides what is in a batch and when it is ready,
`runnel.produce.sender` delivers batches in order and once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from threading import get_ident
from time import monotonic, time_ns
from types import TracebackType
from typing import Any, Final, Self

from runnel.fork import OpenedIn
from runnel.net.partition_count import follow_partition_count
from runnel.net.routing import TopicRoute
from runnel.produce.accumulator import Accumulator
from runnel.produce.counts import ProducerMetrics, SendCounts
from runnel.produce.delivery import Batch, Outcome, TableDelivery
from runnel.produce.send import RecordSender
from runnel.produce.send_buffer import SendBuffer
from runnel.produce.sender import PartitionSender, SenderSettings
from runnel.produce.settings import LINGER_MS, ProducerSettings
from runnel.produce.typed_accumulator import RowLayout, TypedAccumulator
from runnel.produce.typed_send_buffer import TypedSendBuffer
from runnel.records.arrow_schema import row_sizes
from runnel.records.tables import (
    SizedRows,
    check_sizes,
    chunks,
    measured,
    record_table,
    with_transaction_ids,
)
from schemas.columns.topic_schema import TopicSchema
from schemas.errors import RunnelError, error_from
from schemas.wire.batch import Buffer
from schemas.wire.record_requests import Acks

Progress = Callable[[int, int], None]
#: A record that joins a batch late has this share of the delivery timeout less than the first one.
_HOLD_SHARE: Final = 0.1
#: How long a `with` block that ends in an error still tries to get records out.
_LAST_TRY_S: Final = 5.0


class Producer(RecordSender):
    """See the module's text.

    ``rows``: the schema of a typed topic. ``random_id``: 64 random bits, not 0.
    ``wait_for_room``: `send` waits while the buffer is full instead of raising; only for callers
    outside of the event loop. ``total``: the counts of all producers, to which its own are added.
    """

    def __init__(
        self,
        route: TopicRoute,
        settings: ProducerSettings,
        *,
        random_id: int,
        rows: TopicSchema | None = None,
        wait_for_room: bool = False,
        closed: Callable[[Producer], None] = lambda _producer: None,
        total: SendCounts | None = None,
    ) -> None:
        self.settings = settings
        self._opened_in = OpenedIn()
        self._route = route
        self._loop = asyncio.get_running_loop()
        self._drained = asyncio.Event()
        self._drained.set()
        acks = Acks[settings.acks.upper()]
        limit = route.topic.max_record_size
        new_accumulator: Callable[..., Accumulator[Outcome]] = Accumulator
        new_send_buffer: Callable[..., SendBuffer] = partial(SendBuffer, max_record_bytes=limit)
        self._layout = None
        if rows is not None:
            self._layout = RowLayout(rows)
            new_accumulator = partial(TypedAccumulator, self._layout, _now_us)
            new_send_buffer = partial(TypedSendBuffer, self._layout)
        accumulator = new_accumulator(
            route.name,
            route.partition_count,
            max_record_bytes=limit,
            batch_bytes=settings.batch_bytes,
            linger_s=(LINGER_MS if settings.linger_ms is None else settings.linger_ms) / 1000,
            eager=settings.linger_ms is None,
            clock=monotonic,
            new_outcome=lambda: Outcome(route.name),
            first_sticky=random_id % route.partition_count,
            max_in_flight=settings.max_in_flight,
            hold_s=settings.delivery_timeout_ms / 1000 * _HOLD_SHARE,
        )
        self._send_buffer = new_send_buffer(
            route.name,
            accumulator,
            buffer_bytes=settings.buffer_bytes,
            waits=wait_for_room,
            wake=lambda: self._loop.call_soon_threadsafe(self._pump),
        )
        self._send_buffer.loop_thread = get_ident()
        self._sender_settings = SenderSettings(
            producer_id=0 if acks is Acks.NONE else random_id,
            acks=acks,
            codec=settings.compression or str(route.topic.compression),
            max_in_flight=settings.max_in_flight,
            delivery_timeout_ms=settings.delivery_timeout_ms,
            request_timeout_ms=settings.request_timeout_ms,
        )
        self._counts = SendCounts(total)
        self._senders: dict[int, PartitionSender] = {}
        growth = follow_partition_count(
            route, settings.metadata_max_age_ms / 1000, self._send_buffer.grow
        )
        self._tasks: list[asyncio.Task[None]] = [
            self._loop.create_task(growth, name=f"partitions of {route.name}")
        ]
        #: What a producer does that knows another place for what a sealed log refuses.
        self._on_sealed: Callable[[Batch, list[Buffer]], None] | None = None
        self._unsettled: set[Batch] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._failed_records = 0
        self._first_failure: RunnelError | None = None
        self._ended = False
        self._on_closed = closed

    def __repr__(self) -> str:
        counts = self._counts
        state = ", closed" if self._send_buffer.closed else ""
        return (
            f"<runnel.Producer of {self.topic!r}: {counts.records} records sent,"
            f" {counts.failed_records} failed{state}>"
        )

    @property
    def topic(self) -> str:
        """The name of its topic."""
        return self._route.name

    @property
    def metrics(self) -> ProducerMetrics:
        """Counts since the producer was opened."""
        return self._counts.metrics(self._send_buffer.buffered_bytes())

    @property
    def first_failure(self) -> RunnelError | None:
        """Why the first record failed of those that did since the last `flush`, which raises it."""
        return self._first_failure

    async def send_table(
        self,
        table: Any,
        *,
        transaction_ids: Any = None,
        partition: int | None = None,
        on_progress: Progress | None = None,
    ) -> TableDelivery:
        """Add a table with the column value and optionally key, timestamp, headers; for a typed
        topic, with the topic's columns.

        A table is one of pyarrow, pandas, polars or duckdb, a dict of columns, or rows: a list or a
        generator of dicts or dataclass instances. Times without a time zone are refused where the
        column has one.

        Waits for room between pieces, so the table may be larger than the buffer. Records of one
        key keep their order, among themselves and with those of `send`. ``transaction_ids``: one
        for all records, or an array with one for each, which never fall. ``partition``: where all
        of them go, whatever their keys. ``on_progress`` is called with the records and bytes added
        so far. Raises InvalidRequestError that names the columns,
        RecordTooLargeError that names the row; nothing was sent then.
        """
        made: list[Batch] = []
        for add_piece in self.table_pieces(table, transaction_ids, on_progress, partition):
            await self.drain()
            made.extend(add_piece())
        return TableDelivery(made)

    def table_pieces(
        self,
        table: Any,
        transaction_ids: Any = None,
        on_progress: Progress | None = None,
        partition: int | None = None,
    ) -> Iterator[Callable[[], list[Batch]]]:
        """Check a table and cut it; each piece is added by calling it. For any thread."""
        layout = self._layout
        if layout is None:
            parts = measured(record_table(table, _now_us()))
        else:
            parts = measured(layout.table(table, self.topic), row_sizes)
        check_sizes(parts, self._route.topic.max_record_size, self.topic)
        with_ids = transaction_ids is not None
        if with_ids:
            parts = with_transaction_ids(parts, transaction_ids)
        wanted = self.settings.batch_bytes * min(self._route.partition_count, 16)
        sent_records = sent_bytes = 0

        def add(piece: SizedRows) -> list[Batch]:
            nonlocal sent_records, sent_bytes
            made = self._send_buffer.add_table(piece, with_ids=with_ids, partition=partition)
            if on_progress is not None:
                sent_records += piece.rows.num_rows
                sent_bytes += sum(batch.size for batch in made)
                on_progress(sent_records, sent_bytes)
            return made

        piece_bytes = max(min(wanted, self.settings.buffer_bytes // 2), 1)
        for piece in chunks(parts, piece_bytes):
            yield lambda piece=piece: add(piece)  # type: ignore[misc]

    async def drain(self) -> None:
        """Wait until the buffer has room; returns at once when it has."""
        while not self._send_buffer.has_room():
            # Only this loop makes room: none can have come since the question.
            self._drained.clear()
            await self._drained.wait()

    async def flush(self) -> None:
        """Send all records added so far and wait for their outcome.

        Raises the first failure since the last flush, with the number of records that failed;
        InvalidRequestError in a fork of the process that opened the producer.
        """
        self._opened_in.require()
        self._send_buffer.seal_all()
        self._pump()
        waiting = [asyncio.wrap_future(batch.outcome) for batch in self._unsettled]
        await asyncio.gather(*waiting, return_exceptions=True)
        failure, count = self._first_failure, self._failed_records
        self._first_failure, self._failed_records = None, 0
        if failure is not None:
            raise error_from(
                failure.code,
                f"{count} records for topic {self.topic!r} were not delivered. First failure:"
                f" {failure.message}",
                {**failure.details, "records": count},
            ) from failure

    async def close(self) -> None:
        """Take no more records, flush, then end. Raises what `flush` raises; the producer is closed
        all the same. If it is cancelled, records without an outcome fail.
        """
        if self._ended or not self._opened_in.is_this:
            return
        try:
            await self._flush_last()
        finally:
            await self.abort()

    async def _flush_last(self) -> None:
        # First: what others send while this flushes must be refused, as nobody would deliver it.
        self._send_buffer.close()
        # Who waits for room hears of it.
        self._drained.set()
        await self.flush()

    async def abort(self) -> None:
        """End without waiting; records without an outcome fail."""
        self._ended = True
        self._send_buffer.close()
        self._pump()
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        try:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        finally:
            # Even if this is cancelled once more.
            for sender in self._senders.values():
                sender.end("the producer was closed")
            self._drained.set()
            self._on_closed(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.leave(error)

    async def leave(self, error: BaseException | None) -> None:
        """End of a ``with`` block: flush. After an error, for a short time only; if interrupted,
        not at all. In a fork, nothing: the parent still uses the producer.
        """
        if not self._opened_in.is_this:
            return
        if error is None:
            await self.close()
            return
        try:
            if isinstance(error, Exception):
                async with asyncio.timeout(_LAST_TRY_S):
                    await self._flush_last()
        except (RunnelError, TimeoutError) as failure:
            error.add_note(f"The producer of {self.topic!r} also failed: {failure}")
        finally:
            await self.abort()

    # In the event loop

    def _pump(self) -> None:
        """Hand ready batches to their senders, and come back when the next one is due."""
        now = monotonic()
        ready, due = self._send_buffer.take(now)
        for batch in ready:
            self._unsettled.add(batch)
            self._sender(batch.partition).put(batch)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due is not None and not self._send_buffer.closed:
            self._timer = self._loop.call_later(max(0.0, due - now), self._pump)

    def _sender(self, partition: int) -> PartitionSender:
        sender = self._senders.get(partition)
        if sender is None:
            sender = PartitionSender(
                partition,
                self._route,
                self._sender_settings,
                self._counts,
                self._settled,
                monotonic,
                self._on_sealed,
            )
            self._senders[partition] = sender
            self._tasks.append(
                self._loop.create_task(sender.run(), name=f"send {self.topic}/{partition}")
            )
        return sender

    def _settled(self, batch: Batch) -> None:
        self._unsettled.discard(batch)
        failure = batch.outcome.exception()
        if failure is not None:
            self._note_failure(batch, failure)
        self._send_buffer.release(batch)
        self._drained.set()

    def _note_failure(self, batch: Batch, failure: BaseException) -> None:
        self._failed_records += batch.count
        if self._first_failure is None and isinstance(failure, RunnelError):
            self._first_failure = failure


def _now_us() -> int:
    return time_ns() // 1000
