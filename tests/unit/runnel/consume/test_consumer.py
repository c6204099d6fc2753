"""The consumer against a scripted SPU: ranges, following, trouble with leaders."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from time import time_ns
from typing import Any

import pytest

from runnel.admin.http import ScClient
from runnel.aio import Consumer, ConsumerSettings
from runnel.records.record import time_of
from schemas.errors import (
    CorruptBatchError,
    DeadlineExceededError,
    InvalidRequestError,
    NotFoundError,
    NotLeaderError,
    OffsetOutOfRangeError,
)
from schemas.wire.batch import build_control
from tests.polling import eventually
from tests.unit.runnel.conftest import World
from tests.unit.runnel.fake_spu import Step
from tests.unit.runnel.records.test_cursor import batch

PATIENT = ConsumerSettings(max_wait_ms=50)


async def fill(world: World, partitions: int = 1) -> None:
    """Per partition: control, records 1 2 3 (at 101 102 103 µs), control, record 5."""
    world.sc.add_topic("orders", partitions)
    for index in range(partitions):
        log = world.log(index=index)
        log.put(build_control("term", 0))
        log.put(batch(1, 3, time_us=101))
        log.put(build_control("term", 0))
        log.put(batch(5, 1, time_us=105))


async def offsets(consumer: Consumer) -> list[int]:
    async with asyncio.timeout(20):
        return [record.offset async for record in consumer]


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        pytest.param("earliest", [1, 2, 3, 5], id="given-earliest-then-all"),
        pytest.param("latest", [], id="given-latest-then-nothing-yet"),
        pytest.param(2, [2, 3, 5], id="given-an-offset-then-from-it-on"),
        pytest.param({0: 3}, [3, 5], id="given-a-map-then-from-there-on"),
        pytest.param(time_of(103), [3, 5], id="given-a-time-then-earlier-ones-are-cut"),
        pytest.param(time_of(10**9), [], id="given-a-time-to-come-then-nothing"),
    ],
)
async def test_start(world: World, start: Any, expected: list[int]) -> None:
    await fill(world)
    assert await offsets(world.cluster.consumer("orders", start, "latest")) == expected


async def test_given_latest_as_stop_then_it_means_the_moment_of_the_start(world: World) -> None:
    await fill(world)
    async with world.cluster.consumer("orders", "earliest", "latest") as consumer:
        world.log().put(batch(6, 1))
        assert await offsets(consumer) == [1, 2, 3, 5]
        assert consumer.position() == {0: 6}
        assert [record async for record in consumer] == []


async def test_given_several_partitions_then_each_is_read_in_order(world: World) -> None:
    await fill(world, 3)
    consumer = world.cluster.consumer("orders", "earliest", {0: 6, 1: 3, 2: 0})
    found: dict[int, list[int]] = {}
    async for rows in consumer.batches():
        (partition,) = set(rows.column("partition").to_pylist())
        found.setdefault(partition, []).extend(rows.column("offset").to_pylist())
    assert found == {0: [1, 2, 3, 5], 1: [1, 2]}


async def test_given_chosen_partitions_then_only_those(world: World) -> None:
    await fill(world, 3)
    consumer = world.cluster.consumer("orders", "earliest", "latest", partitions=[2])
    assert {record.partition async for record in consumer} == {2}


async def test_given_no_stop_then_new_records_come_as_they_are_committed(world: World) -> None:
    await fill(world)
    async with (
        world.cluster.producer("orders") as producer,
        world.cluster.consumer("orders", settings=PATIENT) as consumer,
    ):
        await producer.send("new", key="k", headers={"h": b"1"})
        async with asyncio.timeout(20):
            record = await anext(aiter(consumer))
        assert (record.offset, record.key, record.value) == (6, b"k", b"new")
        assert record.headers == (("h", b"1"),)
        assert record.time.tzinfo is UTC
        assert consumer.position() == {0: 7}


async def test_given_a_position_then_another_consumer_reads_on_from_it(world: World) -> None:
    await fill(world)
    async with world.cluster.consumer("orders", "earliest") as first:
        async for record in first:
            if record.offset == 2:
                break
    assert await offsets(world.cluster.consumer("orders", first.position(), "latest")) == [3, 5]


async def test_given_trouble_with_the_leader_then_nothing_is_lost_or_doubled(
    world: World,
) -> None:
    await fill(world)
    world.spu.fetch_script.extend([NotLeaderError("moved"), Step.DROP, Step.OK, Step.DROP])
    small = ConsumerSettings(read_ahead_bytes=1)
    consumer = world.cluster.consumer("orders", "earliest", "latest", settings=small)
    assert await offsets(consumer) == [1, 2, 3, 5]


async def test_given_truncated_records_then_the_error_names_the_first_available(
    world: World,
) -> None:
    await fill(world)
    world.log().start = 4
    with pytest.raises(OffsetOutOfRangeError, match=r"offset 2 .* first available one is 4") as got:
        await offsets(world.cluster.consumer("orders", 2, "latest"))
    assert got.value.details["firstAvailable"] == 4


async def test_given_only_the_first_control_record_is_gone_then_nobody_misses_it(
    world: World,
) -> None:
    """Offsets 0 and 4 of this log are control records."""
    await fill(world)
    for start, found in ((1, [1, 2, 3, 5]), (2, None)):
        world.log().start = start
        consumer = world.cluster.consumer("orders", {0: 0}, "latest")
        if found is None:
            with pytest.raises(OffsetOutOfRangeError, match="first available one is 2"):
                await offsets(consumer)
        else:
            assert await offsets(consumer) == found


async def test_given_retention_overtakes_earliest_then_it_starts_at_what_is_left(
    world: World,
) -> None:
    await fill(world)
    async with world.cluster.consumer("orders", "earliest", "latest") as consumer:
        world.log().start = 4
        assert await offsets(consumer) == [5]


async def test_given_damage_then_it_is_told_and_told_again(world: World) -> None:
    await fill(world)
    world.log().batches[1][-1] ^= 1
    consumer = world.cluster.consumer("orders", "earliest", "latest")
    for _ in range(2):
        with pytest.raises(CorruptBatchError, match="orders/0 at offset 1"):
            await offsets(consumer)
    await consumer.close()


async def test_given_no_leader_for_too_long_then_it_gives_up_with_the_reason(
    world: World,
) -> None:
    world.sc.add_topic("orders")
    world.sc.endpoints = [None]
    impatient = ConsumerSettings(give_up_ms=30)
    with pytest.raises(DeadlineExceededError, match="no SPU is online"):
        await offsets(world.cluster.consumer("orders", settings=impatient))


async def test_given_an_unknown_topic_then_the_error_says_how_to_make_it(world: World) -> None:
    world.sc.add_topic("orders")
    with pytest.raises(
        NotFoundError,
        match=r"topic 'order' does not exist; create it with: runnel create topic order"
        r" --partitions N \(did you mean 'orders'\?\)",
    ):
        await offsets(world.cluster.consumer("order"))


async def test_given_a_topic_that_is_being_deleted_then_the_error_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SC lists it until its replicas are gone, and assigns it no more."""
    metadata = {"name": "orders", "deletionTimestamp": "2026-01-01T00:00:00Z"}

    calls = ScClient.call

    async def call(self: ScClient, method: str, path: str, **more: Any) -> Any:
        if path == "/v1/topics":
            return {"items": [{"metadata": metadata}]}
        return await calls(self, method, path, **more)

    monkeypatch.setattr(ScClient, "call", call)
    with pytest.raises(NotFoundError, match=r"topic 'orders' is being deleted; wait") as raised:
        await offsets(world.cluster.consumer("orders"))
    assert "did you mean" not in raised.value.message
    del metadata["deletionTimestamp"]
    with pytest.raises(NotFoundError, match=r"--partitions N$"):
        await offsets(world.cluster.consumer("orders"))


@pytest.mark.parametrize(
    ("start", "stop", "partitions"),
    [
        pytest.param("begin", None, None, id="given-an-unknown-word"),
        pytest.param(-1, None, None, id="given-a-negative-offset"),
        pytest.param(1 << 63, None, None, id="given-an-offset-of-65-bits"),
        pytest.param(True, None, None, id="given-a-flag-for-an-offset"),
        pytest.param({0: True, 1: 2}, None, None, id="given-a-flag-in-a-map"),
        pytest.param({0: 1, True: 2}, None, None, id="given-a-flag-for-a-partition-in-a-map"),
        pytest.param("earliest", None, [True], id="given-a-flag-for-a-partition"),
        pytest.param(datetime(2020, 1, 1), None, None, id="given-a-time-without-zone"),  # noqa: DTZ001
        pytest.param("earliest", 5, None, id="given-one-offset-for-stop"),
        pytest.param({0: -5}, None, None, id="given-a-negative-offset-in-a-map"),
        pytest.param({0: 1}, None, None, id="given-a-map-that-leaves-out-a-partition"),
        pytest.param("earliest", {1: 1}, None, id="given-a-stop-that-leaves-out-a-partition"),
        pytest.param("earliest", None, [2], id="given-a-partition-that-is-not-there"),
    ],
)
async def test_refused(world: World, start: Any, stop: Any, partitions: Any) -> None:
    world.sc.add_topic("orders", 2)
    with pytest.raises(InvalidRequestError):
        await offsets(world.cluster.consumer("orders", start, stop, partitions))


async def test_given_nobody_who_takes_records_then_reading_ahead_is_bounded(
    world: World,
) -> None:
    world.sc.add_topic("orders")
    for index in range(10):
        world.log().put(batch(index, 1, padding=100_000))
    small = ConsumerSettings(read_ahead_bytes=1)
    async with world.cluster.consumer("orders", "earliest", "latest", settings=small) as consumer:
        async with asyncio.timeout(10):
            while world.spu.fetches < 2:  # noqa: ASYNC110 - state of the fake, not an event
                await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0)
        assert world.spu.fetches == 2
        assert await offsets(consumer) == list(range(10))


async def test_read(world: World) -> None:
    await fill(world, 2)
    told: list[tuple[int, int]] = []
    table = await world.cluster.read("orders", on_progress=lambda *done: told.append(done))
    assert table["partition"].to_pylist() == [0] * 4 + [1] * 4
    assert table["offset"].to_pylist() == [1, 2, 3, 5] * 2
    assert told[-1][0] == 8
    narrow = await world.cluster.read("orders", ["value"], partitions=[1])
    assert narrow.column_names == ["value"]
    assert narrow.num_rows == 4


async def test_given_more_than_the_limit_then_read_refuses_before_loading(world: World) -> None:
    await fill(world)
    world.spu.fetch_script.append(CorruptBatchError("no fetch may come"))
    with pytest.raises(InvalidRequestError, match=r"more than the 100 bytes that read.. loads"):
        await world.cluster.read("orders", max_bytes=100)
    with pytest.raises(InvalidRequestError, match="no column price"):
        await world.cluster.read("orders", ["price"])
    assert len(world.spu.fetch_script) == 1


async def test_given_a_count_below_0_then_the_error_names_the_argument(world: World) -> None:
    await fill(world)
    with pytest.raises(InvalidRequestError, match=r"^last is -1; give a number of records"):
        await world.cluster.read("orders", last=-1)
    with pytest.raises(InvalidRequestError, match=r"^tail is -1; give a number of records"):
        world.cluster.consumer("orders", tail=-1)


async def test_given_no_partitions_to_read_then_it_is_refused(world: World) -> None:
    await fill(world)
    with pytest.raises(InvalidRequestError, match="no partition is named"):
        world.cluster.consumer("orders", partitions=[])
    with pytest.raises(InvalidRequestError, match="no partition is named"):
        await world.cluster.read("orders", partitions=[])


async def timed(world: World, times: list[list[int]]) -> None:
    """Per partition, batches of one record: their times in µs, from offset 0 on."""
    world.sc.add_topic("orders", len(times))
    for index, partition in enumerate(times):
        for offset, time_us in enumerate(partition):
            world.log(index=index).put(batch(offset, 1, time_us=time_us))


@pytest.mark.parametrize(
    ("stop", "expected"),
    [
        pytest.param(time_of(0), [], id="given-a-time-before-all-then-nothing"),
        pytest.param(time_of(101), [], id="given-the-time-of-the-first-then-nothing"),
        pytest.param(time_of(103), [1, 2], id="given-a-time-in-a-batch-then-what-is-before-it"),
        pytest.param(time_of(104), [1, 2, 3], id="given-a-time-between-batches"),
        pytest.param(time_of(10**17), [1, 2, 3, 5], id="given-a-time-to-come-then-not-waited-for"),
        pytest.param(timedelta(days=1), [1, 2, 3, 5], id="given-a-timedelta-then-so-long-ago"),
    ],
)
async def test_stop_at_a_time(world: World, stop: Any, expected: list[int]) -> None:
    await fill(world)
    assert await offsets(world.cluster.consumer("orders", "earliest", stop)) == expected
    table = await world.cluster.read("orders", stop=stop)
    assert table["offset"].to_pylist() == expected


async def test_given_one_time_as_stop_and_start_then_all_records_come_once(world: World) -> None:
    await timed(world, [[5, 1, 9, 2, 7], [3, 8, 8]])
    for time_us in range(11):
        before = await world.cluster.read("orders", stop=time_of(time_us))
        after = await world.cluster.read("orders", start=time_of(time_us))
        found = sorted(
            (row["partition"], row["offset"]) for row in [*before.to_pylist(), *after.to_pylist()]
        )
        assert found == [(0, offset) for offset in range(5)] + [(1, offset) for offset in range(3)]


async def test_given_a_timedelta_as_start_then_from_so_long_ago(world: World) -> None:
    now_us = time_ns() // 1000
    await timed(world, [[now_us - 7_200_000_000, now_us - 60_000_000]])
    hour = timedelta(hours=1)
    assert await offsets(world.cluster.consumer("orders", hour, "latest")) == [1]
    assert (await world.cluster.read("orders", start=hour, stop=timedelta(0))).num_rows == 1
    assert await world.cluster.offsets_at("orders", hour) == {0: 1}
    with pytest.raises(InvalidRequestError, match="how long ago"):
        world.cluster.consumer("orders", -hour)
    with pytest.raises(InvalidRequestError, match="before the year 1"):
        world.cluster.consumer("orders", "earliest", timedelta(days=10**6))


async def test_tail_counts_by_time_over_all_partitions(world: World) -> None:
    await timed(world, [[10, 20, 70], [30, 40, 50, 60], []])
    for count, expected in [
        (0, {}),
        (1, {0: [2]}),
        (3, {0: [2], 1: [2, 3]}),
        (5, {0: [2], 1: [0, 1, 2, 3]}),
        (6, {0: [1, 2], 1: [0, 1, 2, 3]}),
        (100, {0: [0, 1, 2], 1: [0, 1, 2, 3]}),
    ]:
        found: dict[int, list[int]] = {}
        async for record in world.cluster.consumer("orders", stop="latest", tail=count):
            found.setdefault(record.partition, []).append(record.offset)
        assert found == expected
        table = await world.cluster.read("orders", last=count)
        assert table["offset"].to_pylist() == [at for p in sorted(found) for at in found[p]]
    for stop in (time_of(60), {0: 2, 1: 3, 2: 0}):
        before = await world.cluster.read("orders", stop=stop, last=2)
        assert before["partition"].to_pylist() == [1, 1]
        assert before["offset"].to_pylist() == [1, 2]
    with pytest.raises(InvalidRequestError, match="no offset for partition 2 of 'orders'"):
        await world.cluster.read("orders", stop={0: 2, 1: 3}, last=2)
    chosen = await world.cluster.read("orders", last=2, partitions=iter([0]))
    assert chosen["offset"].to_pylist() == [1, 2]


async def test_given_gaps_then_the_tail_reaches_further_back(world: World) -> None:
    world.sc.add_topic("orders")
    world.log().put(batch(0, 5))
    for offset in range(5, 30):
        world.log().put(build_control("term", offset))
    assert (await world.cluster.read("orders", last=3))["offset"].to_pylist() == [2, 3, 4]


async def test_given_a_tail_then_following_goes_on_after_it(world: World) -> None:
    await timed(world, [[10, 20], [15]])
    consumer = world.cluster.consumer("orders", tail=2, timeout=0.2, settings=PATIENT)
    async with consumer:
        assert sorted(await offsets(consumer)) == [0, 1]
        world.log(index=1).put(batch(1, 1))
        assert await offsets(consumer) == [1]


async def test_given_no_record_for_the_timeout_then_iterating_ends_and_goes_on(
    world: World,
) -> None:
    await fill(world)
    async with world.cluster.consumer(
        "orders", "earliest", timeout=0.1, settings=PATIENT
    ) as consumer:
        assert await offsets(consumer) == [1, 2, 3, 5]
        assert not consumer.exhausted
        assert [batch async for batch in consumer.batches()] == []
        with pytest.raises(StopAsyncIteration):
            await anext(consumer)
        assert consumer._queue._getters == []
        world.log().put(batch(6, 1))
        assert (await anext(consumer)).offset == 6


async def test_poll(world: World) -> None:
    await fill(world)
    async with world.cluster.consumer("orders", "earliest", settings=PATIENT) as consumer:
        found = [await consumer.poll(20) for _ in range(4)]
        assert [record.offset for record in found if record is not None] == [1, 2, 3, 5]
        assert await consumer.poll(0) is None
        assert await consumer.poll(0.05) is None
        assert not consumer.exhausted
        waiting = asyncio.create_task(consumer.poll())
        await asyncio.sleep(0.05)
        assert not waiting.done()
        world.log().put(batch(6, 1))
        record = await waiting
        assert record is not None
        assert record.offset == 6
    bounded = world.cluster.consumer("orders", "earliest", {0: 2})
    assert (await anext(bounded)).offset == 1
    assert await bounded.poll() is None
    assert bounded.exhausted
    assert await bounded.poll(1) is None


async def test_given_a_poll_that_ends_before_the_topic_answers_then_opening_goes_on(
    world: World,
) -> None:
    await fill(world)
    world.sc.may_tell.clear()
    consumer = world.cluster.consumer("orders", "earliest", settings=PATIENT)
    assert await consumer.poll(0.05) is None
    world.sc.may_tell.set()
    assert (await anext(consumer)).offset == 1
    await consumer.close()


@pytest.mark.parametrize("options", [
    {"tail": 1, "start": "earliest"},
    {"tail": 1, "name": "billing"},
    {"tail": -1},
    {"tail": "3"},
    {"timeout": -1},
    {"timeout": "soon"},
])  # fmt: skip
async def test_refused_options(world: World, options: dict[str, Any]) -> None:
    world.sc.add_topic("orders")
    with pytest.raises(InvalidRequestError, match=r"tail|timeout"):
        world.cluster.consumer("orders", **options)


async def test_read_refuses(world: World) -> None:
    await fill(world)
    with pytest.raises(InvalidRequestError, match="needs an end"):
        await world.cluster.read("orders", stop=None)
    with pytest.raises(InvalidRequestError, match="one of start and last"):
        await world.cluster.read("orders", start=2, last=3)
    with pytest.raises(InvalidRequestError, match=r"more than the 10 bytes that read.. loads"):
        await world.cluster.read("orders", start=2, max_bytes=10)


async def test_given_several_that_wait_then_all_see_the_end(world: World) -> None:
    world.sc.add_topic("orders")
    consumer = world.cluster.consumer("orders")
    await consumer.start()
    waiting = [asyncio.create_task(consumer.next_chunk()) for _ in range(4)]
    await eventually(lambda: len(consumer._queue._getters) == len(waiting))
    await consumer.close()
    async with asyncio.timeout(20):
        assert await asyncio.gather(*waiting) == [None] * len(waiting)
