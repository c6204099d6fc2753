"""What the API answers besides objects, as models: the code and the OpenAPI document share them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from schemas.control.controllers import ControllerRole
from schemas.control.messages import Stamp
from schemas.errors import ErrorCode
from schemas.model import Model
from schemas.objects.pipeline import PipelineStatus


class ErrorAnswer(Model):
    """Every answer with a status of 400 or more."""

    code: str = Field(
        json_schema_extra={"enum": [c.name for c in ErrorCode if c is not ErrorCode.OK]}
    )
    """What went wrong, for programs."""
    message: str
    """What is wrong, where, and what to do, for people."""
    details: dict[str, Any]
    """Facts about this error: who won a conflict, which revisions are left."""


class Health(Model):
    """The SC leads and has looked at every object since it started, or it stands by and shows what
    the KV holds."""

    status: Literal["ok"] = "ok"
    revision: int
    """The KV revision that this SC shows."""
    role: ControllerRole = ControllerRole.LEADER
    leader: str | None = None
    """The name of the SC that leads, as far as this one knows."""
    trouble: str | None = None
    """Why the SC has not reached its KV for some seconds, so that what objects say of their state
    may be old. Left out while it reaches it."""


class DivergentSpu(Model):
    """An SPU that the SC turns away, because it has seen what the KV does not know."""

    spu: int
    """Its id."""
    why: str
    """What it has seen."""
    incarnation: int
    """The incarnation in which the cluster would recover from that."""


class UnreadableObject(Model):
    """A stored object that does not parse. It stays in the KV, and the SC does without it."""

    key: str
    """Its key in the KV."""
    why: str
    """What is wrong with it."""


class RecoveryBegun(Model):
    """The beginning of a recovery."""

    by: str
    """Who began it: a user, or `sc` for the SC itself."""
    at: str
    """When: ISO 8601 in UTC with milliseconds."""
    why: str
    """What an SPU had seen that the KV did not know."""
    cause: str
    """The causality id, as in the logs."""


class RecoveryRequest(Model):
    """A recovery that the SC does not begin by itself."""

    spu: int
    """Id of the SPU that the SC turns away, one of `divergent`."""


class ClusterAnswer(Model):
    """Which cluster this is, and who serves it."""

    cluster: str
    """Name of the cluster."""
    cluster_uid: str
    """Uid of the cluster; it never changes."""
    version: str
    """Version of the SC."""
    dashboard: str | None = None
    """Address of the cluster's dashboard, if the SC's configuration names one."""
    revision: int
    """The KV revision that this SC shows."""
    office: Stamp | None
    """The SC that leads: since which KV revision, its random id, and how often the cluster has
    recovered from a KV that was restored from a backup. Null if this one does not, and has no
    answer of one that does: then `divergent` and `unproven` are not known, and empty."""
    office_unknown: str | None = None
    """Why `office` is null."""
    recovering: bool
    """Whether the cluster is recovering: every partition gets a new leader, nothing is deleted."""
    recovery: RecoveryBegun | None
    """The beginning of the last recovery. Null if there was none, or by a version that did not keep
    it."""
    divergent: tuple[DivergentSpu, ...]
    """SPUs that have seen what the KV does not know, and that the SC turns away, because it does
    not begin that recovery by itself."""
    unproven: tuple[int, ...]
    """Ids of connected SPUs that have not proven who they are, because they have no secret yet."""
    unreadable: tuple[UnreadableObject, ...]
    """Stored objects that do not parse, in the order of their keys; at most 100."""


class SpuSecret(Model):
    """A new secret of an SPU. No other answer holds it."""

    spu_id: int
    """Id of the SPU."""
    secret: str
    """The secret; put it into the SPU's `secretFile`."""


class HistoryItem(Model):
    """One write of an object."""

    revision: str
    """The resourceVersion that the object had from then on."""
    at: str | None
    """When: ISO 8601 in UTC with milliseconds. Null: written by a version that did not keep it."""
    by: str | None
    """Who: a user, or `sc` for a controller. Null where `at` is."""
    cause: str
    """The causality id of the write, as in the logs."""
    generation: int
    """The object's generation at that time: how often its spec had been written."""
    resolution: str | None
    """Of the status then."""
    reason: str | None
    """Of the status then."""
    changed: tuple[str, ...]
    """Paths of the fields that differ from the previous write; `metadata`, `spec` and `status`
    for the creation. Empty where the previous write is compacted."""


class History(Model):
    """Writes of an object since it was created, the newest first."""

    items: tuple[HistoryItem, ...]
    complete: bool
    """The creation is among the items: nothing was compacted, and the limit was high enough. No
    history tells of more than 500 writes."""


class EventItem(HistoryItem):
    """One change of an object. Of a deletion, the writer and the cause are those of the write that
    asked for it, null and `-` if there was none."""

    kind: str
    """Kind of the object."""
    name: str
    """Its name."""
    change: Literal["created", "modified", "deleted"]
    """What was done to it."""


class Events(Model):
    """The last changes of all objects, the newest last."""

    items: tuple[EventItem, ...]
    complete: bool
    """False if older events were left out for `limit`."""
    first_revision: str | None
    """The revision of the oldest event that the SC has; null if there is none."""


class ReplicaAnswer(Model):
    """One replica of a partition, by the report of its SPU."""

    spu: int
    """The SPU that is to hold it."""
    live: bool
    """Whether the KV has it in the live replica set."""
    role: str | None
    """What it does: leader, follower, idle or stopped. Null while its SPU has not reported it;
    so are all fields that follow."""
    fit: bool | None
    """Whether it may lead."""
    log_start: int | None
    """The first offset that it keeps."""
    next_offset: int | None
    """Where its log ended in its last report, as far as it is as durable as the topic asks for. A
    follower that is catching up reports every second, any other replica when something else about
    it changes."""
    reason: str | None
    """Why it is unfit or stopped."""


class Replicas(Model):
    """The replicas of a partition in the order of its spec."""

    items: tuple[ReplicaAnswer, ...]


class LogLines(Model):
    """The last log lines of the SC, within the bounds of an answer."""

    process: str
    """The daemon that logged them."""
    lines: tuple[dict[str, Any], ...]
    """The lines, the oldest first. Each has `timestamp`, `level`, `event`, `process`, `module`,
    `cause`, and fields of its own."""
    next: str
    """Where the lines end; send it as `after` to get those that follow."""
    complete: bool
    """False if lines were left out because an answer is bounded."""
    kept_since: str | None
    """The time of the oldest line that the SC still has. Null: it has all since its start."""


class RateSeries(Model):
    """One number by second, the oldest first; the last one is of the second of ``at``."""

    name: str
    """Name of the field."""
    values: tuple[float, ...]
    """Values."""


class UnreachablePeerStatistics(Model):
    """An SPU that another one has to connect to and has not reached for a while."""

    spu: int
    """Its id."""
    host: str
    """The host at which the other one tries to reach it."""
    port: int
    """The port there."""
    reason: str
    """Why the last attempt failed."""


class SpuStatistics(Model):
    """What one SPU counts. Counters begin at 0 with its process."""

    name: str
    """Name of the SPU."""
    spu: int
    """Its id."""
    connected: bool
    """Whether it has a session with the SC. If not, its numbers are the last ones that it told."""
    told_ms: int
    """For how many milliseconds the numbers have not changed."""
    received_bytes: int
    """Counter: bytes from clients."""
    sent_bytes: int
    """Counter: bytes to clients."""
    requests: int
    """Counter: requests of clients."""
    errors: int
    """Counter: requests that it answered with an error."""
    received_bytes_per_second: float
    """In the last second."""
    sent_bytes_per_second: float
    """In the last second."""
    requests_per_second: float
    """In the last second."""
    connections: int
    """Clients connected now."""
    log_bytes: int
    """Bytes of its logs."""
    free_bytes: int
    """Free bytes of its disk, in steps of a thousandth of it."""
    disk_bytes: int
    """Bytes of its disk."""
    append_p99_us: int | None = None
    """The 99th percentile of its appends of clients' batches to logs, in microseconds, over the
    last ten seconds. Left out or null if there were none, and of SPUs of earlier versions."""
    fsync_p99_us: int | None = None
    """That of its group commits: fsyncs of a log's files."""
    unreachable_peers: tuple[UnreachablePeerStatistics, ...] = ()
    """SPUs that it cannot reach now; those that are away are among them."""
    series: tuple[RateSeries, ...] = ()
    """The rates and percentiles of the last seconds, if they were asked for."""


class TopicStatistics(Model):
    """The partitions of one topic together."""

    name: str
    """Name of the topic."""
    partitions: int
    """Partitions that it has."""
    offsets: int
    """Offsets from the first that is kept to the last that is committed: about as many records."""
    log_bytes: int
    """Bytes of the leaders' logs."""
    offsets_per_second: float
    """Committed in the last second."""
    bytes_per_second: float
    """By which the leaders' logs grew in the last second."""
    series: tuple[RateSeries, ...] = ()
    """The rates of the last seconds, if they were asked for."""


class ReplicaStatistics(Model):
    """One replica, by the last numbers of its SPU."""

    spu: int
    """The SPU that holds it."""
    log_end: int
    """The next offset of its log."""
    log_bytes: int
    """Bytes of its log."""


class PartitionStatistics(Model):
    """One partition: the offsets of its leader, or, without one, of the replica that knows most."""

    name: str
    """Name of the partition."""
    log_start: int
    """The first offset that it keeps."""
    committed_end: int
    """The offset after the last committed one."""
    log_end: int
    """The next offset of the leader's log."""
    log_bytes: int
    """Bytes of the leader's log."""
    replicas: tuple[ReplicaStatistics, ...]
    """Its replicas in the order of its spec, as far as their SPUs told."""


class PipelineStatistics(PipelineStatus):
    """The status of one pipeline as of now."""

    name: str
    """Name of the pipeline."""


class StatisticsAnswer(Model):
    """Numbers of SPUs, of topics, and of the partitions of the topics that were asked for."""

    at: int
    """When the second of these rates ended: milliseconds since 1970 in UTC."""
    spus: tuple[SpuStatistics, ...]
    """SPUs that have told their numbers to this SC."""
    topics: tuple[TopicStatistics, ...]
    """Topics."""
    partitions: tuple[PartitionStatistics, ...]
    """Partitions."""
    pipelines: tuple[PipelineStatistics, ...] = ()
    """Pipelines; only in a stream that also watches `pipelines`."""
    trouble: str | None = None
    """Why the SC cannot write to its KV, so that what objects say of their state may be old. Left
    out while it can."""
    next: str | None = None
    """The `continue` of the next page of topics. Left out on the last page."""


class Synced(Model):
    """Data of the event `synced`: all that existed has been sent."""

    revision: str
    """Changes after this one follow."""


class Compacted(Model):
    """Data of the event `compacted`: changes were missed; list or watch again."""

    first_available: int
    """A revision that can still be read."""
