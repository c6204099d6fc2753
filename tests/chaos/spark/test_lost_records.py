"""An unclean election between the batches of a stream, between planning and reading a DataFrame,
and between two openings of a named consumer: each is told, however long the log is by then."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import runnel
import runnel.spark
from schemas.objects.partition import Partition
from schemas.objects.system_topics import ARCHIVE, POSITIONS
from tests.chaos.replication.spus import Fleet
from tests.chaos.torn import LEADER, OTHER, TornTopic

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.spark, pytest.mark.timeout(400)]

MASTER: Final = "local[2,3]"
#: Records that the other replica gets in place of 20 lost ones: fewer, and more.
OTHERS: Final = {"shorter": 5, "longer": 60}


def archived_before(cluster: runnel.Cluster, topic: str) -> int | None:
    found = cluster.get("partition", f"{topic}-0")
    assert isinstance(found, Partition)
    return found.spec.archived_before


class Readers:
    """A stream, a DataFrame and a named consumer of one topic."""

    def __init__(self, spark: SparkSession, topic: TornTopic, home: Path) -> None:
        self._spark = spark
        self._topic = topic
        self._checkpoint = home / "checkpoint"
        self._rows = home / "rows"

    def frame(self, **options: str) -> DataFrame:
        reader = self._spark.read.format("runnel").option("sc", self._topic.fleet.address)
        return reader.options(topic=self._topic.name, **options).load().select("value")

    def stream(self, **options: str) -> None:
        """Read what is there now into files."""
        reader = self._spark.readStream.format("runnel").option("sc", self._topic.fleet.address)
        frame = reader.options(topic=self._topic.name, startingOffsets="earliest", **options).load()
        writer = frame.select("value").writeStream.trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(self._checkpoint)).start(str(self._rows))
        query.awaitTermination()

    def streamed(self) -> list[str]:
        return texts(self._spark.read.parquet(str(self._rows)))

    def consume(self) -> list[str]:
        with self._topic.cluster.consumer(self._topic.name, stop="latest", name="billing") as one:
            return [record.value.decode() for record in one if record.value is not None]


def texts(frame: DataFrame) -> list[str]:
    return sorted(bytes(row.value).decode() for row in frame.collect())


def test_given_an_unclean_election_then_each_reader_is_told(
    fleet: Fleet, spark: SparkSession, tmp_path: Path
) -> None:
    fleet.start()
    with runnel.connect(fleet.address) as cluster:
        topics = {name: TornTopic(fleet, cluster, name) for name in OTHERS}
        readers = {name: Readers(spark, topic, tmp_path / name) for name, topic in topics.items()}
        both, others, planned = {}, {}, {}
        for name, topic in topics.items():
            topic.make()
            both[name] = topic.send("both", 20)
            readers[name].stream(maxOffsetsPerTrigger="7")
            assert readers[name].consume() == both[name]
        fleet.until(lambda: fleet.is_whole(POSITIONS), "positions have all their replicas")
        fleet.kill_spu(OTHER)
        for name, topic in topics.items():
            topic.until_live(LEADER)
            lost = topic.send("lost", 20)
            readers[name].stream()
            assert readers[name].streamed() == sorted(both[name] + lost)
            assert readers[name].consume() == lost
            planned[name] = readers[name].frame()
            assert texts(planned[name]) == sorted(both[name] + lost)
        fleet.kill_spu(LEADER)
        fleet.start_spu(OTHER)
        for name, topic in topics.items():
            topic.elect_other()
            others[name] = topic.send("other", OTHERS[name])
            assert texts(readers[name].frame()) == sorted(both[name] + others[name])
        for name, each in readers.items():
            with pytest.raises(runnel.DivergedError, match="holds other records from offset") as at:
                each.consume()
            with pytest.raises(PySparkException, match="acknowledged records were lost"):
                planned[name].collect()
            says = f"topic '{name}' holds other records from offset {at.value.diverged_at} on than"
            with pytest.raises(PySparkException, match=says):
                each.stream()
            assert "other 0" not in each.streamed()
            each.stream(failOnDataLoss="false")
            # None of the records that took their place is skipped.
            assert [text for text in each.streamed() if text.startswith("other")] == sorted(
                others[name]
            )
            cluster.reset_consumer("billing", name, {0: at.value.diverged_at})
            assert each.consume() == others[name]


def test_given_an_unclean_election_then_archived_records_are_not_taken_for_those_in_the_log(
    fleet: Fleet, spark: SparkSession, tmp_path: Path
) -> None:
    fleet.start()
    with runnel.connect(fleet.address) as cluster:
        topic, another = (TornTopic(fleet, cluster, name) for name in ("cold", "another"))
        for one in (topic, another):
            directory = tmp_path / one.name
            directory.mkdir()
            one.make(archive={"path": str(directory)})
        another.send("first", 1)
        cluster.archive("another", everything=True)
        fleet.until(lambda: fleet.is_whole(ARCHIVE), "the list of files has all its replicas")
        both = topic.send("both", 15)
        fleet.kill_spu(OTHER)
        topic.until_live(LEADER)
        topic.send("lost", 20)
        # One file holds the records of both, and those that are lost.
        (archived,) = cluster.archive("cold", everything=True).files
        assert archived_before(cluster, "cold") == archived[1].end
        fleet.kill_spu(LEADER)
        fleet.start_spu(OTHER)
        topic.elect_other()
        others = topic.send("other", 60)
        assert archived_before(cluster, "cold") == 0, "retention keeps what is in no file"
        with pytest.raises(runnel.ConflictError, match="in no archive yet since an unclean"):
            cluster.truncate("cold", before=30)
        readers = Readers(spark, topic, tmp_path)

        def read() -> list[str]:
            return texts(runnel.spark.read(spark, "cold", sc=fleet.address).select("value"))

        assert texts(readers.frame()) == read() == sorted(both + others)
        done = cluster.archive("cold", everything=True)
        assert not done.failures
        assert archived_before(cluster, "cold") == cluster.archived("cold").listed.partition(0).end
        assert texts(readers.frame()) == read() == sorted(both + others)
        # Also once the log has let go of them.
        cluster.truncate("cold", before=1)
        assert texts(readers.frame()) == read() == sorted(both + others)
