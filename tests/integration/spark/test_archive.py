"""Topics with archives on Spark: read as one by both doors, and archived by Spark's tasks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import runnel
import runnel.spark
from tests.cold_topics import FIRST_US, ROWS, fill, make, shrink
from tests.integration.spark.cluster import RunningCluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

Rows = list[tuple[Any, ...]]


def rows_of(frame: DataFrame) -> Rows:
    return sorted(tuple(map(_comparable, row)) for row in frame.collect())


def _comparable(value: Any) -> str:
    return repr(bytes(value) if isinstance(value, bytearray) else value)


@pytest.fixture(scope="module")
def before(
    cluster: RunningCluster, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Rows:
    """The rows of the topic ``cold`` with headers, as read before they were archived. Spark takes
    the name of the directory for a pattern if nobody keeps it from that."""
    make(cluster.client, "cold", tmp_path_factory.mktemp("a {b}*"), partitions=2)
    fill(cluster.client, "cold")
    found = rows_of(runnel.spark.read(spark, "cold", includeHeaders=True))
    assert len(found) == ROWS
    done = runnel.spark.archive(spark, "cold")
    assert not done.failures
    assert len(done.files) == 2
    shrink(cluster.client, "cold")
    return found


def test_given_all_then_both_doors_give_what_was_there_before(
    spark: SparkSession, before: Rows
) -> None:
    reader = spark.read.format("runnel").option("topic", "cold").option("includeHeaders", "true")
    assert rows_of(reader.load()) == before
    frame = runnel.spark.read(spark, "cold", includeHeaders=True)
    assert frame.schema == reader.load().schema
    assert rows_of(frame) == before


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(
            {"startingOffsets": '{"0": 700, "1": 0}', "endingOffsets": '{"0": 900, "1": -1}'},
            id="given-offsets-inside-of-files",
        ),
        pytest.param(
            {"startingTimestamp": (FIRST_US + 1_000_000) // 1_000}, id="given-a-time-in-a-file"
        ),
        pytest.param(
            {"endingTimestamp": (FIRST_US + 1_000_000) // 1_000}, id="given-an-end-in-a-file"
        ),
        pytest.param({"startingTransactionId": 1_500}, id="given-a-transaction-id"),
        pytest.param({"startingOffsets": "latest"}, id="given-nothing"),
        pytest.param({"assign": '{"cold": [1]}', "minPartitions": 5}, id="given-one-partition"),
    ],
)
def test_given_a_part_then_both_doors_give_the_same(
    spark: SparkSession, before: Rows, options: dict[str, Any]
) -> None:
    assign = {} if "assign" in options else {"topic": "cold"}
    reader = spark.read.format("runnel").options(**assign, **options)
    topics = None if "assign" in options else "cold"
    assert rows_of(runnel.spark.read(spark, topics, **options)) == rows_of(reader.load())


def test_given_a_damaged_file_then_no_door_gives_its_rows(
    cluster: RunningCluster, spark: SparkSession, before: Rows
) -> None:
    archived = cluster.client.archived("cold")
    assert archived is not None
    path = archived.place.file(0, archived.listed.partition(0).files[0].name)
    data = path.read_bytes()
    group = pq.read_metadata(path).row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    (values,) = [one for one in columns if one.path_in_schema == "value"]
    damaged = bytearray(data)
    damaged[values.data_page_offset + values.total_compressed_size - 5] ^= 1
    path.write_bytes(damaged)
    try:
        for frame in (
            runnel.spark.read(spark, "cold"),
            spark.read.format("runnel").option("topic", "cold").load(),
        ):
            with pytest.raises((PySparkException, Py4JJavaError), match=r"(?i)crc|checksum"):
                frame.collect()
    finally:
        path.write_bytes(data)
    assert rows_of(runnel.spark.read(spark, "cold", includeHeaders=True)) == before


def test_given_a_few_columns_then_spark_reads_those_of_files(
    spark: SparkSession, before: Rows
) -> None:
    frame = runnel.spark.read(spark, "cold", columns=["topic", "value"])
    assert frame.columns == ["topic", "value"]
    assert frame.where("topic = 'cold' AND value IS NOT NULL").count() == ROWS
    assert runnel.spark.read(spark, "cold", columns=["topic"]).distinct().count() == 1
    with pytest.raises(runnel.InvalidRequestError, match="there is no column price"):
        runnel.spark.read(spark, "cold", columns=["price"])


def test_given_a_stream_from_the_beginning_then_it_begins_in_the_archive(
    spark: SparkSession, before: Rows, tmp_path: Path
) -> None:
    stream = (
        spark.readStream.format("runnel")
        .option("topic", "cold")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 1_200)
        .load()
    )
    query = (
        stream.writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "out"))
    )
    query.awaitTermination()
    out = spark.read.parquet(str(tmp_path / "out"))
    assert (out.count(), out.select("partition", "offset").distinct().count()) == (ROWS, ROWS)


def test_given_a_typed_topic_then_the_types_of_the_source(
    cluster: RunningCluster, spark: SparkSession, tmp_path: Path
) -> None:
    columns = [
        {"name": "id", "type": "uint32"},
        {"name": "big", "type": "uint64"},
        {"name": "at", "type": "timestamp(s, Europe/Paris)"},
        {"name": "local", "type": "timestamp(ms)"},
        {"name": "price", "type": "decimal(12, 2)"},
        # Those of plain topics are made from nothing that a record has.
        {"name": "topic", "type": "string"},
        {"name": "timestampType", "type": "string"},
        {"name": "tags", "type": "list<uint8>"},
        {"name": "more", "type": "map<string, struct<a: int8>>"},
    ]
    make(cluster.client, "cold_typed", tmp_path, schema=columns, keyColumn="id")
    day = datetime(2026, 1, 31, tzinfo=UTC)
    cluster.client.write(
        "cold_typed",
        [
            {
                "id": 4_000_000_000,
                "big": 18_000_000_000_000_000_000,
                "at": day + timedelta(seconds=number),
                "local": day.replace(tzinfo=None),
                "price": None,
                "topic": f"topic {number}",
                "timestampType": f"type {number}",
                "tags": [1, 255, None],
                "more": {"k": {"a": number}},
            }
            for number in range(50)
        ],
    )
    frame = runnel.spark.read(spark, "cold_typed")
    before, schema = rows_of(frame), frame.schema
    assert runnel.spark.archive(spark, "cold_typed", everything=True).rows == 50
    again = runnel.spark.read(spark, "cold_typed")
    assert "FileScan parquet" in again._jdf.queryExecution().toString()
    assert [(f.name, f.dataType) for f in again.schema] == [(f.name, f.dataType) for f in schema]
    assert rows_of(again) == before
