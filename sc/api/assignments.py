"""The assignment feed, computed from the local store.

An answer is of one revision however long it takes: all objects are taken from the store at once,
and objects are immutable. The rest is done in slices, because there may be very many partitions,
and SPUs disconnect from an SC that is silent for long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from sc.mirror import Mirror
from sc.store.local_store import LocalStore
from schemas.control.assignments import (
    Assignments,
    Endpoint,
    PartitionLeader,
    ReplicaEndpoint,
    TopicAssignment,
)
from schemas.ids import PartitionUid
from schemas.objects.partition import Partition, is_led, is_taking_over
from schemas.objects.spu import Spu, SpuResolution
from schemas.objects.stream import Stream, StreamState
from schemas.objects.topic import Topic, TopicResolution

#: After this many partitions, other tasks get a turn.
SLICE: Final = 250
#: How far the placement of a stream has come, as clients of topics know it.
_RESOLUTIONS: Final = {
    StreamState.CREATING: TopicResolution.PENDING,
    StreamState.DELETING: TopicResolution.DELETING,
}


async def assignments(mirror: Mirror, topics: frozenset[str]) -> Assignments:
    """The assignments of some topics, or of all when the set is empty; a name SCOPE/NAME stands for
    a stream, whose partitions are its segments by their numbers."""
    store = mirror.store
    revision = store.revision
    found: list[Topic | Stream] = list(() if topics else store.objects(Topic))
    for name in sorted(topics):
        one = store.get(Stream, name) if "/" in name else store.get(Topic, name)
        if one is not None:
            found.append(one)
    taken = [(one, _partitions(store, one)) for one in found if not one.deleting]
    spus = _Spus(store.objects(Spu))
    return Assignments(
        cluster=mirror.keys.cluster,
        cluster_uid=mirror.cluster_uid,
        revision=revision,
        topics=tuple([await _assignment(one, partitions, spus) for one, partitions in taken]),
    )


class _Spus:
    """What is told of SPUs, made once for all partitions of an answer."""

    def __init__(self, spus: Iterable[Spu]) -> None:
        self.endpoints: dict[int, Endpoint] = {}
        #: By SPU, and whether its replica is live. SPUs that are offline are not read from.
        self.replicas: dict[tuple[int, bool], ReplicaEndpoint] = {}
        for spu in spus:
            spu_id, public = spu.spec.spu_id, spu.spec.public_endpoint
            self.endpoints[spu_id] = Endpoint(host=public.host, port=public.port)
            if spu.status.resolution is SpuResolution.OFFLINE:
                continue
            for live in (False, True):
                self.replicas[spu_id, live] = ReplicaEndpoint(
                    spu=spu_id, endpoint=self.endpoints[spu_id], live=live
                )


def lacks(mirror: Mirror, topics: Iterable[str]) -> bool:
    """Whether one of these topics is not there, or being deleted: it may have been made since."""
    for name in topics:
        one = mirror.store.get(Stream, name) if "/" in name else mirror.store.get(Topic, name)
        if one is None or one.deleting:
            return True
    return False


def _partitions(store: LocalStore, owner: Topic | Stream) -> list[Partition]:
    found = store.partitions_of(owner.kind, owner.name)
    return [partition for partition in found if partition.spec.owner.uid == owner.uid]


async def _assignment(
    owner: Topic | Stream, partitions: list[Partition], spus: _Spus
) -> TopicAssignment:
    leaders = []
    for number, partition in enumerate(partitions, 1):
        leaders.append(_partition(spus, partition))
        if number % SLICE == 0:
            await asyncio.sleep(0)
    spec = owner.spec
    if isinstance(owner, Stream):
        resolution = _RESOLUTIONS.get(owner.status.state, TopicResolution.PROVISIONED)
        count = 1 + max((leader.index for leader in leaders), default=-1)
        replicas = owner.spec.replication_factor
    else:
        resolution = owner.status.resolution
        count, replicas = owner.spec.partition_count, owner.spec.replica_count
    return TopicAssignment(
        name=owner.name,
        uid=owner.uid,
        resolution=resolution,
        reason=owner.status.reason,
        partition_count=count,
        replication_factor=replicas,
        compression=spec.compression,
        durability=spec.durability,
        max_record_size=spec.max_record_size,
        partitions=tuple(leaders),
    )


def _partition(spus: _Spus, partition: Partition) -> PartitionLeader:
    status = partition.status
    endpoint = spus.endpoints.get(status.leader) if status.leader is not None else None
    # One that takes over has the requests of its clients wait.
    if not (is_led(status) or is_taking_over(status)):
        endpoint = None
    return PartitionLeader(
        index=partition.spec.index or 0,
        uid=PartitionUid(partition.uid),
        resolution=status.resolution,
        leader=None if endpoint is None else status.leader,
        endpoint=endpoint,
        term=status.term,
        reason=status.reason,
        replicas=_replicas(spus, partition),
    )


def _replicas(spus: _Spus, partition: Partition) -> tuple[ReplicaEndpoint, ...]:
    """Where clients read from followers; empty if the partition has none."""
    if len(partition.spec.replicas) < 2:
        return ()
    live = {member.spu_id for member in partition.status.lrs}
    found = (spus.replicas.get((i, i in live)) for i in partition.spec.replicas)
    return tuple(replica for replica in found if replica is not None)
