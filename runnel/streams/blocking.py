"""The blocking facades of a stream's producer and consumer."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from runnel.consume.consumer import check_max_records, check_timeout
from runnel.consume.one_reader import OneReader
from runnel.loop_thread import ClosedError, LoopThread
from runnel.produce import blocking
from runnel.produce.delivery import Batch, Delivery, OnDelivery, TableDelivery
from runnel.produce.producer import Progress
from runnel.records.record import Record, Value
from runnel.streams import consumer, producer
from schemas.streams.cuts import StreamCut


class StreamProducer(blocking.Producer):
    """Sends records to one stream; use it with ``with``, which flushes at the end."""

    _inner: producer.StreamProducer

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
        """Add one record; the key decides the segment. Waits while the buffer is full. See
        `runnel.streams.producer.StreamProducer.send`."""
        return self._inner.send(
            value, key, timestamp, headers, partition, transaction_id, on_delivery
        )

    def send_table(
        self,
        table: Any,
        *,
        transaction_ids: Any = None,
        partition: int | None = None,
        on_progress: Progress | None = None,
    ) -> TableDelivery:
        """Add a table with the column value and optionally key, timestamp, headers; keys decide the
        segments. Waits while the buffer is full."""
        made: list[Batch] = []
        for add_piece in self._inner.table_pieces(table, transaction_ids, on_progress, partition):
            self._thread.call(self._inner.drain())
            made.extend(add_piece())
        return TableDelivery(made)


class StreamConsumer:
    """Iterates over the records of a stream; see `runnel.streams.consumer`. One thread at a time
    reads from it; any may close it."""

    def __init__(self, thread: LoopThread, inner: consumer.StreamConsumer) -> None:
        self._thread = thread
        self._inner = inner
        self._one = OneReader(f"the consumer of {inner.stream!r}")
        # A loop that was left has no more use for its consumer, which must stop fetching.
        self._finalizer = weakref.finalize(self, _forget, thread, inner)
        self._finalizer.atexit = False

    def __repr__(self) -> str:
        return repr(self._inner)

    @property
    def stream(self) -> str:
        """The name of its stream."""
        return self._inner.stream

    @property
    def exhausted(self) -> bool:
        """Was everything up to ``stop``, or to the end of a sealed stream, handed out?"""
        return self._inner.exhausted

    def position(self) -> StreamCut:
        """The place after the last record that was handed out: a consumer that starts there goes
        on with the next one. Raises InvalidRequestError before reading began: ``with`` begins
        it, or the first record."""
        return self._inner.position()

    def __iter__(self) -> Iterator[Record]:
        inner = self._inner
        while True:
            with self._one:
                if inner.current is not None:
                    yield from inner.current.state.records()
                if not self._thread.call(inner.open_next(inner.timeout)):
                    return

    def poll(self, timeout: float | None = None) -> Record | None:
        """The next record; None when none came within ``timeout`` seconds, and at the end."""
        check_timeout(timeout)
        inner = self._inner
        with self._one:
            while True:
                if inner.current is not None:
                    for record in inner.current.state.records():
                        return record
                if not self._thread.call(inner.open_next(timeout)):
                    return None

    def batches(self, *, max_records: int | None = None) -> Iterator[pa.RecordBatch]:
        """The records as Arrow record batches; the column partition holds the numbers of
        segments."""
        check_max_records(max_records)
        inner = self._inner
        while True:
            with self._one:
                current = inner.current
                while current is not None and (rest := current.state.rest(max_records)) is not None:
                    yield rest
                if not self._thread.call(inner.open_next(inner.timeout)):
                    return

    def close(self) -> None:
        """End reading. May be called again."""
        with suppress(ClosedError):
            if self._thread.running:
                self._thread.end(self._inner.close(), self._inner.forget)
        self._finalizer.detach()

    def __enter__(self) -> Self:
        try:
            self._thread.call(self._inner.start())
        except BaseException:
            # Its block, whose end would close it, does not begin.
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _forget(thread: LoopThread, inner: consumer.StreamConsumer) -> None:
    thread.soon(inner.forget)
