"""A consumer of a stream: all its segments at once, and each key in the order in which it came.

A segment is done when everything before its end was handed out and the user asks for more. Its
successors are read from their beginning once all their predecessors are done. So a reader meets the
records of one key in the order of their writes, whatever was split and merged in between. A sealed
stream ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Final, Literal, Self, TypeVar

import pyarrow as pa

from runnel.consume.consumer import Consumer, check_max_records, check_timeout
from runnel.consume.delivered import FetchedChunk
from runnel.consume.settings import ConsumerSettings
from runnel.records.record import Record
from schemas.backoff import backoff_s
from schemas.control.streams import EpochInfo, SegmentHistory
from schemas.errors import InvalidRequestError, RetryableError
from schemas.streams.epochs import number_of, parse_segment

#: Chunks that wait for the user, of all segments together.
_CHUNKS: Final = 4
_LEAST_READ_AHEAD: Final = 1 << 20
_BACKOFF_MS: Final = (20.0, 1_000.0)

T = TypeVar("T")
StreamStart = Literal["earliest", "latest"]
StreamStop = Literal["latest"] | None
OpenSegment = Callable[[int, StreamStart, StreamStop, ConsumerSettings], Consumer]
"""Gives a consumer of one segment, by its number."""


@dataclass(frozen=True, slots=True)
class _Read:
    """A chunk of a segment; None: everything before its end was read, or before the stop."""

    segment: str
    consumer: Consumer
    chunk: FetchedChunk | None


class StreamConsumer:
    """An asynchronous iterator of records; see the module's text.

    ``ask_epoch`` gives an epoch by its number, or the current one, ``ask_segment`` a segment with
    those before and after it.
    """

    def __init__(
        self,
        stream: str,
        open_segment: OpenSegment,
        ask_epoch: Callable[[int | None], Awaitable[EpochInfo]],
        ask_segment: Callable[[str], Awaitable[SegmentHistory]],
        start: StreamStart,
        stop: StreamStop,
        settings: ConsumerSettings,
        random: Callable[[], float],
        timeout: float | None = None,
    ) -> None:
        if start not in ("earliest", "latest"):
            raise InvalidRequestError(f"start is {start!r}; give 'earliest' or 'latest'")
        if stop not in ("latest", None):
            raise InvalidRequestError(f"stop is {stop!r}; give 'latest' or None")
        self.stream = stream
        self.timeout = check_timeout(timeout)
        self._open_segment = open_segment
        self._ask_epoch = ask_epoch
        self._ask_segment = ask_segment
        self._start_at: StreamStart = start
        self._stop_at: StreamStop = stop
        self._settings = settings
        self._random = random
        self._queue: asyncio.Queue[_Read | BaseException] = asyncio.Queue(_CHUNKS)
        self._readers: dict[str, asyncio.Task[None]] = {}
        self._consumers: dict[str, Consumer] = {}
        #: Segments that end where the stream ended when reading began.
        self._last: set[str] = set()
        self._done: set[str] = set()
        #: Successors that wait, and the predecessors that are not done.
        self._future: dict[str, set[str]] = {}
        #: The consumer of the segment whose records are being handed out.
        self.current: Consumer | None = None
        self._ended: _Read | None = None
        self._started = False
        self._closed = False
        self._failure: BaseException | None = None

    def __repr__(self) -> str:
        state = ", closed" if self._closed else ""
        return f"<runnel.StreamConsumer of {self.stream!r} at {self.position()}{state}>"

    @property
    def exhausted(self) -> bool:
        """Was everything up to ``stop``, or to the end of a sealed stream, handed out?"""
        return self._started and not self._readers and not self._future and self._queue.empty()

    def position(self) -> dict[str, int]:
        """By segment, the offset after the last record that was handed out; segments that are done
        are left out."""
        found = {}
        for segment, consumer in self._consumers.items():
            found.update(dict.fromkeys([segment], consumer.position().get(_number(segment), 0)))
        return found

    async def start(self) -> None:
        """Find the segments to begin with. Raises NotFoundError, NotReadyError."""
        if self._closed:
            raise InvalidRequestError(f"the consumer of {self.stream!r} is closed; open another")
        if self._started:
            return
        current = await self._asked(lambda: self._ask_epoch(None))
        first = current
        if self._start_at == "earliest" and current.epoch:
            first = await self._asked(lambda: self._ask_epoch(0))
        self._started = True
        if self._stop_at is not None:
            self._last = {one.id for one in current.segments}
        for one in first.segments:
            self._begin(one.id, self._start_at)

    async def next_chunk(
        self, timeout: float | None = None
    ) -> tuple[Consumer, FetchedChunk] | None:
        """The next records and the consumer of their segment, or None at the end, or when none came
        for ``timeout`` seconds."""
        if self._failure is not None:
            raise self._failure
        deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
        try:
            async with asyncio.timeout_at(deadline):
                await self.start()
                while True:
                    # What was handed out before this call is processed.
                    if self._ended is not None:
                        await self._go_on_behind(self._ended.segment)
                    if self.exhausted or self._closed:
                        return None
                    item = await self._queue.get()
                    if isinstance(item, BaseException):
                        self._failure = item
                        raise item
                    if item.chunk is not None:
                        return item.consumer, item.chunk
                    self._ended = item
        except TimeoutError:
            return None

    async def batches(self, *, max_records: int | None = None) -> AsyncIterator[pa.RecordBatch]:
        """The records as Arrow record batches, as `Consumer.batches`; the column partition holds
        the numbers of segments."""
        check_max_records(max_records)
        while True:
            current = self.current
            while current is not None and (rest := current.state.rest(max_records)) is not None:
                yield rest
            if not await self.open_next(self.timeout):
                return

    async def poll(self, timeout: float | None = None) -> Record | None:
        """The next record; None when none came within ``timeout`` seconds, and at the end."""
        check_timeout(timeout)
        while True:
            if self.current is not None:
                for record in self.current.state.records():
                    return record
            if not await self.open_next(timeout):
                return None

    async def __aiter__(self) -> AsyncIterator[Record]:
        while True:
            if self.current is not None:
                for record in self.current.state.records():
                    yield record
            if not await self.open_next(self.timeout):
                return

    async def open_next(self, timeout: float | None) -> bool:
        """Take the next chunk, for its consumer to hand out; False at the end, or when none came in
        time."""
        found = await self.next_chunk(timeout)
        if found is None:
            return False
        self.current, chunk = found
        self.current.state.open(chunk)
        return True

    async def close(self) -> None:
        """End reading. May be called again."""
        self._closed = True
        tasks = list(self._readers.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for consumer in self._consumers.values():
            await consumer.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    # Segments

    def _begin(self, segment: str, start: StreamStart) -> None:
        stop: StreamStop = "latest" if segment in self._last else None
        share = self._settings.read_ahead_bytes // max(1, len(self._readers) + 1)
        settings = replace(self._settings, read_ahead_bytes=max(_LEAST_READ_AHEAD, share))
        consumer = self._open_segment(_number(segment), start, stop, settings)
        self._consumers[segment] = consumer
        self._readers[segment] = asyncio.create_task(
            self._read(segment, consumer), name=f"read segment {segment} of {self.stream}"
        )

    async def _read(self, segment: str, consumer: Consumer) -> None:
        try:
            while (chunk := await consumer.next_chunk()) is not None:
                await self._queue.put(_Read(segment, consumer, chunk))
            await self._queue.put(_Read(segment, consumer, None))
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            await self._queue.put(error)

    async def _go_on_behind(self, segment: str) -> None:
        """A segment is done: read its successors that wait for nothing else."""
        found: dict[str, set[str]] = {}
        if segment not in self._last:
            successors = (await self._asked(lambda: self._ask_segment(segment))).successors
            for one in successors:
                if one.id not in self._future:
                    history = await self._asked(lambda one=one: self._ask_segment(one.id))  # type: ignore[misc]
                    found[one.id] = {before.id for before in history.predecessors} - self._done
        # Nothing waits from here on: a timeout of the user comes before or after all of it.
        self._ended = None
        self._done.add(segment)
        self._future.update(found)
        self._readers.pop(segment)
        done = self._consumers.pop(segment)
        for later, missing in list(self._future.items()):
            missing.discard(segment)
            if not missing:
                del self._future[later]
                self._begin(later, "earliest")
        await done.close()

    async def _asked(self, ask: Callable[[], Awaitable[T]]) -> T:
        """An answer of an SC; what is read already is handed out while none answers."""
        attempt = 0
        while True:
            try:
                return await ask()
            except RetryableError:
                if not self._started:
                    raise
            await asyncio.sleep(backoff_s(attempt, *_BACKOFF_MS, self._random()))
            attempt += 1


def _number(segment: str) -> int:
    return number_of(parse_segment(segment))
