"""Producers of typed topics: keys, times and sizes of rows, by `send` and in tables."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.produce.batch import ProducerBatch
from runnel.produce.typed_accumulator import RowLayout, TypedAccumulator
from runnel.records.arrow_schema import decode_rows, row_sizes
from runnel.records.record import RecordMetadata, timestamp_us_of
from runnel.records.row_values import MisfitError
from runnel.records.tables import SizedRows
from schemas.columns.topic_schema import Column, TopicSchema
from schemas.errors import (
    InvalidRequestError,
    NotEnoughReplicasError,
    OverloadedError,
)
from schemas.wire.batch import read_header, verify_client_part
from schemas.wire.partitioner import partition_for
from tests.unit.runnel.conftest import World
from tests.unit.runnel.typed import values

NOW_US = 1_700_000_000_000_000
PARTITIONS = 5
NOTE = Column(name="note", type="string")
SPEC: dict[str, Any] = {"schema": [{"name": "note", "type": "string"}]}


def accumulator(rows: TopicSchema, batch_bytes: int = 1 << 20) -> TypedAccumulator[None]:
    return TypedAccumulator(
        RowLayout(rows),
        lambda: NOW_US,
        "orders",
        PARTITIONS,
        max_record_bytes=1 << 20,
        batch_bytes=batch_bytes,
        linger_s=0.005,
        clock=lambda: 0.0,
        new_outcome=lambda: None,
    )


def sent(made: TypedAccumulator[None]) -> list[ProducerBatch[None]]:
    made.seal_all()
    return made.take(1.0)[0]


KEY_TYPES = ["string", "binary", "int8", "int64", "uint16", "uint64"]


@given(st.data(), st.sampled_from(KEY_TYPES))
def test_law_rows_and_tables_go_where_their_key_goes_in_any_topic(
    data: st.DataObject, type_: str
) -> None:
    key = Column(name="key", type=type_)
    rows = TopicSchema(columns=(key, NOTE), key_column="key")
    layout = RowLayout(rows)
    found = data.draw(st.lists(values(key.parsed), min_size=1, max_size=8))
    one_by_one, at_once = accumulator(rows), accumulator(rows)
    for n, value in enumerate(found):
        row = layout.reader.read({"key": value, "note": str(n)})
        one_by_one.append(layout.key_of(row), row, NOW_US)
    table = layout.to_arrow([(value, str(n)) for n, value in enumerate(found)])
    at_once.append_table(SizedRows(table, row_sizes(table)))

    expected: dict[int, list[str]] = {}
    for n, value in enumerate(found):
        as_bytes = value if isinstance(value, bytes) else str(value).encode()
        expected.setdefault(partition_for(as_bytes, PARTITIONS), []).append(str(n))
    for made in (one_by_one, at_once):
        placed: dict[int, list[str]] = {}
        for batch in sent(made):
            placed.setdefault(batch.partition, []).extend(
                batch.to_arrow().column("note").to_pylist()
            )
        assert placed == expected
        assert made.buffered_bytes > 0


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_given_no_timestamp_column_then_the_time_of_the_batch(codec: str) -> None:
    rows = TopicSchema(columns=(NOTE,))
    made = accumulator(rows)
    made.append(None, ("a",), 5)
    made.append(None, (None,), 6)
    (batch,) = sent(made)
    assert [batch.timestamp_us(n) for n in range(2)] == [NOW_US, NOW_US]
    encoded = b"".join(batch.encode(codec, producer_id=7, producer_epoch=1, sequence=3))
    header = verify_client_part(encoded)
    assert (header.first_timestamp_us, header.last_timestamp_us) == (NOW_US, NOW_US)
    assert (header.schema_id, header.record_count) == (rows.schema_id, 2)
    assert (header.producer_id, header.producer_epoch, header.sequence) == (7, 1, 3)
    assert decode_rows(header, encoded, RowLayout(rows).arrow).to_pylist() == [
        {"note": "a"},
        {"note": None},
    ]
    assert [batch.timestamp_us(n) for n in range(2)] == [NOW_US, NOW_US]


def test_given_a_timestamp_column_then_each_its_own() -> None:
    at = Column(name="at", type="timestamp(s)", nullable=False)
    made = accumulator(TopicSchema(columns=(at,), timestamp_column="at"))
    times = [datetime(2026, 1, day, tzinfo=UTC) for day in (3, 1, 2)]
    for time in times:
        made.append(None, (time.replace(tzinfo=None),), NOW_US)
    (batch,) = sent(made)
    expected = [timestamp_us_of(time) for time in times]
    assert [batch.timestamp_us(n) for n in range(3)] == expected
    header = read_header(batch.encode("none")[0])
    assert (header.first_timestamp_us, header.last_timestamp_us) == (min(expected), max(expected))
    assert [batch.timestamp_us(n) for n in range(3)] == expected


def test_batches_are_cut_by_the_size_of_rows() -> None:
    rows = TopicSchema(columns=(NOTE,))
    made = accumulator(rows, batch_bytes=1_000)
    for _ in range(30):
        made.append(None, ("x" * 100,), NOW_US)
    batches = sent(made)
    assert sum(batch.count for batch in batches) == 30
    assert all(batch.size <= 1_000 for batch in batches)
    assert {batch.count for batch in batches} == {7, 2}
    assert all(int(row_sizes(batch.to_arrow()).sum()) <= batch.size for batch in batches)


async def test_given_times_that_no_record_can_have_then_the_table_is_refused(world: World) -> None:
    spec: dict[str, Any] = {
        "schema": [{"name": "at", "type": "timestamp(s)", "nullable": False}],
        "timestampColumn": "at",
    }
    world.sc.add_topic("timed", **spec)
    async with world.cluster.producer("timed") as producer:
        table = pa.table({"at": pa.array([1 << 60], pa.timestamp("s"))})
        with pytest.raises(MisfitError, match="column at: holds no times of records"):
            await producer.send_table(table)


async def test_given_a_full_buffer_then_rows_are_refused_until_there_is_room(world: World) -> None:
    world.sc.add_topic("notes", **SPEC)
    world.spu.may_answer.clear()
    async with world.cluster.producer("notes", buffer_bytes=200, linger_ms=0) as producer:
        for _ in range(3):
            producer.send({"note": "x" * 50})
        with pytest.raises(OverloadedError, match="wait to be acknowledged"):
            producer.send({"note": "x" * 50})
        world.spu.may_answer.set()
        await producer.drain()
        await producer.send({"note": "y"})


async def test_given_a_schema_while_no_sc_answers_then_the_one_it_said_last(world: World) -> None:
    world.sc.add_topic("notes", **SPEC)
    async with world.cluster.producer("notes") as producer:
        await producer.send({"note": "a"})
    await world.sc.stop()
    async with world.cluster.producer("notes") as producer:
        await producer.send({"note": "b"})
    found = [r.value async for r in world.cluster.consumer("notes", "earliest", "latest")]
    assert found == [{"note": "a"}, {"note": "b"}]
    await world.sc.start()


async def test_given_a_plain_topic_then_a_dict_is_refused_with_what_to_do(world: World) -> None:
    world.sc.add_topic("plain")
    async with world.cluster.producer("plain") as producer:
        with pytest.raises(InvalidRequestError, match=r"the value is dict; .*spec\.schema"):
            producer.send({"note": "a"})


async def test_given_a_new_epoch_then_batches_keep_their_schema_id(world: World) -> None:
    world.sc.add_topic("notes", **SPEC)
    async with world.cluster.producer("notes", batch_bytes=40, linger_ms=0) as producer:
        await producer.send({"note": "a"})
        # The second fails for good, the third was not appended: it gets a number of the next epoch.
        refused = [InvalidRequestError("refused"), NotEnoughReplicasError("too few")]
        world.spu.produce_script.extend(refused)
        world.spu.may_answer.clear()
        deliveries = [producer.send({"note": str(n)}) for n in range(2)]
        flushing = asyncio.create_task(producer.flush())
        async with asyncio.timeout(30):
            while world.spu.in_flight < 2:  # noqa: ASYNC110 - what is awaited is state
                await asyncio.sleep(0.001)
            world.spu.may_answer.set()
            with pytest.raises(InvalidRequestError):
                await flushing
            await deliveries[1]
    headers = world.log("notes").headers()
    assert [header.producer_epoch for header in headers] == [0, 1]
    assert len({header.schema_id for header in headers}) == 1


async def test_on_delivery_of_a_row_is_told_its_place(world: World) -> None:
    world.sc.add_topic("orders", **SPEC)
    told: list[RecordMetadata | None] = []
    async with world.cluster.producer("orders") as producer:
        producer.send({"note": "1"})
        sent = producer.send(
            {"note": "2"}, on_delivery=lambda _error, metadata: told.append(metadata)
        )
        await producer.flush()
        assert told == [await sent]
