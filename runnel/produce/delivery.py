"""Handles of what was sent: cheap, because all records of a batch share one future.

The future is one of threads (`concurrent.futures`), so that a handle works in both facades:
``delivery.result()`` blocks, ``await delivery`` does not.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from contextlib import suppress
from typing import Final, Protocol

from runnel.fork import OpenedIn, tell_forks
from runnel.produce.batch import ProducerBatch
from runnel.records.record import BatchMetadata, RecordMetadata
from runnel.waiters import Waiters
from schemas.errors import DeadlineExceededError, RunnelError

MOVED: Final = -2
"""The outcome of a batch whose records went elsewhere, once all of these have an outcome."""


class Outcome(Future[int]):
    """The base offset of a batch, once it is in the log; -1 if nothing is acknowledged, `MOVED` if
    its records went elsewhere.

    Nobody but the thread that learns it takes the lock of the future: Ctrl-C may leave that held in
    another one (see `runnel.waiters`), and the client's loop would wait for it.
    """

    def __init__(self, topic: str) -> None:
        super().__init__()
        self.topic = topic
        self.opened_in = OpenedIn()
        self._await_it = Waiters()
        self._to_call: deque[Callable[[Future[int]], object]] = deque()
        self.set_running_or_notify_cancel()
        tell_forks(self)

    def __repr__(self) -> str:
        return f"<outcome of a batch for topic {self.topic!r}: {self._state.lower()}>"

    def forked(self) -> None:
        """Let the child ask: another thread of the parent may have held the lock."""
        self._condition = threading.Condition()

    def cancel(self) -> bool:
        """No: a caller that stops waiting must not stop the batch."""
        return False

    def cancelled(self) -> bool:
        """Never."""
        return False

    def running(self) -> bool:
        """Is it not known yet?"""
        return not self.done()

    def done(self) -> bool:
        """Is it known?"""
        return self._state == "FINISHED"

    def result(self, timeout: float | None = None) -> int:
        """The base offset, once it is known. Raises the error of the batch, TimeoutError."""
        if not self.wait(timeout):
            raise TimeoutError
        if self._exception is not None:
            raise self._exception
        return self._result  # type: ignore[return-value]

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The error of the batch, once it is known. Raises TimeoutError."""
        if not self.wait(timeout):
            raise TimeoutError
        return self._exception

    def add_done_callback(self, fn: Callable[[Future[int]], object]) -> None:
        """Have ``fn`` called when it is known: here if it is, else in the thread that learns it."""
        self._to_call.append(fn)
        if self.done():
            # Those of others are not called here: Ctrl-C may come before they are.
            with suppress(ValueError):
                self._to_call.remove(fn)
                self._call(fn)

    def set_result(self, result: int) -> None:
        """The batch is in the log."""
        super().set_result(result)
        self._tell()

    def set_exception(self, exception: BaseException | None) -> None:
        """The batch failed."""
        super().set_exception(exception)
        self._tell()

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until it is known, at most so long; is it?"""
        return self.done() or self._await_it.wait(self.done, timeout_s)

    def waited_for(self) -> Outcome:
        """Itself. Raises InvalidRequestError in a fork of the process, where it will never be
        known, unless it is known already."""
        if not self.done():
            self.opened_in.require()
        return self

    def _tell(self) -> None:
        # A callback may wait for somebody who waits here.
        self._await_it.tell_all()
        while self._to_call:
            with suppress(IndexError):
                self._call(self._to_call.popleft())

    def _call(self, fn: Callable[[Future[int]], object]) -> None:
        try:
            fn(self)
        except Exception:
            # As in other futures: the batch is delivered, whatever it is.
            _log.exception("a callback of a batch for topic %r failed", self.topic)


Batch = ProducerBatch[Outcome]
#: Called with the error of a record that was not delivered and None, or with None and its metadata.
OnDelivery = Callable[[RunnelError | None, RecordMetadata | None], object]

_log = logging.getLogger("runnel")


def _wait(outcome: Outcome, timeout: float | None) -> int:
    if not outcome.waited_for().done() and asyncio._get_running_loop() is not None:
        raise RuntimeError("result() would block the event loop; await the delivery instead")
    if not outcome.wait(timeout):
        raise DeadlineExceededError(
            f"not acknowledged within {timeout} s; it is still being sent to {outcome.topic!r}"
        )
    return outcome.result()


class Source(Protocol):
    """The place where a record was put: it knows, or finds out, the batch."""

    def place(self, index: int) -> tuple[Batch, int]:
        """The batch of a record, and its row there."""
        ...


class Delivery:
    """The handle of one record.

    There is one for every record: it is made without arguments and filled by `Producer.send`,
    because a constructor would cost as much as all the rest.
    """

    __slots__ = ("_index", "_source")
    _source: Source
    _index: int

    def done(self) -> bool:
        """Is the outcome known?"""
        return self._batch.outcome.done()

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Block until the record is acknowledged, at most ``timeout`` seconds.

        Raises the delivery's error, or DeadlineExceededError after ``timeout``; the record is still
        being sent then.
        """
        return self._located(_wait(self._batch.outcome, timeout))

    def __await__(self) -> Generator[object, None, RecordMetadata]:
        outcome = self._batch.outcome.waited_for()
        base_offset = yield from asyncio.wrap_future(outcome).__await__()
        return self._located(base_offset)

    def call(self, on_delivery: OnDelivery) -> None:
        """Call a function when the outcome is known, in the thread that learns it."""

        def tell(outcome: Future[int]) -> None:
            error, located = None, None
            try:
                located = self._located(outcome.result())
            except RunnelError as failure:
                # Senders fail batches with nothing else.
                error = failure
            try:
                on_delivery(error, located)
            except BaseException:
                # The records of others are still being sent, whatever it is.
                _log.exception(
                    "on_delivery of a record for topic %r failed", self._batch.outcome.topic
                )

        self._batch.outcome.add_done_callback(tell)

    @property
    def _batch(self) -> Batch:
        return self._source.place(self._index)[0]

    def _located(self, base_offset: int) -> RecordMetadata:
        batch, index = self._source.place(self._index)
        if base_offset == MOVED:
            batch, index = _moved_to(batch, index)
            base_offset = batch.outcome.result()
        return RecordMetadata(
            batch.outcome.topic,
            batch.partition,
            base_offset + index if base_offset >= 0 else -1,
            batch.timestamp_us(index),
        )


class TableDelivery:
    """The handle of a table: its batches, each in one partition."""

    __slots__ = ("_batches",)

    def __init__(self, batches: list[Batch]) -> None:
        self._batches = batches

    def done(self) -> bool:
        """Are all outcomes known?"""
        return all(batch.outcome.done() for batch in self._batches)

    def result(self, timeout: float | None = None) -> tuple[BatchMetadata, ...]:
        """Block until every batch is acknowledged; ``timeout`` seconds bound each of the waits."""
        return tuple(
            found
            for batch in self._batches
            for found in _located_all(batch, _wait(batch.outcome, timeout))
        )

    def __await__(self) -> Generator[object, None, tuple[BatchMetadata, ...]]:
        found: list[BatchMetadata] = []
        for batch in self._batches:
            outcome = batch.outcome.waited_for()
            base_offset = yield from asyncio.wrap_future(outcome).__await__()
            found.extend(_located_all(batch, base_offset))
        return tuple(found)


def _moved_to(batch: Batch, index: int) -> tuple[Batch, int]:
    """The batch that a record went to at last, and its row there."""
    while batch.moved is not None:
        batch, index = batch.moved[index]
    return batch, index


def _located_all(batch: Batch, base_offset: int) -> Iterator[BatchMetadata]:
    """Where a batch is in the log, or the batches that its records went to."""
    if batch.moved is None:
        yield BatchMetadata(batch.outcome.topic, batch.partition, base_offset, batch.count)
        return
    for part in dict.fromkeys(part for part, _ in batch.moved):
        yield from _located_all(part, part.outcome.result())
