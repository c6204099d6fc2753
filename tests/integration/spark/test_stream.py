"""Topics as streams: admission, restarts from a checkpoint, partitions that are added, the sink."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import runnel
from tests.integration.spark.cluster import RunningCluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


def send(cluster: RunningCluster, topic: str, start: int, count: int, partition: int = 0) -> None:
    with cluster.client.producer(topic) as producer:
        for n in range(start, start + count):
            producer.send(b"%d" % n, partition=partition)


class Collected:
    """Rows of the batches of a stream, by batch."""

    def __init__(self) -> None:
        self.batches: dict[int, list[int]] = {}

    def take(self, frame: DataFrame, number: int) -> None:
        self.batches[number] = [int(row[0]) for row in frame.select("value").collect()]

    @property
    def values(self) -> list[int]:
        return sorted(value for batch in self.batches.values() for value in batch)


def run(
    spark: SparkSession,
    checkpoint: Path,
    take: Callable[[DataFrame, int], None],
    **options: Any,
) -> StreamingQuery:
    """One run over all that is there."""
    reader = spark.readStream.format("runnel").option("startingOffsets", "earliest")
    for name, value in options.items():
        reader = reader.option(name, value)
    query = (
        reader.load()
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    return query


def offsets(checkpoint: Path) -> list[dict[str, Any]]:
    files = sorted((checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    return [json.loads(path.read_text().splitlines()[-1]) for path in files]


def test_batches_are_limited_and_a_restart_goes_on(
    cluster: RunningCluster, spark: SparkSession, tmp_path: Path
) -> None:
    topic = cluster.topic("flow", partitions=2)
    send(cluster, topic, 0, 70, 0)
    send(cluster, topic, 70, 30, 1)
    collected = Collected()
    options = {"topic": topic, "maxOffsetsPerTrigger": 40}
    query = run(spark, tmp_path, collected.take, **options)
    assert collected.values == list(range(100))
    assert len(collected.batches) >= 3
    assert all(len(batch) <= 40 for batch in collected.batches.values())
    uid = cluster.client.topic(topic).uid
    assert all(place["_uids"] == {topic: uid} for place in offsets(tmp_path))
    progress = query.lastProgress
    assert progress is not None
    source = progress["sources"][0]
    assert json.loads(source["latestOffset"]) == json.loads(source["endOffset"])

    again = Collected()
    run(spark, tmp_path, again.take, **options)
    assert again.values == []
    send(cluster, topic, 100, 10)
    cluster.client.apply(runnel.Topic(topic, partitions=3))
    cluster.client.offsets(topic, [2])
    send(cluster, topic, 110, 5, 2)
    run(spark, tmp_path, again.take, **options)
    assert again.values == list(range(100, 115))


def test_a_stream_into_a_topic(
    cluster: RunningCluster, spark: SparkSession, tmp_path: Path
) -> None:
    source, sink = cluster.topic("inflow", partitions=2), cluster.topic("outflow")
    send(cluster, source, 0, 50, 0)
    send(cluster, source, 50, 50, 1)
    query = (
        spark.readStream.format("runnel")
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr("value", "key")
        .writeStream.format("runnel")
        .option("topic", sink)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    found = sorted(int(value) for value in cluster.client.read(sink)["value"].to_pylist())
    assert found == list(range(100))


@pytest.mark.slow
def test_given_another_topic_of_the_name_then_said_or_read_anew(
    cluster: RunningCluster, spark: SparkSession, tmp_path: Path
) -> None:
    topic = cluster.topic("replaced")
    send(cluster, topic, 0, 5)
    collected = Collected()
    run(spark, tmp_path, collected.take, topic=topic)
    cluster.client.delete("topic", topic)
    cluster.client.wait("topic", topic, "deleted")
    cluster.topic(topic)
    send(cluster, topic, 5, 3)
    with pytest.raises(Exception, match="was deleted and created again since this stream read it"):
        run(spark, tmp_path, collected.take, topic=topic)
    run(spark, tmp_path, collected.take, topic=topic, failOnDataLoss="false")
    assert collected.values == list(range(8))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"topic": "nowhere"}, "topic 'nowhere' does not exist"),
        ({"topic": "refused", "maxOffsetsPerTrigger": 0}, "option maxOffsetsPerTrigger: '0'"),
        ({"topic": "refused", "endingOffsets": "latest"}, "a stream has no end"),
    ],
)
def test_refusals(
    cluster: RunningCluster,
    spark: SparkSession,
    tmp_path: Path,
    options: dict[str, Any],
    says: str,
) -> None:
    cluster.topic("refused")
    with pytest.raises(Exception, match=says):
        run(spark, tmp_path, lambda _frame, _number: None, **options)
