"""A cluster at a glance: its health, what needs a person, its SPUs and its topics. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum

from runnel.status.state import ClusterState
from schemas.objects.metadata import Object
from schemas.objects.partition import Partition, PartitionResolution, is_under_replicated
from schemas.objects.pipeline import Desired, Pipeline, PipelineState
from schemas.objects.spu import CONNECTED, Spu
from schemas.objects.spu_group import SpuGroup, SpuGroupResolution
from schemas.objects.topic import Topic, TopicResolution


class Severity(IntEnum):
    """How bad a problem is, the worst first."""

    UNAVAILABLE = 0
    """Records cannot be read, or not be written."""
    DEGRADED = 1
    """All works, but one more failure may end that."""
    NOTICE = 2
    """Something that was asked for is not done."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What needs a person: an object, its state in a word, and the reason in its status."""

    severity: Severity
    kind: str
    name: str
    state: str
    reason: str


@dataclass(frozen=True, slots=True)
class Health:
    """Counts of a cluster. ``unwritable`` partitions have a leader, and ``under_replicated`` ones
    have fewer live replicas than replicas."""

    spus: int
    spus_online: int
    topics: int
    partitions: int
    offline: int
    unwritable: int
    under_replicated: int
    known: bool = True
    """Whether the SC can write down what it learns; if not, these counts may be old."""

    @property
    def good(self) -> bool:
        """Whether nothing is missing."""
        bad = self.offline + self.unwritable + self.under_replicated
        return self.known and self.spus_online == self.spus and not bad

    def __str__(self) -> str:
        return (
            f"{self.spus_online}/{self.spus} SPUs online · topics: {self.topics:,} ·"
            f" partitions: {self.partitions:,}, {self.offline:,} offline,"
            f" {self.unwritable:,} not writable, {self.under_replicated:,} under-replicated"
        )


@dataclass(frozen=True, slots=True)
class SpuLine:
    """One SPU. Rates are per second; numbers are None where it has told none."""

    name: str
    spu_id: int
    place: str
    state: str
    leads: int
    holds: int
    received_bytes: float | None
    sent_bytes: float | None
    requests: float | None
    connections: int | None
    log_bytes: int | None
    disk_used: float | None
    """The used share of its disk, 0 to 1."""
    append_p99_us: int | None
    """The 99th percentile of its appends in the last seconds, in microseconds."""
    fsync_p99_us: int | None
    """That of its group commits."""
    unreachable: tuple[int, ...]
    """Ids of the SPUs that it has to connect to and cannot."""
    reason: str


@dataclass(frozen=True, slots=True)
class TopicLine:
    """One topic. Rates are per second; numbers are None where no leader has told any."""

    name: str
    partitions: int
    replicas: int
    state: str
    offsets_per_second: float | None
    bytes_per_second: float | None
    offsets: int | None
    log_bytes: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class Summary:
    """Everything that a first look shows. Problems are sorted, the worst first."""

    health: Health
    problems: tuple[Problem, ...]
    spus: tuple[SpuLine, ...]
    topics: tuple[TopicLine, ...]


@dataclass(frozen=True, slots=True)
class _Census:
    """What follows from objects alone. ``leads``, ``holds``: replicas by id of the SPU."""

    health: Health
    problems: tuple[Problem, ...]
    leads: Mapping[int | None, int]
    holds: Mapping[int, int]


class Summaries:
    """Summaries of one state that goes on. What follows from its objects alone is made anew only
    when they have changed: statistics come each second, and there may be many objects.

    ``system``: with the topics of the system.
    """

    def __init__(self, state: ClusterState, *, system: bool = False) -> None:
        self._state = state
        self._system = system
        self._taken: tuple[int, _Census] | None = None

    def latest(self) -> Summary:
        """The summary of the state as it is now."""
        state = self._state
        if self._taken is None or self._taken[0] != state.objects_version:
            self._taken = (state.objects_version, _census(state, system=self._system))
        census = self._taken[1]
        health, problems = census.health, census.problems
        # What their runners tell is in statistics.
        if ill := tuple(_pipeline_problems(state.pipelines())):
            problems = tuple(sorted((*problems, *ill), key=_order))
        if state.trouble is not None:
            health = replace(health, known=False)
            # What it does not know comes before what it knows.
            problems = (_sc_problem(state.trouble), *problems)
        return Summary(
            health=health,
            problems=problems,
            spus=tuple(_spu_lines(state, census)),
            topics=tuple(topic_lines(state, state.objects(Topic, system=self._system))),
        )


def summarize(state: ClusterState, *, system: bool = False) -> Summary:
    """One summary of a state. ``system``: with the topics of the system."""
    return Summaries(state, system=system).latest()


def _census(state: ClusterState, *, system: bool) -> _Census:
    spus = state.objects(Spu, system=True)
    # Partitions of the system are as important as others.
    partitions = state.objects(Partition, system=True)
    problems = [
        *_spu_problems(spus),
        *_partition_problems(partitions),
        *_topic_problems(state.objects(Topic, system=True)),
        *_group_problems(state.objects(SpuGroup, system=True)),
    ]
    return _Census(
        health=_health(spus, len(state.objects(Topic, system=system)), partitions),
        problems=tuple(sorted(problems, key=_order)),
        leads=Counter(p.status.leader for p in partitions),
        holds=Counter(spu_id for p in partitions for spu_id in p.spec.replicas),
    )


def topic_lines(state: ClusterState, topics: Iterable[Topic]) -> Iterator[TopicLine]:
    """A line for each of these topics."""
    for topic in topics:
        numbers = state.numbers("topics", topic.name)
        yield TopicLine(
            name=topic.name,
            partitions=topic.spec.partition_count,
            replicas=topic.spec.replica_count,
            state="not writable"
            if topic.status.writable is False
            else topic.status.resolution.value,
            offsets_per_second=numbers.get("offsetsPerSecond"),
            bytes_per_second=numbers.get("bytesPerSecond"),
            offsets=numbers.get("offsets"),
            log_bytes=numbers.get("logBytes"),
            reason=topic.status.reason or "",
        )


def _health(spus: list[Spu], topics: int, partitions: list[Partition]) -> Health:
    offline = sum(p.status.resolution is PartitionResolution.OFFLINE for p in partitions)
    return Health(
        spus=len(spus),
        spus_online=sum(spu.status.resolution in CONNECTED for spu in spus),
        topics=topics,
        partitions=len(partitions),
        offline=offline,
        unwritable=sum(p.status.writable is False for p in partitions),
        under_replicated=sum(map(is_under_replicated, partitions)),
    )


def _problem(severity: Severity, obj: Object, state: str) -> Problem:
    return Problem(severity, obj.kind, obj.name, state, obj.status.reason or "")


def _sc_problem(trouble: str) -> Problem:
    reason = f"{trouble}; what is shown of other objects may be old"
    return Problem(Severity.UNAVAILABLE, "SC", "sc", "cannot write its KV", reason)


def _spu_problems(spus: list[Spu]) -> Iterator[Problem]:
    for spu in spus:
        resolution = spu.status.resolution
        if resolution not in CONNECTED:
            yield _problem(Severity.DEGRADED, spu, resolution.value)
        elif spu.status.reason:
            yield _problem(Severity.NOTICE, spu, resolution.value)


def _partition_problems(partitions: list[Partition]) -> Iterator[Problem]:
    for partition in partitions:
        if partition.status.resolution is PartitionResolution.OFFLINE:
            yield _problem(Severity.UNAVAILABLE, partition, "offline")
        elif partition.status.writable is False:
            yield _problem(Severity.UNAVAILABLE, partition, "not writable")
        elif is_under_replicated(partition):
            yield _problem(Severity.DEGRADED, partition, "under-replicated")


def _topic_problems(topics: list[Topic]) -> Iterator[Problem]:
    for topic in topics:
        resolution = topic.status.resolution
        if resolution is not TopicResolution.PROVISIONED:
            yield _problem(Severity.NOTICE, topic, resolution.value)
        elif topic.status.reason and topic.status.writable is not False:
            # What keeps its partitions from being written is said of each of them.
            yield _problem(Severity.NOTICE, topic, resolution.value)


def _group_problems(groups: list[SpuGroup]) -> Iterator[Problem]:
    for group in groups:
        if group.status.resolution is SpuGroupResolution.INVALID or group.status.reason:
            yield _problem(Severity.NOTICE, group, group.status.resolution.value)


def _pipeline_problems(pipelines: list[Pipeline]) -> Iterator[Problem]:
    for pipeline in pipelines:
        if pipeline.status.state is PipelineState.UNKNOWN:
            yield _problem(Severity.NOTICE, pipeline, "unknown")
        elif (
            pipeline.status.state is PipelineState.FAILED
            and pipeline.spec.desired is Desired.RUNNING
        ):
            yield _problem(Severity.NOTICE, pipeline, "failed")


def _order(problem: Problem) -> tuple[Severity, str, str]:
    return problem.severity, problem.kind, problem.name


def _spu_lines(state: ClusterState, census: _Census) -> Iterator[SpuLine]:
    for spu in state.objects(Spu, system=True):
        numbers = state.numbers("spus", spu.name)
        total = numbers.get("diskBytes") or 0
        # Those of an SPU that is away were measured long ago.
        latencies = numbers if numbers.get("connected") else {}
        yield SpuLine(
            name=spu.name,
            spu_id=spu.spec.spu_id,
            place="/".join(part for part in (spu.spec.region, spu.spec.rack) if part),
            state=spu.status.resolution.value,
            leads=census.leads.get(spu.spec.spu_id, 0),
            holds=census.holds.get(spu.spec.spu_id, 0),
            received_bytes=numbers.get("receivedBytesPerSecond"),
            sent_bytes=numbers.get("sentBytesPerSecond"),
            requests=numbers.get("requestsPerSecond"),
            connections=numbers.get("connections"),
            log_bytes=numbers.get("logBytes"),
            disk_used=1 - numbers["freeBytes"] / total if total else None,
            append_p99_us=latencies.get("appendP99Us"),
            fsync_p99_us=latencies.get("fsyncP99Us"),
            unreachable=tuple(peer["spu"] for peer in numbers.get("unreachablePeers", ())),
            reason=spu.status.reason or "",
        )
