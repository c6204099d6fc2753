"""A stream's consumer over scripted segments: every record once, each key in order, the end."""

from __future__ import annotations

import asyncio
import gc
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.consume.consumer import Consumer
from runnel.consume.delivered import FetchedChunk, ReadState
from runnel.consume.settings import ConsumerSettings
from runnel.loop_thread import LoopThread
from runnel.net.offsets import Start, Stop
from runnel.net.routing import SegmentGoneError
from runnel.records.cursor import READ_SCHEMA
from runnel.records.offset_and_term import OffsetAndTerm
from runnel.streams import blocking
from runnel.streams.consumer import StreamConsumer, StreamStop
from runnel.streams.places import StreamQueries, StreamStart
from schemas.control.streams import EpochInfo, SegmentHistory, SegmentInfo
from schemas.errors import (
    InvalidRequestError,
    NotFoundError,
    OffsetOutOfRangeError,
    UnreachableError,
)
from schemas.objects.stream import StreamState
from schemas.streams.cuts import StreamCut
from schemas.streams.epochs import (
    Change,
    Epoch,
    Segment,
    even,
    first_epoch,
    parse_segment,
    segment_text,
)
from schemas.streams.key_space import SPACE, WHOLE, fraction
from schemas.streams.scaling import predecessors, scaled, successors
from tests.laws import examples
from tests.polling import eventually
from tests.unit.schemas.streams.test_epochs import histories

KEYS = 5


class Log:
    """The chunks of one segment, as a consumer of it hands them out."""

    def __init__(
        self, number: int, records: list[tuple[int, int]], start: int, stop: int | None
    ) -> None:
        """``stop`` is the offset where it ends; None follows."""
        self.state = ReadState("s/t")
        self.state.begin(number, start, searching=False)
        self.closed = False
        self._number = number
        self._records = records[:stop]
        self._ends = stop is not None
        self._at = start
        #: Whether the segment is truncated away, once the first chunk was read.
        self.goes = False
        self._begun = start > 0

    async def next_chunk(self) -> FetchedChunk | None:
        await asyncio.sleep(0)
        if self.goes and self._begun:
            raise SegmentGoneError(f"segment number {self._number} is gone")
        if self._at >= len(self._records):
            if not self._ends:
                await asyncio.Event().wait()
            return None
        some = self._records[self._at : self._at + 2]
        columns = [
            pa.array([self._number] * len(some), pa.int32()),
            pa.array(range(self._at, self._at + len(some)), pa.int64()),
            pa.array([0] * len(some), READ_SCHEMA.field("timestamp").type),
            pa.array([b"%d" % key for key, _ in some], pa.binary()),
            pa.array([b"%d" % count for _, count in some], pa.binary()),
            pa.nulls(len(some), READ_SCHEMA.field("headers").type),
        ]
        self._at += len(some)
        self._begun = True
        batch = pa.RecordBatch.from_arrays(columns, schema=READ_SCHEMA)
        return FetchedChunk(self._number, [batch], self._at)

    def position(self) -> dict[int, int]:
        return dict(self.state.position)

    async def close(self) -> None:
        self.closed = True

    def abandon(self) -> None:
        self.closed = True


class Stream:
    """A history of epochs with records of `KEYS` keys in each, written in order."""

    def __init__(
        self, history: list[tuple[Epoch, Change]], per_epoch: int, *, sealed: bool
    ) -> None:
        self.history = history
        self.sealed = sealed
        self.records: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        self.opened: list[tuple[int, Start, Stop]] = []
        self.failures: list[Exception] = []
        self.begins: StreamCut | None = None
        #: Numbers of segments that are truncated away while they are read.
        self.going: set[int] = set()
        counts = [0] * KEYS
        for epoch, _ in history:
            for number in range(per_epoch * KEYS):
                key = number % KEYS
                place = key * SPACE // KEYS
                (segment,) = (one for one in epoch.segments if one.keys.contains(place))
                self.records[segment.id].append((key, counts[key]))
                counts[key] += 1
        self.wanted = {key: list(range(count)) for key, count in enumerate(counts)}

    async def epoch(self, number: int | None) -> EpochInfo:
        if number is not None and number >= len(self.history):
            raise NotFoundError(f"no epoch {number}")
        epoch = self.history[-1 if number is None else number][0]
        return EpochInfo(
            stream="s/t",
            uid="u",
            state=StreamState.ACTIVE,
            epoch=epoch.number,
            time_ms=0,
            segments=tuple(map(_info, epoch.segments)),
        )

    async def segment(self, name: str) -> SegmentHistory:
        if self.failures:
            raise self.failures.pop(0)
        named = (
            one
            for epoch, _ in self.history
            for one in epoch.segments
            if segment_text(one.id) == name
        )
        found = next(named, None)
        if found is None:
            raise NotFoundError(f"no segment {name}")
        epochs = [epoch for epoch, _ in self.history]
        after = next((e for e, change in self.history if found.id in change.sealed), None)
        born = found.id >> 32
        before = predecessors(found.keys, epochs[born - 1]) if born else ()
        return SegmentHistory(
            **dict(_info(found)),
            end=None if after is None else len(self.records[found.id]),
            sealed_in=None if after is None else after.number,
            predecessors=tuple(map(_info, before)),
            successors=() if after is None else tuple(map(_info, successors(found.keys, after))),
        )

    async def head(self) -> StreamCut:
        first = self.history[0][0].segments
        return self.begins or StreamCut("s/t", "u", {one.id: 0 for one in first})

    async def ends(self, numbers: Sequence[int]) -> dict[int, int]:
        return {number: len(self.records[self._id(number)]) for number in numbers}

    def open(self, number: int, start: Start, stop: Stop, _settings: ConsumerSettings) -> Consumer:
        self.opened.append((number, start, stop))
        segment = self._id(number)
        replaced = any(segment in change.sealed for _, change in self.history)
        end = None
        if isinstance(stop, Mapping):
            end = stop[number]
        elif replaced or self.sealed:
            end = len(self.records[segment])
        begin = 0
        if isinstance(start, Mapping):
            begin = as_offset(start[number])
        log = Log(number, self.records[segment], begin, end)
        log.goes = number in self.going
        return cast(Consumer, log)

    def _id(self, number: int) -> int:
        return next(
            one.id for epoch, _ in self.history for one in epoch.segments if one.number == number
        )

    def queries(self) -> StreamQueries:
        return StreamQueries("s/t", self.epoch, self.segment, self.head, self.ends)

    def consumer(
        self,
        start: StreamStart = "earliest",
        stop: StreamStop = None,
        timeout: float | None = None,
        settings: ConsumerSettings | None = None,
    ) -> StreamConsumer:
        return StreamConsumer(
            self.queries(),
            self.open,
            start,
            stop,
            settings or ConsumerSettings(),
            lambda: 0.0,
            timeout,
        )


def _info(segment: Segment) -> SegmentInfo:
    return SegmentInfo(
        id=segment_text(segment.id),
        low=fraction(segment.keys.low),
        high=fraction(segment.keys.high),
        partition="p",
    )


def as_offset(place: int | OffsetAndTerm) -> int:
    return place if isinstance(place, int) else place.offset


def cut(offsets: dict[str, int], *, uid: str = "u") -> StreamCut:
    return StreamCut("s/t", uid, {parse_segment(one): offset for one, offset in offsets.items()})


async def some(consumer: StreamConsumer, count: int) -> tuple[dict[int, list[int]], StreamCut]:
    """The first records and the place behind them, kept as text in between."""
    found: dict[int, list[int]] = {key: [] for key in range(KEYS)}
    async with asyncio.timeout(20), consumer:
        for _ in range(count):
            record = await consumer.poll()
            if record is None:
                break
            assert record.key is not None
            assert record.value is not None
            found[int(record.key)].append(int(record.value))
        return found, StreamCut.parse(str(consumer.position()))


def both(one: dict[int, list[int]], other: dict[int, list[int]]) -> dict[int, list[int]]:
    return {key: one[key] + other[key] for key in one}


async def read(consumer: StreamConsumer, *, batches: bool = False) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {key: [] for key in range(KEYS)}
    async with asyncio.timeout(20):
        async with consumer:
            if batches:
                async for batch in consumer.batches():
                    keys, values = (batch.column(name).to_pylist() for name in ("key", "value"))
                    for key, value in zip(keys, values, strict=True):
                        found[int(key)].append(int(value))
            else:
                async for record in consumer:
                    assert record.key is not None
                    assert record.value is not None
                    found[int(record.key)].append(int(record.value))
    return found


@settings(max_examples=examples(25))
@given(histories(), st.integers(0, 3), st.booleans())
def test_law_each_key_is_read_once_and_in_order_and_then_it_ends(
    history: list[tuple[Epoch, Change]], per_epoch: int, batches: bool
) -> None:
    async def story() -> None:
        stream = Stream(history, per_epoch, sealed=True)
        consumer = stream.consumer()
        assert await read(consumer, batches=batches) == stream.wanted
        assert consumer.exhausted
        assert consumer.position() == await end_of(stream)
        assert len({number for number, _, _ in stream.opened}) == len(stream.opened)

    asyncio.run(story())


@settings(max_examples=examples(10))
@given(histories(), st.integers(1, 2))
def test_law_until_the_end_of_now_everything_is_read(
    history: list[tuple[Epoch, Change]], per_epoch: int
) -> None:
    async def story() -> None:
        stream = Stream(history, per_epoch, sealed=False)
        assert await read(stream.consumer(stop="latest")) == stream.wanted
        last = {one.number for one in history[-1][0].segments}
        assert {number for number, _, stop in stream.opened if stop is not None} == last

    asyncio.run(story())


@given(histories())
def test_law_from_the_end_only_current_segments_are_read(
    history: list[tuple[Epoch, Change]],
) -> None:
    async def story() -> None:
        stream = Stream(history, 1, sealed=True)
        assert await read(stream.consumer("latest")) == {key: [] for key in range(KEYS)}
        assert {number for number, _, _ in stream.opened} == {
            one.number for one in history[-1][0].segments
        }

    asyncio.run(story())


@settings(max_examples=examples(25))
@given(histories(), st.integers(0, 3), st.integers(0, 60), st.integers(0, 60), st.booleans())
def test_law_from_a_position_on_the_rest_is_read_and_up_to_it_what_was_before(
    history: list[tuple[Epoch, Change]], per_epoch: int, one: int, more: int, sealed: bool
) -> None:
    total = per_epoch * KEYS * len(history)

    async def story() -> None:
        stream = Stream(history, per_epoch, sealed=sealed)
        first, at = await some(stream.consumer(), min(one, total))
        second, later = await some(stream.consumer(at), min(more, total - min(one, total)))
        until: StreamStop = None if sealed else "latest"
        rest = await read(stream.consumer(later, until))
        assert both(both(first, second), rest) == stream.wanted
        assert await read(stream.consumer("earliest", at)) == first
        between = stream.consumer(at, later)
        assert await read(between) == second
        assert between.exhausted
        # Its position is the same place, whatever it has seen of segments behind the stop.
        assert await read(stream.consumer(between.position(), until)) == rest
        if any(second.values()):
            with pytest.raises(InvalidRequestError, match="stop lies before start"):
                await read(stream.consumer(later, at))

    asyncio.run(story())


async def end_of(stream: Stream) -> StreamCut:
    segments = stream.history[-1][0].segments
    ends = await stream.ends([one.number for one in segments])
    return StreamCut("s/t", "u", {one.id: ends[one.number] for one in segments})


def one_split() -> Stream:
    first = even(0, 1, 0, 1)
    epoch = first_epoch(first)
    change = scaled(epoch, [0], WHOLE.split(2), next_number=1, min_segments=1, time_ms=5)
    return Stream([(epoch, first), (change.applied_to(epoch), change)], 2, sealed=False)


async def test_given_no_sc_between_segments_then_it_asks_again() -> None:
    stream = one_split()
    stream.failures = [UnreachableError("away")] * 2
    assert await read(stream.consumer(stop="latest")) == stream.wanted


async def test_given_an_error_between_segments_then_the_next_call_asks_again() -> None:
    stream = one_split()
    stream.failures = [NotFoundError("gone")]
    async with stream.consumer() as consumer:
        before = len(stream.records[0])
        for _ in range(before):
            assert await consumer.poll(5)
        with pytest.raises(NotFoundError):
            await consumer.poll(5)
        assert await consumer.poll(5)


async def test_given_a_timeout_then_reading_goes_on_where_it_was() -> None:
    stream = one_split()
    async with stream.consumer(timeout=0.05) as consumer:
        first = [record async for record in consumer]
        assert len(first) == sum(map(len, stream.wanted.values()))
        assert not consumer.exhausted
        assert consumer.position() == await end_of(stream)
        assert await consumer.poll(0.01) is None
        logs: list[Any] = [opened.consumer for opened in consumer._open.values()]
    assert all(log.closed for log in logs)
    with pytest.raises(InvalidRequestError, match="is closed"):
        await consumer.start()


def waits(consumer: StreamConsumer) -> bool:
    """Whether a call waits for what readers find."""
    queue: Any = consumer._queue
    return bool(queue._getters)


@pytest.mark.parametrize("at_once", [False, True], ids=["closed", "dropped"])
async def test_given_a_call_that_waits_for_records_when_it_is_closed_then_the_call_raises(
    at_once: bool,
) -> None:
    consumer = one_split().consumer("latest")
    waiting = asyncio.create_task(consumer.poll())
    await eventually(lambda: waits(consumer))
    if at_once:
        consumer.forget()
    else:
        await consumer.close()
        await consumer.close()
    async with asyncio.timeout(10):
        with pytest.raises(InvalidRequestError, match="'s/t' is closed; open another"):
            await waiting
    assert not consumer.exhausted


async def test_given_a_call_that_waits_for_an_sc_when_it_is_closed_then_the_call_raises() -> None:
    stream = one_split()
    stream.failures = [UnreachableError("away")] * 1_000
    consumer = stream.consumer()
    for _ in stream.records[0]:
        assert await consumer.poll(5)
    waiting = asyncio.create_task(consumer.poll())
    await eventually(lambda: len(stream.failures) < 1_000)
    await consumer.close()
    stream.failures.clear()
    async with asyncio.timeout(10):
        with pytest.raises(InvalidRequestError, match="'s/t' is closed; open another"):
            await waiting
    assert [number for number, _, _ in stream.opened] == [0], "nothing is read any more"


async def test_given_a_close_while_it_opens_then_it_does_not_begin_to_read() -> None:
    stream = one_split()
    epoch, asked, may_answer = stream.epoch, asyncio.Event(), asyncio.Event()

    async def late(number: int | None) -> EpochInfo:
        asked.set()
        await may_answer.wait()
        return await epoch(number)

    stream.epoch = late  # type: ignore[method-assign]
    consumer = stream.consumer()
    opening = asyncio.create_task(consumer.start())
    await asked.wait()
    await consumer.close()
    may_answer.set()
    with pytest.raises(InvalidRequestError, match="is closed"):
        await opening
    assert not stream.opened


class SlowStream(Stream):
    """Every answer takes longer than a poll that only looks."""

    async def epoch(self, number: int | None) -> EpochInfo:
        await several_turns()
        return await super().epoch(number)

    async def segment(self, name: str) -> SegmentHistory:
        await several_turns()
        return await super().segment(name)


async def several_turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_given_polls_that_only_look_then_it_opens_and_goes_on_behind_a_scale() -> None:
    stream = SlowStream(one_split().history, per_epoch=2, sealed=True)
    found: dict[int, list[int]] = {key: [] for key in range(KEYS)}
    async with asyncio.timeout(20):
        consumer = stream.consumer()
        while not consumer.exhausted:
            record = await consumer.poll(0)
            if record is not None:
                found[int(record.key or b"")].append(int(record.value))
        await consumer.close()
    assert found == stream.wanted
    assert len({number for number, _, _ in stream.opened}) == len(stream.opened)


async def test_given_a_call_that_was_given_up_then_its_position_waits_for_the_next_call() -> None:
    # The thread of a blocking consumer asks for the position while its loop works on.
    stream = SlowStream(one_split().history, per_epoch=2, sealed=True)
    consumer = stream.consumer()
    assert await consumer.poll(0) is None
    await asyncio.sleep(0.05)
    assert stream.opened == []
    with pytest.raises(InvalidRequestError, match="has no position before it is open"):
        consumer.position()
    for _ in stream.records[0]:
        assert await consumer.poll(5)
    before = consumer.position()
    going_on: Any = consumer._going_on
    while going_on._task is None:
        assert await consumer.poll(0) is None
    await asyncio.sleep(0.05)
    assert going_on._task.done()
    assert (consumer.position(), len(stream.opened)) == (before, 1)
    assert await consumer.poll(5)
    assert len(stream.opened) > 1
    await consumer.close()


async def test_given_a_block_that_is_cancelled_while_it_opens_then_nothing_is_read() -> None:
    stream = SlowStream(one_split().history, per_epoch=2, sealed=True)
    consumer = stream.consumer()

    async def read() -> None:
        async with consumer:
            pytest.fail("its block does not begin")

    reading = asyncio.create_task(read())
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await several_turns()
    assert stream.opened == []
    with pytest.raises(InvalidRequestError, match="is closed"):
        await consumer.poll(0)


def test_given_a_blocking_call_that_waits_when_another_thread_closes_then_the_call_raises() -> None:
    thread = LoopThread("reads")
    inner = one_split().consumer("latest")
    consumer = blocking.StreamConsumer(thread, inner)

    with ThreadPoolExecutor(1) as pool:
        try:
            waiting = pool.submit(consumer.poll)
            thread.call(eventually(lambda: waits(inner)))
            consumer.close()
            with pytest.raises(InvalidRequestError, match="'s/t' is closed; open another"):
                waiting.result(10)
        finally:
            thread.stop()


def test_given_a_loop_that_was_left_then_nothing_is_read_any_more() -> None:
    thread = LoopThread("reads")
    inner = one_split().consumer("earliest")
    reading: list[asyncio.Task[None]] = []
    try:
        for _ in blocking.StreamConsumer(thread, inner):
            reading = [opened.reader for opened in inner._open.values()]
            break
        gc.collect()
        thread.call(eventually(lambda: all(task.cancelled() for task in reading)))
        assert reading
    finally:
        thread.stop()


@pytest.mark.parametrize(
    ("start", "stop", "message"),
    [
        ("now", None, "start is 'now'; give 'earliest', 'latest' or a StreamCut"),
        ("latest", 5, "stop is 5; give 'latest', a StreamCut or None"),
        ("latest", "earliest", "stop is 'earliest'"),
        (StreamCut("s/u", "u", {0: 0}), None, "start is a cut of stream s/u, not of s/t"),
        ("latest", StreamCut("s/u", "u", {0: 0}), "stop is a cut of stream s/u, not of s/t"),
    ],
)
def test_given_a_wrong_place_then_refused(start: Any, stop: Any, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        one_split().consumer(start, stop)


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (cut({"0.0": 1}, uid="other"), "the cut is of an earlier stream s/t"),
        (cut({"1.7": 1}), "no place in stream s/t: no segment 1.7"),
        (cut({"9.9": 1}), "no place in stream s/t: no epoch 9"),
        (cut({"1.1": 1}), "it names no segment for the keys"),
        (cut({"0.0": 1, "1.1": 1}), "share keys, and the newer one is begun"),
        (cut({}), "it names no segment for the keys 0 to 1"),
    ],
)
async def test_given_a_cut_that_is_no_place_then_refused(start: StreamCut, message: str) -> None:
    consumer = one_split().consumer(start)
    with pytest.raises(InvalidRequestError, match=message):
        await consumer.start()
    with pytest.raises(InvalidRequestError, match="has no position before it is open"):
        consumer.position()
    with pytest.raises(InvalidRequestError, match=message):
        await read(one_split().consumer("earliest", start))


async def test_given_a_waiting_segment_whose_predecessors_are_done_then_it_is_read() -> None:
    first = even(0, 2, 0, 1)
    epoch = first_epoch(first)
    change = scaled(epoch, [0, 1], [WHOLE], next_number=2, min_segments=1, time_ms=5)
    stream = Stream([(epoch, first), (change.applied_to(epoch), change)], 1, sealed=True)
    begun = await read(stream.consumer(cut({"1.2": 0})))
    assert await read(stream.consumer(cut({"1.2": -1}))) == begun
    ends = {f"0.{number}": len(stream.records[number]) for number in (0, 1)}
    assert await read(stream.consumer(cut({**ends, "1.2": -1}))) == begun


async def test_given_a_truncated_stream_then_it_is_read_from_its_head() -> None:
    stream = one_split()
    stream.begins = cut({"0.0": 4, "1.2": -1})
    async with stream.consumer(stop="latest") as consumer:
        assert consumer.position() == cut({"0.0": 0, "1.2": -1})
    assert stream.opened == [(0, "earliest", None)]
    stream.begins = cut({"1.1": 4, "1.2": 0})
    await read(stream.consumer(stop="latest"))
    assert {number for number, _, _ in stream.opened[1:]} == {1, 2}


async def test_given_a_place_at_the_beginning_of_a_segment_then_it_is_asked_for_as_it_is() -> None:
    """Not for what is there: if the first records are gone, that is said."""
    stream = one_split()
    await read(stream.consumer(cut({"0.0": 0}), stop="latest"))
    assert [str(start) for _, start, _ in stream.opened] == ["{0: 0}", "{1: 0}", "{2: 0}"]
    stream.opened.clear()
    await read(stream.consumer(stop="latest"))
    assert [str(start) for _, start, _ in stream.opened] == ["earliest", "{1: 0}", "{2: 0}"]


async def test_given_a_segment_that_goes_while_it_is_read_then_the_loss_is_said() -> None:
    stream = one_split()
    stream.going = {0}
    assert len(stream.records[0]) > 2
    with pytest.raises(
        OffsetOutOfRangeError, match=r"records from 2 to \d+ of segment 0.0 were removed"
    ):
        await read(stream.consumer(stop="latest"))
    on = ConsumerSettings(on_truncated="earliest")
    found = await read(stream.consumer(stop="latest", settings=on))
    lost = len(stream.records[0]) - 2
    assert sum(map(len, found.values())) == sum(map(len, stream.wanted.values())) - lost


async def test_given_a_segment_that_goes_after_it_was_read_then_nothing_is_lost() -> None:
    stream = one_split()
    before = len(stream.records[0])
    async with stream.consumer(stop="latest") as consumer:
        for _ in range(before):
            assert await consumer.poll(5)
        place = consumer.position()
    stream.going = {0}
    rest = await read(stream.consumer(place, "latest"))
    assert sum(map(len, rest.values())) == sum(map(len, stream.wanted.values())) - before


async def test_given_a_place_in_the_epoch_that_a_scale_is_about_to_begin_then_it_ends_there() -> (
    None
):
    stream = one_split()
    ahead = await end_of(stream)
    epoch = stream.epoch

    async def before(number: int | None) -> EpochInfo:
        return await epoch(0 if number is None else number)

    stream.epoch = before  # type: ignore[method-assign]
    async with stream.consumer(ahead, "latest") as consumer:
        assert [record async for record in consumer] == []
        assert consumer.exhausted
    beyond = cut({"0.0": 10_000})
    with pytest.raises(InvalidRequestError, match="stop lies before start"):
        await stream.consumer(beyond, "latest").start()
