"""The topic controller: from a topic's spec to partition objects.

``init`` → validated → ``pending`` → placed → ``provisioned``; ``invalidConfig`` if the manual
assignment is invalid, ``insufficientResources`` if SPUs are missing (an SPU that comes online wakes
such topics). Partition objects are created first, and the status follows once all exist: a
controller that starts after a crash in between finds them and continues. The first partitions of a
topic are created together with a status of the topic: a change of its spec that was allowed because
nothing was placed loses against that write. A placement, once written,
is never computed again: a partition that somebody removed from the KV is restored as the same one
in the same place, and a topic is restored from its partitions. Deletion marks the partitions, waits
until all are gone, and removes the topic. The status says which partitions commit nothing; of their
statuses, a topic depends on that alone.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from sc.controllers.actions import (
    Action,
    CreatePartitions,
    Key,
    MarkDeleting,
    RemoveObject,
    RestoreTopic,
    WakeAt,
    WritePartitionSpec,
    WriteStatus,
)
from sc.controllers.membership.resize import Wanted, of_topic, resize, settings_for_now
from sc.controllers.out_of_use import out_of_use
from sc.controllers.placing import NotPlaced, Placed, named_by, place_new
from sc.controllers.recovery import RESTORED
from sc.controllers.topic_size import chunks, map_too_large, topic_bytes
from sc.scheduler.manual import invalid_assignment
from sc.store.view import View
from schemas.ids import make_term
from schemas.objects.metadata import Metadata, OwnerReference
from schemas.objects.partition import DesiredState, Partition, PartitionSpec, PartitionStatus
from schemas.objects.spu import Spu
from schemas.objects.topic import (
    LogSettings,
    Topic,
    TopicResolution,
    TopicSpec,
    TopicStatus,
    partition_name,
)

#: Partitions that one reconcile of a topic creates. The next reconcile places more: creating very
#: many at once would delay heartbeats to SPUs.
CREATE_AT_ONCE = 1_000
#: The reason of a topic whose partitions are being created.
PLACING = "placing partitions"
_PARTITION_NAMESPACE = uuid.UUID("0b9ad7a4-6d1d-4c0e-9f1e-6d1a0b6f9a51")


def reconcile(view: View, key: Key, now_ms: int) -> tuple[Action, ...]:
    """Take one topic a step closer to what its spec asks for."""
    topic = view.store.get(Topic, key.name)
    if topic is None:
        return _restore(view.store.partitions_of("Topic", key.name))
    partitions = [
        p for p in view.store.partitions_of("Topic", topic.name) if p.spec.owner.uid == topic.uid
    ]
    if topic.deleting:
        return _delete(view, topic, partitions)
    match topic.status.resolution:
        case TopicResolution.INIT | TopicResolution.INVALID_CONFIG:
            reason = _invalid(view, topic)
            if reason is not None:
                return _set(topic, TopicResolution.INVALID_CONFIG, reason)
            return _set(topic, TopicResolution.PENDING, PLACING)
        case _:
            return _provision(view, topic, partitions, now_ms)


def _restore(partitions: list[Partition]) -> tuple[Action, ...]:
    """A topic is removed after its partitions: if it is missing earlier, it was removed by hand.

    It is restored as far as its partitions tell, which is without compression, archive and labels.
    If it was being deleted, the rest of its partitions are deleted as well.
    """
    kept = [p for p in partitions if not p.deleting]
    if not kept or any(p.spec.owner.uid != kept[0].spec.owner.uid for p in kept):
        return ()
    if len(kept) < len(partitions):
        return tuple(MarkDeleting(p) for p in kept)
    owner, log = kept[0].spec.owner, kept[0].spec.log
    rows = log.row_schema
    spec = TopicSpec(
        partitions=1 + max(p.spec.index or 0 for p in kept),
        replication_factor=len(kept[0].spec.replicas),
        min_in_sync_replicas=log.min_in_sync_replicas,
        retention=log.retention,
        segment=log.segment,
        durability=log.durability,
        max_record_size=log.max_record_size,
        columns=rows.columns if rows is not None else None,
        key_column=rows.key_column if rows is not None else None,
        timestamp_column=rows.timestamp_column if rows is not None else None,
        sealed=any(p.spec.desired is DesiredState.SEALED for p in kept) or None,
    )
    note = {RESTORED: "from its partitions; compression, archive and labels are lost"}
    metadata = Metadata(name=owner.name, uid=owner.uid, generation=1, annotations=note)
    status = TopicStatus(resolution=TopicResolution.PENDING, reason="restored from its partitions")
    return (RestoreTopic(Topic(metadata=metadata, spec=spec, status=status), kept[0]),)


def partition_uid(topic_uid: str, index: int) -> str:
    """The uid of a topic's partition: fixed by the topic's own uid and the index.

    A partition object that somebody removed by hand is restored as the same partition.
    """
    return str(uuid.uuid5(_PARTITION_NAMESPACE, f"{topic_uid}/{index}"))


def _delete(view: View, topic: Topic, partitions: list[Partition]) -> tuple[Action, ...]:
    actions: list[Action] = []
    if view.recovering:
        reason = "it is deleted when the recovery of the cluster is over"
    elif not partitions:
        return (RemoveObject(topic),)
    else:
        reason = "waiting for its partitions to be removed"
    actions.extend(_set(topic, TopicResolution.DELETING, reason))
    actions.extend(MarkDeleting(p) for p in partitions if not p.deleting)
    return tuple(actions)


def _invalid(view: View, topic: Topic) -> str | None:
    """Why a manual assignment is invalid, or None. The schema makes computed placements valid."""
    rows = topic.spec.assignment
    if rows is None:
        return None
    return invalid_assignment(rows, {s.spec.spu_id for s in view.store.objects(Spu)})


@dataclass(frozen=True, slots=True)
class _Placement:
    """Rows of the partitions that are missing, or why there are none."""

    rows: dict[int, tuple[int, ...]]
    reason: str | None = None
    wait: bool = False
    until_ms: int | None = None


def _provision(
    view: View, topic: Topic, partitions: list[Partition], now_ms: int
) -> tuple[Action, ...]:
    existing = {p.spec.index: p for p in partitions}
    missing = [i for i in range(topic.spec.partition_count) if i not in existing]
    actions: list[Action] = []
    log = topic.spec.log_settings
    wanted = of_topic(topic.spec)
    if partitions and partitions[0].spec.log == log:
        # Partitions with equal settings share one object: comparing it with itself costs nothing.
        log = partitions[0].spec.log
    specs = {
        p.name: spec for p in partitions if (spec := _other_spec(topic, p, wanted, log)) is not None
    }
    resizing = resize(view, wanted, partitions, specs, now_ms)
    for partition in partitions:
        if (move := resizing.begun.get(partition.name)) is not None:
            actions.append(move)
        elif (spec := specs.get(partition.name)) is not None and not partition.deleting:
            actions.append(WritePartitionSpec(partition, spec))
    if resizing.until_ms is not None:
        actions.append(WakeAt(Key("Topic", topic.name), resizing.until_ms))
    if not missing:
        replica_map = tuple(p.spec.replicas for p in partitions)
        if (obstacle := map_too_large(topic, replica_map)) is not None:
            actions.extend(_set(topic, TopicResolution.PENDING, obstacle))
        else:
            unusable = out_of_use(partitions, "partitions", lambda p: p.name)
            found = (_being_sealed(topic, partitions), unusable, resizing.reason)
            reason = (
                _contradiction(topic.spec, partitions) or "; ".join(filter(None, found)) or None
            )
            status = _status(topic, TopicResolution.PROVISIONED, reason, replica_map)
            if unusable is not None:
                status = status.model_copy(update={"writable": False})
            if resizing.reason is not None:
                status = status.model_copy(update={"moving": True})
            if status != topic.status:
                actions.append(WriteStatus(topic, status))
        return tuple(actions)
    # Checked again, because a topic that waits or grew may have got invalid rows.
    invalid = _invalid(view, topic)
    if invalid is not None:
        actions.extend(_set(topic, TopicResolution.INVALID_CONFIG, invalid))
        return tuple(actions)
    placement = _place_missing(view, topic, missing, now_ms)
    if placement.until_ms is not None:
        actions.append(WakeAt(Key("Topic", topic.name), placement.until_ms))
    if placement.reason is not None:
        resolution = TopicResolution.PENDING if placement.wait else (
            TopicResolution.INSUFFICIENT_RESOURCES
        )  # fmt: skip
        actions.extend(_set(topic, resolution, placement.reason, topic.status.replica_map))
        return tuple(actions)
    obstacle = map_too_large(
        topic, [*(p.spec.replicas for p in partitions), *placement.rows.values()]
    )
    if obstacle is not None:
        actions.extend(_set(topic, TopicResolution.PENDING, obstacle))
        return tuple(actions)
    owner = OwnerReference(kind="Topic", name=topic.name, uid=topic.uid)
    lost, known = RESTORED in topic.metadata.annotations, len(topic.status.replica_map)
    archived = None if topic.spec.archive is None else 0
    created = tuple(
        _new_partition(
            owner,
            log,
            archived,
            _desired(topic),
            i,
            placement.rows[i],
            view.incarnation,
            lost=lost or i < known,
        )
        for i in itertools.islice((i for i in missing if i in placement.rows), CREATE_AT_ONCE)
    )
    if partitions or topic.status.replica_map:
        actions.extend(_creations(view, topic, created))
        return tuple(actions)
    # This write changes the topic, so whatever else is decided about it comes after that.
    status = _status(topic, TopicResolution.PENDING, PLACING)
    first = next(chunks(created, topic_bytes(topic), _spus(view)))
    return (*actions, CreatePartitions(topic, first, named_by(view, first), status))


def _other_spec(
    topic: Topic, partition: Partition, wanted: Wanted, log: LogSettings
) -> PartitionSpec | None:
    """What the topic wants of a partition, apart from its replicas, if that is not what it has."""
    spec = partition.spec
    log = settings_for_now(wanted, partition, log)
    archived, desired = _archived_before(topic, spec), _desired(topic)
    if (log, archived, desired) == (spec.log, spec.archived_before, spec.desired):
        return None
    update = {"log": log, "archived_before": archived, "desired": desired}
    return spec.model_copy(update=update)


def _desired(topic: Topic) -> DesiredState:
    return DesiredState.SEALED if topic.spec.sealed else DesiredState.OPEN


def _archived_before(topic: Topic, spec: PartitionSpec) -> int | None:
    """How far a partition is archived, as its topic has an archive or has none."""
    if topic.spec.archive is not None:
        return spec.archived_before or 0
    # A restored topic has lost its archive: until somebody names it again, keep all that is not in
    # it.
    return spec.archived_before if RESTORED in topic.metadata.annotations else None


def _creations(
    view: View, topic: Topic, partitions: tuple[Partition, ...]
) -> Iterator[CreatePartitions]:
    for chunk in chunks(partitions, 0, _spus(view)):
        yield CreatePartitions(topic, chunk, named_by(view, chunk))


def _spus(view: View) -> int:
    return len(view.store.objects(Spu))


def _contradiction(spec: TopicSpec, partitions: list[Partition]) -> str | None:
    """What a spec says about placed partitions that is not so, and how to set it right.

    The API refuses such changes; an earlier version did not refuse them in time.
    """
    if not spec.sealed and any(p.status.sealed_offset is not None for p in partitions):
        return (
            "its logs are sealed, and spec.sealed does not say so, as after the KV was restored"
            " from a backup: set spec.sealed to true, or write to another topic"
        )
    if len(partitions) > spec.partition_count:
        return (
            f"spec has {spec.partition_count} partitions, but {len(partitions)} were placed: set it"
            " back"
        )
    return None


def _being_sealed(topic: Topic, partitions: list[Partition]) -> str | None:
    """That not all partitions are sealed yet: until then, `sealed` is only what somebody wants."""
    if not topic.spec.sealed or all(p.status.sealed_offset is not None for p in partitions):
        return None
    return "it is being sealed: not all of its partitions are sealed yet"


def _place_missing(view: View, topic: Topic, missing: list[int], now_ms: int) -> _Placement:
    if topic.spec.assignment is not None:
        return _Placement({row.id: row.replicas for row in topic.spec.assignment})
    known = topic.status.replica_map
    if back := {index: known[index] for index in missing if index < len(known)}:
        # Removed by hand: they are restored where their data is, before others are placed.
        return _Placement(back)
    spec = topic.spec
    found = place_new(
        view,
        len(missing),
        spec.replica_count,
        now_ms,
        ignore_racks=spec.ignore_rack_assignment,
    )
    match found:
        case Placed(rows):
            return _Placement(dict(zip(missing, rows, strict=True)))
        case NotPlaced(reason, wait, until_ms):
            return _Placement({}, reason, wait=wait, until_ms=until_ms)


def _new_partition(
    owner: OwnerReference,
    log: LogSettings,
    archived_before: int | None,
    desired: DesiredState,
    index: int,
    replicas: tuple[int, ...],
    incarnation: int,
    *,
    lost: bool,
) -> Partition:
    return Partition(
        metadata=Metadata(
            name=partition_name(owner.name, index),
            labels={"topic": owner.name},
            annotations={RESTORED: "all its replicas are asked who leads"} if lost else {},
            uid=partition_uid(owner.uid, index),
        ),
        spec=PartitionSpec(
            owner=owner,
            index=index,
            replicas=replicas,
            preferred_leader=replicas[0],
            archived_before=archived_before,
            desired=desired,
            log=log,
        ),
        # One that is made while the cluster recovers has nothing to recover.
        status=PartitionStatus(term=make_term(incarnation, 0)),
    )


def _set(
    topic: Topic,
    resolution: TopicResolution,
    reason: str | None,
    replica_map: tuple[tuple[int, ...], ...] | None = None,
) -> tuple[Action, ...]:
    """The status write that leads there, or nothing where the topic is there already."""
    status = _status(topic, resolution, reason, replica_map)
    return () if status == topic.status else (WriteStatus(topic, status),)


def _status(
    topic: Topic,
    resolution: TopicResolution,
    reason: str | None,
    replica_map: tuple[tuple[int, ...], ...] | None = None,
) -> TopicStatus:
    return TopicStatus(
        resolution=resolution,
        reason=reason,
        replica_map=topic.status.replica_map if replica_map is None else replica_map,
        observed_generation=topic.generation,
    )
