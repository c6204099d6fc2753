"""What users may write: checks that a schema cannot express. Pure.

An object that passes can be reconciled. Trouble that depends on the cluster's state, such as
missing SPUs, is not refused here; a warning (`sc.api.admission_warnings`) and the object's status
show it.
"""

from __future__ import annotations

import zoneinfo
from collections.abc import Mapping

from sc.controllers.topic_size import too_large
from sc.scheduler.manual import wrong_row
from sc.store.local_store import LocalStore
from sc.store.view import Provisioning
from schemas.columns.column_types import zones_of
from schemas.columns.topic_schema import incompatibility
from schemas.errors import ConflictError, InvalidRequestError, UnsupportedError
from schemas.objects.metadata import Object
from schemas.objects.pipeline import Pipeline
from schemas.objects.quantities import DEFAULT_SCOPE, MAX_NAME_LENGTH, short
from schemas.objects.spu import Encryption, Spu, SpuType
from schemas.objects.spu_group import SpuGroup
from schemas.objects.stream import ScalingType, Scope, Stream
from schemas.objects.system_topics import is_system_name
from schemas.objects.topic import (
    MAX_REPLICATION_FACTOR,
    Topic,
    TopicResolution,
    TopicSpec,
    partition_name,
)

MAX_NAMED = 100
"""Most partitions that an error lists."""


def admit_kind(cls: type[Object]) -> None:
    """Raises when users may not write objects of a kind at all."""
    if cls.SYSTEM_WRITTEN:
        raise InvalidRequestError(
            f"{cls.PLURAL} are written by the system; change the object that owns them"
        )


def admit_new(obj: Object, store: LocalStore) -> None:
    """Raises InvalidRequestError or UnsupportedError when an object may not be created."""
    _admit_alone(obj)
    if isinstance(obj, Topic):
        _admit_rows(obj.spec)
        _admit_size(obj, store)


def _admit_alone(obj: Object) -> None:
    """What is wrong with an object whatever was there before, and whatever else there is."""
    admit_kind(type(obj))
    if is_system_name(obj.name):
        raise InvalidRequestError(
            f"metadata.name: {obj.name!r}: names that begin with _ belong to the system"
        )
    match obj:
        case Spu():
            _admit_spu(obj)
        case SpuGroup():
            longest = f"{obj.name}-{max(obj.spec.last_id, obj.spec.min_id)}"
            if len(longest) > MAX_NAME_LENGTH:
                raise InvalidRequestError(
                    f"metadata.name: too long by {len(longest) - MAX_NAME_LENGTH} characters: its"
                    f" SPUs are named {longest[:20]}…{longest[-8:]}"
                )
        case Topic():
            last = partition_name(obj.name, obj.spec.partition_count - 1)
            if len(last) > MAX_NAME_LENGTH:
                raise InvalidRequestError(
                    f"metadata.name: too long by {len(last) - MAX_NAME_LENGTH} characters: its"
                    f" partitions are named {last[:20]}…{last[-8:]}"
                )
            _admit_zones(obj.spec)
        case Stream():
            _admit_stream(obj)
        case Pipeline():
            if obj.spec.sink.topic is not None and is_system_name(obj.spec.sink.topic):
                raise InvalidRequestError(
                    f"spec.sink.topic: {obj.spec.sink.topic!r} is a system topic: only Runnel"
                    " writes to it"
                )
        case _:
            pass


def _admit_stream(stream: Stream) -> None:
    scaling = stream.spec.scaling
    if scaling.type is ScalingType.FIXED and scaling.target_rate is not None:
        raise InvalidRequestError(
            "spec.scaling.targetRate: streams of the type fixed follow no rate; leave it out"
        )


def admit_change(old: Object, new: Object, store: LocalStore) -> None:
    """Raises InvalidRequestError when an object may not become ``new``."""
    if isinstance(old, Spu) and isinstance(new, Spu) and old.spec.spu_type is SpuType.MANAGED:
        if new.spec != old.spec.draining_as(new.spec):
            raise InvalidRequestError(
                f"spec: SPU {old.name} belongs to SpuGroup {old.spec.group}; change the group's"
                " template (only drain and drainTo are the SPU's own)"
            )
        return
    if not _has_only_another_factor(old, new):
        _admit_alone(new)
    match old, new:
        case Spu(), Spu():
            if old.spec.spu_id != new.spec.spu_id:
                raise InvalidRequestError(
                    f"spec.spuId: cannot change from {old.spec.spu_id} to {new.spec.spu_id};"
                    " delete the SPU and register another"
                )
        case SpuGroup(), SpuGroup():
            if old.spec.min_id != new.spec.min_id and store.spus_of(old.name):
                raise InvalidRequestError(
                    f"spec.minId: cannot change from {old.spec.min_id} to {new.spec.min_id} while"
                    " the group has SPUs: their ports follow from it; create another group"
                )
        case Topic(), Topic():
            # Even before it is placed: a reader may have seen the first schema already.
            if reason := incompatibility(old.spec.row_schema, new.spec.row_schema):
                raise InvalidRequestError(reason)
            _admit_sealed(old, new, store)
            placed = _placed_rows(old, store)
            if placed:
                _admit_placed_topic(_placed_spec(old, placed), new.spec, placed)
            _admit_rows(new.spec, known=old.spec)
            if too_large(old, 0) is None:
                _admit_size(new, store)
        case _:
            pass


def _has_only_another_factor(old: Object, new: Object) -> bool:
    """Whether a topic of the system is to have more or fewer replicas: an operator may want that,
    as when there are fewer SPUs."""
    if not isinstance(old, Topic) or not isinstance(new, Topic) or not is_system_name(old.name):
        return False
    factor = {"replication_factor": new.spec.replication_factor}
    same = new.spec == old.spec.model_copy(update=factor) and new.spec != old.spec
    return same and new.metadata.labels == old.metadata.labels


def _admit_sealed(old: Topic, new: Topic, store: LocalStore) -> None:
    logs = store.partitions_of("Topic", old.name)
    if not old.spec.sealed and all(p.status.sealed_offset is None for p in logs):
        return
    if old.spec.sealed and not new.spec.sealed:
        raise InvalidRequestError(
            f"spec.sealed: topic {old.name} is sealed, which is for good; leave it true, and write"
            " to another topic"
        )
    if new.spec.partition_count > old.spec.partition_count:
        raise InvalidRequestError(
            f"spec.partitions: topic {old.name} is sealed, so that another partition would stay"
            " empty"
        )


def admit_log_dir(obj: Object, old: Object | None, provisioning: Provisioning | None) -> None:
    """Raises InvalidRequestError when the SPUs of a group would keep replicas in a directory of the
    SC's host that is not theirs. One that is stored already may stay: it is not used."""
    if not isinstance(obj, SpuGroup) or provisioning is None:
        return
    log_dir = obj.spec.template.storage.log_dir
    if isinstance(old, SpuGroup) and old.spec.template.storage.log_dir == log_dir:
        return
    if log_dir is not None and not provisioning.allows(log_dir):
        raise InvalidRequestError(
            f"spec.template.storage.logDir: {short(log_dir)} is not below"
            f" {', '.join(provisioning.directories)}; choose a directory there, or have"
            " provisioning.allowedDirs of the SC's configuration name another one"
        )


def admit_delete(obj: Object, store: LocalStore, *, force: bool = False) -> None:
    """Raises when an object may not be deleted now; ``force`` gives up the replicas of an SPU, or
    the contents of a topic of the system."""
    admit_kind(type(obj))
    if isinstance(obj, Topic) and force and not is_system_name(obj.name):
        raise InvalidRequestError(
            f"force: for topics of the system only; delete {obj.name} without it"
        )
    if is_system_name(obj.name) and not force:
        raise InvalidRequestError(
            f"{obj.kind} {obj.name} belongs to the system; repeat with force=true to lose what it"
            " holds: the positions of named consumers"
        )
    if isinstance(obj, Scope):
        if obj.name == DEFAULT_SCOPE:
            raise ConflictError(f"scope {DEFAULT_SCOPE} always exists")
        if names := store.streams_of(obj.name):
            more = f" and {len(names) - 5} more" if len(names) > 5 else ""
            raise ConflictError(
                f"scope {obj.name} has streams: {', '.join(names[:5])}{more}; delete them first",
                count=len(names),
            )
    if isinstance(obj, Spu) and obj.spec.group is not None:
        raise ConflictError(
            f"SPU {obj.name} belongs to SpuGroup {obj.spec.group}; lower the group's replicas:"
            " the SPU with the highest id is removed first"
        )
    if isinstance(obj, SpuGroup):
        for spu in store.spus_of(obj.name):
            _admit_without_replicas(
                spu, store, f"move them to other SPUs first: runnel spu drain {spu.name}"
            )
    if isinstance(obj, Spu) and not force:
        _admit_without_replicas(
            obj,
            store,
            f"move them to other SPUs first: runnel spu drain {obj.name}; or repeat with"
            " force=true: their partitions stay, without this replica, and name the missing SPU",
        )


def _admit_without_replicas(spu: Spu, store: LocalStore, advice: str) -> None:
    held = [p.name for p in store.partitions_on(spu.spec.spu_id)]
    if held:
        more = f" and {len(held) - 5} more" if len(held) > 5 else ""
        raise ConflictError(
            f"SPU {spu.name} holds replicas of {', '.join(held[:5])}{more}; {advice}",
            partitions=held[:MAX_NAMED],
            count=len(held),
        )


def _admit_spu(spu: Spu) -> None:
    if spu.spec.spu_type is SpuType.MANAGED:
        raise InvalidRequestError(
            "spec.spuType: managed SPUs are created by an SpuGroup: apply one, or register this SPU"
            " as custom and start it yourself"
        )
    if spu.spec.group is not None:
        raise InvalidRequestError("spec.group: set by the system; leave it out")
    for name, encryption in (
        ("publicEndpoint", spu.spec.public_endpoint.encryption),
        ("privateEndpoint", spu.spec.private_endpoint.encryption),
    ):
        if encryption is Encryption.TLS:
            raise UnsupportedError(
                f"spec.{name}.encryption: TLS is not available in this version, and plaintext"
                " never replaces it silently; on a trusted network, write encryption: plaintext"
            )


def _admit_rows(spec: TopicSpec, *, known: TopicSpec | None = None) -> None:
    """Rows can be placed once their SPUs are there. Rows that ``known`` has as well may stay: an
    earlier version stored them, and the topic's labels can be changed all the same."""
    rows = spec.assignment
    if rows is None or (known is not None and known.assignment == rows):
        return
    there = set(known.assignment or ()) if known is not None else set()
    for index, row in enumerate(rows):
        if len(row.replicas) > MAX_REPLICATION_FACTOR and row not in there:
            raise InvalidRequestError(
                f"spec.assignment[{index}].replicas: row {row.id} has {len(row.replicas)} replicas;"
                f" at most {MAX_REPLICATION_FACTOR} are allowed"
            )
    if (wrong := wrong_row(rows)) is not None:
        raise InvalidRequestError(f"spec.assignment{wrong.path}: {wrong.why}")


def _admit_zones(spec: TopicSpec) -> None:
    """Not checked in the schema, so that a stored topic parses on any machine."""
    for i, column in enumerate(spec.columns or ()):
        for zone in zones_of(column.parsed):
            # An offset such as +02:00 is not a name to look up.
            if zone[0] in "+-" or _zone_exists(zone):
                continue
            raise InvalidRequestError(
                f"spec.schema[{i}].type: there is no time zone {zone}; write for example UTC or"
                " Europe/Berlin"
            )


def _zone_exists(zone: str) -> bool:
    try:
        zoneinfo.ZoneInfo(zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        # UTC is known even without a time zone database.
        return zone == "UTC"
    return True


def _admit_size(topic: Topic, store: LocalStore) -> None:
    widest = max((spu.spec.spu_id for spu in store.objects(Spu)), default=0)
    if (reason := too_large(topic, widest)) is not None:
        raise InvalidRequestError(reason)


def _placed_rows(topic: Topic, store: LocalStore) -> dict[int, tuple[int, ...]]:
    """Where the partitions of a topic were placed, by index.

    One that somebody removed from the KV will be restored where it was.
    """
    rows = dict(enumerate(topic.status.replica_map))
    for partition in store.partitions_of("Topic", topic.name):
        if partition.spec.owner.uid == topic.uid and partition.spec.index is not None:
            rows[partition.spec.index] = partition.spec.replicas
    return rows


def _placed_spec(topic: Topic, placed: Mapping[int, tuple[int, ...]]) -> TopicSpec:
    """The part of a placed topic's spec that must stay: without the rows that made it invalid.

    Those rows are not placed before the status changes, and with it the revision that a write
    compares.
    """
    rows = topic.spec.assignment
    if rows is None or topic.status.resolution is not TopicResolution.INVALID_CONFIG:
        return topic.spec
    kept = tuple(row for row in rows if placed.get(row.id) == row.replicas)
    return topic.spec.model_copy(update={"assignment": kept})


def _admit_placed_topic(
    old: TopicSpec, new: TopicSpec, placed: Mapping[int, tuple[int, ...]]
) -> None:
    """A spec that contradicts what was placed may stay as it is, or be set right."""
    least = max(old.partition_count, len(placed))
    if new.partition_count < least and new.partition_count != old.partition_count:
        raise InvalidRequestError(
            f"spec.partitions: cannot shrink from {least} to {new.partition_count}:"
            " records would be lost; create another topic"
        )
    if (old.assignment is None) != (new.assignment is None):
        raise InvalidRequestError("spec.assignment: cannot switch between computed and manual")
