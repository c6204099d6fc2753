"""A consumer of a stream: all its segments at once, and each key in the order in which it came.

A segment is done when everything before its end was handed out and the user asks for more. Its
successors are read from their beginning once all their predecessors are done. So a reader meets the
records of one key in the order of their writes, whatever was split and merged in between. A sealed
stream ends. Its position is a stream cut, and it can begin and stop at one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Final, Literal, Self, TypeVar

import pyarrow as pa

from runnel.consume.consumer import Consumer, check_max_records, check_timeout
from runnel.consume.delivered import FetchedChunk
from runnel.consume.settings import ConsumerSettings
from runnel.fork import OpenedIn
from runnel.kept_work import KeptWork
from runnel.net.offsets import Start, Stop
from runnel.net.routing import SegmentGoneError
from runnel.records.record import Record
from runnel.streams.places import StreamQueries, StreamStart
from schemas.backoff import backoff_s
from schemas.control.streams import SegmentHistory, segment_of
from schemas.errors import (
    InvalidRequestError,
    OffsetOutOfRangeError,
    RetryableError,
)
from schemas.streams.cuts import NOT_BEGUN, Frontier, StreamCut
from schemas.streams.epochs import Segment, segment_text

#: Chunks that wait for the user, of all segments together.
_CHUNKS: Final = 4
_LEAST_READ_AHEAD: Final = 1 << 20
_BACKOFF_MS: Final = (20.0, 1_000.0)
_REMOVED: Final = (
    "removed by a truncation; read from the beginning, or go on with what is there: on_truncated"
    " 'earliest', in the command --on-truncated earliest"
)

_log = logging.getLogger("runnel")

T = TypeVar("T")
StreamStop = Literal["latest"] | StreamCut | None
"""Where to end; None follows until the stream is sealed."""
OpenSegment = Callable[[int, Start, Stop, ConsumerSettings], Consumer]
"""Gives a consumer of one segment, by its number."""


@dataclass(frozen=True, slots=True)
class _Read:
    """A chunk of a segment; None: everything before its end was read, or before the stop.
    ``gone``: the segment was truncated away, wherever it was read."""

    segment: Segment
    consumer: Consumer
    chunk: FetchedChunk | None
    gone: SegmentGoneError | None = None


@dataclass(slots=True)
class _Open:
    """A segment that is being read. ``start`` is the offset of its first record to read."""

    segment: Segment
    start: int
    consumer: Consumer
    reader: asyncio.Task[None]

    def position(self) -> int:
        return self.consumer.position().get(self.segment.number, self.start)


@dataclass(slots=True)
class _Waiting:
    """A successor that waits for predecessors, by their ids."""

    segment: Segment
    missing: set[int]


class StreamConsumer:
    """An asynchronous iterator of records; see the module's text."""

    def __init__(
        self,
        queries: StreamQueries,
        open_segment: OpenSegment,
        start: StreamStart,
        stop: StreamStop,
        settings: ConsumerSettings,
        random: Callable[[], float],
        timeout: float | None = None,
    ) -> None:
        self.stream = stream = queries.stream
        self.timeout = check_timeout(timeout)
        self._opened_in = OpenedIn()
        _check("start", start, stream, "'earliest', 'latest' or a StreamCut")
        if stop is not None:
            _check("stop", stop, stream, "'latest', a StreamCut or None")
        self._open_segment = open_segment
        self._queries = StreamQueries(
            stream,
            lambda number: self._asked(lambda: queries.epoch(number)),
            lambda segment: self._asked(lambda: queries.segment(segment)),
            lambda: self._asked(queries.head),
            lambda numbers: self._asked(lambda: queries.ends(numbers)),
        )
        self._start_at: StreamStart = start
        self._stop_at: StreamStop = stop
        self._settings = settings
        self._random = random
        #: None wakes the call that waits, once the consumer is closed.
        self._queue: asyncio.Queue[_Read | BaseException | None] = asyncio.Queue(_CHUNKS)
        self._uid = ""
        self._first: Frontier | None = None
        self._stop: Frontier | None = None
        #: By the ids of segments: those that are read, those that wait, and those that have no
        #: successors to read, with the offset of the next record.
        self._open: dict[int, _Open] = {}
        self._future: dict[int, _Waiting] = {}
        self._last: dict[int, int] = {}
        self._done: set[int] = set()
        #: The consumer of the segment whose records are being handed out.
        self.current: Consumer | None = None
        self._ended: _Read | None = None
        self._started = False
        # They only ask. A call applies what they found, so nothing changes between calls: another
        # thread may ask for the position then.
        self._starting: KeptWork[Callable[[], None]] = KeptWork(f"open {stream}")
        self._going_on: KeptWork[Callable[[], None]] = KeptWork(f"next segments of {stream}")
        self._closed = False
        self._failure: BaseException | None = None

    def __repr__(self) -> str:
        state = ", closed" if self._closed else f" in {len(self._open)} segments"
        return f"<runnel.StreamConsumer of {self.stream!r}{state}>"

    @property
    def exhausted(self) -> bool:
        """Was everything up to ``stop``, or to the end of a sealed stream, handed out?"""
        return self._started and not self._open and not self._future

    def position(self) -> StreamCut:
        """The place after the last record that was handed out: a consumer that starts there goes
        on with the next one. Raises InvalidRequestError before reading began."""
        if not self._started:
            raise InvalidRequestError(
                f"the consumer of {self.stream!r} has no position before it is open: use `with`,"
                " or read a record"
            )
        offsets = dict(self._last)
        offsets.update(dict.fromkeys(self._future, NOT_BEGUN))
        offsets.update((one, opened.position()) for one, opened in self._open.items())
        return StreamCut(self.stream, self._uid, offsets)

    async def start(self) -> None:
        """Find the segments to begin with. Raises NotFoundError, NotReadyError,
        InvalidRequestError for a cut that is no place in this stream."""
        self._require_open()
        if not self._started:
            begin = await self._starting.run(self._find_start)
            self._require_open()
            if begin is not None and not self._started:
                begin()

    async def _find_start(self) -> Callable[[], None]:
        current = await self._queries.epoch(None)
        begin = await self._queries.frontier(self._start_at, current)
        stop = begin if self._stop_at == self._start_at else None
        if self._stop_at is not None and stop is None:
            stop = await self._queries.frontier(self._stop_at, current)
            if self._stop_at == "latest":
                stop = begin.end_with(stop, current.epoch)
            if (where := begin.is_after(stop)) is not None:
                raise InvalidRequestError(
                    f"stop lies before start: {where}; give an earlier start or a later stop"
                )
        missing: dict[int, set[int]] = {}
        for one, offset in begin.cut.offsets.items():
            before = await self._predecessors(begin.segments[one]) if offset == NOT_BEGUN else ()
            missing[one] = {earlier.id for earlier in before if not begin.is_done(earlier)}
        return partial(self._start, current.uid, begin, stop, missing)

    def _start(
        self, uid: str, begin: Frontier, stop: Frontier | None, missing: dict[int, set[int]]
    ) -> None:
        self._started, self._uid, self._first, self._stop = True, uid, begin, stop
        for one, segment in begin.segments.items():
            if stop is not None and not stop.holds(segment):
                self._last[one] = NOT_BEGUN
            elif missing[one]:
                self._future[one] = _Waiting(segment, missing[one])
            else:
                earliest = self._start_at == "earliest"
                self._begin(segment, max(0, begin.cut.offsets[one]), earliest=earliest)

    async def next_chunk(
        self, timeout: float | None = None
    ) -> tuple[Consumer, FetchedChunk] | None:
        """The next records and the consumer of their segment, or None at the end, or when none came
        for ``timeout`` seconds. Raises InvalidRequestError once the consumer is closed, and in a
        fork of the process that opened it."""
        self._opened_in.require()
        if self._failure is not None:
            raise self._failure
        deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
        try:
            async with asyncio.timeout_at(deadline):
                await self.start()
                while True:
                    # What was handed out before this call is processed.
                    while (ended := self._ended) is not None:
                        self._require_open()
                        go_on = await self._going_on.run(partial(self._find_next, ended))
                        self._require_open()
                        if go_on is not None and self._ended is ended:
                            go_on()
                    if self.exhausted:
                        return None
                    self._require_open()
                    item = await self._queue.get()
                    if item is None:
                        continue
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
        """End reading. A call that waits for the next records raises that it is closed. May be
        called again."""
        if not self._opened_in.is_this:
            # The parent still reads.
            return
        self._closed = True
        readers = [opened.reader for opened in self._open.values()]
        for reader in readers:
            reader.cancel()
        tasks = [*self._starting.cancel(), *self._going_on.cancel(), *readers]
        await asyncio.gather(*tasks, return_exceptions=True)
        self._wake()
        for opened in self._open.values():
            await opened.consumer.close()

    def forget(self) -> None:
        """As `close`, without waiting."""
        self._closed = True
        self._starting.cancel()
        self._going_on.cancel()
        for opened in self._open.values():
            opened.reader.cancel()
            opened.consumer.abandon()
        self._wake()

    def _wake(self) -> None:
        """A call that waits for the next records finds that it is closed."""
        if self._queue.empty():
            self._queue.put_nowait(None)

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            # Its block, whose end would close it, does not begin.
            await self.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    # Segments

    def _begin(self, segment: Segment, offset: int, *, earliest: bool = False) -> None:
        number = segment.number
        end = None if self._stop is None else self._stop.cut.offsets.get(segment.id)
        stop: Stop = None if end is None else {number: end}
        # Who asked for the beginning gets what there is. Everybody else is told if that is gone, at
        # the beginning of a segment, too.
        start: Start = "earliest" if earliest else {number: offset}
        share = self._settings.read_ahead_bytes // max(1, len(self._open) + 1)
        settings = replace(self._settings, read_ahead_bytes=max(_LEAST_READ_AHEAD, share))
        consumer = self._open_segment(number, start, stop, settings)
        reader = asyncio.create_task(
            self._read(segment, consumer),
            name=f"read segment {segment_text(segment.id)} of {self.stream}",
        )
        self._open[segment.id] = _Open(segment, offset, consumer, reader)

    async def _read(self, segment: Segment, consumer: Consumer) -> None:
        try:
            while (chunk := await consumer.next_chunk()) is not None:
                await self._queue.put(_Read(segment, consumer, chunk))
            await self._queue.put(_Read(segment, consumer, None))
        except asyncio.CancelledError:
            raise
        except SegmentGoneError as error:
            await self._queue.put(_Read(segment, consumer, None, error))
        except OffsetOutOfRangeError as error:
            await self._queue.put(self._truncated(segment, consumer, error))
        except BaseException as error:
            await self._queue.put(error)

    async def _find_next(self, ended: _Read) -> Callable[[], None]:
        """What to do when a segment is read."""
        segment = ended.segment
        if ended.gone is not None:
            await self._check_gone(segment)
        stops = self._stop is not None and segment.id in self._stop.cut.offsets
        found: list[_Waiting] = []
        beyond: list[Segment] = []
        successors: tuple[Segment, ...] = ()
        if not stops:
            history = await self._history(segment.id)
            successors = tuple(map(segment_of, history.successors))
        for one in successors:
            if self._stop is not None and not self._stop.holds(one):
                beyond.append(one)
            elif one.id not in self._future and one.id not in self._open:
                before = await self._predecessors(one)
                found.append(_Waiting(one, {earlier.id for earlier in before} - self._done))
        await ended.consumer.close()
        return partial(self._go_on_behind, segment, bool(successors), found, beyond)

    def _go_on_behind(
        self, segment: Segment, has_successors: bool, found: list[_Waiting], beyond: list[Segment]
    ) -> None:
        """A segment is read: go on with its successors that wait for nothing else."""
        self._ended = None
        done = self._open.pop(segment.id)
        if has_successors:
            self._done.add(segment.id)
        else:
            self._last[segment.id] = done.position()
        self._last.update((one.id, NOT_BEGUN) for one in beyond)
        self._future.update((one.segment.id, one) for one in found)
        for later, waiting in list(self._future.items()):
            waiting.missing.discard(segment.id)
            if not waiting.missing:
                del self._future[later]
                self._begin(waiting.segment, 0)

    async def _check_gone(self, segment: Segment) -> None:
        """A segment was truncated away: nothing is lost to who has read all of it. Raises
        OffsetOutOfRangeError unless the user goes on all the same."""
        end = (await self._history(segment.id)).end
        at = self._open[segment.id].position()
        # The first record of each log is the control record of its first leader.
        if end is not None and max(at, 1) >= end:
            return
        name = segment_text(segment.id)
        if self._settings.on_truncated == "error":
            upto = "on" if end is None else f"to {end - 1}"
            raise OffsetOutOfRangeError(
                f"stream {self.stream}: the records from {at} {upto} of segment {name} were"
                f" {_REMOVED}"
            )
        _log.warning(
            "%s: the records from %d on of segment %s were truncated; reading continues in the"
            " segments that follow it",
            self.stream,
            at,
            name,
        )

    def _truncated(
        self, segment: Segment, consumer: Consumer, error: OffsetOutOfRangeError
    ) -> OffsetOutOfRangeError:
        """The error of a segment in the words of streams."""
        first = error.details.get("firstAvailable")
        if first is None:
            return error
        at = consumer.position().get(segment.number, self._open[segment.id].start)
        return OffsetOutOfRangeError(
            f"stream {self.stream}: the records from {at} to {first - 1} of segment"
            f" {segment_text(segment.id)} were {_REMOVED}",
            firstAvailable=first,
        )

    async def _predecessors(self, segment: Segment) -> tuple[Segment, ...]:
        """Those that this consumer has to read."""
        before = await self._queries.predecessors(segment)
        return tuple(one for one in before if self._first is None or not self._first.is_done(one))

    async def _history(self, segment: int) -> SegmentHistory:
        return await self._queries.history(segment)

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
            self._require_open()
            attempt += 1

    def _require_open(self) -> None:
        if self._closed:
            raise InvalidRequestError(f"the consumer of {self.stream!r} is closed; open another")


def _check(name: str, place: object, stream: str, wanted: str) -> None:
    """Raise InvalidRequestError for what is no place in a stream."""
    if isinstance(place, StreamCut):
        if place.stream != stream:
            raise InvalidRequestError(f"{name} is a cut of stream {place.stream}, not of {stream}")
    elif place != "latest" and (name == "stop" or place != "earliest"):
        raise InvalidRequestError(f"{name} is {place!r}; give {wanted}")
