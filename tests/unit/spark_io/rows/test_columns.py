"""Columns of a read: what a schema may name, and what is built."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from runnel.records.arrow_schema import arrow_schema
from schemas.columns.topic_schema import Column as TopicColumn
from schemas.columns.topic_schema import TopicSchema
from schemas.errors import InvalidRequestError
from spark_io.rows.columns import COLUMNS, ColumnBuilder, columns_of, full_schema, project

T = pa.timestamp("us", tz="UTC")


def schema(*fields: tuple[str, DataType] | tuple[str, DataType, bool]) -> StructType:
    return StructType([StructField(*field) for field in fields])


def records(rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.array([None, *(b"k%d" % i for i in range(1, rows))], pa.binary()),
            pa.array([b"v%d" % i for i in range(rows)], pa.binary()),
            pa.array(range(100, 100 + rows), pa.int64()),
            pa.array(range(rows), pa.int64()).cast(T),
        ],
        ["key", "value", "offset", "timestamp"],
    )


def test_all_columns_have_the_types_that_spark_checks() -> None:
    assert full_schema(COLUMNS).simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int>"
    )
    projection = project(full_schema(COLUMNS))
    assert projection.schema == to_arrow_schema(full_schema(COLUMNS), timezone="UTC")
    built = ColumnBuilder(projection, "orders", 7, max_rows=8).build(records(3))
    assert built.schema.equals(projection.schema)
    assert built.to_pylist()[0] == {
        "key": None,
        "value": b"v0",
        "topic": "orders",
        "partition": 7,
        "offset": 100,
        "timestamp": pa.scalar(0, T).as_py(),
        "timestampType": 0,
    }
    built.validate(full=True)


def test_given_fewer_columns_in_another_order_then_only_those() -> None:
    wanted = schema(("offset", LongType(), False), ("topic", StringType()), ("key", BinaryType()))
    projection = project(wanted)
    assert projection.sources == ("offset", "key")
    built = ColumnBuilder(projection, "t", 0, max_rows=8).build(records(2))
    assert built.schema.equals(to_arrow_schema(wanted, timezone="UTC"))
    assert built.to_pydict() == {"offset": [100, 101], "topic": ["t", "t"], "key": [None, b"k1"]}


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        pytest.param(
            schema(("ofset", LongType())),
            "there is no column 'ofset'; did you mean offset? The columns are: key binary,",
            id="given-a-typo-then-the-nearest-and-all-names",
        ),
        pytest.param(
            schema(("value", StringType())),
            "column value is binary, not string; cast it after reading",
            id="given-another-type-then-both-types",
        ),
        pytest.param(
            schema(("offset", IntegerType())), "column offset is bigint, not int", id="given-int"
        ),
        pytest.param(
            schema(("timestamp", TimestampNTZType())), "not timestamp_ntz", id="given-ntz"
        ),
        pytest.param(
            schema(("key", BinaryType(), False)), "cannot be NOT NULL", id="given-not-null"
        ),
        pytest.param(
            schema(("offset", LongType()), ("offset", LongType())), "twice", id="given-a-repetition"
        ),
        pytest.param(schema(), "name at least one column", id="given-no-column-then-refused"),
    ],
)
def test_refusals(wanted: StructType, says: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        project(wanted)
    assert says in caught.value.message
    assert caught.value.message.startswith("schema: ")


def test_given_only_constants_then_no_source_is_read() -> None:
    assert project(schema(("topic", StringType()), ("timestamp", TimestampType()))).sources == (
        "timestamp",
    )
    assert project(schema(("topic", StringType()))).sources == ()


# Of a typed topic

TYPES = {
    "given-a-number-then-it": ("int64", "bigint", pa.array([1])),
    "given-unsigned-numbers-then-the-next-wider": ("uint16", "int", pa.array([65535], pa.uint16())),
    "given-the-largest-unsigned-then-a-decimal": (
        "uint64",
        "decimal(20,0)",
        pa.array([2**64 - 1], pa.uint64()),
    ),
    "given-a-decimal-then-it": ("decimal(12, 2)", "decimal(12,2)", None),
    "given-a-point-in-time-then-a-timestamp": ("timestamp(ms, Asia/Tokyo)", "timestamp", None),
    "given-a-wall-clock-then-without-a-zone": ("timestamp(s)", "timestamp_ntz", None),
    "given-a-list-then-an-array": ("list<uint8>", "array<smallint>", pa.array([[1, None]])),
    "given-a-struct-then-its-fields": (
        "struct<a: uint32, b: timestamp(s, UTC)>",
        "struct<a:bigint,b:timestamp>",
        None,
    ),
    "given-a-map-then-it": ("map<string, uint8>", "map<string,smallint>", None),
    "given-the-others-then-they": ("date32", "date", None),
}


@pytest.mark.parametrize(("type_", "spark_type", "values"), TYPES.values(), ids=TYPES)
def test_types_of_typed_columns(type_: str, spark_type: str, values: pa.Array | None) -> None:
    rows = TopicSchema(columns=(TopicColumn(name="a", type=type_),))
    columns = columns_of(rows)
    assert [c.name for c in columns] == ["partition", "offset", "timestamp", "a"]
    wanted = full_schema(columns)
    assert wanted["a"].dataType.simpleString() == spark_type
    projection = project(wanted, columns)
    assert projection.schema == to_arrow_schema(wanted, timezone="UTC")
    read = arrow_schema(rows.columns).field("a").type
    found = pa.nulls(2, read) if values is None else values.cast(read)
    records = pa.RecordBatch.from_arrays(
        [
            pa.array(range(len(found)), pa.int64()),
            pa.array(range(len(found)), pa.int64()).cast(T),
            found,
        ],
        ["offset", "timestamp", "a"],
    )
    built = ColumnBuilder(projection, "orders", 3, max_rows=8).build(records)
    built.validate(full=True)
    assert built.schema.equals(projection.schema)
    assert built.column("a").to_pylist() == found.to_pylist()


def test_given_a_column_that_is_never_null_then_spark_may_rely_on_it() -> None:
    columns = columns_of(
        TopicSchema(
            columns=(
                TopicColumn(name="a", type="int8", nullable=False),
                TopicColumn(name="b", type="int8"),
            )
        )
    )
    assert [field.nullable for field in full_schema(columns)] == [True, True, True, False, True]
    narrow = schema(("a", ByteType(), False))
    assert project(narrow, columns).sources == ("a",)
    with pytest.raises(InvalidRequestError, match="column b may be null"):
        project(schema(("b", ByteType(), False)), columns)
    with pytest.raises(InvalidRequestError, match=r"no column 'value'.* a tinyint, b tinyint"):
        project(schema(("value", BinaryType())), columns)
