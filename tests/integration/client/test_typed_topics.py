"""Typed topics against a real SPU; only the SC is a stand-in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import runnel
from runnel import aio
from runnel.records.row_values import MisfitError
from schemas.objects.topic import Topic, TopicSpec
from tests.integration.spu.served import serve
from tests.unit.runnel.fake_sc import FakeSc
from tests.unit.spu.builders import Spu, assign, assignment_of, open_spu, settings_of

PARTITIONS = 3
COLUMNS: list[dict[str, Any]] = [
    {"name": "orderId", "type": "int64", "nullable": False},
    {"name": "amount", "type": "decimal(12, 2)"},
    {"name": "at", "type": "timestamp(us, UTC)", "nullable": False},
    {"name": "tags", "type": "list<string>"},
]
NOTE = {"name": "note", "type": "string"}
TYPED: dict[str, Any] = {"schema": COLUMNS, "keyColumn": "orderId", "timestampColumn": "at"}
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@dataclass
class World:
    sc: FakeSc
    spu: Spu
    cluster: aio.Cluster

    def topic(self) -> Topic:
        found = self.sc.objects["topics", "orders"]
        assert isinstance(found, Topic)
        return found

    async def add_column(self, column: dict[str, Any]) -> None:
        """As ``apply`` does; the SPU is not told."""
        wanted = self.topic().to_json()
        wanted["spec"]["schema"].append(column)
        await self.cluster.apply(wanted)

    async def tell_spu(self, revision: int = 9) -> None:
        """Assign the partitions with the columns that the topic has now."""
        rows = self.topic().spec.row_schema
        log = settings_of(segment=64 << 20).model_copy(update={"row_schema": rows})
        assignments = (
            assignment_of(uid, name=f"orders-{index}", index=index, log=log, revision=revision)
            for index, uid in enumerate(self.sc.uids["orders"])
        )
        await self.spu.host.assign(assign(*assignments))


def order(number: int, **values: Any) -> dict[str, Any]:
    return {"orderId": number, "at": NOON} | values


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    sc = FakeSc()
    sc.add_topic("orders", PARTITIONS, compression="lz4", **TYPED)
    spu = await open_spu(tmp_path)
    async with serve(spu) as served:
        sc.endpoints = [("127.0.0.1", served.port)]
        await sc.start()
        async with aio.connect(sc.address) as cluster:
            found = World(sc, spu, cluster)
            await found.tell_spu(revision=5)
            for uid in sc.uids["orders"]:
                await spu.serve(uid)
            yield found
    await sc.stop()


async def test_given_rows_dataclasses_and_tables_then_typed_columns_are_read(world: World) -> None:
    @dataclass
    class Order:
        orderId: int  # noqa: N815 - as the column is called
        at: datetime
        amount: Decimal | None = None

    async with world.cluster.producer("orders") as producer:
        first = await producer.send(order(1, amount=Decimal("9.9"), tags=["new", None]))
        producer.send(Order(2, NOON))
        await producer.send_table(pa.table({"orderId": [3, 4], "at": [NOON, NOON]}))
    table = await world.cluster.read("orders")
    assert table.schema.names == ["partition", "offset", "timestamp", *[c["name"] for c in COLUMNS]]
    assert table.schema.field("amount").type == pa.decimal128(12, 2)
    assert not table.schema.field("orderId").nullable
    rows = sorted(table.to_pylist(), key=lambda row: row["orderId"])
    assert [row["orderId"] for row in rows] == [1, 2, 3, 4]
    assert rows[0]["amount"] == Decimal("9.90")
    assert rows[0]["tags"] == ["new", None]
    assert {row["timestamp"] for row in rows} == {NOON}
    assert first.time == NOON


async def test_given_rows_and_tables_of_one_key_then_one_partition_in_order(world: World) -> None:
    async with world.cluster.producer("orders", batch_bytes=2_000) as producer:
        for n in range(300):
            producer.send(order(n % 7, tags=[str(n)]))
        numbers = range(300, 600)
        await producer.send_table(
            pa.table(
                {
                    "orderId": [n % 7 for n in numbers],
                    "at": [NOON] * 300,
                    "tags": [[str(n)] for n in numbers],
                }
            )
        )
    found: dict[bytes | None, list[tuple[int, int]]] = {}
    async for record in world.cluster.consumer("orders", "earliest", "latest"):
        assert record.key == str(record.value["orderId"]).encode()
        number = int(record.value["tags"][0])
        found.setdefault(record.key, []).append((record.partition, number))
    for key, places in found.items():
        assert len({partition for partition, _ in places}) == 1
        assert [number for _, number in places] == list(range(int(key or b""), 600, 7))
    assert len(found) == 7


async def test_given_what_does_not_fit_then_nothing_of_it_is_sent(world: World) -> None:
    async with world.cluster.producer("orders") as producer:
        with pytest.raises(MisfitError, match="column orderId: 'x' is no int64; column at: is mis"):
            producer.send({"orderId": "x"})
        with pytest.raises(MisfitError, match=r"row 1, column orderId: must not be null"):
            await producer.send_table(pa.table({"orderId": [1, None], "at": [NOON, NOON]}))
        for wrong in (b"bytes", "text", None):
            with pytest.raises(runnel.InvalidRequestError, match="has a schema: send a dict"):
                producer.send(wrong)
        with pytest.raises(runnel.InvalidRequestError, match="key of a record is its column order"):
            producer.send(order(1), key=b"k")
        with pytest.raises(runnel.InvalidRequestError, match="time of a record is its column at"):
            producer.send(order(1), timestamp=NOON)
        with pytest.raises(runnel.InvalidRequestError, match="columns and no headers"):
            producer.send(order(1), headers={"a": b"b"})
    assert (await world.cluster.read("orders")).num_rows == 0


async def test_given_a_row_above_the_limit_then_refused(world: World) -> None:
    async with world.cluster.producer("orders") as producer:
        with pytest.raises(runnel.RecordTooLargeError, match="more than maxRecordSize"):
            producer.send(order(1, tags=["x" * (1 << 20)]))


async def test_given_a_column_added_then_old_records_have_null_and_old_readers_go_on(
    world: World,
) -> None:
    async with (
        world.cluster.producer("orders") as old,
        world.cluster.consumer("orders", "latest") as reader,
    ):
        records = aiter(reader)
        await reader.start()
        await world.add_column(NOTE)
        await world.tell_spu()
        async with world.cluster.producer("orders") as new, asyncio.timeout(30):
            await new.send(order(2, note="n"))
            newer = await anext(records)
            # Opened before the column was there, it still is allowed to send.
            await old.send(order(1))
            older = await anext(records)
    assert set(newer.value) == set(older.value) == {c["name"] for c in COLUMNS}
    rows = (await world.cluster.read("orders", ["orderId", "note"])).to_pylist()
    assert sorted(rows, key=lambda row: row["orderId"]) == [
        {"orderId": 1, "note": None},
        {"orderId": 2, "note": "n"},
    ]


async def test_given_a_time_then_reading_starts_there(world: World) -> None:
    times = [NOON.replace(minute=minute) for minute in range(10)]
    async with world.cluster.producer("orders") as producer:
        for n, time in enumerate(times):
            producer.send(order(7, at=time, tags=[str(n)]))
    consumer = world.cluster.consumer("orders", times[6], "latest")
    assert [record.time async for record in consumer] == times[6:]


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param({**TYPED, "schema": [*COLUMNS[:3], NOTE]}, id="given-other-columns"),
        pytest.param({}, id="given-records-without-columns"),
    ],
)
async def test_given_a_batch_of_another_schema_then_the_spu_refuses_it(
    world: World, sent: dict[str, Any]
) -> None:
    spec = {"partitions": PARTITIONS, **sent}
    world.sc.change(world.topic().model_copy(update={"spec": TopicSpec.model_validate(spec)}))
    async with world.cluster.producer("orders") as producer:
        producer.send(order(1) if sent else b"bytes")
        with pytest.raises(runnel.InvalidRequestError, match="no version of the schema of orders-"):
            await producer.flush()


async def test_given_an_spu_that_is_told_late_then_nothing_is_lost(world: World) -> None:
    await world.add_column(NOTE)
    async with world.cluster.producer("orders") as producer, asyncio.timeout(30):
        producer.send(order(1, note="n"))
        sending = asyncio.create_task(producer.flush())
        while not producer.metrics.retries:
            assert not sending.done()
            await asyncio.sleep(0.001)
        await world.tell_spu()
        await sending
    (row,) = (await world.cluster.read("orders", ["orderId", "note"])).to_pylist()
    assert row == {"orderId": 1, "note": "n"}
