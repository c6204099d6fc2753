"""What is asked to plan a read: which topics and partitions are there, and the terms at the ends
of pieces. Nobody is asked for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from runnel import KnownTopic, PartitionOffsets
from schemas.control.assignments import TopicAssignment
from schemas.objects.topic import Topic
from spark_io.options.read import parse_read_options
from spark_io.plan.slices import LogSlice, Plan
from spark_io.worker.planning import existing_topics, find_bounds, plan_tasks
from tests.unit.spark_io.worker.test_reading import KNOWN


class Leaders:
    """Tells that the term below an offset is that offset's tenth, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[dict[int, int]] = []

    def known_topic(self, name: str) -> KnownTopic:
        return KNOWN

    def terms_below(self, topic: str, offsets: Mapping[int, int]) -> dict[int, int]:
        self.asked.append(dict(offsets))
        return {index: offset // 10 for index, offset in offsets.items()}

    def offsets(self, topic: str, partitions: list[int]) -> dict[int, Any]:
        return dict.fromkeys(partitions, SimpleNamespace(earliest=0))

    def segments(self, topic: str, partition: int) -> Any:
        return SimpleNamespace(items=())


def planned(leaders: Leaders, *pieces: LogSlice, least: int = 1) -> list[tuple[int, ...]]:
    options = parse_read_options(
        {"topic": "orders", "minPartitions": str(least)}, lambda: "localhost"
    )
    plan = Plan(list(pieces), [100] * len(pieces))
    tasks = plan_tasks(leaders, plan, options)  # type: ignore[arg-type]
    return [
        (one.partition, one.start, one.end, one.start_term, one.end_term)
        for task in tasks
        for one in task.slices
    ]


def piece(index: int, start: int, end: int, **terms: int) -> LogSlice:
    return LogSlice("orders", "u", index, start, end, **{"most_term": 99, **terms})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pieces", "least", "expected", "asked"),
    [
        pytest.param(
            (piece(0, 0, 90, end_term=7),),
            1,
            [(0, 0, 90, 0, 7)],
            [],
            id="given-a-whole-log-then-nobody-is-asked",
        ),
        pytest.param(
            (piece(0, 20, 90, end_term=7), piece(1, 0, 60)),
            1,
            [(0, 20, 90, 2, 7), (1, 0, 60, 0, 6)],
            [{0: 20, 1: 60}],
            id="given-places-in-the-middle-then-all-leaders-at-once",
        ),
        pytest.param(
            (piece(0, 0, 90, end_term=7),),
            3,
            [(0, 0, 30, 0, 3), (0, 30, 60, 3, 6), (0, 60, 90, 6, 7)],
            [{0: 30}, {0: 60}],
            id="given-a-split-then-each-cut-once",
        ),
        pytest.param(
            (piece(0, 20, 90, most_term=0),),
            2,
            [(0, 20, 55, 0, 0), (0, 55, 90, 0, 0)],
            [],
            id="given-an-SPU-of-an-earlier-version-then-it-is-not-asked",
        ),
    ],
)
def test_terms_of_pieces(
    pieces: tuple[LogSlice, ...],
    least: int,
    expected: list[tuple[int, ...]],
    asked: list[dict[int, int]],
) -> None:
    leaders = Leaders()
    assert planned(leaders, *pieces, least=least) == expected
    assert sorted(leaders.asked, key=str) == asked


@pytest.mark.parametrize(
    ("status", "deleted_at", "there"),
    [
        ({"resolution": "provisioned", "replicaMap": [[0]]}, None, True),
        ({"resolution": "pending", "replicaMap": [[0]]}, None, True),
        ({"resolution": "insufficientResources", "replicaMap": [[0]]}, None, True),
        ({"resolution": "insufficientResources"}, None, False),
        ({"resolution": "pending"}, None, False),
        ({"resolution": "provisioned", "replicaMap": [[0]]}, "2026-01-31T12:00:00Z", False),
        ({"resolution": "deleting", "replicaMap": [[0]]}, "2026-01-31T12:00:00Z", False),
    ],
)
def test_a_pattern_chooses_topics_that_were_placed(
    status: dict[str, Any], deleted_at: str | None, there: bool
) -> None:
    found = Topic.model_validate(
        {"metadata": {"name": "orders", "deletionTimestamp": deleted_at}, "status": status}
    )
    cluster: Any = SimpleNamespace(list=lambda kind: [found])
    choice = parse_read_options({"subscribePattern": "o.*"}, lambda: "localhost").topics
    assert existing_topics(cluster, choice) == (("orders",) if there else ())


class Growing:
    """A topic of four partitions, of which two are placed."""

    def topic(self, name: str) -> TopicAssignment:
        placed = [{"index": i, "uid": f"{i:032x}", "resolution": "online"} for i in range(2)]
        update = {"resolution": "insufficientResources", "partitionCount": 4, "partitions": placed}
        return TopicAssignment.model_validate({**KNOWN.topic.to_json(), **update})

    def offsets(
        self, topic: str, partitions: Sequence[int], **_: Any
    ) -> dict[int, PartitionOffsets]:
        return {index: PartitionOffsets(index, 0, 9, 90) for index in partitions}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({"topic": "orders"}, [0, 1], id="given-all-then-those-that-are-placed"),
        pytest.param(
            {"assign": '{"orders": [1, 3]}'}, [1], id="given-some-then-those-that-are-placed"
        ),
        pytest.param(
            {"assign": '{"orders": [3]}'}, [3], id="given-only-others-then-they-are-waited-for"
        ),
        pytest.param(
            {"topic": "orders", "startingOffsets": '{"0": 5, "1": 5, "2": 5, "3": 5}'},
            [0, 1, 2, 3],
            id="given-a-place-for-each-then-all-are-waited-for",
        ),
    ],
)
def test_a_batch_of_a_topic_that_grows(options: dict[str, str], expected: list[int]) -> None:
    wanted = parse_read_options(options, lambda: "localhost")
    cluster: Any = Growing()
    (found,) = find_bounds(cluster, ["orders"], wanted)
    assert [index for index, _ in found.logs] == expected
