"""What a consumer of a typed topic gives of batches of older, newer and unknown versions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from runnel.consume.delivered import records_of
from runnel.records.arrow_schema import TIMESTAMP, arrow_schema, encode_rows
from runnel.records.cursor import Cursor
from runnel.records.record import time_of
from runnel.records.schema_resolution import ReadColumns, read_schema
from schemas.columns.topic_schema import Column, TopicSchema, schema_id
from schemas.errors import CorruptBatchError, UnsupportedError
from schemas.wire.batch import (
    CODECS,
    TRANSACTION_IDS_FLAG,
    build,
    read_header,
    set_offset_and_term,
)
from schemas.wire.payload import TRANSACTION_ID

ID = Column(name="orderId", type="int64", nullable=False)
NOTE = Column(name="note", type="string")
TAGS = Column(name="tags", type="map<string, int8>")
AT = Column(name="at", type="timestamp(ms)", nullable=False)

V1 = TopicSchema(columns=(ID,), key_column="orderId")
V2 = TopicSchema(columns=(ID, NOTE), key_column="orderId")
V3 = TopicSchema(columns=(ID, NOTE, TAGS), key_column="orderId")


def batch(
    columns: Sequence[Column], rows: dict[str, Any], base: int = 0, codec: str = "none", **more: Any
) -> bytes:
    schema = arrow_schema(columns)
    arrays = [pa.array(rows[field.name], field.type) for field in schema]
    header = {"first_timestamp_us": 5, "last_timestamp_us": 9} | more
    if (ids := header.pop("ids", None)) is not None:
        schema = schema.append(TRANSACTION_ID)
        arrays.append(pa.array(ids, TRANSACTION_ID.type))
    records = pa.RecordBatch.from_arrays(arrays, schema=schema)
    built = build(
        encode_rows(records, codec),
        record_count=header.pop("record_count", records.num_rows),
        codec=CODECS[codec],
        schema_id=header.pop("schema_id", schema_id(columns)),
        **header,
    )
    set_offset_and_term(built, base, 1 << 16)
    return bytes(built)


def more_ids(ids: bool, values: list[int]) -> dict[str, Any]:
    """What `batch` takes for records with these transaction ids, if they have some."""
    if not ids:
        return {}
    bounds = {"first_transaction_id": values[0], "last_transaction_id": values[-1]}
    return {"ids": values, "flags": TRANSACTION_IDS_FLAG, **bounds}


def taken(columns: ReadColumns, *batches: bytes, position: int = 0) -> list[dict[str, Any]]:
    cursor = Cursor("orders", 3, position, columns=columns)
    found = cursor.take(memoryview(b"".join(batches)))
    assert all(part.schema == columns.schema for part in found)
    return [row for part in found for row in part.to_pylist(maps_as_pydicts="strict")]


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_given_an_older_batch_then_null_where_it_has_nothing(codec: str) -> None:
    old = batch(V1.columns, {"orderId": [1, 2]}, codec=codec)
    new = batch(V3.columns, {"orderId": [3], "note": ["n"], "tags": [{"a": 1}]}, 2, codec)
    place = {"partition": 3, "timestamp": time_of(9)}
    assert taken(ReadColumns(V3), old, new, position=1) == [
        {**place, "offset": 1, "orderId": 2, "note": None, "tags": None},
        {**place, "offset": 2, "orderId": 3, "note": "n", "tags": {"a": 1}},
    ]


@pytest.mark.parametrize("codec", ["none", "lz4"])
@pytest.mark.parametrize("ids", [False, True], ids=["given-no-ids", "given-transaction-ids"])
@pytest.mark.parametrize("wanted", [(), ("note",), ("transaction_id", "orderId")])
def test_wanted_columns_of_all_versions(codec: str, ids: bool, wanted: tuple[str, ...]) -> None:
    # A column of the topic's own is called as the ids are.
    ours = Column(name="transaction_id", type="string")
    rows = TopicSchema(columns=(ID, NOTE, ours), key_column="orderId")
    old = {"orderId": [1, 2], "note": ["a", None]}
    new = {"orderId": [3], "note": ["c"], "transaction_id": ["t"]}
    batches = memoryview(
        batch((ID, NOTE), old, 0, codec, **more_ids(ids, [5, 6]))
        + batch(rows.columns, new, 2, codec, **more_ids(ids, [7]))
    )
    columns = ReadColumns(rows)
    (found,) = Cursor("orders", 3, 0, columns=columns, wanted=frozenset(wanted)).take(batches)
    expected = {"orderId": [1, 2, 3], "note": ["a", None, "c"], "transaction_id": [None, None, "t"]}
    for index, name in enumerate(expected, start=3):
        values = expected[name] if name in wanted else [None] * 3
        assert found.column(index).to_pylist() == values
    assert found.column("offset").to_pylist() == [0, 1, 2]
    assert found.num_columns == len(columns.schema) + ids
    if ids:
        assert found.column(found.num_columns - 1).to_pylist() == [5, 6, 7]


def test_given_columns_that_were_added_later_then_they_are_left_out() -> None:
    columns = ReadColumns(V1)
    new = batch(V2.columns, {"orderId": [3], "note": ["n"]})
    assert not columns.knows(read_header(new))
    with pytest.raises(UnsupportedError, match=r"orders/3 .* the batch has 2 columns"):
        taken(columns, new)
    columns.learn(V2)
    assert columns.knows(read_header(new))
    assert taken(columns, new) == [
        {"partition": 3, "offset": 0, "timestamp": time_of(9), "orderId": 3}
    ]


def test_given_a_schema_that_was_told_late_then_the_newest_stays_known() -> None:
    columns = ReadColumns(V1)
    columns.learn(V3)
    columns.learn(V2)
    assert columns.knows(
        read_header(batch(V3.columns, {"orderId": [1], "note": [None], "tags": [None]}))
    )


def test_given_a_timestamp_column_then_it_is_the_time_and_can_be_started_from() -> None:
    timed = TopicSchema(columns=(AT,), timestamp_column="at")
    data = batch(timed.columns, {"at": [10, 20, 30]})
    rows = taken(ReadColumns(timed), data)
    assert [row["timestamp"] for row in rows] == [time_of(n * 1000) for n in (10, 20, 30)]
    cursor = Cursor("orders", 0, 0, not_before_us=15_000, columns=ReadColumns(timed))
    (found,) = cursor.take(memoryview(data))
    assert found.column("offset").to_pylist() == [1, 2]


WRONG: dict[str, tuple[bytes, type[Exception], str]] = {
    "given-a-record-without-columns-then-refused": (
        batch(V1.columns, {"orderId": [1]}, schema_id=0),
        UnsupportedError,
        "the batch has 0 columns",
    ),
    "given-other-columns-then-refused": (
        batch([Column(name="other", type="int64", nullable=False)], {"other": [1]}),
        UnsupportedError,
        "no version of the topic's schema is that",
    ),
    "given-a-payload-that-leads-outside-then-damage": (
        batch(
            [Column(name="a", type="int64"), Column(name="b", type="int64")],
            {"a": [1 << 40], "b": [1 << 40]},
            schema_id=V2.schema_id,
        ),
        CorruptBatchError,
        "payload is not an Arrow record batch",
    ),
    "given-null-where-none-may-be-then-damage": (
        batch(V1.columns, {"orderId": [None]}),
        CorruptBatchError,
        "column orderId has nulls",
    ),
    "given-fewer-rows-than-said-then-damage": (
        batch(V1.columns, {"orderId": [1]}, record_count=2),
        CorruptBatchError,
        "payload has 1 records, the header says 2",
    ),
    "given-a-payload-of-fewer-columns-then-damage": (
        batch([], {}, schema_id=V1.schema_id, record_count=1),
        CorruptBatchError,
        "payload is not an Arrow record batch",
    ),
}


@pytest.mark.parametrize(("data", "error", "says"), WRONG.values(), ids=WRONG)
def test_batches_that_cannot_be(data: bytes, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        taken(ReadColumns(V2), data)


def test_records_have_a_dict_and_the_bytes_of_their_key() -> None:
    columns = ReadColumns(V3)
    data = batch(V3.columns, {"orderId": [-7], "note": ["n"], "tags": [{"a": 1}]}, 4)
    (found,) = Cursor("orders", 3, 0, columns=columns).take(memoryview(data))
    (record,) = records_of("orders", found, V3)
    assert (record.key, record.offset, record.headers) == (b"-7", 4, ())
    assert record.value == {"orderId": -7, "note": "n", "tags": {"a": 1}}


def test_given_no_key_column_then_records_have_no_key() -> None:
    plain = TopicSchema(columns=(ID,))
    data = batch(plain.columns, {"orderId": [1]})
    (found,) = Cursor("orders", 3, 0, columns=ReadColumns(plain)).take(memoryview(data))
    assert [record.key for record in records_of("orders", found, plain)] == [None]


def test_the_schema_that_readers_see() -> None:
    assert read_schema(V2) == pa.schema(
        [
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", TIMESTAMP),
            pa.field("orderId", pa.int64(), nullable=False),
            ("note", pa.string()),
        ]
    )
