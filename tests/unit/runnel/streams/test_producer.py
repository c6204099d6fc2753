"""A stream's producer against a scripted SPU: what a sealed segment refuses goes on, in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from runnel.net.connection import SpuConnection
from runnel.net.routing import SegmentGoneError
from runnel.produce.delivery import Delivery
from runnel.produce.settings import ProducerSettings
from runnel.streams.producer import StreamProducer
from runnel.streams.segment_table import SegmentTable
from schemas.control.assignments import PartitionLeader
from schemas.control.streams import SegmentHistory, SegmentInfo
from schemas.errors import (
    DeadlineExceededError,
    InvalidRequestError,
    NotFoundError,
    NotReadyError,
    RunnelError,
    SealedError,
    UnreachableError,
)
from schemas.streams.epochs import Segment, parse_segment
from schemas.streams.key_space import SPACE, KeyRange, fraction
from schemas.wire.partitioner import hash_key
from schemas.wire.payload import decode_records
from tests.polling import eventually
from tests.unit.runnel.conftest import World

HALF = SPACE // 2
KEYS = [f"key {i}" for i in range(12)]
LOW = [key for key in KEYS if hash_key(key.encode()) < HALF]
HIGH = [key for key in KEYS if key not in LOW]


def infos(*segments: tuple[str, int, int]) -> tuple[SegmentInfo, ...]:
    return tuple(
        SegmentInfo(id=name, low=fraction(low), high=fraction(high), partition="p")
        for name, low, high in segments
    )


def sealed(name: str, *successors: tuple[str, int, int]) -> SegmentHistory:
    (one,) = infos((name, 0, SPACE))
    return SegmentHistory(**dict(one), successors=infos(*successors))


class Stream:
    """What the SC says of sealed segments. Partitions of the topic stand for segments."""

    def __init__(self, world: World, *first: tuple[str, int, int]) -> None:
        self.world = world
        self.histories: dict[str, SegmentHistory] = {}
        self.failures: list[RunnelError] = []
        self.asked: list[str] = []
        #: While cleared, what is asked of segment 1.2 is not answered.
        self.gate = asyncio.Event()
        self.gate.set()
        self.table = SegmentTable.of(
            Segment(parse_segment(name), KeyRange(low, high)) for name, low, high in first
        )

    async def ask(self, segment: str) -> SegmentHistory:
        self.asked.append(segment)
        if segment == "1.2":
            await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)
        return self.histories[segment]

    @asynccontextmanager
    async def producer(self, **options: object) -> AsyncIterator[StreamProducer]:
        settings = ProducerSettings(**options)  # type: ignore[arg-type]
        route = await self.world.cluster._route("orders")
        opened = StreamProducer(route, settings, self.table, self.ask)
        try:
            yield opened
        finally:
            await opened.abort()

    def seal(self, *partitions: int) -> None:
        for partition in partitions:
            self.world.log(index=partition).refuses = True

    def values(self, partition: int) -> list[tuple[str, str]]:
        """Keys and values in the log of a segment."""
        found = []
        for batch in self.world.log(index=partition).batches:
            rows = decode_records(batch)
            keys, values = rows.column("key").to_pylist(), rows.column("value").to_pylist()
            found += [((k or b"-").decode(), v.decode()) for k, v in zip(keys, values, strict=True)]
        return found


@pytest.fixture
def make(world: World) -> Callable[..., Stream]:
    def made(*first: tuple[str, int, int], partitions: int = 6) -> Stream:
        world.sc.add_topic("orders", partitions=partitions)
        return Stream(world, *first)

    return made


async def send_batches(producer: StreamProducer, rounds: int, *, first: int = 0) -> list[Delivery]:
    """A batch of all keys for each round, without waiting for any."""
    made = []
    for number in range(first, first + rounds):
        made += [producer.send(str(number), key=key) for key in KEYS]
        producer._send_buffer.seal_all()
        producer._pump()
        await asyncio.sleep(0)
    return made


def in_order(stream: Stream, *partitions: int, rounds: int) -> None:
    """Every key is in these segments once for each round, in order."""
    found: dict[str, list[str]] = {key: [] for key in KEYS}
    for partition in partitions:
        for key, value in stream.values(partition):
            found[key].append(value)
    assert found == {key: [str(n) for n in range(rounds)] for key in KEYS}


async def test_given_a_split_then_each_key_goes_on_in_order(make: Callable[..., Stream]) -> None:
    stream = make(("0.0", 0, SPACE))
    stream.histories["0.0"] = sealed("0.0", ("1.1", 0, HALF), ("1.2", HALF, SPACE))
    async with stream.producer() as producer:
        first = await send_batches(producer, 1)
        await first[-1]
        stream.seal(0)
        stream.world.spu.may_answer.clear()
        later = await send_batches(producer, 4)
        await eventually(lambda: stream.world.spu.in_flight == 4)
        stream.world.spu.may_answer.set()
        await producer.flush()
        assert stream.asked == ["0.0"]
        assert [value for _, value in stream.values(0)] == ["0"] * len(KEYS)
        moved = {*stream.values(1), *stream.values(2)}
        assert len(moved) == 4 * len(KEYS)
        for partition, low, high in ((1, 0, HALF), (2, HALF, SPACE)):
            for key, _ in stream.values(partition):
                assert low <= hash_key(key.encode()) < high
        for key in KEYS:
            place = 1 if hash_key(key.encode()) < HALF else 2
            assert [v for k, v in stream.values(place) if k == key] == list("0123")
        found = [await one for one in later]
        assert {one.partition for one in found} == {1, 2}
        offsets = {(one.partition, one.offset) for one in found}
        assert len(offsets) == len(found), "each record knows its own place"
        # Later records go straight there.
        more = producer.send("5", key=KEYS[0])
        assert (await more).partition in (1, 2)
        assert stream.asked == ["0.0"]


async def test_given_batches_that_wait_then_no_sealed_segment_is_asked_about_them(
    make: Callable[..., Stream],
) -> None:
    stream = make(("0.0", 0, SPACE))
    stream.histories["0.0"] = sealed("0.0", ("1.1", 0, SPACE))
    async with stream.producer(max_in_flight=2) as producer:
        await send_batches(producer, 1)
        await producer.flush()
        stream.seal(0)
        stream.world.spu.may_answer.clear()
        await send_batches(producer, 6, first=1)
        await eventually(lambda: stream.world.spu.in_flight == 2)
        before = len(stream.world.spu.produced)
        stream.world.spu.may_answer.set()
        await producer.flush()
        in_order(stream, 0, 1, rounds=7)
        # The six batches in segment 1, and none for segment 0 beside the two.
        assert len(stream.world.spu.produced) == before + 6


async def test_given_what_came_before_the_seal_then_it_is_not_sent_again(
    make: Callable[..., Stream],
) -> None:
    stream = make(("0.0", 0, SPACE))
    stream.histories["0.0"] = sealed("0.0", ("1.1", 0, SPACE))
    async with stream.producer() as producer:
        await send_batches(producer, 2)
        await producer.flush()
        stream.seal(0)
        third = [producer.send("2", key=key) for key in KEYS]
        await producer.flush()
        in_order(stream, 0, 1, rounds=3)
        assert (await third[0]).partition == 1


async def test_given_a_merge_then_neither_side_overtakes(make: Callable[..., Stream]) -> None:
    stream = make(("0.0", 0, HALF), ("0.1", HALF, SPACE))
    for one in ("0.0", "0.1"):
        stream.histories[one] = sealed(one, ("1.2", 0, SPACE))
    async with stream.producer() as producer:
        await send_batches(producer, 1)
        await producer.flush()
        stream.seal(0)
        await send_batches(producer, 2, first=1)
        stream.seal(1)
        await send_batches(producer, 1, first=3)
        await producer.flush()
        in_order(stream, 0, 1, 2, rounds=4)
        assert sorted(stream.asked) == ["0.0", "0.1"]


async def test_given_a_successor_that_is_sealed_too_then_its_own_take_over(
    make: Callable[..., Stream],
) -> None:
    stream = make(("0.0", 0, SPACE))
    stream.histories["0.0"] = sealed("0.0", ("1.1", 0, SPACE))
    stream.histories["1.1"] = sealed("1.1", ("2.2", 0, HALF), ("2.3", HALF, SPACE))
    async with stream.producer() as producer:
        stream.seal(0, 1)
        made = await send_batches(producer, 1)
        found = [await one for one in made]
        assert {one.partition for one in found} == {2, 3}
        await send_batches(producer, 2)
        await producer.flush()
        assert stream.asked == ["0.0", "1.1"]
        assert stream.values(0) == stream.values(1) == []


async def test_given_a_merge_that_is_replaced_before_its_other_side_is_met_then_both_go_on(
    make: Callable[..., Stream],
) -> None:
    """The producer learns of one of two merged segments only when what came of them is old."""
    stream = make(("0.0", 0, HALF), ("0.1", HALF, SPACE))
    for one in ("0.0", "0.1"):
        stream.histories[one] = sealed(one, ("1.2", 0, SPACE))
    stream.histories["1.2"] = sealed("1.2", ("2.3", 0, SPACE))
    async with stream.producer() as producer:
        await send_batches(producer, 1)
        await producer.flush()
        stream.seal(0, 1, 2)
        for keys in (LOW, HIGH, LOW, HIGH):
            made = [producer.send("x", key=key) for key in keys]
            async with asyncio.timeout(10):
                await producer.flush()
            assert {(await one).partition for one in made} == {3}


def gated(producer: StreamProducer, *partitions: int) -> dict[int, asyncio.Event]:
    """Nothing new is sent to these partitions until their events are set."""
    connect = producer._route.connect
    gates = {partition: asyncio.Event() for partition in partitions}

    async def connected(index: int, timeout_s: float) -> tuple[SpuConnection, PartitionLeader]:
        if index in gates:
            await gates[index].wait()
        return await connect(index, timeout_s)

    producer._route.connect = connected  # type: ignore[method-assign]
    return gates


async def refuse_one_of_two(
    stream: Stream, producer: StreamProducer, partition: int, keys: list[str], *values: str
) -> asyncio.Event:
    """A segment with acknowledged batches refuses one of two more, and the other is sent again only
    when the event is set: until then the producer waits for it."""
    spu = stream.world.spu
    spu.may_answer.clear()
    spu.produce_script.extend([SealedError("it is sealed"), NotReadyError("not now")])
    for value in values:
        send_batch(producer, keys, value)
    await eventually(lambda: spu.in_flight == 2)
    gate = gated(producer, partition)[partition]
    spu.may_answer.set()
    await eventually(lambda: partition in producer._seals)
    return gate


def send_batch(producer: StreamProducer, keys: list[str], value: str) -> None:
    for key in keys:
        producer.send(value, key=key)
    producer._send_buffer.seal_all()
    producer._pump()


async def test_given_a_second_lot_behind_a_merge_that_is_replaced_then_it_stays_behind_the_first(
    make: Callable[..., Stream],
) -> None:
    """The successor has not yet sent all of the first lot when the merged segment, which still
    takes the keys of the side that was met late, refuses a second one."""
    stream = make(("0.0", 0, HALF), ("0.1", HALF, SPACE))
    for one in ("0.0", "0.1"):
        stream.histories[one] = sealed(one, ("1.2", 0, SPACE))
    stream.histories["1.2"] = sealed("1.2", ("2.3", 0, SPACE))
    async with stream.producer() as producer:
        stream.seal(0)
        send_batch(producer, LOW, "0")
        await producer.flush()
        stream.seal(1, 2)
        merged = await refuse_one_of_two(stream, producer, 2, LOW, "1", "2")
        await eventually(lambda: 3 in producer._held_for)
        last = gated(producer, 3)[3]
        send_batch(producer, HIGH, "0")
        await eventually(lambda: 1 in producer._seals and is_replaced(producer, 1))
        merged.set()
        await eventually(lambda: is_replaced(producer, 2))
        send_batch(producer, HIGH, "1")
        await eventually(lambda: stream.asked.count("1.2") == 2 and is_replaced(producer, 2))
        last.set()
        async with asyncio.timeout(10):
            await producer.flush()
        found = stream.values(3)
        assert by_key(found, HIGH) == {key: ["0", "1"] for key in HIGH}
        assert by_key(found, LOW) == {key: ["1", "2"] for key in LOW}


async def test_given_a_merge_that_is_replaced_while_a_side_still_moves_then_that_side_goes_first(
    make: Callable[..., Stream],
) -> None:
    """The merged segment has nothing to send, but the batches of one side will come to it."""
    stream = make(("0.0", 0, HALF), ("0.1", HALF, SPACE))
    for one in ("0.0", "0.1"):
        stream.histories[one] = sealed(one, ("1.2", 0, SPACE))
    stream.histories["1.2"] = sealed("1.2", ("2.3", 0, SPACE))
    stream.gate.clear()
    async with stream.producer() as producer:
        send_batch(producer, HIGH, "0")
        await producer.flush()
        stream.seal(0, 1, 2)
        send_batch(producer, LOW, "0")
        await eventually(lambda: stream.asked == ["0.0", "1.2"])
        side = await refuse_one_of_two(stream, producer, 1, HIGH, "1", "2")
        await eventually(lambda: bool(producer._held_for[2]))
        stream.gate.set()
        await eventually(lambda: 3 in producer._held_for)
        assert producer._sender(3).held
        send_batch(producer, HIGH, "3")
        side.set()
        async with asyncio.timeout(10):
            await producer.flush()
        assert by_key(stream.values(3), HIGH) == {key: ["1", "2", "3"] for key in HIGH}
        assert by_key(stream.values(3), LOW) == {key: ["0"] for key in LOW}


def is_replaced(producer: StreamProducer, partition: int) -> bool:
    task = producer._seals[partition].task
    return task is not None and task.done()


def by_key(records: list[tuple[str, str]], keys: list[str]) -> dict[str, list[str]]:
    return {key: [value for one, value in records if one == key] for key in keys}


async def test_given_a_sealed_stream_then_records_fail(make: Callable[..., Stream]) -> None:
    stream = make(("0.0", 0, SPACE))
    stream.histories["0.0"] = sealed("0.0")
    async with stream.producer() as producer:
        stream.seal(0)
        for _ in range(2):
            with pytest.raises(SealedError, match="stream orders is sealed"):
                await producer.send("x", key="k")
        assert isinstance(producer.first_failure, SealedError)
        with pytest.raises(SealedError, match="2 records for topic 'orders'"):
            await producer.flush()


async def test_given_no_sc_then_it_asks_again(make: Callable[..., Stream]) -> None:
    stream = make(("0.0", 0, SPACE))
    stream.histories["0.0"] = sealed("0.0", ("1.1", 0, SPACE))
    stream.failures = [UnreachableError("away")] * 2
    async with stream.producer() as producer:
        stream.seal(0)
        assert (await producer.send("x", key="k")).partition == 1
    assert stream.asked == ["0.0"] * 3


async def test_given_no_sc_until_the_deadline_then_the_record_was_not_written(
    make: Callable[..., Stream],
) -> None:
    stream = make(("0.0", 0, SPACE))
    stream.failures = [UnreachableError("away")] * 1_000
    async with stream.producer(delivery_timeout_ms=300, request_timeout_ms=300) as producer:
        stream.seal(0)
        with pytest.raises(RunnelError, match="was not written: its segment was sealed"):
            await producer.send("x", key="k")


async def test_given_a_closed_producer_then_refused_records_fail(
    make: Callable[..., Stream],
) -> None:
    stream = make(("0.0", 0, SPACE))
    stream.failures = [UnreachableError("away")] * 1_000
    async with stream.producer() as producer:
        stream.seal(0)
        delivery = producer.send("x", key="k")
        await eventually(lambda: bool(stream.asked))
    with pytest.raises(RunnelError, match="the producer was closed"):
        await delivery


async def test_given_records_sent_while_it_closes_then_they_are_refused(
    make: Callable[..., Stream],
) -> None:
    stream = make(("0.0", 0, SPACE))
    stream.world.spu.may_answer.clear()
    async with stream.producer() as producer:
        delivery = producer.send("x", key="k")
        closing = asyncio.create_task(producer.close())
        await eventually(lambda: stream.world.spu.in_flight == 1)
        with pytest.raises(InvalidRequestError, match="closed"):
            producer.send("y", key="k")
        stream.world.spu.may_answer.set()
        await closing
        await delivery
    assert stream.values(0) == [("k", "x")]


async def test_given_a_table_then_its_rows_go_where_their_keys_belong(
    make: Callable[..., Stream],
) -> None:
    stream = make(("0.0", 0, HALF), ("0.1", HALF, SPACE))
    stream.histories["0.1"] = sealed("0.1", ("1.2", HALF, SPACE))
    async with stream.producer() as producer:
        table = {"key": KEYS, "value": ["0"] * len(KEYS)}
        await (await producer.send_table(table))
        stream.seal(1)
        delivery = await producer.send_table({"key": KEYS, "value": ["1"] * len(KEYS)})
        await producer.flush()
        in_order(stream, 0, 1, 2, rounds=2)
        assert len({one.partition for one in await delivery}) == 2
        keyless = await (await producer.send_table({"value": ["x"]}))
        assert keyless[0].partition in (0, 2)


async def test_given_records_without_keys_then_all_segments_get_some(
    make: Callable[..., Stream],
) -> None:
    stream = make(("0.0", 0, HALF), ("0.1", HALF, SPACE))
    async with stream.producer() as producer:
        for number in range(600):
            producer.send(str(number))
        await producer.flush()
    assert stream.values(0)
    assert stream.values(1)


async def test_given_what_streams_do_not_take_then_refused(make: Callable[..., Stream]) -> None:
    stream = make(("0.0", 0, SPACE))
    with pytest.raises(InvalidRequestError, match="must hear that a segment was sealed"):
        async with stream.producer(acks="none"):
            pass
    async with stream.producer() as producer:
        with pytest.raises(InvalidRequestError, match="keys decide"):
            producer.send("x", partition=0)
        with pytest.raises(InvalidRequestError, match="keys decide"):
            producer.send("x", transaction_id=1)
        with pytest.raises(InvalidRequestError, match="keys decide"):
            await producer.send_table({"value": ["x"]}, partition=1)


def gone(producer: StreamProducer, *partitions: int, after: int = 0) -> None:
    """The SC no longer names these segments, ``after`` so many attempts."""
    connect = producer._route.connect
    left = after

    async def connected(index: int, timeout_s: float) -> tuple[SpuConnection, PartitionLeader]:
        nonlocal left
        left -= 1
        if index in partitions and left < 0:
            raise SegmentGoneError(f"segment number {index} is gone")
        return await connect(index, timeout_s)

    producer._route.connect = connected  # type: ignore[method-assign]


async def test_given_an_idle_producer_whose_segments_are_gone_then_it_goes_on_behind_them(
    make: Callable[..., Stream],
) -> None:
    stream = make(("0.0", 0, SPACE))
    stream.histories["0.0"] = sealed("0.0", ("1.1", 0, HALF), ("1.2", HALF, SPACE))
    stream.histories["1.1"] = sealed("1.1", ("2.3", 0, HALF))
    async with stream.producer() as producer:
        await send_batches(producer, 1)
        await producer.flush()
        gone(producer, 0, 1)
        for sent in await send_batches(producer, 3, first=1):
            assert (await sent).partition in (2, 3)
        in_order(stream, 0, 2, 3, rounds=4)


async def test_given_a_batch_in_flight_when_its_segment_goes_then_its_outcome_is_unknown(
    make: Callable[..., Stream],
) -> None:
    stream = make(("0.0", 0, SPACE))
    stream.histories["0.0"] = sealed("0.0", ("1.1", 0, SPACE))
    async with stream.producer() as producer:
        stream.world.spu.produce_script.append(NotReadyError("not now"))
        gone(producer, 0, after=1)
        with pytest.raises(DeadlineExceededError, match="segment number 0 is gone") as raised:
            await producer.send("0", key="a")
        assert raised.value.details["outcomeUnknown"]
        assert (await producer.send("1", key="a")).partition == 1


async def test_given_an_spu_that_does_not_hold_the_segment_any_more_then_nothing_is_uncertain(
    make: Callable[..., Stream],
) -> None:
    """It is asked before the SC is: who is there knows that it has appended nothing."""
    stream = make(("0.0", 0, SPACE))
    stream.histories["0.0"] = sealed("0.0", ("1.1", 0, SPACE))
    async with stream.producer() as producer:
        stream.world.spu.produce_script.append(NotFoundError("no such partition", spu=0))
        gone(producer, 0, after=1)
        assert (await producer.send("0", key="a")).partition == 1
