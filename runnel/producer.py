"""The producer: gathers records into batches and sends them, one sender per partition.

`Producer.send` may be called from any thread and never waits: it takes a short lock, appends to
the open batch of the record's partition, and returns a handle. The event loop is woken only
when a batch begins or is full. Everything accepted and not yet acknowledged counts against
``buffer_bytes``; at the limit `send` raises OverloadedError until `drain` has made room (the
blocking facade waits instead).

Neighbours: `runnel.batching` decides what is in a batch and when it is ready,
`runnel.partition_sender` gets it there in order and once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from time import monotonic, time_ns
from types import TracebackType
from typing import Any, Final, Literal, Self, TypedDict

import pyarrow as pa

from runnel.batching import Accumulator
from runnel.columns import check_sizes, chunks, record_table
from runnel.delivery import Batch, Delivery, Outcome, TableDelivery
from runnel.partition_sender import PartitionSender, SendCounts, SenderSettings
from runnel.record import Headers, timestamp_us_of
from runnel.routing import TopicRoute
from schemas.batch import CODECS
from schemas.errors import InvalidRequestError, OverloadedError, RunnelError, error_from
from schemas.protocol import Acks
from schemas.topic import MAX_BATCH_BYTES

Progress = Callable[[int, int], None]
#: A batch is encoded, framed and copied: half of what any hop takes leaves room for all that.
MAX_CONFIGURED_BATCH_BYTES: Final = MAX_BATCH_BYTES // 2
MAX_IN_FLIGHT: Final = 5
#: How long a `with` block that ends in an error still tries to get records out.
_LAST_TRY_S: Final = 5.0
#: How long a thread sleeps at most before it looks again whether there is room.
_ROOM_POLL_S: Final = 1.0
_new_tuple: Final = tuple.__new__


class ProducerOptions(TypedDict, total=False):
    """What `producer(topic, …)` takes; see `ProducerSettings` for meaning and defaults."""

    acks: Literal["committed", "leader", "none"]
    compression: Literal["none", "lz4", "zstd"] | None
    batch_bytes: int
    linger_ms: float
    buffer_bytes: int
    max_in_flight: int
    delivery_timeout_ms: int
    request_timeout_ms: int


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """``acks``: when a record counts as delivered. ``compression``: None means the topic's.

    ``linger_ms``: how long a batch waits for more records. ``buffer_bytes`` bounds what is
    accepted and not acknowledged. ``max_in_flight`` batches per partition are under way at once
    (leaders recognise duplicates among the last five). After ``delivery_timeout_ms`` a batch
    fails; one attempt takes at most ``request_timeout_ms``.
    """

    acks: Literal["committed", "leader", "none"] = "committed"
    compression: Literal["none", "lz4", "zstd"] | None = None
    batch_bytes: int = 1 << 20
    linger_ms: float = 5.0
    buffer_bytes: int = 64 << 20
    max_in_flight: int = MAX_IN_FLIGHT
    delivery_timeout_ms: int = 120_000
    request_timeout_ms: int = 30_000

    def __post_init__(self) -> None:
        bounds = (
            ("batch_bytes", self.batch_bytes, 1, MAX_CONFIGURED_BATCH_BYTES),
            ("linger_ms", self.linger_ms, 0, 60_000),
            ("buffer_bytes", self.buffer_bytes, 1, 1 << 40),
            ("max_in_flight", self.max_in_flight, 1, MAX_IN_FLIGHT),
            ("delivery_timeout_ms", self.delivery_timeout_ms, 1, 86_400_000),
            ("request_timeout_ms", self.request_timeout_ms, 1, 600_000),
        )
        for name, value, low, high in bounds:
            if not low <= value <= high:
                raise InvalidRequestError(f"{name} is {value}; {low} to {high} is possible")
        if self.acks.upper() not in Acks.__members__:
            raise InvalidRequestError(f"acks is {self.acks!r}; give committed, leader or none")
        if self.compression is not None and self.compression not in CODECS:
            raise InvalidRequestError(
                f"compression is {self.compression!r}; give {', '.join(CODECS)}"
            )


@dataclass(frozen=True, slots=True)
class ProducerMetrics:
    """Counts since the producer was opened; bytes are as sent, after compression."""

    records_sent: int
    bytes_sent: int
    batches_sent: int
    records_failed: int
    retries: int
    buffered_bytes: int


class Producer:
    """See the module's text.

    ``random_id``: 64 random bits, not 0. ``wait_for_room``: `send` waits while the buffer is full
    instead of raising; only for callers outside of the event loop.
    """

    def __init__(
        self,
        route: TopicRoute,
        settings: ProducerSettings,
        *,
        random_id: int,
        wait_for_room: bool = False,
        closed: Callable[[Producer], None] = lambda _producer: None,
    ) -> None:
        self.settings = settings
        self._route = route
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        # Notified whenever a batch leaves the buffer.
        self._room = threading.Condition(self._lock)
        self._wait_for_room = wait_for_room
        # Negative once the producer is closed: one comparison finds both.
        self._limit_bytes = settings.buffer_bytes
        self._drained = asyncio.Event()
        self._drained.set()
        acks = Acks[settings.acks.upper()]
        self._accumulator: Accumulator[Outcome] = Accumulator(
            route.name,
            route.partition_count,
            max_record_bytes=route.topic.max_record_size,
            batch_bytes=settings.batch_bytes,
            linger_s=settings.linger_ms / 1000,
            clock=monotonic,
            new_outcome=lambda: Outcome(route.name),
            first_sticky=random_id % route.partition_count,
        )
        self._sender_settings = SenderSettings(
            producer_id=0 if acks is Acks.NONE else random_id,
            acks=acks,
            codec=settings.compression or str(route.topic.compression),
            max_in_flight=settings.max_in_flight,
            delivery_timeout_ms=settings.delivery_timeout_ms,
            request_timeout_ms=settings.request_timeout_ms,
        )
        self._counts = SendCounts()
        self._senders: dict[int, PartitionSender] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._unsettled: set[Batch] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._failed_records = 0
        self._first_failure: RunnelError | None = None
        self._closed = False
        self._on_closed = closed

    @property
    def topic(self) -> str:
        return self._route.name

    @property
    def metrics(self) -> ProducerMetrics:
        counts = self._counts
        return ProducerMetrics(
            counts.records,
            counts.bytes,
            counts.batches,
            counts.failed_records,
            counts.retries,
            self._accumulator.buffered_bytes,
        )

    # Sending

    def send(
        self,
        value: bytes | str | None,
        key: bytes | str | None = None,
        *,
        timestamp: int | datetime | None = None,
        headers: Mapping[str, bytes | None] | Sequence[tuple[str, bytes | None]] | None = None,
        partition: int | None = None,
    ) -> Delivery:
        """Add one record; returns at once. Text is sent as UTF-8.

        ``timestamp``: a datetime with a time zone, or microseconds since the epoch; now, if left
        out. Records of one key keep their order. Raises OverloadedError when the buffer is full
        (await `drain`), RecordTooLargeError, InvalidRequestError.
        """
        if type(value) is not bytes and value is not None:
            value = _as_bytes("value", value)
        if key is not None and type(key) is not bytes:
            key = _as_bytes("key", key)
        when_us = time_ns() // 1000 if timestamp is None else _as_timestamp_us(timestamp)
        pairs = _as_headers(headers) if headers else ()
        accumulator = self._accumulator
        with self._lock:
            if accumulator.buffered_bytes >= self._limit_bytes:
                self._require_room()
            batch = accumulator.append(key, value, when_us, pairs, partition)
            delivery = _new_tuple(Delivery, (batch, batch.count - 1))
            if accumulator.wake:
                accumulator.wake = False
                self._loop.call_soon_threadsafe(self._pump)
        return delivery

    async def send_table(self, table: Any, *, on_progress: Progress | None = None) -> TableDelivery:
        """Add a table with the column value, and if you like key, timestamp, headers.

        Waits for room between pieces, so the table may be larger than the buffer. Records of one
        key keep their order, among themselves and with those of `send`. ``on_progress`` is given
        the records and bytes added so far. Raises InvalidRequestError that names the columns,
        RecordTooLargeError that names the row; nothing was sent then.
        """
        made: list[Batch] = []
        for add_piece in self.table_pieces(table, on_progress):
            await self.drain()
            made.extend(add_piece())
        return TableDelivery(made)

    def table_pieces(
        self, table: Any, on_progress: Progress | None = None
    ) -> Iterator[Callable[[], list[Batch]]]:
        """Check a table and cut it; each piece is added by calling it. For any thread."""
        rows = record_table(table, time_ns() // 1000)
        check_sizes(rows, self._route.topic.max_record_size, self.topic)
        wanted = self.settings.batch_bytes * min(self._route.partition_count, 16)
        sent_records = sent_bytes = 0

        def add(piece: pa.RecordBatch) -> list[Batch]:
            nonlocal sent_records, sent_bytes
            with self._lock:
                if self._wait_for_room or self._closed:
                    self._require_room()
                made = self._accumulator.append_table(piece)
                self._accumulator.wake = False
            self._loop.call_soon_threadsafe(self._pump)
            if on_progress is not None:
                sent_records += piece.num_rows
                sent_bytes += sum(batch.size for batch in made)
                on_progress(sent_records, sent_bytes)
            return made

        for piece in chunks(rows, max(min(wanted, self.settings.buffer_bytes // 2), 1)):
            yield lambda piece=piece: add(piece)  # type: ignore[misc]

    async def drain(self) -> None:
        """Wait until the buffer has room; returns at once when it has."""
        while True:
            with self._lock:
                if self._closed or self._accumulator.buffered_bytes < self._limit_bytes:
                    return
                self._drained.clear()
            await self._drained.wait()

    async def flush(self) -> None:
        """Send what is gathered so far and wait for its outcome.

        Raises the first failure since the last flush, with the number of records it concerns.
        """
        with self._lock:
            self._accumulator.seal_all()
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
        """Flush, then end. Raises what `flush` raises; the producer is closed all the same."""
        if self._closed:
            return
        try:
            await self.flush()
        finally:
            await self.abort()

    async def abort(self) -> None:
        """End without waiting; records without an outcome fail."""
        with self._lock:
            self._closed = True
            self._limit_bytes = -1
            self._accumulator.seal_all()
        self._pump()
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for sender in self._senders.values():
            sender.end("the producer was closed")
        self._drained.set()
        with self._lock:
            self._room.notify_all()
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
        """End of a `with` block: flush; after an error for a short time only; if interrupted not
        at all."""
        if error is None:
            await self.close()
            return
        try:
            if isinstance(error, Exception):
                async with asyncio.timeout(_LAST_TRY_S):
                    await self.flush()
        except (RunnelError, TimeoutError) as failure:
            error.add_note(f"The producer of {self.topic!r} also failed: {failure}")
        finally:
            await self.abort()

    # In the event loop

    def _pump(self) -> None:
        """Hand ready batches to their senders, and come back when the next one is due."""
        now = monotonic()
        with self._lock:
            ready, due = self._accumulator.take(now)
        for batch in ready:
            self._unsettled.add(batch)
            self._sender(batch.partition).put(batch)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due is not None and not self._closed:
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
            self._failed_records += batch.count
            if self._first_failure is None and isinstance(failure, RunnelError):
                self._first_failure = failure
        with self._lock:
            self._accumulator.release(batch.size)
            self._room.notify_all()
        self._drained.set()

    def _require_room(self) -> None:
        """Wait for room where that is allowed, with the lock held. Raises OverloadedError where
        it is not, InvalidRequestError once the producer is closed."""
        while not self._closed and self._accumulator.buffered_bytes >= self._limit_bytes:
            if not self._wait_for_room:
                raise OverloadedError(
                    f"{self._accumulator.buffered_bytes} bytes for {self.topic!r} wait to be"
                    f" acknowledged, the limit is {self._limit_bytes}; await producer.drain(), or"
                    " raise buffer_bytes"
                )
            # Bounded, so that Ctrl-C is never far away on any platform.
            self._room.wait(_ROOM_POLL_S)
        if self._closed:
            raise InvalidRequestError(f"the producer of {self.topic!r} is closed; open another one")


def _as_bytes(what: str, data: object) -> bytes:
    if isinstance(data, str):
        return data.encode()
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise InvalidRequestError(
        f"the {what} is {type(data).__name__}; give bytes or text, for example json.dumps(data)"
    )


def _as_timestamp_us(timestamp: Any) -> int:
    if isinstance(timestamp, datetime):
        try:
            return timestamp_us_of(timestamp)
        except ValueError as error:
            raise InvalidRequestError(f"timestamp: {error}") from error
    if not isinstance(timestamp, int) or not 0 <= timestamp < 1 << 62:
        raise InvalidRequestError(
            f"timestamp {timestamp!r} is neither a datetime nor microseconds since the epoch"
        )
    return timestamp


def _as_headers(headers: Any) -> Headers:
    pairs = tuple(headers.items() if isinstance(headers, Mapping) else headers)
    for pair in pairs:
        if (
            not isinstance(pair, tuple)
            or len(pair) != 2
            or not isinstance(pair[0], str)
            or not isinstance(pair[1], bytes | None)
        ):
            raise InvalidRequestError(f"header {pair!r} is not a pair of a name and bytes")
    return pairs
