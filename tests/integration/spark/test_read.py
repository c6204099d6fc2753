"""The data source against a real cluster: what it reads and refuses, and who moves the bytes."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users write it

import runnel
import runnel.spark
from schemas.errors import OffsetOutOfRangeError
from schemas.wire.protocol import Api
from spark_io.batch import TopicReader
from spark_io.options.read import parse_read_options
from spark_io.rows.columns import COLUMNS, full_schema, project
from spark_io.worker.client import close_task_client
from spark_io.worker.planning import plan_read
from tests.integration.spark.cluster import RunningCluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

KAFKAS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


def load(spark: SparkSession, topic: str, schema: str | None = None, **options: str) -> DataFrame:
    reader = spark.read.format("runnel").option("topic", topic)
    for name, value in options.items():
        reader = reader.option(name, value)
    return (reader.schema(schema) if schema else reader).load()


def send(cluster: RunningCluster, topic: str, start: int, count: int, partition: int = 0) -> None:
    """Records ``v<n>``; each odd one has the key ``k<n>``, even ones have none."""
    with cluster.client.producer(topic) as producer:
        for n in range(start, start + count):
            producer.send(b"v%d" % n, key=b"k%d" % n if n % 2 else None, partition=partition)


@pytest.fixture(scope="module")
def orders(cluster: RunningCluster) -> str:
    """2,000 records in three partitions: 1,000, 600 and 400."""
    topic = cluster.topic("orders", partitions=3)
    for partition, (start, count) in enumerate([(0, 1000), (1000, 600), (1600, 400)]):
        send(cluster, topic, start, count, partition)
    return topic


def test_all_records_once_with_kafkas_columns(
    cluster: RunningCluster, spark: SparkSession, orders: str
) -> None:
    frame = load(spark, orders)
    assert frame.columns == KAFKAS
    rows = frame.collect()
    expected = cluster.client.read(orders).to_pylist()
    found = sorted(rows, key=lambda row: (row["partition"], row["offset"]))
    assert [
        (r["partition"], r["offset"], r["key"], r["value"], r["timestamp"].astimezone(UTC))
        for r in found
    ] == [(e["partition"], e["offset"], e["key"], e["value"], e["timestamp"]) for e in expected]
    assert {bytes(r["value"]) for r in rows} == {b"v%d" % n for n in range(2000)}
    assert {(r["topic"], r["timestampType"]) for r in rows} == {(orders, 0)}
    assert frame.rdd.getNumPartitions() == 3


def test_checksum_and_null_keys(spark: SparkSession, orders: str) -> None:
    found = load(spark, orders).agg(
        F.count("*"), F.count("key"), F.sum(F.crc32("value")), F.countDistinct("key")
    )
    assert found.collect()[0][:] == (
        2000,
        1000,
        sum(zlib.crc32(b"v%d" % n) for n in range(2000)),
        1000,
    )


def test_narrower_and_reordered_schema(spark: SparkSession, orders: str) -> None:
    frame = load(spark, orders, schema="value binary, partition int")
    assert frame.columns == ["value", "partition"]
    rows = frame.where("partition = 2").collect()
    assert sorted(bytes(r["value"]) for r in rows) == sorted(b"v%d" % n for n in range(1600, 2000))
    assert load(spark, orders, schema="topic string").distinct().collect()[0][0] == orders


def test_timestamps_are_those_of_the_records(cluster: RunningCluster, spark: SparkSession) -> None:
    topic = cluster.topic("times")
    when = datetime(2013, 1, 1, 5, 0, 0, 123456, tzinfo=UTC)
    with cluster.client.producer(topic) as producer:
        producer.send(b"x", timestamp=when)
    row = load(spark, topic).selectExpr("unix_micros(timestamp)").collect()[0]
    assert row[0] == int(when.timestamp()) * 1_000_000 + 123456


def test_starting_and_ending_offsets(
    cluster: RunningCluster, spark: SparkSession, orders: str
) -> None:
    ends = {i: found.latest for i, found in cluster.client.offsets(orders).items()}
    start = {0: ends[0] - 5, 1: ends[1] - 1, 2: -1}
    end = {0: ends[0] - 2, 1: -1, 2: ends[2]}
    frame = load(
        spark,
        orders,
        STARTINGOFFSETS=f'{{"0": {start[0]}, "1": {start[1]}, "2": -1}}',
        endingOffsets=f'{{"{orders}": {{"0": {end[0]}, "1": -1, "2": {end[2]}}}}}',
    )
    found = sorted((r["partition"], r["offset"]) for r in frame.collect())
    assert found == [(0, ends[0] - 5), (0, ends[0] - 4), (0, ends[0] - 3), (1, ends[1] - 1)]
    assert load(spark, orders, startingOffsets="latest").count() == 0


def test_starting_transaction_id(cluster: RunningCluster, spark: SparkSession) -> None:
    topic = cluster.topic("changes", partitions=3)
    with cluster.client.producer(topic) as producer:
        for partition, ids in enumerate([range(10), [None, 3, 5, 5, None, 9], [None, None]]):
            for one in ids:
                producer.send(b"%d" % (one or 0), transaction_id=one, partition=partition)
            producer.flush()

    def read(wanted: int, **options: str) -> list[tuple[int, int]]:
        frame = load(spark, topic, startingTransactionId=str(wanted), **options)
        return sorted((row["partition"], row["offset"]) for row in frame.collect())

    for wanted in (0, 5, 10):
        consumer = cluster.client.consumer(topic, runnel.TransactionId(wanted), "latest")
        expected = sorted((record.partition, record.offset) for record in consumer)
        assert read(wanted) == expected
        assert bool(expected) == (wanted < 10)
    ends = {i: found.latest for i, found in cluster.client.offsets(topic).items()}
    end = f'{{"0": {ends[0] - 4}, "1": {ends[1] - 1}, "2": -1}}'
    assert read(5, endingOffsets=end) == [
        (0, ends[0] - 5),
        *((1, ends[1] - back) for back in (4, 3, 2)),
    ]


def test_given_a_plan_whose_beginning_was_truncated_then_reading_says_so(
    cluster: RunningCluster,
) -> None:
    topic = cluster.topic("cut")
    with cluster.client.producer(topic) as producer:
        for one in range(4):
            producer.send(b"%d" % one, transaction_id=one)
            producer.flush()
    options = parse_read_options({"topic": topic, "startingTransactionId": "1"}, lambda: cluster.sc)
    (piece,) = plan_read(options)
    reader = TopicReader(options, project(full_schema(COLUMNS)))
    assert sum(batch.num_rows for batch in reader.read(piece)) == 3
    (only,) = piece.slices
    cluster.client.truncate(topic, only.end - 1)
    with pytest.raises(OffsetOutOfRangeError, match="were deleted since this read was planned"):
        list(reader.read(piece))


def test_empty_topic(cluster: RunningCluster, spark: SparkSession) -> None:
    frame = load(spark, cluster.topic("empty", partitions=2))
    assert frame.collect() == []
    assert frame.columns == KAFKAS


def test_a_frame_is_the_same_however_often_it_is_evaluated(
    cluster: RunningCluster, spark: SparkSession
) -> None:
    topic = cluster.topic("growing")
    send(cluster, topic, 0, 10)
    frame = load(spark, topic)
    first = sorted(bytes(r["value"]) for r in frame.collect())
    send(cluster, topic, 10, 5)
    assert sorted(bytes(r["value"]) for r in frame.collect()) == first
    assert frame.count() == 10
    assert frame.union(frame).where("length(value) > 0").count() == 20
    assert load(spark, topic).count() == 15


def test_given_a_topic_that_is_another_one_now_then_the_old_plan_says_so(
    cluster: RunningCluster, spark: SparkSession
) -> None:
    topic = cluster.topic("reborn")
    send(cluster, topic, 0, 3)
    frame = load(spark, topic)
    assert frame.count() == 3
    cluster.client.delete("topic", topic)
    cluster.client.wait("topic", topic, "deleted")
    cluster.topic(topic)
    send(cluster, topic, 0, 3)
    message = error_of(frame.count)
    assert "was deleted, or deleted and created again, since this read was planned" in message


def error_of(action: Callable[[], object]) -> str:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - Spark's wrappers differ by version
        action()
    return str(caught.value)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        pytest.param({}, "option topic is missing", id="given-no-topic-then-an-example"),
        pytest.param(
            {"topic": "order"},
            "topic 'order' does not exist",
            id="given-an-unknown-topic-then-it-is-named",
        ),
        pytest.param(
            {"topic": "orders", "startOffset": "earliest"},
            "unknown option 'startoffset'; did you mean startingOffsets?",
            id="given-an-unknown-option-then-the-nearest",
        ),
        pytest.param(
            {"topic": "orders", "startingOffsets": "{"},
            "option startingOffsets: bad JSON",
            id="given-bad-JSON-then-the-option",
        ),
        pytest.param(
            {"topic": "orders", "endingOffsets": '{"0": 1, "1": 1, "2": 1, "3": 1}'},
            "option endingOffsets: topic 'orders' has no partition 3 to read; there are 0, 1, 2",
            id="given-an-unknown-partition-then-those-there-are",
        ),
        pytest.param(
            {"topic": "orders", "endingOffsets": '{"0": 99999, "1": -1, "2": -1}'},
            "option endingOffsets: offset 99999 of partition 0 of topic 'orders' is out of range",
            id="given-an-offset-above-the-end-then-the-bounds",
        ),
        pytest.param(
            {"topic": "orders", "sc": "127.0.0.1:1"},
            "no SC answers at 127.0.0.1:1",
            id="given-no-cluster-then-its-address",
        ),
    ],
)
def test_refusals(spark: SparkSession, orders: str, options: dict[str, str], says: str) -> None:
    assert orders == "orders", "the texts below name it"

    def act() -> None:
        spark.read.format("runnel").options(**options).load().count()

    assert says in error_of(act)


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ("ofset long", "there is no column 'ofset'; did you mean offset?"),
        ("value string", "column value is binary, not string"),
    ],
)
def test_given_a_schema_that_cannot_be_then_the_columns(
    spark: SparkSession, orders: str, schema: str, says: str
) -> None:
    message = error_of(load(spark, orders, schema=schema).count)
    assert says in message
    assert "key binary, value binary, topic string" in message


def test_a_refusal_is_short(spark: SparkSession, orders: str) -> None:
    for options in ({"topic": "order"}, {"topic": orders, "startOffset": "1"}):
        message = error_of(spark.read.format("runnel").options(**options).load)
        shown = message.partition("JVM stacktrace")[0].strip()
        assert len(shown.splitlines()) <= 6, shown


def test_several_topics_and_a_pattern(cluster: RunningCluster, spark: SparkSession) -> None:
    for name in ("shop.a", "shop.b"):
        cluster.topic(name)
        send(cluster, name, 0, 3)
    for option, value in (("subscribe", "shop.a,shop.b"), ("subscribePattern", "shop[.].*")):
        frame = spark.read.format("runnel").option(option, value).load()
        found = frame.groupBy("topic").count().collect()
        assert sorted((row[0], row[1]) for row in found) == [("shop.a", 3), ("shop.b", 3)]
    only = spark.read.format("runnel").option("assign", '{"shop.b": [0]}').load()
    assert {row[0] for row in only.select("topic").collect()} == {"shop.b"}


def test_by_time(cluster: RunningCluster, spark: SparkSession) -> None:
    topic = cluster.topic("timed")
    with cluster.client.producer(topic) as producer:
        for minute in range(10):
            producer.send(b"%d" % minute, timestamp=datetime(2025, 1, 1, 12, minute, tzinfo=UTC))
            producer.flush()
    found = load(
        spark, topic, startingTimestamp="2025-01-01T12:03:00Z", endingTimestamp="1735733160000"
    )
    assert sorted(bytes(row["value"]) for row in found.collect()) == [b"3", b"4", b"5"]
    later = load(spark, topic, startingTimestamp="2025-02-01T00:00:00Z")
    assert "has no record of 2025-02-01T00:00:00+00:00 or a later time" in error_of(later.count)


def test_headers(cluster: RunningCluster, spark: SparkSession) -> None:
    ddl = "value binary, headers array<struct<key: string, value: binary>>"
    topic = cluster.topic("headed")
    with cluster.client.producer(topic) as producer:
        producer.send(b"x", headers=[("a", b"1"), ("b", None)])
        producer.send(b"y")
    rows = load(spark, topic, includeHeaders="true").orderBy("offset").collect()
    assert [(h["key"], h["value"]) for h in rows[0]["headers"]] == [("a", b"1"), ("b", None)]
    assert not rows[1]["headers"]
    assert load(spark, topic, ddl, includeHeaders="true").count() == 2


def test_one_large_partition_is_read_by_several_tasks(
    cluster: RunningCluster, spark: SparkSession, orders: str
) -> None:
    frame = load(spark, orders, minPartitions="8")
    assert frame.rdd.getNumPartitions() == 8
    assert {bytes(r["value"]) for r in frame.collect()} == {b"v%d" % n for n in range(2000)}
    assert frame.count() == 2000
    small = load(spark, orders, maxBytesPerPartition="10Ki")
    assert small.rdd.getNumPartitions() > 3
    assert small.count() == 2000


def test_small_partitions_share_tasks(cluster: RunningCluster, spark: SparkSession) -> None:
    topic = cluster.topic("many", partitions=40)
    with cluster.client.producer(topic) as producer:
        for number in range(80):
            producer.send(b"%d" % number, partition=number % 40)
    assert load(spark, topic).rdd.getNumPartitions() == 32
    shared = load(spark, topic, minPartitions="3")
    assert shared.rdd.getNumPartitions() == 3
    rows = shared.select("partition", "offset", "value").collect()
    assert len(rows) == 80
    assert all(int(row["value"]) % 40 == row["partition"] for row in rows)
    assert len({(row["partition"], row["offset"]) for row in rows}) == 80


def test_filters_of_one_query_are_not_those_of_another(spark: SparkSession, orders: str) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = load(spark, orders)
        few = frame.where("partition = 1 and offset > 5 and offset <= 8")
        assert sorted(row["offset"] for row in few.collect()) == [6, 7, 8]
        assert frame.count() == 2000
        assert few.union(frame.where("partition = 2")).count() == 403
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_given_deleted_records_then_an_error_or_the_rest(
    cluster: RunningCluster, spark: SparkSession
) -> None:
    topic = cluster.topic("short")
    send(cluster, topic, 0, 20)
    frame = load(spark, topic)
    rest = load(spark, topic, failOnDataLoss="false", startingOffsets='{"0": 0}')
    partitions = frame.rdd.getNumPartitions(), rest.rdd.getNumPartitions()
    assert partitions == (1, 1)
    cluster.client.truncate(topic, cluster.client.offsets(topic)[0].latest - 5)
    assert "were deleted since this read was planned" in error_of(frame.count)
    assert rest.count() == 5
    assert load(spark, topic, failOnDataLoss="false", startingOffsets='{"0": 0}').count() == 5
    strict = load(spark, topic, startingOffsets='{"0": 0}')
    assert "failOnDataLoss=false takes" in error_of(strict.count)


def test_columns_that_are_asked_for(spark: SparkSession, orders: str) -> None:
    frame = runnel.spark.read(spark, [orders], columns=["value", "partition"], minPartitions=4)
    assert frame.columns == ["value", "partition"]
    assert frame.where("partition = 2").count() == 400
    with pytest.raises(runnel.InvalidRequestError, match="there is no column price; there are key"):
        runnel.spark.read(spark, orders, columns=["price"])
    assigned = runnel.spark.read(spark, assign=f'{{"{orders}": [1]}}')
    assert assigned.count() == 600


def test_a_table_of_the_catalog(cluster: RunningCluster, spark: SparkSession, orders: str) -> None:
    spark.sql(f"CREATE TABLE orders_log USING runnel OPTIONS (topic '{orders}')")
    try:
        assert spark.sql("SELECT count(*) FROM orders_log").collect()[0][0] == 2000
    finally:
        spark.sql("DROP TABLE orders_log")


def test_options_of_kafkas_source_are_answered(spark: SparkSession, orders: str) -> None:
    reader = spark.read.format("runnel").option("subscribe", orders)
    message = error_of(reader.option("kafka.bootstrap.servers", "localhost:9092").load)
    assert "this is an option of Kafka's source; name the SC with" in message


def test_a_task_asks_the_sc_nothing(cluster: RunningCluster, orders: str) -> None:
    options = parse_read_options({"topic": orders}, lambda: cluster.sc)
    pieces = plan_read(options)
    nowhere = replace(options, sc="127.0.0.1:1")
    reader = TopicReader(nowhere, project(full_schema(COLUMNS)))
    assert sum(batch.num_rows for piece in pieces for batch in reader.read(piece)) == 2000
    close_task_client(nowhere.sc)


def test_many_small_log_batches_reach_spark_as_few_large_ones(
    cluster: RunningCluster, spark: SparkSession
) -> None:
    topic = cluster.topic("crumbs")
    count, each = 200, 50
    with cluster.client.producer(topic) as producer:
        for n in range(count):
            producer.send_table(pa.table({"value": [b"%d" % n] * each}))
            producer.flush()

    # Counted where they are yielded: from the reader that tasks run, before Spark cuts anything.
    options = parse_read_options({"topic": topic}, lambda: cluster.sc)
    (piece,) = plan_read(options)
    yielded = [b.num_rows for b in TopicReader(options, project(full_schema(COLUMNS))).read(piece)]
    assert sum(yielded) == count * each
    assert all(rows >= 1_000 for rows in yielded[:-1])
    assert len(yielded) <= 2
    assert load(spark, topic).count() == count * each


def test_records_go_from_the_spu_to_tasks_and_never_through_the_driver(
    cluster: RunningCluster, spark: SparkSession
) -> None:
    topic = cluster.topic("heavy", partitions=2)
    value = os.urandom(1 << 10)
    rows = 4_000
    for partition in range(2):
        with cluster.client.producer(topic) as producer:
            for _ in range(rows // 2):
                producer.send(value, partition=partition)
    frame = load(spark, topic)
    cluster.proxy.reset()

    # Planning: offsets are asked for, no record moves.
    assert frame._jdf.queryExecution().toRdd().getNumPartitions() == 2
    assert cluster.proxy.requests[Api.LIST_OFFSETS] == 2
    assert cluster.proxy.requests[Api.FETCH] + cluster.proxy.requests[Api.SUBSCRIBE] == 0
    assert cluster.proxy.answer_bytes < 1_024

    cluster.proxy.reset()
    assert frame.select(F.sum(F.length("value"))).collect()[0][0] == rows * len(value)
    assert cluster.proxy.requests[Api.LIST_OFFSETS] == 0
    assert cluster.proxy.requests[Api.FETCH] + cluster.proxy.requests[Api.SUBSCRIBE] >= 2
    # The tasks run on the SPU's host, and read its files.
    assert cluster.proxy.answer_bytes < 1_024
    assert cluster.proxy.fetching_pids
    assert os.getpid() not in cluster.proxy.fetching_pids


def test_a_typed_topic_has_its_own_columns(cluster: RunningCluster, spark: SparkSession) -> None:
    topic = "typed"
    columns = [
        {"name": "orderId", "type": "int64", "nullable": False},
        {"name": "amount", "type": "decimal(12, 2)"},
        {"name": "count", "type": "uint32"},
        {"name": "tags", "type": "list<string>"},
    ]
    cluster.client.apply(runnel.Topic(topic, partitions=2, schema=columns, key_column="orderId"))
    cluster.client.wait("topic", topic, "provisioned")
    with cluster.client.producer(topic) as producer:
        producer.send({"orderId": 1, "amount": Decimal("9.9"), "count": 7, "tags": ["a", None]})
    cluster.client.apply(
        runnel.Topic(
            topic,
            partitions=2,
            schema=[*columns, {"name": "note", "type": "string"}],
            key_column="orderId",
        )
    )
    with cluster.client.producer(topic) as producer:
        producer.send_table(pa.table({"orderId": [2, 3], "note": ["b", None]}))
    frame = load(spark, topic)
    assert frame.dtypes == [
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("orderId", "bigint"),
        ("amount", "decimal(12,2)"),
        ("count", "bigint"),
        ("tags", "array<string>"),
        ("note", "string"),
    ]
    rows = frame.select("orderId", "amount", "count", "tags", "note").orderBy("orderId").collect()
    assert [tuple(row) for row in rows] == [
        (1, Decimal("9.90"), 7, ["a", None], None),
        (2, None, None, None, "b"),
        (3, None, None, None, None),
    ]
    assert load(spark, topic, schema="orderId long").agg(F.sum("orderId")).collect()[0][0] == 6
    assert "there is no column 'value'" in error_of(load(spark, topic, schema="value binary").count)
