"""The assignment feed: where clients find the leaders of partitions.

``GET /v1/assignments`` answers with one `Assignments`; with ``watch=true`` it is a stream of
server-sent events, each with a whole `Assignments` as of a KV revision.
"""

from __future__ import annotations

from schemas.ids import PartitionUid, Term
from schemas.model import Model
from schemas.objects.partition import PartitionResolution
from schemas.objects.quantities import Size
from schemas.objects.topic import Compression, Durability, TopicResolution


class Endpoint(Model):
    host: str
    port: int


class ReplicaEndpoint(Model):
    """One replica of a partition: an SPU that can be reached, and where.

    ``live``: it is in the live replica set, so it holds every committed record.
    """

    spu: int
    endpoint: Endpoint
    live: bool = False


class PartitionLeader(Model):
    """One partition; ``leader`` and ``endpoint`` are None while nobody leads or is about to: see
    ``reason``.

    ``replicas`` are those of a replicated partition, including the leader's. SPUs that are not
    registered, or known to be offline, are left out. The list is empty where the leader's replica
    is the only one.
    """

    index: int
    uid: PartitionUid
    resolution: PartitionResolution
    leader: int | None = None
    endpoint: Endpoint | None = None
    term: Term = Term(0)
    reason: str | None = None
    replicas: tuple[ReplicaEndpoint, ...] = ()


class TopicAssignment(Model):
    """A topic as a client needs it; ``partitions`` are in order of their index."""

    name: str
    uid: str
    resolution: TopicResolution
    reason: str | None = None
    partition_count: int
    replication_factor: int
    compression: Compression
    durability: Durability
    max_record_size: Size
    partitions: tuple[PartitionLeader, ...] = ()


class Assignments(Model):
    cluster: str
    cluster_uid: str
    revision: int
    topics: tuple[TopicAssignment, ...] = ()
