"""Columns of a read: what a schema may name, and what is built."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from schemas.errors import InvalidRequestError
from spark_io.columns import FULL_SCHEMA, ColumnBuilder, project

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
    assert FULL_SCHEMA.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int>"
    )
    projection = project(FULL_SCHEMA)
    assert projection.schema == to_arrow_schema(FULL_SCHEMA, timezone="UTC")
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
