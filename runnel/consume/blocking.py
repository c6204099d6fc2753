"""The blocking facade of a consumer. One thread at a time reads from it (`OneReader`); any thread
may close it, commit offsets that it names, or ask for its position and metrics.

A chunk that has arrived is taken without a call to the loop.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from time import monotonic
from types import TracebackType
from typing import Self

import pyarrow as pa

from runnel.consume import consumer
from runnel.consume.counts import ConsumerMetrics
from runnel.consume.delivered import FetchedChunk
from runnel.consume.one_reader import OneReader
from runnel.loop_thread import ClosedError, LoopThread, blocking_form_of
from runnel.net.offsets import Start
from runnel.records.offset_and_term import OffsetAndTerm
from runnel.records.record import Record


class Consumer:
    """Iterates over the records of a topic; see `runnel.client.Cluster.consumer`."""

    def __init__(self, thread: LoopThread, inner: consumer.Consumer) -> None:
        self._thread = thread
        self._inner = inner
        self._one = OneReader(f"the consumer of {inner.topic!r}")
        # A loop that was left has no more use for its consumer, which must stop fetching.
        self._finalizer = weakref.finalize(self, _forget, thread, inner)
        self._finalizer.atexit = False

    def __repr__(self) -> str:
        return repr(self._inner)

    @property
    def topic(self) -> str:
        """The name of its topic."""
        return self._inner.topic

    @property
    def metrics(self) -> ConsumerMetrics:
        """Counts since the consumer was opened."""
        return self._inner.metrics

    def __iter__(self) -> Iterator[Record]:
        state = self._inner.state
        while True:
            with self._one:
                yield from state.records()
                if (chunk := self._next_chunk(self._inner.timeout)) is None:
                    return
                state.open(chunk)

    @blocking_form_of(consumer.Consumer.poll)
    def poll(self, timeout: float | None = None) -> Record | None:
        """The next record; None when none came within ``timeout`` seconds, and at the end."""
        consumer.check_timeout(timeout)
        state = self._inner.state
        with self._one:
            while True:
                for record in state.records():
                    return record
                if (chunk := self._next_chunk(timeout)) is None:
                    return None
                state.open(chunk)

    def __next__(self) -> Record:
        if (record := self.poll(self._inner.timeout)) is None:
            raise StopIteration
        return record

    @property
    def exhausted(self) -> bool:
        """Was everything up to ``stop`` handed out, and the end met?"""
        return self._inner.exhausted

    def batches(self, *, max_records: int | None = None) -> Iterator[pa.RecordBatch]:
        """The records as Arrow record batches with the columns partition, offset, timestamp, key,
        value, headers; each batch is of one partition, and has at most ``max_records``. With a
        name, a batch counts as processed once the next one is asked for."""
        consumer.check_max_records(max_records)
        state = self._inner.state
        while True:
            with self._one:
                while (rest := state.rest(max_records)) is not None:
                    yield rest
                if (chunk := self._next_chunk(self._inner.timeout)) is None:
                    return
                state.open(chunk)

    def _next_chunk(self, timeout: float | None = None) -> FetchedChunk | None:
        inner, thread = self._inner, self._thread
        waited = not inner.closed
        deadline = None if timeout is None else monotonic() + timeout
        if (
            thread.running
            and not thread.is_current
            and (chunk := inner.next_delivered(thread.loop, deadline)) is not None
        ):
            return chunk
        left_s = None if deadline is None else max(0.0, deadline - monotonic())
        return thread.call(inner.next_chunk(waited=waited, timeout=left_s))

    def position(self) -> dict[int, int]:
        """Per partition the offset after the last record that was handed out."""
        return self._inner.position()

    @blocking_form_of(consumer.Consumer.position_with_terms)
    def position_with_terms(self) -> dict[int, OffsetAndTerm]:
        """As `position`, with what identifies the records below."""
        return self._inner.position_with_terms()

    @blocking_form_of(consumer.Consumer.seek)
    def seek(self, to: Start, partitions: Iterable[int] | None = None) -> None:
        """Read on from another place: `position` is there when this returns."""
        with self._one:
            self._thread.call(self._inner.seek(to, partitions))

    @blocking_form_of(consumer.Consumer.pause)
    def pause(self, partitions: Iterable[int] | None = None) -> None:
        """Hand out no records of these partitions (default: all that are read) until `resume`."""
        with self._one:
            self._thread.call(self._inner.pause(partitions))

    @blocking_form_of(consumer.Consumer.resume)
    def resume(self, partitions: Iterable[int] | None = None) -> None:
        """Go on with paused partitions (default: all), where they were."""
        with self._one:
            self._thread.call(self._inner.resume(partitions))

    def paused(self) -> frozenset[int]:
        """The partitions that are paused."""
        return self._inner.paused()

    @property
    def name(self) -> str | None:
        """The name that it commits under, if it has one."""
        return self._inner.name

    @blocking_form_of(consumer.Consumer.commit)
    def commit(self, offsets: Mapping[int, int] | None = None) -> None:
        """Commit everything handed out (`position`), or these offsets, under its name."""
        if offsets is not None:
            # Whoever names what is processed does not touch what is in hand.
            self._thread.call(self._inner.commit(offsets))
            return
        with self._one:
            self._thread.call(self._inner.commit())

    @blocking_form_of(consumer.Consumer.close)
    def close(self, *, commit: bool = True) -> None:
        """Stop fetching. A call that waits for the next records raises that it is closed."""
        if self._thread.running:
            self._thread.end(self._inner.close(commit=commit), self._inner.drop)
        self._finalizer.detach()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            # Before the call, which another signal may interrupt: `close` comes after that.
            self._inner.break_off()
        with suppress(ClosedError):
            if self._thread.running:
                self._thread.end(self._inner.leave(error), self._inner.drop)
        self._finalizer.detach()


def drop(facade: Consumer) -> None:
    """End one that nobody will read from, without waiting. In the loop."""
    facade._inner.drop()


def _forget(thread: LoopThread, inner: consumer.Consumer) -> None:
    thread.soon(inner.forget)
