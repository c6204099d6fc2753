"""Transaction ids at a client: into batches, out of them, and where reading starts."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.aio import ConsumerSettings, TransactionId
from runnel.consume.delivered import records_of
from runnel.produce.accumulator import Accumulator
from runnel.produce.batch import ProducerBatch
from runnel.produce.typed_accumulator import RowLayout, TypedAccumulator
from runnel.records.arrow_schema import arrow_schema, decode_rows, row_sizes
from runnel.records.cursor import READ_SCHEMA, Cursor
from runnel.records.record import Record
from runnel.records.schema_resolution import ReadColumns
from runnel.records.tables import measured, record_table, with_transaction_ids
from schemas.columns.topic_schema import Column, TopicSchema
from schemas.errors import (
    CorruptBatchError,
    InvalidRequestError,
    NotEnoughReplicasError,
    TransactionIdTooLowError,
    UnsupportedError,
)
from schemas.wire.batch import (
    NO_TRANSACTION,
    TRANSACTION_IDS_FLAG,
    Buffer,
    build,
    set_offset_and_term,
    verify_client_part,
)
from schemas.wire.payload import TRANSACTION_ID, decode_records, encode_records
from tests.unit.runnel.conftest import World
from tests.unit.runnel.records.test_cursor import control

NOTES = TopicSchema(columns=(Column(name="note", type="string"),))
WITH_IDS = ConsumerSettings(transaction_ids=True)

Ids = list[int | None]


def accumulator(*, typed: bool = False, partitions: int = 1) -> Accumulator[None]:
    settings: dict[str, Any] = {
        "max_record_bytes": 1_000,
        "batch_bytes": 200,
        "linger_s": 5.0,
        "clock": lambda: 0.0,
        "new_outcome": lambda: None,
    }
    if typed:
        return TypedAccumulator(RowLayout(NOTES), lambda: 1, "orders", partitions, **settings)
    return Accumulator("orders", partitions, **settings)


def sent(made: Accumulator[None]) -> list[ProducerBatch[None]]:
    made.seal_all()
    return made.take(0.0)[0]


def ids_of(pieces: list[Buffer], *, typed: bool) -> Ids:
    """The ids of a batch, which must be what its header says."""
    encoded = b"".join(pieces)
    header = verify_client_part(encoded)
    if typed:
        rows = decode_rows(header, encoded, arrow_schema(NOTES.columns))
    else:
        rows = decode_records(encoded)
    has = header.has_transaction_ids
    assert has == (rows.schema.names[-1] == "transaction_id")
    if not has:
        assert header.first_transaction_id == header.last_transaction_id == NO_TRANSACTION
        return [None] * rows.num_rows
    found: Ids = rows.column(rows.num_columns - 1).to_pylist()
    assert (header.first_transaction_id, header.last_transaction_id) == (found[0], found[-1])
    return found


# Into batches


@given(
    rises=st.lists(st.none() | st.integers(0, 3), max_size=30),
    typed=st.booleans(),
    codec=st.sampled_from(["none", "lz4", "zstd"]),
)
def test_law_batches_have_ids_or_none_and_hold_them_in_order(
    rises: list[int | None], typed: bool, codec: str
) -> None:
    made = accumulator(typed=typed)
    last, expected = 0, []
    for rise in rises:
        last += rise or 0
        expected.append(None if rise is None else last)
        value: Any = ("note",) if typed else b"note"
        made.append(None, value, 1, (), None, expected[-1])
    found = [ids_of(batch.encode(codec), typed=typed) for batch in sent(made)]
    assert [one for batch in found for one in batch] == expected
    assert all(len({one is None for one in batch}) == 1 for batch in found)


@pytest.mark.parametrize("typed", [False, True])
def test_given_an_id_below_one_that_waits_then_refused_and_the_others_go(typed: bool) -> None:
    made = accumulator(typed=typed)
    value: Any = ("note",) if typed else b"note"
    made.append(None, value, 1, (), None, 7)
    with pytest.raises(TransactionIdTooLowError, match="id 6 comes after 7 for partition orders/0"):
        made.append(None, value, 1, (), None, 6)
    made.append(None, value, 1, (), None, 7)
    (batch,) = sent(made)
    assert ids_of(batch.encode("none"), typed=typed) == [7, 7]
    # What was sent before is the leader's to judge.
    made.append(None, value, 1, (), None, 6)
    assert ids_of(sent(made)[0].encode("none"), typed=typed) == [6]


def test_given_records_of_slots_behind_records_with_ids_then_another_batch() -> None:
    made = accumulator()
    made.append(None, b"1", 1, (), None, 7)
    rows = made.arrange([None, None], [b"2", b"3"], np.array([1, 1]), 1, 0.0)
    made.append_rows(rows)
    made.append(None, b"4", 1, (), None, 7)
    found = sent(made)
    assert [ids_of(batch.encode("none"), typed=False) for batch in found] == [
        [7],
        [None, None],
        [7],
    ]
    assert rows.place(1) == (found[1], 1)


@pytest.mark.parametrize("typed", [False, True])
def test_given_a_table_then_each_row_keeps_its_id_whatever_partition_it_goes_to(
    typed: bool,
) -> None:
    made = accumulator(typed=typed, partitions=3)
    values = [str(number) for number in range(100)]
    if typed:
        table = RowLayout(NOTES).table(pa.table({"note": values}), "orders")
    else:
        keys = [f"k{number % 7}" for number in range(100)]
        table = record_table(pa.table({"value": values, "key": keys}), 1)
    ids = np.arange(100) // 3
    (rows,) = with_transaction_ids(measured(table.combine_chunks(), row_sizes), ids)
    found: dict[int, Ids] = {}
    for batch in made.append_table(rows, with_ids=True):
        column = batch.to_arrow().column("note" if typed else "value").to_pylist()
        got = ids_of(batch.encode("none"), typed=typed)
        assert got == [int(value) // 3 for value in column]
        found.setdefault(batch.partition, []).extend(got)
    assert sum(map(len, found.values())) == 100
    assert len(found) == 3
    assert all(a <= b for part in found.values() for a, b in pairwise(part))  # type: ignore[operator]


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        pytest.param(7, [7, 7, 7], id="given-one-then-it-is-every-rows"),
        pytest.param([1, 1, 4], [1, 1, 4], id="given-a-list-then-each-its-own"),
        pytest.param(np.array([0, 1, 2], np.uint16), [0, 1, 2], id="given-numpy-then-as-well"),
        pytest.param(
            pa.chunked_array([[1], [2, 3]]), [1, 2, 3], id="given-a-chunked-array-then-as-well"
        ),
        pytest.param((1 << 63) - 1, [(1 << 63) - 1] * 3, id="given-the-largest-then-taken"),
    ],
)
def test_ids_of_a_table(ids: Any, expected: list[int]) -> None:
    table = pa.table({"value": pa.chunked_array([["a"], ["b", "c"]])})
    parts = with_transaction_ids(measured(table, row_sizes), ids)
    assert [part.rows.schema.field(1) for part in parts] == [TRANSACTION_ID] * 2
    assert [one for part in parts for one in part.rows.column(1).to_pylist()] == expected
    assert with_transaction_ids([], 7) == []


@pytest.mark.parametrize(
    ("ids", "says"),
    [
        pytest.param([1, 3, 2], "row 2 has 2 after 3; ids never fall", id="given-a-fall"),
        pytest.param([1, None, 2], "row 1 has none", id="given-a-null"),
        pytest.param([1, 2], "2 ids for 3 rows", id="given-too-few"),
        pytest.param([-1, 2, 3], "row 0 has -1", id="given-a-negative-one"),
        pytest.param(-1, "row 0 has -1", id="given-only-a-negative-one"),
        pytest.param(1 << 63, "from 0 to", id="given-too-large-a-number"),
        pytest.param(np.array([1, 2, 1 << 63], np.uint64), "from 0 to", id="given-a-large-one"),
        pytest.param([1.0, 2.0, 3.0], "of type double", id="given-floats"),
        pytest.param(["1", "2", "3"], "of type string", id="given-text"),
        pytest.param(True, "from 0 to", id="given-a-bool"),
        pytest.param(object(), "from 0 to", id="given-something-else"),
    ],
)
def test_ids_of_a_table_that_are_refused(ids: Any, says: str) -> None:
    with pytest.raises(InvalidRequestError, match=says):
        with_transaction_ids(measured(pa.table({"value": ["a", "b", "c"]}), row_sizes), ids)


# Out of batches


def batch(base: int, ids: Ids, *, typed: bool = False) -> bytearray:
    """Records with these ids, whose values are their offsets."""
    pending = sent_batch(ids, base, typed=typed)
    set_offset_and_term(pending, base, 1 << 16)
    return pending


def sent_batch(ids: Ids, base: int, *, typed: bool) -> bytearray:
    made = accumulator(typed=typed)
    for number, one in enumerate(ids):
        text = str(base + number)
        value: Any = (text,) if typed else text.encode()
        made.append(None, value, 5, (), None, one)
    (found,) = sent(made)
    return bytearray().join(found.encode("none"))


def read(cursor: Cursor, *batches: bytearray) -> list[Record]:
    found = cursor.take(memoryview(b"".join(batches)))
    rows = None if cursor.columns is None else cursor.columns.rows
    return [record for part in found for record in records_of("orders", part, rows)]


@pytest.mark.parametrize("typed", [False, True])
def test_given_batches_with_and_without_then_each_record_has_its_own(typed: bool) -> None:
    columns = ReadColumns(NOTES) if typed else None
    cursor = Cursor("orders", 0, 1, columns=columns)
    batches = [batch(0, [3, 3, 5], typed=typed), batch(3, [None], typed=typed)]
    found = read(cursor, *batches, control(4), batch(5, [5], typed=typed))
    assert [(record.offset, record.transaction_id) for record in found] == [
        (1, 3), (2, 5), (3, None), (5, 5),
    ]  # fmt: skip
    value: Any = {"note": "1"} if typed else b"1"
    assert found[0].value == value


def test_given_no_ids_then_batches_are_put_together_as_they_were() -> None:
    cursor = Cursor("orders", 0, 0)
    found = cursor.take(memoryview(batch(0, [None]) + batch(1, [None]) + batch(2, [1])))
    assert [part.num_rows for part in found] == [2, 1]
    assert found[0].schema == READ_SCHEMA


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param(0, [1, 2, 3, 4, 5, 6], id="given-before-all-then-all-from-the-first-id-on"),
        pytest.param(4, [2, 3, 4, 5, 6], id="given-between-then-inside-of-a-batch"),
        pytest.param(5, [2, 3, 4, 5, 6], id="given-one-that-is-there-then-its-first-record"),
        pytest.param(6, [5, 6], id="given-the-next-batch-then-those-without-are-left-out"),
        pytest.param(9, [6], id="given-the-last-then-it"),
        pytest.param(10, [], id="given-after-all-then-nothing-yet"),
    ],
)
def test_not_before_id(asked: int, expected: list[int]) -> None:
    cursor = Cursor("orders", 0, 0, not_before_id=asked)
    batches = batch(0, [None]), batch(1, [3, 5, 5]), batch(4, [None]), batch(5, [8, 9])
    assert [record.offset for record in read(cursor, *batches)] == expected
    # Once it was found it is done with.
    assert (cursor.not_before_id is None) == bool(expected)
    assert bool(read(cursor, batch(7, [None]))) == bool(expected)


def test_given_damage_behind_the_first_id_then_it_is_looked_for_again() -> None:
    cursor = Cursor("orders", 0, 0, not_before_id=4)
    whole, damaged = batch(0, [3, 5]), batch(2, [5])
    damaged[-1] ^= 1
    with pytest.raises(CorruptBatchError):
        read(cursor, whole, damaged)
    assert (cursor.position, cursor.not_before_id) == (0, 4)
    assert [record.offset for record in read(cursor, whole)] == [1]


@pytest.mark.parametrize(
    ("ids", "first", "last", "says"),
    [
        pytest.param(
            [1, 2], 1, 3, "go from 1 to 2, those of the header from 1 to 3", id="given-another-last"
        ),
        pytest.param([1, 2], 0, 2, "those of the header from 0 to 2", id="given-another-first"),
        pytest.param(
            [1, 3, 2, 4], 1, 4, "transaction ids of the payload decrease", id="given-a-fall"
        ),
        pytest.param([1, None], 1, 2, "a record without a transaction id", id="given-a-null"),
        pytest.param(None, 1, 2, "not an Arrow record batch", id="given-no-column"),
    ],
)
def test_given_ids_that_are_not_those_of_the_header_then_corrupt(
    ids: Ids | None, first: int, last: int, says: str
) -> None:
    rows = len(ids or [0, 0])
    table = record_table(pa.table({"value": ["v"] * rows}), 1)
    if ids is not None:
        field = pa.field("transaction_id", pa.int64())
        table = table.append_column(field, [pa.array(ids, pa.int64())])
    encoded = build(
        encode_records(table.to_batches()[0]),
        record_count=rows,
        first_timestamp_us=0,
        last_timestamp_us=0,
        flags=TRANSACTION_IDS_FLAG,
        first_transaction_id=first,
        last_transaction_id=last,
    )
    with pytest.raises(CorruptBatchError, match=says):
        decode_records(encoded)


# Over the wire


async def produce(world: World, ids: Ids) -> None:
    async with world.cluster.producer("orders") as producer:
        for number, one in enumerate(ids):
            producer.send(b"%d" % number, transaction_id=one)


async def test_given_ids_then_records_come_back_with_them_and_from_one_on(world: World) -> None:
    world.sc.add_topic("orders", 1)
    await produce(world, [None, 3, 3, None, 7, 9])

    async def found(start: Any) -> list[tuple[int, int | None]]:
        consumer = world.cluster.consumer("orders", start, "latest")
        return [(record.offset, record.transaction_id) async for record in consumer]

    assert await found("earliest") == [(0, None), (1, 3), (2, 3), (3, None), (4, 7), (5, 9)]
    assert await found(TransactionId(3)) == [(1, 3), (2, 3), (3, None), (4, 7), (5, 9)]
    assert await found(TransactionId(8)) == [(5, 9)]
    assert await found(TransactionId(10)) == []


async def test_given_an_id_or_a_time_then_the_offset_of_the_first_such_record(world: World) -> None:
    world.sc.add_topic("orders", 2)
    async with world.cluster.producer("orders", batch_bytes=1 << 20) as producer:
        for ids in ([3, 3, 7], [7, 9]):
            for one in ids:
                producer.send(b"x", transaction_id=one, timestamp=one, partition=1)
            await producer.flush()

    async def found(at: Any, partitions: Any = None) -> dict[int, int]:
        return await world.cluster.offsets_at("orders", at, partitions)

    assert await found(TransactionId(7)) == {0: 0, 1: 2}
    assert await found(TransactionId(8)) == {0: 0, 1: 4}
    assert await found(TransactionId(10), [1]) == {1: 5}
    assert await found(datetime.fromtimestamp(8 / 1e6, UTC), [1]) == {1: 4}
    for bad in ("earliest", 7):
        with pytest.raises(
            InvalidRequestError, match="give a datetime, a timedelta or a TransactionId"
        ):
            await found(bad)


async def test_given_arrow_then_the_column_is_there_only_when_asked_for(world: World) -> None:
    world.sc.add_topic("orders", 1)
    await produce(world, [None, 3, None])
    plain = world.cluster.consumer("orders", "earliest", "latest")
    assert {rows.schema for rows in [rows async for rows in plain.batches()]} == {READ_SCHEMA}
    asked = world.cluster.consumer("orders", "earliest", "latest", settings=WITH_IDS)
    table = pa.Table.from_batches([rows async for rows in asked.batches()])
    assert table.column("transaction_id").to_pylist() == [None, 3, None]
    assert table.drop_columns("transaction_id").schema == READ_SCHEMA
    # Left in the middle, by record, and taken up again by batch.
    mixed = world.cluster.consumer("orders", "earliest", "latest", settings=WITH_IDS)
    async for record in mixed:
        if record.offset == 0:
            break
    rest = pa.Table.from_batches([rows async for rows in mixed.batches()])
    assert rest.column("transaction_id").to_pylist() == [3, None]
    assert (await world.cluster.read("orders")).schema == READ_SCHEMA


async def test_given_a_table_of_a_typed_topic_then_ids_come_back(world: World) -> None:
    name = Column(name="transaction_id", type="string")
    own = TopicSchema(columns=(name,))
    for topic, rows in (("orders", NOTES), ("owned", own)):
        schema = [{"name": column.name, "type": column.type} for column in rows.columns]
        world.sc.add_topic(topic, 1, schema=schema)
        async with world.cluster.producer(topic) as producer:
            table = pa.table({rows.columns[0].name: ["a", "b"]})
            await producer.send_table(table, transaction_ids=[4, 6])
            producer.send({rows.columns[0].name: "c"}, transaction_id=6)
        consumer = world.cluster.consumer(topic, TransactionId(5), "latest")
        await consumer.start()
        assert consumer.position() == {0: 1}
        assert await world.cluster.offsets_at(topic, TransactionId(5)) == {0: 1}
        found = [r async for r in consumer]
        assert [(r.value[rows.columns[0].name], r.transaction_id) for r in found] == [
            ("b", 6),
            ("c", 6),
        ]
    asked = world.cluster.consumer("orders", "earliest", "latest", settings=WITH_IDS)
    column = pa.Table.from_batches([rows async for rows in asked.batches()])["transaction_id"]
    assert column.to_pylist() == [4, 6, 6]
    with pytest.raises(InvalidRequestError, match="has a column transaction_id of its own"):
        await world.cluster.consumer("owned", "earliest", "latest", settings=WITH_IDS).start()


async def test_given_an_spu_of_an_earlier_version_then_it_is_not_believed(world: World) -> None:
    world.sc.add_topic("orders", 1)
    await produce(world, [3])
    world.spu.knows_ids = False
    with pytest.raises(UnsupportedError, match="orders/0 cannot find a transaction id"):
        await world.cluster.consumer("orders", TransactionId(3), "latest").start()


async def test_given_a_refusal_then_batches_behind_it_keep_their_ids(world: World) -> None:
    world.sc.add_topic("orders", 1)
    async with world.cluster.producer("orders", batch_bytes=40, linger_ms=0) as producer:
        await producer.send(b"0", transaction_id=9)
        # The second fails for good, the third was not appended: it gets a number of the next epoch.
        refused = TransactionIdTooLowError("orders-0 is at 9", last_transaction_id=9)
        world.spu.produce_script.extend([refused, NotEnoughReplicasError("too few")])
        world.spu.may_answer.clear()
        low = producer.send(b"1", transaction_id=4)
        high = producer.send(b"2", transaction_id=12)
        flushing = asyncio.create_task(producer.flush())
        async with asyncio.timeout(30):
            while world.spu.in_flight < 2:  # noqa: ASYNC110 - what is awaited is state
                await asyncio.sleep(0.001)
            world.spu.may_answer.set()
            with pytest.raises(TransactionIdTooLowError):
                await flushing
            with pytest.raises(TransactionIdTooLowError) as raised:
                await low
            await high
    assert raised.value.last_transaction_id == 9
    headers = world.log().headers()
    assert [(h.first_transaction_id, h.flags, h.producer_epoch) for h in headers] == [
        (9, TRANSACTION_IDS_FLAG, 0),
        (12, TRANSACTION_IDS_FLAG, 1),
    ]


@pytest.mark.parametrize("given_id", [-1, 1 << 63, 1.5, "7", True], ids=repr)
async def test_given_what_is_no_id_then_refused(world: World, given_id: Any) -> None:
    world.sc.add_topic("orders", 1)
    async with world.cluster.producer("orders") as producer:
        with pytest.raises(InvalidRequestError, match="give a whole number from 0 to"):
            producer.send(b"v", transaction_id=given_id)
    with pytest.raises(InvalidRequestError, match="give a whole number from 0 to"):
        TransactionId(given_id)
