"""Streams of Runnel: read between cuts while their segments change, and as streams of Spark."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import runnel
import runnel.spark
from tests.integration.spark.cluster import RunningCluster
from tests.integration.spark.test_stream import offsets, run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

KEYS = 7
EACH = 200


class Elastic:
    """A stream that is scaled between writes; ``cuts`` are its tails around each of them."""

    def __init__(self, cluster: RunningCluster, name: str) -> None:
        self.client = cluster.client
        self.client.apply(
            {"apiVersion": "runnel/v1", "kind": "Stream", "metadata": {"name": name}, "spec": {}}
        )
        self.client.wait("stream", f"default/{name}", "active")
        self.name = f"default/{name}"
        self.handle = self.client.stream(self.name)
        self.count = 0
        self.cuts = [self.handle.tail()]

    def write(self) -> None:
        with self.handle.producer() as producer:
            for number in range(self.count, self.count + EACH):
                producer.send(str(number), key=f"k{number % KEYS}")
        self.count += EACH
        self.cuts.append(self.handle.tail())

    def scale(self, parts: int) -> None:
        """Divide the keys of all segments into so many."""
        now = [one.id for one in self.handle.epoch().segments]
        self.handle.scale(now, [(n / parts, (n + 1) / parts) for n in range(parts)])


@pytest.fixture(scope="module")
def elastic(cluster: RunningCluster) -> Elastic:
    made = Elastic(cluster, "elastic")
    for parts in (3, 1, 2):
        made.write()
        made.scale(parts)
    made.write()
    return made


def values(frame: DataFrame) -> list[int]:
    return sorted(int(row[0]) for row in frame.select("value").collect())


def test_cuts_tile_the_stream_and_each_key_is_in_order(
    elastic: Elastic, spark: SparkSession
) -> None:
    for number, (begin, end) in enumerate(zip(elastic.cuts, elastic.cuts[1:], strict=False)):
        reader = spark.read.format("runnel").option("stream", elastic.name)
        frame = reader.option("startingOffsets", str(begin)).option("endingOffsets", str(end))
        assert values(frame.load()) == list(range(number * EACH, (number + 1) * EACH))
    whole = runnel.spark.read(spark, elastic.name, columns=["key", "value", "partition", "offset"])
    found: defaultdict[str, list[int]] = defaultdict(list)
    for row in whole.orderBy("partition", "offset").collect():
        found[bytes(row["key"]).decode()].append(int(row["value"]))
    assert found == {f"k{key}": list(range(key, elastic.count, KEYS)) for key in range(KEYS)}


def test_batches_are_limited_a_restart_goes_on_and_no_key_goes_back(
    cluster: RunningCluster, spark: SparkSession, tmp_path: Path
) -> None:
    stream = Elastic(cluster, "live")
    found: dict[int, list[int]] = {}

    def take(frame: DataFrame, number: int) -> None:
        found[number] = values(frame)

    options = {"stream": stream.name, "maxOffsetsPerTrigger": 150}
    for parts in (4, 2):
        stream.write()
        stream.scale(parts)
    run(spark, tmp_path, take, **options)
    assert len(found) > 2
    assert all(len(batch) <= 150 for batch in found.values())
    stream.write()
    stream.scale(1)
    stream.write()
    run(spark, tmp_path, take, **options)
    last: dict[int, int] = {}
    for number in sorted(found):
        for value in found[number]:
            assert value > last.get(value % KEYS, -1)
            last[value % KEYS] = value
    assert sum(map(len, found.values())) == stream.count
    place = runnel.StreamCut.parse(offsets(tmp_path)[-1]["stream"])
    with stream.handle.consumer(place, "latest") as consumer:
        assert list(consumer) == []


@pytest.mark.slow
def test_given_a_truncation_then_said_or_what_is_there_is_read(
    cluster: RunningCluster, spark: SparkSession, tmp_path: Path
) -> None:
    stream = Elastic(cluster, "shorter")
    found: list[int] = []

    def take(frame: DataFrame, _number: int) -> None:
        found.extend(values(frame))

    for parts in (3, 2):
        stream.write()
        stream.scale(parts)
    run(spark, tmp_path, take, stream=stream.name)
    stream.write()
    stream.scale(1)
    stream.write()
    stream.handle.truncate(stream.cuts[3])
    said = "records were truncated before they were read"
    with pytest.raises(Exception, match=said):
        run(spark, tmp_path, take, stream=stream.name)
    run(spark, tmp_path, take, stream=stream.name, failOnDataLoss="false")
    assert found == [*range(2 * EACH), *range(3 * EACH, 4 * EACH)]
    reader = spark.read.format("runnel").option("stream", stream.name)
    old = reader.option("startingOffsets", str(stream.cuts[1]))
    with pytest.raises(Exception, match=said):
        old.load().count()
    assert old.option("failOnDataLoss", "false").load().count() == EACH
    assert reader.option("startingOffsets", "earliest").load().count() == EACH


def test_given_an_empty_range_then_there_are_no_rows(elastic: Elastic, spark: SparkSession) -> None:
    reader = spark.read.format("runnel").option("stream", elastic.name)
    assert reader.option("startingOffsets", "latest").load().count() == 0
    cut = str(elastic.cuts[2])
    reader = reader.option("startingOffsets", cut).option("endingOffsets", cut)
    assert reader.load().count() == 0


@pytest.mark.slow
def test_given_a_query_that_never_committed_then_it_goes_on_behind_what_was_planned(
    cluster: RunningCluster, spark: SparkSession, tmp_path: Path
) -> None:
    stream = Elastic(cluster, "uncommitted")
    stream.write()
    found: list[int] = []

    def take(frame: DataFrame, _number: int) -> None:
        found.extend(values(frame))

    run(spark, tmp_path, take, stream=stream.name)
    for left in (tmp_path / "commits").iterdir():
        left.unlink()
    stream.write()
    stream.scale(2)
    stream.write()
    found.clear()
    # As the option says now, it begins behind the end of the batch that was planned.
    run(spark, tmp_path, take, stream=stream.name, startingOffsets="latest")
    assert found == [*range(EACH, 3 * EACH)]


@pytest.mark.slow
def test_given_another_stream_of_the_name_then_said_or_read_anew(
    cluster: RunningCluster, spark: SparkSession, tmp_path: Path
) -> None:
    found: list[int] = []

    def take(frame: DataFrame, _number: int) -> None:
        found.extend(values(frame))

    stream = Elastic(cluster, "again")
    stream.write()
    run(spark, tmp_path, take, stream=stream.name)
    stream.handle.seal()
    cluster.client.delete("stream", stream.name)
    cluster.client.wait("stream", stream.name, "deleted")
    Elastic(cluster, "again").write()
    with pytest.raises(Exception, match="was deleted and created again since it was read"):
        run(spark, tmp_path, take, stream=stream.name)
    run(spark, tmp_path, take, stream=stream.name, failOnDataLoss="false")
    assert found == [*range(EACH), *range(EACH)]


def test_given_a_place_beyond_the_end_then_records_were_lost(
    elastic: Elastic, spark: SparkSession, tmp_path: Path
) -> None:
    end = elastic.cuts[-1]
    beyond = replace(end, offsets={one: at + 1_000 for one, at in end.offsets.items()})
    options = {"stream": elastic.name, "startingOffsets": str(beyond)}
    with pytest.raises(Exception, match=r"was read up to .* acknowledged records were lost"):
        run(spark, tmp_path, lambda _frame, _number: None, **options)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"stream": "nowhere"}, "stream 'default/nowhere' does not exist"),
        ({"stream": "elastic", "startingOffsets": "{}"}, "give earliest, latest or a cut"),
        ({"stream": "elastic"}, "the checkpoint's offsets .* are not those of a query over"),
    ],
)
def test_refusals(
    elastic: Elastic, spark: SparkSession, tmp_path: Path, options: dict[str, Any], says: str
) -> None:
    if "checkpoint" in says:
        elastic.client.apply(runnel.Topic("other", partitions=1))
        with elastic.client.producer("other") as producer:
            producer.send(b"1")
        run(spark, tmp_path, lambda _frame, _number: None, topic="other")
    with pytest.raises(Exception, match=says):
        run(spark, tmp_path, lambda _frame, _number: None, **options)
