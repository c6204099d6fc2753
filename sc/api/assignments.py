"""The assignment feed, computed from the local store.

An answer is of one revision however long it takes: all objects are taken from the store at once,
and objects are immutable. The rest is done in slices, because there may be very many partitions,
and SPUs disconnect from an SC that is silent for long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from sc.controller import Controller
from sc.store.local_store import LocalStore
from schemas.control.assignments import (
    Assignments,
    Endpoint,
    PartitionLeader,
    ReplicaEndpoint,
    TopicAssignment,
)
from schemas.ids import PartitionUid
from schemas.objects.partition import Partition, is_led
from schemas.objects.spu import Spu, SpuResolution
from schemas.objects.topic import Topic

#: After this many partitions, other tasks get a turn.
SLICE: Final = 250


async def assignments(controller: Controller, topics: frozenset[str]) -> Assignments:
    """The assignments of some topics, or of all when the set is empty."""
    store = controller.view.store
    revision = store.revision
    if topics:
        found = [t for name in sorted(topics) if (t := store.get(Topic, name)) is not None]
    else:
        found = store.objects(Topic)
    taken = [(topic, _partitions(store, topic)) for topic in found if not topic.deleting]
    spus = {spu.spec.spu_id: spu for spu in store.objects(Spu)}
    return Assignments(
        cluster=controller.keys.cluster,
        cluster_uid=controller.leadership.cluster_uid,
        revision=revision,
        topics=tuple([await _topic(topic, partitions, spus) for topic, partitions in taken]),
    )


def _partitions(store: LocalStore, topic: Topic) -> list[Partition]:
    found = store.partitions_of("Topic", topic.name)
    return [partition for partition in found if partition.spec.owner.uid == topic.uid]


async def _topic(
    topic: Topic, partitions: list[Partition], spus: Mapping[int, Spu]
) -> TopicAssignment:
    leaders = []
    for number, partition in enumerate(partitions, 1):
        leaders.append(_partition(spus, partition))
        if number % SLICE == 0:
            await asyncio.sleep(0)
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
        partitions=tuple(leaders),
    )


def _partition(spus: Mapping[int, Spu], partition: Partition) -> PartitionLeader:
    status = partition.status
    spu = spus.get(status.leader) if status.leader is not None else None
    leading = is_led(status) and spu is not None
    endpoint = _endpoint(spu) if leading and spu is not None else None
    return PartitionLeader(
        index=partition.spec.index or 0,
        uid=PartitionUid(partition.uid),
        resolution=status.resolution,
        leader=status.leader if leading else None,
        endpoint=endpoint,
        term=status.term,
        reason=status.reason,
        replicas=_replicas(spus, partition),
    )


def _replicas(spus: Mapping[int, Spu], partition: Partition) -> tuple[ReplicaEndpoint, ...]:
    """Where clients read from followers; empty if the partition has none."""
    if len(partition.spec.replicas) < 2:
        return ()
    live = {member.spu_id for member in partition.status.lrs}
    return tuple(
        ReplicaEndpoint(spu=spu_id, endpoint=_endpoint(spu), live=spu_id in live)
        for spu_id in partition.spec.replicas
        if (spu := spus.get(spu_id)) is not None
        and spu.status.resolution is not SpuResolution.OFFLINE
    )


def _endpoint(spu: Spu) -> Endpoint:
    public = spu.spec.public_endpoint
    return Endpoint(host=public.host, port=public.port)
