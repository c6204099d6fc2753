"""Which partitions a consumer reads while it is open, and where: added, sought, paused ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, NoReturn

import pytest

import runnel
from runnel.aio import Consumer, ConsumerSettings
from runnel.consume import readers
from runnel.consume.delivered import FetchedChunk
from runnel.consume.start import find_starts
from runnel.records.record import Record, time_of
from schemas.errors import (
    CorruptBatchError,
    DivergedError,
    InvalidRequestError,
    NotLeaderError,
    OffsetOutOfRangeError,
)
from schemas.ids import make_term
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


async def numbered(world: World, partitions: int = 1, records: int = 6) -> None:
    """Per partition batches of two records, from offset 0 on; the time in µs is 100 + offset."""
    world.sc.add_topic("orders", partitions)
    for index in range(partitions):
        for offset in range(0, records, 2):
            world.log(index=index).put(batch(offset, 2, time_us=100 + offset))


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        pytest.param("earliest", [0, 1, 2, 3, 4, 5], id="given-earliest"),
        pytest.param("latest", [], id="given-latest"),
        pytest.param(1, [1, 2, 3, 4, 5], id="given-an-offset-back"),
        pytest.param(5, [5], id="given-an-offset-ahead"),
        pytest.param({0: 4}, [4, 5], id="given-a-map"),
        pytest.param(time_of(103), [3, 4, 5], id="given-a-time-within-a-batch"),
        pytest.param(timedelta(hours=1), [], id="given-a-timedelta"),
    ],
)
async def test_seek(world: World, to: Any, expected: list[int]) -> None:
    await numbered(world)
    bounded = world.cluster.consumer("orders", "earliest", {0: 6}, settings=QUICK)
    async with bounded as consumer:
        assert await some(consumer, 3) == [(0, 0), (0, 1), (0, 2)]
        await consumer.seek(to)
        assert consumer.position() == {0: expected[0] if expected else 6}
        assert [record.offset async for record in consumer] == expected
        assert consumer.position() == {0: 6}


async def test_given_a_seek_within_a_loop_then_the_loop_goes_on_there(world: World) -> None:
    await numbered(world)
    found: list[int] = []
    async with world.cluster.consumer("orders", "earliest", {0: 6}) as consumer:
        async for record in consumer:
            found.append(record.offset)
            if found == [0, 1, 2]:
                await consumer.seek(1)
    assert found == [0, 1, 2, 1, 2, 3, 4, 5]


async def test_given_a_seek_by_transaction_id_or_to_one_partition_then_others_go_on(
    world: World,
) -> None:
    await numbered(world, 2)
    async with world.cluster.consumer("orders", "earliest", {0: 6, 1: 6}) as consumer:
        await consumer.seek("latest", [1])
        assert consumer.position() == {0: 0, 1: 6}
        assert {record.partition async for record in consumer} == {0}
    async with world.cluster.consumer("orders", "earliest", settings=QUICK) as consumer:
        with pytest.raises(InvalidRequestError, match=r"has the partitions 0 to 1, not 2"):
            await consumer.seek("latest", [2])
        with pytest.raises(InvalidRequestError, match="start is 'soon'"):
            await consumer.seek("soon")  # type: ignore[arg-type]
        assert len(await some(consumer, 12)) == 12
        await consumer.seek(runnel.TransactionId(1))
        assert consumer.position() == {0: 6, 1: 6}


async def test_given_a_seek_that_fails_then_nothing_has_changed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await numbered(world)

    async def fails(*_arguments: object, **_options: object) -> NoReturn:
        raise NotLeaderError("elsewhere")

    async with world.cluster.consumer("orders", "earliest", settings=QUICK) as consumer:
        assert await some(consumer, 1) == [(0, 0)]
        with monkeypatch.context() as patched:
            patched.setattr(readers, "resolve_place", fails)
            with pytest.raises(NotLeaderError):
                await consumer.seek(4)
        assert await some(consumer, 2) == [(0, 1), (0, 2)]


async def test_given_a_pause_then_others_are_read_and_nothing_is_lost_or_doubled(
    world: World,
) -> None:
    await numbered(world, 2)
    async with world.cluster.consumer(
        "orders", "earliest", timeout=0.2, settings=QUICK
    ) as consumer:
        first = await anext(consumer)
        paused, other = first.partition, 1 - first.partition
        await consumer.pause([paused])
        assert consumer.paused() == {paused}
        world.log(index=other).put(batch(6, 1))
        rest = [(record.partition, record.offset) async for record in consumer]
        assert rest == [(other, offset) for offset in range(7)]
        assert await consumer.poll(0.1) is None
        assert consumer.position()[paused] == 1
        await consumer.pause([paused])
        await consumer.resume()
        assert consumer.paused() == frozenset()
        rest = [(record.partition, record.offset) async for record in consumer]
        assert rest == [(paused, offset) for offset in range(1, 6)]


async def test_given_records_of_a_fetch_under_way_then_they_come_after_the_kept_ones(
    world: World,
) -> None:
    await numbered(world, records=2)
    async with world.cluster.consumer("orders", "earliest", settings=QUICK) as consumer:
        assert (await anext(consumer)).offset == 0
        await consumer.pause()
        for offset in range(2, 8):
            world.log().put(batch(offset, 1))
        assert await consumer.poll(0.2) is None
        await consumer.resume()
        assert await some(consumer, 7) == [(0, offset) for offset in range(1, 8)]


async def test_given_a_pause_and_a_seek_then_it_goes_on_there_once_resumed(world: World) -> None:
    await numbered(world)
    async with world.cluster.consumer("orders", "earliest", {0: 6}) as consumer:
        assert await some(consumer, 3) == [(0, 0), (0, 1), (0, 2)]
        await consumer.pause()
        await consumer.seek(4)
        assert await consumer.poll(0.1) is None
        assert consumer.position() == {0: 4}
        await consumer.resume([0])
        assert await some(consumer, 2) == [(0, 4), (0, 5)]
        assert await consumer.poll() is None
        assert consumer.exhausted
    with pytest.raises(InvalidRequestError, match="closed"):
        await consumer.seek(0)


@pytest.mark.parametrize("name", [None, "billing"], ids=["given-no-name", "given-a-name"])
async def test_given_a_seek_after_the_end_then_it_reads_again(
    world: World, name: str | None
) -> None:
    await numbered(world)
    async with world.cluster.consumer("orders", "earliest", {0: 6}, name=name) as consumer:
        for start in (0, 4, 4):
            await consumer.seek(start)
            found = [record.offset async for record in consumer]
            assert (found, consumer.exhausted) == (list(range(start, 6)), True)
            await consumer.pause()
            await consumer.resume()
            assert await consumer.poll() is None
        await consumer.seek(5)
        assert not consumer.exhausted
    with pytest.raises(InvalidRequestError, match="closed"):
        await consumer.seek(0)


async def test_given_consumers_at_their_end_then_the_cluster_holds_only_those_that_read_again(
    world: World,
) -> None:
    await numbered(world)
    left, again = (world.cluster.consumer("orders", "earliest", {0: 6}) for _ in range(2))
    for consumer in (left, again):
        assert len([record async for record in consumer]) == 6
    assert not world.cluster._open
    await again.seek(0)
    assert world.cluster._open == {again}
    await world.cluster.close()
    for consumer in (left, again):
        assert consumer.closed
        with pytest.raises(InvalidRequestError, match="closed"):
            await consumer.seek(0)


@pytest.mark.parametrize("partitions", [None, [0]], ids=["given-all", "given-that-partition"])
@pytest.mark.parametrize("met", [True, False], ids=["given-it-was-met", "given-it-was-not"])
async def test_given_an_offset_that_is_not_there_then_a_seek_reads_on(
    world: World, partitions: list[int] | None, met: bool
) -> None:
    await numbered(world)
    async with world.cluster.consumer("orders", "earliest", settings=QUICK) as consumer:
        assert await some(consumer, 1) == [(0, 0)]
        await consumer.seek(10**9)
        if met:
            for _ in range(2):
                with pytest.raises(OffsetOutOfRangeError, match="offset 1000000000 is above"):
                    await consumer.poll(10)
            with pytest.raises(InvalidRequestError, match="start is -1"):
                await consumer.seek(-1)
            with pytest.raises(InvalidRequestError, match=r"does not read the partitions \[7\]"):
                await consumer.pause([7])
            await consumer.pause()
            await consumer.resume()
            with pytest.raises(OffsetOutOfRangeError):
                await consumer.poll(10)
        else:
            await eventually(lambda: any(consumer._queue._items))
        await consumer.seek(4, partitions)
        assert consumer.position() == {0: 4}
        assert await some(consumer, 2) == [(0, 4), (0, 5)]


async def test_given_two_misplaced_partitions_then_each_needs_a_seek(world: World) -> None:
    await numbered(world, 2)
    async with world.cluster.consumer("orders", 10**9, settings=QUICK) as consumer:
        await eventually(lambda: sum(map(bool, consumer._queue._items)) == 2)
        for _ in range(2):
            with pytest.raises(OffsetOutOfRangeError) as raised:
                await consumer.poll(10)
            await consumer.seek(5, [raised.value.details["partition"]])
        assert await some(consumer, 2) == [(0, 5), (1, 5)]


async def test_given_a_log_that_differs_then_a_seek_to_the_offset_it_names_reads_on(
    world: World,
) -> None:
    await numbered(world)
    world.sc.term = make_term(0, 9)
    async with world.cluster.consumer("orders", "earliest", settings=QUICK) as consumer:
        assert len(await some(consumer, 6)) == 6
        world.spu.fetch_script.append(DivergedError("another term", diverged_at=2))
        world.log().put(batch(6, 1))
        with pytest.raises(DivergedError, match="continue from offset 2") as raised:
            await consumer.poll(10)
        await consumer.seek(raised.value.diverged_at)
        assert await some(consumer, 5) == [(0, offset) for offset in range(2, 7)]


async def test_given_an_error_of_another_kind_then_a_seek_repeats_it(world: World) -> None:
    await numbered(world)
    world.log().batches[0][-1] ^= 1
    async with world.cluster.consumer("orders", "earliest", settings=QUICK) as consumer:
        for _ in range(2):
            with pytest.raises(CorruptBatchError):
                await consumer.poll(10)
            with pytest.raises(CorruptBatchError):
                await consumer.seek(2)


async def test_given_a_reader_that_failed_before_it_was_moved_then_its_error_does_not_count(
    world: World,
) -> None:
    async def fails() -> NoReturn:
        raise OffsetOutOfRangeError("at the former place")

    await numbered(world)
    async with world.cluster.consumer("orders", "earliest", settings=QUICK) as consumer:
        assert await some(consumer, 1) == [(0, 0)]
        assert consumer._readers is not None
        former = asyncio.create_task(fails())
        await asyncio.wait([former])
        await consumer.seek(4)
        # The loop tells of an ended task some time later.
        consumer._readers._ended(0, former)
        assert await some(consumer, 2) == [(0, 4), (0, 5)]


async def test_given_batches_then_a_pause_keeps_what_is_left(world: World) -> None:
    await numbered(world)
    async with world.cluster.consumer("orders", "earliest", timeout=0.2) as consumer:
        await anext(consumer)
        await consumer.pause()
        assert [rows async for rows in consumer.batches()] == []
        await consumer.resume()
        found = [
            offset async for rows in consumer.batches() for offset in rows["offset"].to_pylist()
        ]
        assert found == [1, 2, 3, 4, 5]


async def test_given_a_paused_consumer_then_closing_ends_who_waits(world: World) -> None:
    await numbered(world)
    consumer = world.cluster.consumer("orders", "earliest")
    await consumer.pause()
    waiting = asyncio.create_task(consumer.next_chunk())
    await asyncio.sleep(0.02)
    await consumer.close()
    async with asyncio.timeout(20):
        assert await waiting is None


async def test_given_a_name_then_the_record_in_hand_counts_as_read_only_later(
    world: World,
) -> None:
    await numbered(world)
    by_hand = ConsumerSettings(auto_commit_ms=None, max_wait_ms=50)
    async with world.cluster.consumer("orders", name="billing", settings=by_hand) as consumer:
        assert await some(consumer, 3) == [(0, 0), (0, 1), (0, 2)]
        await consumer.pause()
        assert consumer.state.processed() == {0: 2}
        await consumer.resume()
        assert consumer.state.processed() == {0: 2}
        assert await some(consumer, 1) == [(0, 3)]
        await consumer.commit()
        await consumer.seek(1)
        assert consumer.state.processed() == {0: 1}
        await consumer.commit()
    async with world.cluster.consumer("orders", name="billing", settings=by_hand) as consumer:
        assert await some(consumer, 1) == [(0, 1)]


async def test_given_a_partition_that_is_not_read_then_refused(world: World) -> None:
    await numbered(world, 2)
    async with world.cluster.consumer("orders", partitions=[1]) as consumer:
        for call in (consumer.pause, consumer.resume):
            with pytest.raises(InvalidRequestError, match=r"does not read the partitions \[0\]"):
                await call([0, 1])
        with pytest.raises(InvalidRequestError, match=r"does not read the partitions \[0\]"):
            await consumer.seek(0, [0])
        assert consumer.paused() == frozenset()


async def test_given_a_moved_partition_then_its_old_reader_delivers_nothing(world: World) -> None:
    await numbered(world)
    async with world.cluster.consumer("orders", "earliest", settings=QUICK) as consumer:
        assert await some(consumer, 1) == [(0, 0)]
        assert consumer._readers is not None
        for _ in range(20):
            old = consumer._readers._readers[0]
            await consumer.seek(0)
            old.deliver(FetchedChunk(0, [], 99))
            await asyncio.sleep(0)
        assert await some(consumer, 6) == [(0, offset) for offset in range(6)]
        world.log().put(batch(6, 1))
        assert await some(consumer, 1) == [(0, 6)]
