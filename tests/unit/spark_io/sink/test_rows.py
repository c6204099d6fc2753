"""Which columns become what of a record."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    BinaryType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from schemas.columns.topic_schema import TopicSchema
from schemas.errors import InvalidRequestError
from schemas.objects.topic import TopicSpec
from spark_io.options.table import Use
from spark_io.options.write import WriteOptions, parse_write_options
from spark_io.sink.rows import RowPlan, plan_rows

TYPES = {
    "string": StringType(),
    "binary": BinaryType(),
    "int": IntegerType(),
    "long": LongType(),
    "double": DoubleType(),
    "timestamp": TimestampType(),
}


def schema(ddl: str) -> StructType:
    """Spark's own parser needs a JVM."""
    pairs = [field.split() for field in ddl.split(", ")]
    return StructType([StructField(name, TYPES[kind]) for name, kind in pairs])


def options(**given: str) -> WriteOptions:
    return parse_write_options({"topic": "orders", **given}, lambda: "localhost")


def typed() -> TopicSchema:
    columns = [
        {"name": "id", "type": "int64", "nullable": False},
        {"name": "note", "type": "string"},
    ]
    rows = TopicSpec.model_validate({"partitions": 1, "schema": columns}).row_schema
    assert rows is not None
    return rows


@pytest.mark.parametrize(
    ("ddl", "given", "expected"),
    [
        pytest.param("value string", {}, RowPlan("orders", ("value",)), id="given-a-value"),
        pytest.param(
            "partition int, key binary, value binary, topic string, timestamp timestamp",
            {},
            RowPlan("orders", ("value", "key", "timestamp"), None, "partition"),
            id="given-an-option-and-a-column-topic-then-the-option",
        ),
        pytest.param(
            "value binary, topic string",
            {"topic": ""},
            RowPlan(None, ("value",), "topic"),
            id="given-no-option-then-the-column",
        ),
        pytest.param(
            "value binary, at long",
            {"transactionId": "at"},
            RowPlan("orders", ("value",), transaction_id_column="at"),
            id="given-a-column-of-transaction-ids",
        ),
    ],
)
def test_plans(ddl: str, given: dict[str, str], expected: RowPlan) -> None:
    assert plan_rows(options(**given), schema(ddl), None) == expected


@pytest.mark.parametrize(
    ("ddl", "given", "says"),
    [
        ("key string", {}, "there is no column value"),
        (
            "value string, keys string",
            {},
            "no place for column keys in a record: did you mean key?",
        ),
        ("value string, amount double", {}, "no place for column amount in a record: drop it"),
        ("value long", {}, "column value is bigint, not binary or string; cast it"),
        ("value string, partition string", {}, "column partition is string, not int"),
        ("value string", {"topic": ""}, "option topic is missing"),
        ("value string", {"transactionId": "at"}, "there is no column 'at'; there are value"),
        (
            "value string, at string",
            {"transactionId": "at"},
            "column at is string; transaction ids",
        ),
    ],
)
def test_columns_that_fit_nowhere_are_named(ddl: str, given: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        plan_rows(options(**given), schema(ddl), None)
    assert says in caught.value.message


@pytest.mark.parametrize(
    ("ddl", "says"),
    [
        ("note string", "column id of topic 'orders' is missing, and must not be null"),
        ("id long, nota string", "has no column nota: did you mean note?"),
        ("id long, offset long", 'they say where a record was read; df.drop("offset")'),
    ],
)
def test_columns_that_a_typed_topic_lacks_are_named(ddl: str, says: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        plan_rows(options(), schema(ddl), typed())
    assert says in caught.value.message


def test_a_typed_topic_takes_its_columns_and_may_lack_those_that_can_be_null() -> None:
    assert plan_rows(options(), schema("id int"), typed()) == RowPlan("orders", ("id",))
    plan = plan_rows(options(transactionId="at"), schema("at int, id int"), typed())
    assert plan == RowPlan("orders", ("id",), transaction_id_column="at")


def told(plan: RowPlan, **columns: list[Any]) -> list[tuple[Any, ...]]:
    batch = pa.RecordBatch.from_pydict(columns)
    return [
        (
            piece.topic,
            piece.partition,
            piece.table["value"].to_pylist(),
            None if piece.transaction_ids is None else piece.transaction_ids.to_pylist(),
        )
        for piece in plan.pieces(batch)
    ]


def test_rows_are_taken_apart_by_topic_and_partition_in_their_order() -> None:
    plan = RowPlan(None, ("value",), "topic", "partition", "at")
    assert told(
        plan,
        value=["1", "2", "3", "4", "5"],
        topic=["a", "b", "a", "a", "a"],
        partition=[0, 0, None, 1, 0],
        at=[1, 2, 3, 4, 5],
    ) == [
        ("a", 0, ["1", "5"], [1, 5]),
        ("a", None, ["3"], [3]),
        ("a", 1, ["4"], [4]),
        ("b", 0, ["2"], [2]),
    ]


def test_rows_without_a_place_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="a row has no topic"):
        told(RowPlan(None, ("value",), "topic"), value=["1"], topic=pa.nulls(1, pa.string()))
    with pytest.raises(InvalidRequestError, match="-1 is no partition"):
        told(RowPlan("a", ("value",), None, "partition"), value=["1"], partition=[-1])


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"topic": "a/b"}, "option topic: "),
        ({"topic": "_positions"}, "option topic: '_positions' is a system topic"),
        ({"acks": "all"}, "option acks: 'all'; give committed, leader, none"),
        ({"startingOffsets": "latest"}, "option startingOffsets is not for df.write: rows are"),
        ({"topics": "a"}, "unknown option 'topics'; did you mean topic?"),
    ],
)
def test_options_of_writes(given: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        options(**given)
    assert says in caught.value.message


def test_a_stream_has_options_of_its_query_and_no_transaction_ids() -> None:
    given = {"topic": "orders", "checkpointLocation": "/tmp/x", "queryName": "q"}
    found = parse_write_options(given, lambda: "localhost", Use.WRITE_STREAM)
    assert found.topic == "orders"
    with pytest.raises(InvalidRequestError, match=r"transactionId is not for df\.writeStream"):
        parse_write_options({**given, "transactionId": "at"}, lambda: "h", Use.WRITE_STREAM)
