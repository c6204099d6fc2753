"""The assignment feed, computed from the local store."""

from __future__ import annotations

from sc.controller import Controller
from sc.store.local_store import LocalStore
from schemas.assignments import (
    Assignments,
    Endpoint,
    PartitionLeader,
    ReplicaEndpoint,
    TopicAssignment,
)
from schemas.ids import PartitionUid
from schemas.partition import Partition, PartitionResolution
from schemas.spu import Spu, SpuResolution
from schemas.topic import Topic


def assignments(controller: Controller, topics: frozenset[str]) -> Assignments:
    """The assignments of some topics, or of all when the set is empty."""
    store = controller.view.store
    if topics:
        found = [t for name in sorted(topics) if (t := store.get(Topic, name)) is not None]
    else:
        found = store.objects(Topic)
    return Assignments(
        cluster=controller.keys.cluster,
        cluster_uid=controller.office.cluster_uid,
        revision=store.revision,
        topics=tuple(_topic(store, topic) for topic in found if not topic.deleting),
    )


def _topic(store: LocalStore, topic: Topic) -> TopicAssignment:
    partitions = [
        p for p in store.partitions_of("Topic", topic.name) if p.spec.owner.uid == topic.uid
    ]
    return TopicAssignment(
        name=topic.name,
        uid=topic.uid,
        resolution=topic.status.resolution,
        reason=topic.status.reason,
        partition_count=topic.spec.partition_count,
        replication_factor=topic.spec.replica_count,
        compression=topic.spec.compression,
        durability=topic.spec.durability,
        max_record_size=topic.spec.max_record_size,
        partitions=tuple(_partition(store, p) for p in partitions),
    )


def _partition(store: LocalStore, partition: Partition) -> PartitionLeader:
    status = partition.status
    spu = store.spu(status.leader) if status.leader is not None else None
    leading = status.resolution is PartitionResolution.ONLINE and spu is not None
    endpoint = _endpoint(spu) if leading and spu is not None else None
    return PartitionLeader(
        index=partition.spec.index or 0,
        uid=PartitionUid(partition.uid),
        resolution=status.resolution,
        leader=status.leader if leading else None,
        endpoint=endpoint,
        term=status.term,
        reason=status.reason,
        replicas=_replicas(store, partition),
    )


def _replicas(store: LocalStore, partition: Partition) -> tuple[ReplicaEndpoint, ...]:
    """Where followers are read; nothing where there is none."""
    if len(partition.spec.replicas) < 2:
        return ()
    live = {member.spu_id for member in partition.status.lrs}
    return tuple(
        ReplicaEndpoint(spu=spu_id, endpoint=_endpoint(spu), live=spu_id in live)
        for spu_id in partition.spec.replicas
        if (spu := store.spu(spu_id)) is not None
        and spu.status.resolution is not SpuResolution.OFFLINE
    )


def _endpoint(spu: Spu) -> Endpoint:
    public = spu.spec.public_endpoint
    return Endpoint(host=public.host, port=public.port)
