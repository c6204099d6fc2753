"""The consumer against a scripted SPU: ranges, following, trouble with leaders."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
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


async def test_given_several_that_wait_then_all_see_the_end(world: World) -> None:
    world.sc.add_topic("orders")
    consumer = world.cluster.consumer("orders")
    await consumer.start()
    waiting = [asyncio.create_task(consumer.next_chunk()) for _ in range(4)]
    await eventually(lambda: len(consumer._queue._getters) == len(waiting))
    await consumer.close()
    async with asyncio.timeout(20):
        assert await asyncio.gather(*waiting) == [None] * len(waiting)
