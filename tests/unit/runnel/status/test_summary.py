"""What a first look at a cluster says."""

from __future__ import annotations

from typing import Any

import pytest

from runnel.status.state import ClusterState
from runnel.status.summary import Severity, Summary, summarize
from schemas.objects.manifest.manifest import load_text
from schemas.objects.metadata import Object
from schemas.objects.partition import LiveReplica, Partition, PartitionResolution
from schemas.objects.pipeline import Desired, Pipeline, PipelineStatus
from schemas.objects.spu import SpuResolution
from schemas.objects.topic import Topic, TopicResolution
from tests.unit.sc.builders import partition_of, spu_of, topic_of

PIPELINE = """\
apiVersion: runnel/v1
kind: Pipeline
metadata: {name: delays}
spec:
  source: {topic: flights}
  query: SELECT * FROM flights
  sink: {topic: delays}
  checkpoint: /c
"""
ONLINE = PartitionResolution.ONLINE


def summary_of(*objects: Object, numbers: dict[str, Any] | None = None) -> Summary:
    state = ClusterState()
    state.begin()
    for obj in objects:
        state.take("added", obj.to_json(), None)
    state.take("synced", {"revision": "9"}, 9)
    empty: dict[str, Any] = {"at": 1, "spus": [], "topics": [], "partitions": []}
    state.take("stats", empty | (numbers or {}), None)
    return summarize(state)


def led(index: int = 0, live: tuple[int, ...] = (1, 2), **status: Any) -> Partition:
    lrs = tuple(LiveReplica(spu_id=spu, storage_id=f"s{spu}") for spu in live)
    wanted: dict[str, Any] = {"resolution": ONLINE, "leader": 1, **status}
    return partition_of("orders", index, (1, 2), lrs=lrs, **wanted)


def provisioned(name: str = "orders") -> Topic:
    return with_status(topic_of(name), resolution=TopicResolution.PROVISIONED)


def with_status(topic: Topic, **status: Any) -> Topic:
    return topic.model_copy(update={"status": topic.status.model_copy(update=status)})


GOOD = (spu_of(1), spu_of(2), provisioned(), led())


def test_a_cluster_in_which_all_is_well() -> None:
    found = summary_of(*GOOD)
    assert found.health.good
    assert found.problems == ()
    assert str(found.health).startswith("2/2 SPUs online · topics: 1 · partitions: 1, 0 offline")


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        pytest.param(
            spu_of(3, SpuResolution.OFFLINE),
            (Severity.DEGRADED, "Spu", "spu-3", "offline"),
            id="given-an-spu-that-is-away",
        ),
        pytest.param(
            led(1, resolution=PartitionResolution.OFFLINE, leader=None, reason="no replica"),
            (Severity.UNAVAILABLE, "Partition", "orders-1", "offline"),
            id="given-a-partition-without-a-leader",
        ),
        pytest.param(
            led(1, (1,), writable=False, reason="too few"),
            (Severity.UNAVAILABLE, "Partition", "orders-1", "not writable"),
            id="given-a-partition-that-commits-nothing-then-that-and-not-its-replicas",
        ),
        pytest.param(
            led(1, (1,), reason="1 of 2"),
            (Severity.DEGRADED, "Partition", "orders-1", "under-replicated"),
            id="given-a-replica-that-is-not-live",
        ),
        pytest.param(
            with_status(topic_of("t"), resolution=TopicResolution.INSUFFICIENT_RESOURCES),
            (Severity.NOTICE, "Topic", "t", "insufficientResources"),
            id="given-a-topic-without-enough-spus",
        ),
        pytest.param(
            with_status(provisioned("t"), reason="set it back"),
            (Severity.NOTICE, "Topic", "t", "provisioned"),
            id="given-a-topic-with-a-reason",
        ),
    ],
)
def test_what_needs_a_person(obj: Object, expected: tuple[Severity, str, str, str]) -> None:
    (problem,) = summary_of(*GOOD, obj).problems
    assert (problem.severity, problem.kind, problem.name, problem.state) == expected
    assert problem.reason == (getattr(obj, "status").reason or "")  # noqa: B009 - of every kind


def piped(state: str, desired: str = "running", **status: Any) -> Pipeline:
    (loaded,) = load_text(PIPELINE)
    found = loaded.object
    assert isinstance(found, Pipeline)
    spec = found.spec.model_copy(update={"desired": Desired(desired)})
    status = {"state": state, **status}
    found = found.model_copy(update={"spec": spec})
    return found.with_status(PipelineStatus.model_validate(status, by_alias=True))


@pytest.mark.parametrize(
    ("pipeline", "numbers", "problems"),
    [
        pytest.param(piped("running"), {}, [], id="given-one-that-runs"),
        pytest.param(
            piped("failed", reason="boom"), {}, [("failed", "boom")], id="given-a-failure"
        ),
        pytest.param(piped("failed", "stopped"), {}, [], id="given-a-failure-that-nobody-misses"),
        pytest.param(
            piped("running"),
            {"pipelines": [{"name": "delays", "state": "unknown", "reason": "silent", "new": 1}]},
            [("unknown", "silent")],
            id="given-a-silent-runner-then-statistics-say-so",
        ),
    ],
)
def test_pipelines_that_need_a_person(
    pipeline: Pipeline, numbers: dict[str, Any], problems: list[tuple[str, str]]
) -> None:
    found = summary_of(*GOOD, pipeline, numbers=numbers)
    assert [(problem.state, problem.reason) for problem in found.problems] == problems
    assert found.health.good, "the health is that of the cluster"


def test_a_topic_whose_partitions_say_why_does_not_say_it_again() -> None:
    topic = with_status(provisioned(), writable=False, reason="1 of 1 partitions commit nothing")
    found = summary_of(spu_of(1), topic, led(0, (1,), writable=False, reason="too few"))
    assert [problem.name for problem in found.problems] == ["orders-0"]
    assert [line.state for line in found.topics] == ["not writable"]


def test_the_worst_come_first() -> None:
    found = summary_of(
        with_status(topic_of("a"), reason="r"),
        spu_of(1, SpuResolution.OFFLINE),
        led(2, (1,)),
        led(1, resolution=PartitionResolution.OFFLINE, leader=None),
        led(0, resolution=PartitionResolution.OFFLINE, leader=None),
    )
    assert [problem.name for problem in found.problems] == [
        "orders-0",
        "orders-1",
        "orders-2",
        "spu-1",
        "a",
    ]
    assert not found.health.good


def test_spus_have_what_they_lead_and_hold_and_what_they_told() -> None:
    numbers = {
        "spus": [
            {
                "name": "spu-1",
                "connected": True,
                "receivedBytesPerSecond": 5.0,
                "connections": 2,
                "freeBytes": 25,
                "diskBytes": 100,
                "appendP99Us": 120,
                "fsyncP99Us": 9_950,
                "unreachablePeers": [{"spu": 2, "host": "h", "port": 1, "reason": "no answer"}],
            },
            {"name": "spu-2", "connected": False, "appendP99Us": 7},
        ]
    }
    found = summary_of(*GOOD, led(1), numbers=numbers)
    one, other = found.spus
    assert (one.leads, one.holds, one.received_bytes, one.connections) == (2, 2, 5.0, 2)
    assert one.disk_used == 0.75
    assert (other.leads, other.holds, other.received_bytes, other.disk_used) == (0, 2, None, None)
    assert (one.append_p99_us, one.fsync_p99_us, one.unreachable) == (120, 9_950, (2,))
    assert (other.append_p99_us, other.unreachable) == (None, ()), "it is away: that was long ago"


def test_partitions_of_the_system_count_and_its_topics_are_not_shown() -> None:
    system = partition_of("_positions", 0, (1,), resolution=PartitionResolution.OFFLINE)
    found = summary_of(*GOOD, provisioned("_positions"), system)
    assert [topic.name for topic in found.topics] == ["orders"]
    assert [problem.name for problem in found.problems] == ["_positions-0"]
    assert found.health.partitions == 2


def test_given_the_sc_cannot_write_what_it_learns_then_nothing_is_called_good() -> None:
    found = summary_of(*GOOD, numbers={"trouble": "the disk is full"})
    assert not found.health.good
    (problem,) = found.problems
    assert (problem.severity, problem.kind, problem.state) == (
        Severity.UNAVAILABLE,
        "SC",
        "cannot write its KV",
    )
    assert problem.reason == "the disk is full; what is shown of other objects may be old"
