"""The topic controller: from a wish for partitions to partition objects.

``init`` → validated → ``pending`` → placed → ``provisioned``; ``invalidConfig`` where the manual
assignment cannot be, ``insufficientResources`` where SPUs are missing (an SPU that comes online
wakes such topics). Partition objects are created first and the status follows once all exist: a
controller that dies in between finds them and goes on, and a placement once written is never
computed again. Deletion marks the partitions, waits until all are gone, and removes the topic.
"""

from __future__ import annotations

import uuid
from collections import Counter
from dataclasses import dataclass

from sc.controllers.actions import (
    Action,
    CreatePartitions,
    Key,
    MarkDeleting,
    RemoveObject,
    WakeAt,
    WritePartitionSpec,
    WriteStatus,
)
from sc.scheduler.placement import Candidate, place
from sc.store.view import Liveness, View
from schemas.metadata import Metadata, OwnerReference
from schemas.partition import Partition, PartitionSpec
from schemas.spu import Spu, SpuResolution
from schemas.topic import Topic, TopicResolution, TopicStatus, partition_name

#: So many partitions are created by one action: a transaction of a KV store is bounded.
CREATE_CHUNK = 100
_PARTITION_NAMESPACE = uuid.UUID("0b9ad7a4-6d1d-4c0e-9f1e-6d1a0b6f9a51")


def reconcile(view: View, key: Key, now_ms: int) -> tuple[Action, ...]:
    """Take one topic a step closer to what its spec asks for."""
    topic = view.store.get(Topic, key.name)
    if topic is None:
        return ()
    partitions = [
        p for p in view.store.partitions_of("Topic", topic.name) if p.spec.owner.uid == topic.uid
    ]
    if topic.deleting:
        return _delete(topic, partitions)
    match topic.status.resolution:
        case TopicResolution.INIT | TopicResolution.INVALID_CONFIG:
            reason = _invalid(view, topic)
            if reason is not None:
                return _set(topic, TopicResolution.INVALID_CONFIG, reason)
            return _set(topic, TopicResolution.PENDING, "placing partitions")
        case _:
            return _provision(view, topic, partitions, now_ms)


def partition_uid(topic_uid: str, index: int) -> str:
    """The uid of a topic's partition: fixed by the topic's own uid and the index.

    A partition object that somebody removed by hand comes back as the same partition.
    """
    return str(uuid.uuid5(_PARTITION_NAMESPACE, f"{topic_uid}/{index}"))


def _delete(topic: Topic, partitions: list[Partition]) -> tuple[Action, ...]:
    actions: list[Action] = []
    if not partitions:
        return (RemoveObject(topic),)
    reason = "waiting for its partitions to be removed"
    actions.extend(_set(topic, TopicResolution.DELETING, reason))
    actions.extend(MarkDeleting(p) for p in partitions if not p.deleting)
    return tuple(actions)


def _invalid(view: View, topic: Topic) -> str | None:
    """Why a manual assignment cannot be, or None. Computed ones are valid by their schema."""
    rows = topic.spec.assignment
    if rows is None:
        return None
    ids = [row.id for row in rows]
    if sorted(ids) != list(range(len(rows))):
        return f"assignment: ids must run from 0 to {len(rows) - 1} without gaps, they are {ids}"
    size = len(rows[0].replicas)
    for row in rows:
        if len(row.replicas) != size:
            return f"assignment row {row.id}: {len(row.replicas)} replicas, row {ids[0]} has {size}"
        if len(set(row.replicas)) != len(row.replicas):
            return f"assignment row {row.id}: an SPU stands there twice: {list(row.replicas)}"
        for spu_id in row.replicas:
            if view.store.spu(spu_id) is None:
                return f"assignment row {row.id}: SPU {spu_id} is not registered"
    return None


@dataclass(frozen=True, slots=True)
class _Placement:
    """Rows of the partitions that are missing, or why there are none."""

    rows: dict[int, tuple[int, ...]]
    reason: str | None = None
    wait: bool = False


def _provision(
    view: View, topic: Topic, partitions: list[Partition], now_ms: int
) -> tuple[Action, ...]:
    existing = {p.spec.index: p for p in partitions}
    missing = [i for i in range(topic.spec.partition_count) if i not in existing]
    actions: list[Action] = []
    for partition in partitions:
        spec = partition.spec.model_copy(update={"log": topic.spec.log_settings})
        if spec != partition.spec and not partition.deleting:
            actions.append(WritePartitionSpec(partition, spec))
    if not missing:
        replica_map = tuple(p.spec.replicas for p in partitions)
        actions.extend(_set(topic, TopicResolution.PROVISIONED, None, replica_map))
        return tuple(actions)
    # Checked here again: a waiting or grown topic may have got rows that cannot be.
    invalid = _invalid(view, topic)
    if invalid is not None:
        actions.extend(_set(topic, TopicResolution.INVALID_CONFIG, invalid))
        return tuple(actions)
    placement = _place_missing(view, topic, missing, now_ms)
    if placement.wait:
        actions.append(WakeAt(Key("Topic", topic.name), view.grace_until_ms))
    if placement.reason is not None:
        resolution = TopicResolution.PENDING if placement.wait else (
            TopicResolution.INSUFFICIENT_RESOURCES
        )  # fmt: skip
        actions.extend(_set(topic, resolution, placement.reason, topic.status.replica_map))
        return tuple(actions)
    created = tuple(_new_partition(topic, i, placement.rows[i]) for i in missing)
    starts = range(0, len(created), CREATE_CHUNK)
    actions.extend(CreatePartitions(created[i : i + CREATE_CHUNK]) for i in starts)
    return tuple(actions)


def _place_missing(view: View, topic: Topic, missing: list[int], now_ms: int) -> _Placement:
    if topic.spec.assignment is not None:
        return _Placement({row.id: row.replicas for row in topic.spec.assignment})
    spus = view.store.objects(Spu)
    alive = {s.spec.spu_id: view.liveness(s.spec.spu_id, now_ms) for s in spus}
    returning = [
        s.name
        for s in spus
        if alive[s.spec.spu_id] is Liveness.UNKNOWN
        and s.status.resolution is not SpuResolution.INIT
    ]
    if returning:
        # A placement stays: whoever connects first after a restart must not get everything.
        reason = f"waiting for {', '.join(returning)} to connect again"
        return _Placement({}, reason, wait=True)
    leaders: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    for partition in view.store.objects(Partition):
        leaders[partition.spec.preferred_leader] += 1
        replicas.update(partition.spec.replicas)
    candidates = [
        Candidate(i, s.spec.rack, leaders[i], replicas[i])
        for s in spus
        if alive[i := s.spec.spu_id] is Liveness.ONLINE
    ]
    factor = topic.spec.replica_count
    rows = place(candidates, len(missing), factor, ignore_racks=topic.spec.ignore_rack_assignment)
    if rows is not None:
        return _Placement(dict(zip(missing, rows, strict=True)))
    need = f"replicationFactor {factor} needs {factor} online SPUs"
    have = f"{len(candidates)} of {len(spus)} registered are online"
    return _Placement({}, f"{need}; {have}")


def _new_partition(topic: Topic, index: int, replicas: tuple[int, ...]) -> Partition:
    return Partition(
        metadata=Metadata(
            name=partition_name(topic.name, index),
            labels={"topic": topic.name},
            uid=partition_uid(topic.uid, index),
        ),
        spec=PartitionSpec(
            owner=OwnerReference(kind="Topic", name=topic.name, uid=topic.uid),
            index=index,
            replicas=replicas,
            preferred_leader=replicas[0],
            log=topic.spec.log_settings,
        ),
    )


def _set(
    topic: Topic,
    resolution: TopicResolution,
    reason: str | None,
    replica_map: tuple[tuple[int, ...], ...] | None = None,
) -> tuple[Action, ...]:
    """The status write that leads there, or nothing where the topic is there already."""
    status = TopicStatus(
        resolution=resolution,
        reason=reason,
        replica_map=topic.status.replica_map if replica_map is None else replica_map,
        observed_generation=topic.generation,
    )
    return () if status == topic.status else (WriteStatus(topic, status),)
