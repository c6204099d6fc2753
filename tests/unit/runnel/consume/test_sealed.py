"""Reading a sealed log: every reader meets its end."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from runnel.aio import Consumer, ConsumerSettings
from runnel.net.offsets import Start, Stop, TransactionId
from schemas.errors import NotReadyError, OffsetOutOfRangeError, SealedError
from schemas.objects.system_topics import POSITIONS
from schemas.wire.batch import build_control, build_seal
from tests.polling import eventually
from tests.unit.runnel.conftest import World
from tests.unit.runnel.fake_spu import Step
from tests.unit.runnel.records.test_cursor import batch

TERM = 1 << 16
QUICK = ConsumerSettings(max_wait_ms=50)


def fill(world: World, *, sealed: bool = True) -> None:
    """Control record, 1 2 3, seal at 4, control record of a later leader."""
    world.sc.add_topic("orders")
    log = world.log()
    log.put(build_control("term", 0), TERM)
    log.put(batch(1, 3), TERM)
    if sealed:
        seal(world)


def seal(world: World) -> None:
    world.log().put(build_seal(0), TERM)
    world.log().put(build_control("term", 0), 2 * TERM)


async def offsets(consumer: Consumer) -> list[int]:
    async with asyncio.timeout(20):
        return [record.offset async for record in consumer]


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [
        pytest.param("earliest", None, [1, 2, 3], id="given-one-that-follows-then-it-ends"),
        pytest.param("earliest", "latest", [1, 2, 3], id="given-a-stop-at-the-end"),
        pytest.param("earliest", {0: 3}, [1, 2], id="given-a-stop-before-it"),
        pytest.param(2, None, [2, 3], id="given-a-start-in-the-middle"),
        pytest.param(4, None, [], id="given-a-start-at-the-seal"),
    ],
)
async def test_a_sealed_log_has_an_end(
    world: World, start: Start, stop: Stop, expected: list[int]
) -> None:
    fill(world)
    async with world.cluster.consumer("orders", start, stop, settings=QUICK) as consumer:
        assert await offsets(consumer) == expected
        assert consumer.exhausted
        assert consumer.position() == {0: 3 if stop == {0: 3} else 4}
        if stop is None:
            assert consumer.metrics.lag_records == {0: 0}
            assert consumer.position_with_terms() == {0: (4, TERM if expected else 0)}


@pytest.mark.parametrize(
    "start",
    [
        pytest.param(datetime(2100, 1, 1, tzinfo=UTC), id="given-a-time-to-come"),
        pytest.param(TransactionId(7), id="given-an-id-that-is-not-there"),
    ],
)
async def test_a_start_that_is_not_there_is_the_end(world: World, start: Start) -> None:
    fill(world)
    async with world.cluster.consumer("orders", start, settings=QUICK) as consumer:
        assert await offsets(consumer) == []
        assert consumer.exhausted
        assert consumer.position() == {0: 4}


async def test_given_a_start_behind_the_seal_then_refused(world: World) -> None:
    """Nothing will ever come there."""
    fill(world)
    with pytest.raises(OffsetOutOfRangeError, match="sealed at 4; start there or below"):
        async with world.cluster.consumer("orders", 5, settings=QUICK):
            pass


async def test_given_a_reader_that_waits_then_the_seal_ends_it(world: World) -> None:
    fill(world, sealed=False)
    async with world.cluster.consumer("orders", "earliest", settings=QUICK) as consumer:
        reading = asyncio.create_task(offsets(consumer))
        await eventually(lambda: consumer.position() == {0: 4})
        seal(world)
        await world.spu.grown()
        assert await reading == [1, 2, 3]
        await consumer.seek(2)
        assert await offsets(consumer) == [2, 3], "it ends there again"


async def test_given_polls_that_only_look_then_it_learns_of_added_partitions_and_ends(
    world: World,
) -> None:
    fill(world)
    consumer = world.cluster.consumer("orders", "earliest", settings=QUICK)
    found: list[tuple[int, int]] = []
    async with asyncio.timeout(20):
        while len(found) < 3:
            if (record := await consumer.poll(0)) is not None:
                found.append((record.partition, record.offset))
        world.sc.grow("orders", 2)
        added = world.log(index=1)
        added.put(build_control("term", 0), TERM)
        added.put(batch(1, 1), TERM)
        added.put(build_seal(0), TERM)
        while not consumer.exhausted:
            if (record := await consumer.poll(0)) is not None:
                found.append((record.partition, record.offset))
    await consumer.close()
    assert found == [(0, 1), (0, 2), (0, 3), (1, 1)]


async def test_given_partitions_that_were_added_before_then_they_are_read_as_well(
    world: World,
) -> None:
    """The consumer would learn of them only later."""
    fill(world)
    async with world.cluster.consumer("orders", "earliest", settings=QUICK) as consumer:
        world.sc.grow("orders", 2)
        added = world.log(index=1)
        added.put(build_control("term", 0), TERM)
        added.put(batch(1, 2), TERM)
        added.put(build_seal(0), TERM)
        assert await offsets(consumer) == [1, 2, 3, 1, 2]
        assert consumer.position() == {0: 4, 1: 3}


async def test_given_a_name_then_everything_is_committed_at_the_end(world: World) -> None:
    fill(world)
    world.sc.add_topic(POSITIONS, 1)
    world.log(POSITIONS).put(build_control("term", 0))
    for expected in ([1, 2, 3], []):
        async with world.cluster.consumer("orders", name="billing") as consumer:
            assert await offsets(consumer) == expected
    (found,) = await world.cluster.consumers("billing")
    assert found.partitions[0].committed == 4


async def test_given_a_commit_behind_the_end_then_it_is_no_loss(world: World) -> None:
    """A client of an earlier version reads on through control records."""
    fill(world)
    world.sc.add_topic(POSITIONS, 1)
    world.log(POSITIONS).put(build_control("term", 0))
    async with world.cluster.consumer("orders", name="billing") as consumer:
        await consumer.commit({0: 6})
        await consumer.close(commit=False)
    async with world.cluster.consumer("orders", name="billing") as consumer:
        assert await offsets(consumer) == []


async def test_given_a_sealed_partition_then_producers_are_told(world: World) -> None:
    fill(world, sealed=False)
    refused = SealedError("orders-0 is sealed: it takes no more records")
    world.spu.produce_script.extend([refused] * 9)
    producer = await world.cluster.producer("orders")
    for _ in range(2):
        with pytest.raises(SealedError, match="takes no more records"):
            await producer.send("x")
    with pytest.raises(SealedError, match="2 records for topic 'orders' were not delivered"):
        await producer.close()


async def test_given_batches_in_flight_then_each_is_told_whether_it_came_before(
    world: World,
) -> None:
    """Their answers were lost when the leader changed; the next one has the first of them."""
    fill(world, sealed=False)
    refused = SealedError("orders-0 is sealed: it takes no more records")
    producer = await world.cluster.producer("orders")
    await producer.send("known")
    world.spu.produce_script.extend([Step.APPEND_THEN_NOT_READY, *[NotReadyError("?")] * 2])
    world.spu.produce_script.extend([Step.OK, refused, refused])
    world.spu.may_answer.clear()
    made = []
    for text in ("before", "behind", "last"):
        made.append(producer.send(text))
        producer._send_buffer.seal_all()
        producer._pump()
    await eventually(lambda: world.spu.in_flight == 3)
    world.spu.may_answer.set()
    assert (await made[0]).offset == 5
    for one in made[1:]:
        with pytest.raises(SealedError):
            await one
    with pytest.raises(SealedError, match="2 records"):
        await producer.close()
