"""Small objects, reports, sessions and views for the tests of the controller."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence

from sc.controllers.spu_group import managed_spu
from sc.controllers.topic import partition_uid
from sc.store.local_store import LocalStore
from sc.store.view import ElectionAsked, Provisioned, Provisioning, SessionState, View
from schemas.control.controllers import ControllerEntry
from schemas.control.messages import (
    ElectionRequest,
    LrsRequest,
    ReplicaReport,
    ReplicaRole,
    Tombstone,
    UnreachablePeer,
)
from schemas.ids import PartitionUid, StorageId, Term, make_term
from schemas.objects.metadata import Metadata, Object, OwnerReference
from schemas.objects.partition import (
    LiveReplica,
    Partition,
    PartitionResolution,
    PartitionSpec,
    PartitionStatus,
)
from schemas.objects.spu import (
    Ingress,
    PrivateEndpoint,
    PublicEndpoint,
    Spu,
    SpuResolution,
    SpuSpec,
    SpuStatus,
)
from schemas.objects.spu_group import (
    SpuGroup,
    SpuGroupResolution,
    SpuGroupSpec,
    SpuGroupStatus,
    SpuTemplate,
)
from schemas.objects.topic import (
    PartitionAssignment,
    Topic,
    TopicResolution,
    TopicSpec,
    TopicStatus,
    partition_name,
)

CREATED_AT = DELETED_AT = "2026-01-01T00:00:00Z"
#: By how much the ports of the SPUs of a group differ in these tests.
PORT_STEP = 3
SC_PORTS = frozenset({9003, 9004})
NO_TERM = Term(0)
TERM_1 = make_term(0, 1)
TERM_2 = make_term(0, 2)

#: What an SC says of itself.
SC = ControllerEntry(
    name="sc:1", public="sc:1", private="sc:2", version="1", since="-", instance="i"
)


def uid_of(kind: str, name: str) -> str:
    """A uid that is the same in every test for the same name."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{kind}.{name}"))


def metadata_of(kind: str, name: str, *, revision: int = 1, generation: int = 1) -> Metadata:
    return Metadata(
        name=name,
        uid=uid_of(kind, name),
        generation=generation,
        resource_version=str(revision),
        creation_timestamp=CREATED_AT,
    )


def spu_of(
    spu_id: int,
    resolution: SpuResolution = SpuResolution.ONLINE,
    *,
    reason: str | None = None,
    rack: str | None = None,
    name: str | None = None,
    ingress: str = "localhost",
    private: str | None = None,
    revision: int = 1,
    observed: int = 1,
) -> Spu:
    name = name or f"spu-{spu_id}"
    return Spu(
        metadata=metadata_of("Spu", name, revision=revision),
        spec=SpuSpec(
            spu_id=spu_id,
            rack=rack,
            public_endpoint=PublicEndpoint(ingress=(Ingress(hostname=ingress),)),
            private_endpoint=PrivateEndpoint(host=private),
        ),
        status=SpuStatus(resolution=resolution, reason=reason, observed_generation=observed),
    )


def group_of(
    name: str = "g",
    resolution: SpuGroupResolution = SpuGroupResolution.RESERVED,
    *,
    replicas: int = 2,
    min_id: int = 1,
    template: SpuTemplate | None = None,
    reason: str | None = None,
    deleting: bool = False,
    created: str = CREATED_AT,
    revision: int = 1,
    generation: int = 1,
    observed: int | None = None,
) -> SpuGroup:
    """A group that its controller has seen at its generation, unless it is ``init``."""
    seen = 0 if resolution is SpuGroupResolution.INIT else generation
    group = SpuGroup(
        metadata=metadata_of("SpuGroup", name, revision=revision, generation=generation),
        spec=SpuGroupSpec(replicas=replicas, min_id=min_id, template=template or SpuTemplate()),
        status=SpuGroupStatus(
            resolution=resolution,
            reason=reason,
            observed_generation=seen if observed is None else observed,
        ),
    ).with_metadata(creation_timestamp=created)
    return group.with_metadata(deletion_timestamp=DELETED_AT) if deleting else group


def member_of(
    group: SpuGroup,
    spu_id: int,
    resolution: SpuResolution = SpuResolution.ONLINE,
    *,
    reason: str | None = None,
    revision: int = 1,
    observed: int = 1,
) -> Spu:
    """The managed SPU that a group made for an id, as stored."""
    made = managed_spu(group, spu_id, PORT_STEP).with_metadata(
        generation=1, resource_version=str(revision), creation_timestamp=CREATED_AT
    )
    return made.with_status(
        SpuStatus(resolution=resolution, reason=reason, observed_generation=observed)
    )


def topic_of(
    name: str = "t",
    resolution: TopicResolution = TopicResolution.INIT,
    *,
    partitions: int | None = None,
    factor: int | None = None,
    rows: dict[int, tuple[int, ...]] | Sequence[tuple[int, tuple[int, ...]]] | None = None,
    reason: str | None = None,
    replica_map: tuple[tuple[int, ...], ...] = (),
    deleting: bool = False,
    revision: int = 1,
    generation: int = 1,
    observed: int | None = None,
    ignore_racks: bool = False,
    max_record_size: int = 1 << 20,
    minimum: int | None = None,
) -> Topic:
    assignment = None
    if rows is not None:
        pairs = rows.items() if isinstance(rows, dict) else rows
        assignment = tuple(PartitionAssignment(id=i, replicas=r) for i, r in pairs)
    topic = Topic(
        metadata=metadata_of("Topic", name, revision=revision, generation=generation),
        spec=TopicSpec(
            partitions=partitions,
            replication_factor=factor,
            assignment=assignment,
            ignore_rack_assignment=ignore_racks,
            max_record_size=max_record_size,
            min_in_sync_replicas=minimum,
        ),
        status=TopicStatus(
            resolution=resolution,
            reason=reason,
            replica_map=replica_map,
            observed_generation=(0 if resolution is TopicResolution.INIT else generation)
            if observed is None
            else observed,
        ),
    )
    return topic.with_metadata(deletion_timestamp=DELETED_AT) if deleting else topic


def partition_of(
    topic: Topic | str = "t",
    index: int = 0,
    replicas: tuple[int, ...] = (1,),
    *,
    preferred: int | None = None,
    resolution: PartitionResolution = PartitionResolution.OFFLINE,
    reason: str | None = None,
    leader: int | None = None,
    term: Term = NO_TERM,
    lrs: tuple[LiveReplica, ...] = (),
    deleting: bool = False,
    revision: int = 5,
    observed: int = 1,
    minimum: int | None = None,
    writable: bool | None = None,
    joining: tuple[int, ...] | None = None,
    leaving: tuple[int, ...] | None = None,
) -> Partition:
    """A partition; ``minimum`` is its ``minInSyncReplicas`` where the topic's is not meant."""
    owner = topic_of(topic) if isinstance(topic, str) else topic
    log = owner.spec.log_settings
    if minimum is not None:
        log = log.model_copy(update={"min_in_sync_replicas": minimum})
    partition = Partition(
        metadata=Metadata(
            name=partition_name(owner.name, index),
            labels={"topic": owner.name},
            uid=partition_uid(owner.uid, index),
            generation=1,
            resource_version=str(revision),
        ),
        spec=PartitionSpec(
            owner=OwnerReference(kind="Topic", name=owner.name, uid=owner.uid),
            index=index,
            replicas=replicas,
            preferred_leader=replicas[0] if preferred is None else preferred,
            joining=joining,
            leaving=leaving,
            log=log,
        ),
        status=PartitionStatus(
            resolution=resolution,
            reason=reason,
            leader=leader,
            term=term,
            lrs=lrs,
            writable=writable,
            observed_generation=observed,
        ),
    )
    return partition.with_metadata(deletion_timestamp=DELETED_AT) if deleting else partition


def live(spu_id: int, storage: str | None = None) -> LiveReplica:
    return LiveReplica(spu_id=spu_id, storage_id=storage or f"storage-{spu_id}")


def report_of(
    partition: Partition,
    spu_id: int = 1,
    *,
    role: ReplicaRole = ReplicaRole.IDLE,
    term: int = 0,
    revision: int | None = None,
    storage: str | None = None,
    fit: bool = True,
    assigned: bool = True,
    reason: str | None = None,
    leo: int = 0,
    last_term: int = 0,
    incarnation: int = 0,
    unclean_boot: bool = False,
    unclean_term: int | None = None,
) -> ReplicaReport:
    """A report of a replica that knows its partition's newest revision."""
    return ReplicaReport(
        uid=PartitionUid(partition.uid),
        storage_id=StorageId(storage or f"storage-{spu_id}"),
        role=role,
        term=Term(term),
        revision=partition.revision if revision is None else revision,
        fit=fit,
        assigned=assigned,
        reason=reason,
        leo=leo,
        last_term=Term(last_term),
        incarnation=incarnation,
        unclean_boot=unclean_boot,
        unclean_term=None if unclean_term is None else Term(unclean_term),
    )


def lrs_request_of(
    partition: Partition,
    *lrs: LiveReplica,
    term: int | None = None,
    revision: int | None = None,
    reason: str = "asked",
) -> LrsRequest:
    """What the leader of a partition asks for in its first restart, from what it is now."""
    return LrsRequest(
        uid=PartitionUid(partition.uid),
        term=Term(partition.status.term + 1 if term is None else term),
        revision=partition.revision if revision is None else revision,
        lrs=lrs,
        reason=reason,
    )


def election_request_of(
    partition: Partition, *, term: int | None = None, reason: str = "too few are live"
) -> ElectionRequest:
    """What a leader asks for that cannot do its work."""
    wanted = Term(partition.status.term + 1 if term is None else term)
    return ElectionRequest(uid=PartitionUid(partition.uid), term=wanted, reason=reason)


def session_of(
    spu_id: int,
    *reports: ReplicaReport,
    generation: int = 1,
    complete: bool = True,
    deleted: Iterable[Tombstone] = (),
    undeleted: Mapping[str, str] | None = None,
    free_bytes: int | None = None,
    asks: Iterable[LrsRequest] = (),
    elections: Iterable[ElectionAsked] = (),
    unreachable: Iterable[UnreachablePeer] = (),
    stalled: Iterable[Partition] = (),
) -> SessionState:
    return SessionState(
        spu_id,
        generation,
        complete=complete,
        free_bytes=free_bytes,
        reports={r.uid: r for r in reports},
        deleted={t.uid: t for t in deleted},
        undeleted=dict(undeleted or {}),
        lrs_requests={r.uid: r for r in asks},
        elections={e.request.uid: e for e in elections},
        unreachable={peer.spu_id: peer for peer in unreachable},
        stalled=frozenset(partition.uid for partition in stalled),
    )


def unreachable_of(spu_id: int, reason: str = "connection refused") -> UnreachablePeer:
    """What an SPU reports that cannot connect to this one."""
    return UnreachablePeer(spu_id=spu_id, host=f"edge-{spu_id}", port=9006, reason=reason)


def tombstone_of(partition: Partition, spu_id: int) -> Tombstone:
    return Tombstone(uid=PartitionUid(partition.uid), spu_id=spu_id)


def view_of(
    *objects: Object,
    sessions: Iterable[SessionState] = (),
    tombstones: Iterable[Tombstone] = (),
    registered: dict[str, int] | None = None,
    grace_until_ms: int = 0,
    provisioned: Mapping[str, Provisioned] | None = None,
    recovering: int = 0,
    refusals: Mapping[int, str] | None = None,
) -> View:
    """A view of these objects; every SPU among them is registered unless said otherwise, and
    nothing starts managed SPUs unless ``provisioned`` says which it takes care of. ``recovering``
    is the incarnation that the cluster recovers in, if it does."""
    store = LocalStore()
    for obj in objects:
        store.put(obj)
    for tombstone in tombstones:
        store.put_tombstone(tombstone)
    if registered is None:
        registered = {o.name: o.spec.spu_id for o in objects if isinstance(o, Spu)}
    return View(
        store=store,
        sessions={s.spu_id: s for s in sessions},
        registered=registered,
        refusals=refusals or {},
        grace_until_ms=grace_until_ms,
        provisioning=None
        if provisioned is None
        else Provisioning(PORT_STEP, dict(provisioned), SC_PORTS, frozenset({"sc", "etcd"})),
        incarnation=recovering,
        recovering=recovering > 0,
    )
