"""Rows of Spark in topics: plain and typed, what is refused, and what a failure leaves."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users write it

import runnel
import runnel.spark
from tests.integration.spark.cluster import RunningCluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


def write(frame: DataFrame, mode: str = "append", **options: str) -> None:
    frame.write.format("runnel").options(**options).mode(mode).save()


def error_of(action: Callable[[], object]) -> str:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - Spark's wrappers differ by version
        action()
    return str(caught.value)


def test_rows_with_all_columns(cluster: RunningCluster, spark: SparkSession) -> None:
    topic = cluster.topic("written", partitions=3)
    when = datetime(2025, 1, 1, tzinfo=UTC)
    rows = [
        (b"k1", "v1", [("h", b"1")], when, 2),
        (None, "v2", None, when, None),
        (b"k3", "v3", [], when, 0),
    ]
    frame = spark.createDataFrame(
        rows,
        "key binary, value string, headers array<struct<key: string, value: binary>>,"
        " timestamp timestamp, partition int",
    )
    runnel.spark.write(frame, topic)
    found = {r["value"]: r for r in cluster.client.read(topic).to_pylist()}
    assert sorted(found) == [b"v1", b"v2", b"v3"]
    assert (found[b"v1"]["partition"], found[b"v3"]["partition"]) == (2, 0)
    assert found[b"v1"]["headers"] == [{"key": "h", "value": b"1"}]
    assert [found[value]["key"] for value in (b"v1", b"v2", b"v3")] == [b"k1", None, b"k3"]
    assert {row["timestamp"] for row in found.values()} == {when}


def test_a_column_names_the_topics(cluster: RunningCluster, spark: SparkSession) -> None:
    for name in ("even", "odd"):
        cluster.topic(name)
    frame = spark.range(10).select(
        F.when(F.col("id") % 2 == 0, "even").otherwise("odd").alias("topic"),
        F.col("id").cast("string").alias("value"),
    )
    runnel.spark.write(frame)
    assert cluster.client.read("even").num_rows == 5
    assert sorted(cluster.client.read("odd")["value"].to_pylist()) == [b"1", b"3", b"5", b"7", b"9"]


def test_many_rows_arrive_once_and_keep_the_order_of_keys(
    cluster: RunningCluster, spark: SparkSession
) -> None:
    topic = cluster.topic("plenty", partitions=2)
    frame = spark.range(0, 20_000, numPartitions=2).select(
        F.col("id").cast("string").alias("value"),
        (F.col("id") % 7).cast("string").alias("key"),
        "id",
    )
    write(frame.drop("id"), topic=topic)
    found = cluster.client.read(topic).to_pylist()
    assert sorted(int(row["value"]) for row in found) == list(range(20_000))
    # Two tasks write; of each, the rows of a key keep their order.
    for task in (range(10_000), range(10_000, 20_000)):
        for key in range(7):
            values = [int(row["value"]) for row in found if row["key"] == b"%d" % key]
            assert (of_task := [value for value in values if value in task]) == sorted(of_task)


def test_transaction_ids_come_from_a_column(cluster: RunningCluster, spark: SparkSession) -> None:
    topic = cluster.topic("numbered")
    frame = spark.createDataFrame([("a", 7), ("b", 9)], "value string, at int").coalesce(1)
    write(frame, topic=topic, transactionId="at")
    found = cluster.client.consumer(topic, runnel.TransactionId(8), "latest")
    assert [(record.value, record.transaction_id) for record in found] == [(b"b", 9)]


def test_typed_rows(cluster: RunningCluster, spark: SparkSession) -> None:
    columns = [
        {"name": "id", "type": "uint32", "nullable": False},
        {"name": "note", "type": "string"},
        {"name": "amount", "type": "float64"},
    ]
    cluster.client.apply(runnel.Topic("bills", partitions=2, schema=columns))
    cluster.client.wait("topic", "bills", "provisioned")
    runnel.spark.write(
        spark.createDataFrame([(1, "x"), (2, None)], "id long, note string"), "bills"
    )
    found = cluster.client.read("bills", ["id", "note", "amount"]).sort_by("id").to_pylist()
    assert found == [
        {"id": 1, "note": "x", "amount": None},
        {"id": 2, "note": None, "amount": None},
    ]
    back = spark.read.format("runnel").option("topic", "bills").load()
    message = error_of(lambda: write(back, topic="bills"))
    assert 'df.drop("partition", "offset", "timestamp")' in message
    beyond = spark.createDataFrame([(1 << 40, "x")], "id long, note string")
    assert "the table does not fit the schema of topic 'bills'" in error_of(
        lambda: write(beyond, topic="bills")
    )


@pytest.mark.parametrize(
    ("ddl", "mode", "options", "says"),
    [
        ("key string", "append", {"topic": "even"}, "there is no column value"),
        ("value string", "append", {}, "option topic is missing"),
        ("value string", "append", {"topic": "nowhere"}, "topic 'nowhere' does not exist"),
        ("value string", "append", {"topic": "_positions"}, "is a system topic"),
        ("value string", "overwrite", {"topic": "even"}, "runnel topic truncate even"),
        ("value string", "append", {"topic": "even", "acks": "all"}, "option acks: 'all'"),
    ],
)
def test_refusals(
    cluster: RunningCluster,
    spark: SparkSession,
    ddl: str,
    mode: str,
    options: dict[str, str],
    says: str,
) -> None:
    cluster.topic("even")
    frame = spark.createDataFrame([("x",)], ddl)
    message = error_of(lambda: write(frame, mode, **options))
    assert says in message
