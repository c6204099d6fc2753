"""Which partitions a consumer reads while it is open: added ones join."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from runnel.aio import Consumer, ConsumerSettings
from runnel.consume import readers
from runnel.consume.start import find_starts
from runnel.records.record import Record
from schemas.errors import InvalidRequestError, NotLeaderError
from tests.polling import eventually
from tests.unit.runnel.conftest import World
from tests.unit.runnel.records.test_cursor import batch

QUICK = ConsumerSettings(max_wait_ms=50, metadata_max_age_ms=30)


async def some(consumer: Consumer, count: int) -> list[tuple[int, int]]:
    """Partition and offset of the next records."""
    records: AsyncIterator[Record] = aiter(consumer)
    async with asyncio.timeout(20):
        return sorted([await _place(records) for _ in range(count)])


async def _place(records: AsyncIterator[Record]) -> tuple[int, int]:
    record = await anext(records)
    return record.partition, record.offset


async def test_given_added_partitions_then_they_are_read_from_their_beginning(
    world: World,
) -> None:
    world.sc.add_topic("orders")
    async with world.cluster.consumer("orders", "latest", settings=QUICK) as consumer:
        world.log().put(batch(0, 1))
        assert await some(consumer, 1) == [(0, 0)]
        world.sc.grow("orders", 3)
        # They come before the consumer knows of the partitions: "latest" would miss them.
        for index in (1, 2):
            world.log(index=index).put(batch(0, 2))
        assert await some(consumer, 4) == [(1, 0), (1, 1), (2, 0), (2, 1)]
        assert consumer.position() == {0: 1, 1: 2, 2: 2}


async def test_given_chosen_partitions_then_added_ones_are_not_read(world: World) -> None:
    world.sc.add_topic("orders")
    chosen = world.cluster.consumer("orders", "earliest", partitions=[0], settings=QUICK)
    bounded = world.cluster.consumer("orders", "earliest", "latest", settings=QUICK)
    async with chosen, bounded:
        world.sc.grow("orders", 2)
        world.log(index=1).put(batch(0, 2))
        asked = world.sc.asked
        await asyncio.sleep(0.1)
        assert world.sc.asked == asked
        assert chosen.position() == {0: 0}
        assert [record async for record in bounded] == []


async def test_given_an_added_partition_without_a_leader_then_it_is_read_once_it_has_one(
    world: World,
) -> None:
    world.sc.add_topic("orders")
    (place,) = world.sc.endpoints
    async with world.cluster.consumer("orders", "latest", settings=QUICK) as consumer:
        world.sc.endpoints = [place, None]
        world.sc.grow("orders", 2)
        world.log(index=1).put(batch(0, 1))
        asked = world.sc.asked
        await eventually(lambda: world.sc.asked >= asked + 3)
        assert consumer.position() == {0: 0}
        world.sc.endpoints = [place]
        assert await some(consumer, 1) == [(1, 0)]


async def test_given_an_added_partition_that_does_not_answer_then_the_others_are_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "_AGAIN_S", 0.02)
    calls = 0
    original = find_starts

    async def fails_first(route, partitions, *rest):  # type: ignore[no-untyped-def]
        nonlocal calls
        if partitions == [1] and (calls := calls + 1) < 3:
            raise NotLeaderError("elsewhere")
        return await original(route, partitions, *rest)

    monkeypatch.setattr(readers, "find_starts", fails_first)
    world.sc.add_topic("orders")
    async with world.cluster.consumer("orders", "latest", settings=QUICK) as consumer:
        world.sc.grow("orders", 2)
        await eventually(lambda: calls >= 1)
        world.log().put(batch(0, 1))
        assert await some(consumer, 1) == [(0, 0)]
        world.log(index=1).put(batch(0, 1))
        assert await some(consumer, 1) == [(1, 0)]
        assert calls == 3


async def test_given_a_name_then_added_partitions_are_committed_and_read_on(world: World) -> None:
    world.sc.add_topic("orders")
    async with world.cluster.consumer("orders", name="billing", settings=QUICK) as consumer:
        world.sc.grow("orders", 2)
        world.log(index=1).put(batch(0, 3))
        assert await some(consumer, 2) == [(1, 0), (1, 1)]
        await consumer.commit()
    async with world.cluster.consumer("orders", name="billing", settings=QUICK) as consumer:
        assert await some(consumer, 1) == [(1, 2)]


async def test_given_a_deleted_topic_then_nobody_asks_for_partitions_any_more(
    world: World,
) -> None:
    world.sc.add_topic("orders")
    async with (
        world.cluster.consumer("orders", "latest", settings=QUICK) as consumer,
        world.cluster.producer("orders", metadata_max_age_ms=30) as producer,
    ):
        world.sc.remove_topic("orders")
        growth = consumer._growth
        assert growth is not None
        await eventually(lambda: growth.done() and producer._tasks[0].done())


@pytest.mark.parametrize("age_ms", [0, 3_600_001])
def test_given_an_impossible_interval_then_refused(age_ms: int) -> None:
    with pytest.raises(InvalidRequestError, match="metadata_max_age_ms"):
        ConsumerSettings(metadata_max_age_ms=age_ms)
