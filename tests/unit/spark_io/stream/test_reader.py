"""Which topics and partitions a stream goes on with while the SC cannot place new partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from runnel import OffsetAndTerm, PartitionOffsets
from schemas.control.assignments import TopicAssignment
from schemas.errors import NotFoundError
from schemas.objects.topic import Topic
from spark_io.options.read import parse_read_options
from spark_io.options.table import Use
from spark_io.rows.columns import COLUMNS, full_schema, project
from spark_io.stream.reader import TopicStreamReader


def assignment(name: str, uid: str, resolution: str, count: int, led: int) -> TopicAssignment:
    """A topic whose first ``led`` of ``count`` partitions are placed."""
    return TopicAssignment.model_validate(
        {
            "name": name,
            "uid": uid,
            "resolution": resolution,
            "partitionCount": count,
            "replicationFactor": 1,
            "compression": "none",
            "durability": "fsync",
            "maxRecordSize": 1,
            "partitions": [
                {"index": index, "uid": f"{index:032x}", "resolution": "online"}
                for index in range(led)
            ],
        }
    )


class Cluster:
    """Topics with nine records in each partition; the list of topics may lack some of them."""

    def __init__(self, *topics: TopicAssignment, listed: Sequence[str] = ()) -> None:
        self.topics = {one.name: one for one in topics}
        self.listed = listed

    def list(self, kind: str) -> list[Topic]:
        assert kind == "topic"
        return [
            Topic.model_validate(
                {
                    "metadata": {"name": name, "uid": self.topics[name].uid},
                    "status": {
                        "resolution": self.topics[name].resolution,
                        "replicaMap": [[0]] * len(self.topics[name].partitions),
                    },
                }
            )
            for name in self.listed
        ]

    def topic(self, name: str) -> TopicAssignment:
        if name not in self.topics:
            raise NotFoundError(f"topic {name!r} does not exist")
        return self.topics[name]

    def offsets(
        self, topic: str, partitions: Sequence[int], *, read: Mapping[int, OffsetAndTerm]
    ) -> dict[int, PartitionOffsets]:
        return {index: PartitionOffsets(index, 0, 9, 90) for index in partitions}

    def close(self) -> None:
        pass


def reader_of(cluster: Cluster, **options: str) -> TopicStreamReader:
    wanted = parse_read_options(
        {"subscribePattern": "o.*", **options}, lambda: "localhost", Use.STREAM
    )
    reader = TopicStreamReader(wanted, project(full_schema(COLUMNS)))
    reader._client = cluster  # type: ignore[assignment]
    return reader


def latest(cluster: Cluster, start: dict[str, Any], **options: str) -> dict[str, Any]:
    found = dict(reader_of(cluster, **options).latestOffset(start, ReadAllAvailable()))
    del found["_uids"]
    return found


START = {"orders": {"0": 3, "1": 3}, "_uids": {"orders": "u"}}


@pytest.mark.parametrize(
    ("topic", "listed", "expected"),
    [
        pytest.param(
            ("insufficientResources", 4, 2),
            True,
            {"0": 9, "1": 9},
            id="given-no-place-for-added-partitions-then-those-that-are-placed",
        ),
        pytest.param(
            ("pending", 2, 2),
            False,
            {"0": 9, "1": 9},
            id="given-a-list-that-lacks-the-topic-then-it-is-asked-for-by-name",
        ),
        pytest.param(
            ("pending", 4, 1),
            True,
            {"0": 9, "1": 9},
            id="given-an-sc-that-is-behind-then-also-what-was-read",
        ),
        pytest.param(
            ("provisioned", 3, 2),
            True,
            {"0": 9, "1": 9, "2": 9},
            id="given-partitions-that-are-about-to-be-placed-then-they-are-waited-for",
        ),
    ],
)
def test_a_topic_that_grows(
    topic: tuple[str, int, int], listed: bool, expected: dict[str, int]
) -> None:
    cluster = Cluster(
        assignment("orders", "u", *topic),
        assignment("others", "v", "provisioned", 1, 1),
        listed=["others", *(["orders"] if listed else [])],
    )
    assert latest(cluster, START) == {"orders": expected, "others": {"0": 9}}


def test_given_a_topic_that_is_gone_then_an_error_or_the_others() -> None:
    cluster = Cluster(assignment("others", "v", "provisioned", 1, 1), listed=["others"])
    with pytest.raises(Exception, match="topic 'orders' of this stream is not there"):
        latest(cluster, START)
    assert latest(cluster, START, failOnDataLoss="false") == {"others": {"0": 9}}


def test_given_a_batch_with_partitions_that_a_later_answer_lacks_then_they_are_read() -> None:
    """The SC that answers after a restart is behind the one that told of partition 1."""
    cluster = Cluster(assignment("orders", "u", "pending", 4, 1), listed=["orders"])
    # No slice is longer than nothing, so nobody need tell the tasks of the topic.
    start = {"orders": {"0": 9}, "_uids": {"orders": "u"}}
    end = {"orders": {"0": 9, "1": 0}, "_uids": {"orders": "u"}}
    assert reader_of(cluster).partitions(start, end) == []
