"""The client against a real SPU: listener, replicas and disks; only the SC is a stand-in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from runnel import aio
from runnel.records.record import time_of
from schemas.errors import TransactionIdTooLowError
from tests.integration.spu.served import Served, serve
from tests.unit.runnel.fake_sc import FakeSc
from tests.unit.spu.builders import assignment_of, open_spu, settings_of

PARTITIONS = 3


@dataclass
class World:
    sc: FakeSc
    served: Served
    cluster: aio.Cluster

    async def restart_listener(self) -> None:
        await self.served.restart()
        self.sc.endpoints = [("127.0.0.1", self.served.port)]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    sc = FakeSc()
    sc.add_topic("orders", PARTITIONS, compression="lz4")
    uids = sc.uids["orders"]
    spu = await open_spu(
        tmp_path,
        *(
            assignment_of(
                uid, name=f"orders-{index}", index=index, log=settings_of(segment=64 << 20)
            )
            for index, uid in enumerate(uids)
        ),
    )
    for uid in uids:
        await spu.serve(uid)
    async with serve(spu) as served:
        sc.endpoints = [("127.0.0.1", served.port)]
        await sc.start()
        async with aio.connect(sc.address) as cluster:
            yield World(sc, served, cluster)
    await sc.stop()


async def test_given_records_and_tables_then_all_are_read_in_order(world: World) -> None:
    table = pa.table(
        {"key": [f"k{n % 5}" for n in range(1_000)], "value": [str(n) for n in range(1_000)]}
    )
    async with world.cluster.producer("orders", batch_bytes=8_000) as producer:
        for index in range(1_000):
            producer.send(b"%d" % index, key=b"k%d" % (index % 5), headers={"n": b"%d" % index})
        await producer.send_table(table)
    found: dict[bytes | None, list[int]] = {}
    async for record in world.cluster.consumer("orders", "earliest", "latest"):
        found.setdefault(record.key, []).append(int(record.value or b""))
        assert record.headers in ((), (("n", record.value),))
    for key in range(5):
        expected = list(range(key, 1_000, 5))
        assert found[b"k%d" % key] == expected * 2
    assert (await world.cluster.read("orders")).num_rows == 2_000


async def test_given_broken_connections_then_every_record_stands_once(world: World) -> None:
    total = 3_000
    async with world.cluster.producer("orders", batch_bytes=2_000, linger_ms=1) as producer:
        for index in range(total):
            producer.send(b"%d" % index, key=b"k")
            if index % 1_000 == 500:
                await asyncio.sleep(0)
                await world.restart_listener()
        await producer.flush()
        assert producer.metrics.retries > 0
    values = [
        int(record.value or b"")
        async for record in world.cluster.consumer("orders", "earliest", "latest")
    ]
    assert values == list(range(total))


async def test_given_a_follower_of_the_end_then_records_arrive_over_a_restart(
    world: World,
) -> None:
    async with (
        world.cluster.consumer("orders", "latest") as consumer,
        world.cluster.producer("orders") as producer,
    ):
        records = aiter(consumer)
        async with asyncio.timeout(30):
            await producer.send(b"1")
            assert (await anext(records)).value == b"1"
            await world.restart_listener()
            await producer.send(b"2")
            assert (await anext(records)).value == b"2"


async def test_given_a_time_then_reading_starts_there(world: World) -> None:
    async with world.cluster.producer("orders") as producer:
        for time_us in range(100, 110):
            producer.send(b"%d" % time_us, timestamp=time_us, partition=0)
    consumer = world.cluster.consumer("orders", time_of(105), "latest", partitions=[0])
    assert [record.timestamp async for record in consumer] == [105, 106, 107, 108, 109]


async def test_given_transaction_ids_then_reading_starts_at_one_and_lower_ones_are_refused(
    world: World,
) -> None:
    async with world.cluster.producer("orders", batch_bytes=2_000) as producer:
        for number in range(1_000):
            producer.send(b"%d" % number, partition=0, transaction_id=number // 2)
        ids = list(range(500, 600))
        table = pa.table({"value": list(map(str, ids)), "key": ["k"] * 100})
        placed = await (await producer.send_table(table, transaction_ids=ids))
    for start, expected in ((123, range(246, 1_000)), (0, range(1_000)), (500, range(0))):
        consumer = world.cluster.consumer(
            "orders", aio.TransactionId(start), "latest", partitions=[0]
        )
        found = [int(r.value) for r in [r async for r in consumer] if r.key is None]
        assert found == list(expected)
    records = [
        (record.value, record.transaction_id)
        async for record in world.cluster.consumer("orders", aio.TransactionId(550), "latest")
    ]
    assert records == [(b"%d" % one, one) for one in ids[50:]]
    async with world.cluster.producer("orders") as producer:
        low = producer.send(b"low", partition=placed[0].partition, transaction_id=598)
        with pytest.raises(TransactionIdTooLowError, match=r"but orders-. is at 599") as raised:
            await producer.flush()
        assert raised.value.last_transaction_id == 599
        assert low.done()


@pytest.mark.parametrize("acks", ["committed", "leader"])
async def test_given_acks_then_offsets_are_told(world: World, acks: str) -> None:
    async with world.cluster.producer("orders", acks=acks) as producer:  # type: ignore[arg-type]
        found = [await producer.send(b"v", partition=2) for _ in range(3)]
    offsets = [delivery.offset for delivery in found]
    assert offsets == list(range(offsets[0], offsets[0] + 3))


async def test_given_large_values_then_they_come_back_whole(world: World) -> None:
    values = [bytes([index]) * (1 << 19) for index in range(12)]
    async with world.cluster.producer("orders", compression="none") as producer:
        for value in values:
            producer.send(value, partition=1)
    found = await world.cluster.read("orders", ["value"], partitions=[1])
    assert found["value"].to_pylist() == values
