"""The rows of the tables that browsers show, made of a cluster's state. Pure.

Names of fields are those that the scripts in ``dashboard/static`` read. Partitions are lists
(`PARTITION_FIELDS`): there may be ten thousand of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, Final

from dashboard.live.tables import Row
from runnel.status.state import ClusterState, Numbers
from runnel.status.summary import Summary, topic_lines
from schemas.objects.partition import Partition, is_led, is_under_replicated
from schemas.objects.pipeline import Pipeline, PipelineState
from schemas.objects.spu import Spu
from schemas.objects.stream import Stream
from schemas.objects.system_topics import is_system_name
from schemas.objects.topic import Topic

#: Problems in the table: so many name what a person does next; the rest is a number.
MOST_PROBLEMS: Final = 200
PARTITION_FIELDS: Final = (
    *("topic", "index", "leader", "replicas", "live", "state", "reason", "progress"),
)


def health_rows(summary: Summary, state: ClusterState, address: str) -> dict[str, Row]:
    """One row: the counts, and the time of the statistics."""
    health = summary.health
    return {
        "cluster": {
            **asdict(health),
            "good": health.good,
            "text": str(health),
            "problems": len(summary.problems),
            "at": state.at_ms,
            "address": address,
        }
    }


def problem_rows(summary: Summary) -> dict[str, Row]:
    """What needs a person, the worst first."""
    return {
        f"{problem.kind}/{problem.name}": {
            "order": number,
            "severity": problem.severity.name.lower(),
            "kind": problem.kind,
            "name": problem.name,
            "state": problem.state,
            "reason": problem.reason,
        }
        for number, problem in enumerate(summary.problems[:MOST_PROBLEMS])
    }


def spu_rows(summary: Summary, state: ClusterState) -> dict[str, Row]:
    """SPUs by name, with the latest of their statistics."""
    objects = {spu.name: spu for spu in state.objects(Spu, system=True)}
    return {
        line.name: {
            "name": line.name,
            "id": line.spu_id,
            "state": line.state,
            "reason": line.reason,
            "place": line.place,
            "leads": line.leads,
            "holds": line.holds,
            "in": line.received_bytes,
            "out": line.sent_bytes,
            "requests": line.requests,
            "clients": line.connections,
            "logBytes": line.log_bytes,
            "diskUsed": line.disk_used,
            "appendP99Us": line.append_p99_us,
            "fsyncP99Us": line.fsync_p99_us,
            **_endpoints(objects[line.name]),
            **_more(state.numbers("spus", line.name)),
        }
        for line in summary.spus
    }


def _endpoints(spu: Spu) -> dict[str, Row]:
    public, private = spu.spec.public_endpoint, spu.spec.private_endpoint
    return {
        "public": f"{public.host}:{public.port}",
        "private": f"{spu.spec.private_host}:{private.port}",
        "type": spu.spec.spu_type.value,
        "group": spu.spec.group,
    }


def _more(numbers: Numbers) -> dict[str, Row]:
    """Numbers that only some versions of SPUs tell."""
    names = ("connected", "errors", "diskBytes", "freeBytes")
    found = {name: numbers[name] for name in names if name in numbers}
    if "unreachablePeers" in numbers:
        found["unreachable"] = numbers["unreachablePeers"]
    return found


def topic_rows(summary: Summary, state: ClusterState) -> dict[str, Row]:
    """Topics by name, those of the system included."""
    topics = {topic.name: topic for topic in state.objects(Topic, system=True)}
    system = [topic for name, topic in topics.items() if is_system_name(name)]
    return {
        line.name: {
            "name": line.name,
            "partitions": line.partitions,
            "replicas": line.replicas,
            "state": line.state,
            "reason": line.reason,
            "recordsPerSecond": line.offsets_per_second,
            "bytesPerSecond": line.bytes_per_second,
            "records": line.offsets,
            "bytes": line.log_bytes,
            "system": is_system_name(line.name),
            **_settings(topics[line.name]),
        }
        for line in (*summary.topics, *topic_lines(state, system))
    }


def _settings(topic: Topic) -> dict[str, Row]:
    columns = topic.spec.columns
    return {
        "columns": None
        if columns is None
        else [column.model_dump(mode="json", by_alias=True) for column in columns],
        "keyColumn": topic.spec.key_column,
        "retention": topic.spec.retention.model_dump(mode="json", by_alias=True),
    }


def pipeline_rows(state: ClusterState) -> dict[str, Row]:
    """Pipelines by name, with what their runners told last."""
    return {pipeline.name: _pipeline_row(pipeline) for pipeline in state.pipelines()}


def _pipeline_row(pipeline: Pipeline) -> Row:
    source, sink, status = pipeline.spec.source, pipeline.spec.sink, pipeline.status
    live = status.state in (PipelineState.INIT, PipelineState.RUNNING)
    return {
        "name": pipeline.name,
        "state": status.state.value,
        "reason": status.reason or "",
        "topics": list(source.names),
        "from": list(source.names) or [source.pattern],
        "to": sink.topic or sink.path,
        "toTopic": sink.topic is not None,
        "batch": status.last_batch,
        "rowsPerSecond": status.rows_per_second if live else None,
        "lag": status.lag,
        "lastError": status.last_error,
        "lastSeen": status.last_seen,
        "run": status.run_id,
        "host": status.host,
        "restarts": status.restarts,
    }


def stream_rows(state: ClusterState) -> dict[str, Row]:
    """Streams by name."""
    return {
        stream.name: {
            "name": stream.name,
            "state": stream.status.state.value,
            "reason": stream.status.told,
            "epoch": stream.status.current_epoch,
            "segments": stream.status.segments,
            "queued": stream.status.queued,
            "replicas": stream.spec.replication_factor,
            "tags": list(stream.spec.tags),
        }
        for stream in state.objects(Stream)
    }


class PartitionRows:
    """Rows of all partitions of a state, of which only those are made anew that may have
    changed."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._objects_version = -1
        self._made: dict[str, tuple[Partition, Row]] = {}
        self._rows: dict[str, Row] = {}
        #: Progress of replicas that catch up is in statistics, not in the object.
        self._catching_up: list[Partition] = []

    def rows(self) -> dict[str, Row]:
        """The rows now: the same mapping as before if all rows are the same, and rows that have not
        changed are the same lists."""
        state = self._state
        if state.objects_version != self._objects_version:
            self._objects_version = state.objects_version
            partitions = state.objects(Partition, system=True)
            self._catching_up = [p for p in partitions if p.spec.moves or is_under_replicated(p)]
            before, self._made = self._made, {}
            for partition in partitions:
                known = before.get(partition.name)
                if known is None or known[0] is not partition:
                    known = (partition, self._row(partition))
                self._made[partition.name] = known
            self._rows = {name: row for name, (_, row) in self._made.items()}
        changed = {}
        for partition in self._catching_up:
            row = self._row(partition)
            if row != self._rows[partition.name]:
                changed[partition.name] = row
                self._made[partition.name] = (partition, row)
        if changed:
            self._rows = {**self._rows, **changed}
        return self._rows

    def _row(self, partition: Partition) -> Row:
        return partition_row(partition, self._state.numbers("partitions", partition.name))


def partition_row(partition: Partition, numbers: Numbers) -> Row:
    """One partition as a list of `PARTITION_FIELDS`. Progress is, by SPU, how much of the leader's
    log (0 to 1) a replica holds that is not live."""
    live = [replica.spu_id for replica in partition.status.lrs]
    return [
        partition.spec.owner.name,
        partition.spec.index,
        partition.status.leader,
        list(partition.spec.holders),
        live,
        partition_state(partition),
        partition.status.reason or "",
        dict(_progress(partition.spec.holders, live, numbers)),
    ]


def partition_state(partition: Partition) -> str:
    """The state in a word: the resolution, unless that says less than what is wrong."""
    resolution = partition.status.resolution
    if is_led(partition.status):
        if partition.status.writable is False:
            return "not writable"
        if is_under_replicated(partition):
            return "under-replicated"
        if partition.spec.moves:
            return "moving"
    return resolution.value


def _progress(
    replicas: Iterable[int], live: list[int], numbers: Numbers
) -> Iterator[tuple[str, float]]:
    start, end = numbers.get("logStart", 0), numbers.get("logEnd", 0)
    ends = _ends(numbers)
    for spu in replicas:
        if spu not in live and spu in ends:
            held = max(0, ends[spu] - start)
            yield str(spu), 1.0 if end <= start else round(min(1.0, held / (end - start)), 2)


def _ends(numbers: Numbers) -> dict[int, int]:
    return {int(one["spu"]): int(one["logEnd"]) for one in numbers.get("replicas", ())}


def topic_partition_rows(state: ClusterState, topic: str) -> dict[str, Row]:
    """The partitions of one topic, with offsets. Numbers are None where no SPU told them."""
    return {
        partition.name: {
            "name": partition.name,
            "index": partition.spec.index,
            "leader": partition.status.leader,
            "term": str(partition.status.term),
            "replicas": list(partition.spec.holders),
            "live": [replica.spu_id for replica in partition.status.lrs],
            "state": partition_state(partition),
            "reason": partition.status.reason or "",
            **_offsets(state.numbers("partitions", partition.name)),
        }
        for partition in state.partitions_of(topic)
    }


def _offsets(numbers: Mapping[str, Any]) -> dict[str, Row]:
    return {
        "start": numbers.get("logStart"),
        "committed": numbers.get("committedEnd"),
        "end": numbers.get("logEnd"),
        "bytes": numbers.get("logBytes"),
        "ends": {str(spu): end for spu, end in _ends(numbers).items()},
    }
