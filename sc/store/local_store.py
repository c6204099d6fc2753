"""The local store: a read-only mirror of the KV's objects, with the indexes that controllers need.

Only the metadata dispatcher changes it, and only to follow the KV: a write here is never the way to
change an object. Every change names its KV revision, and revisions never go back.

Indexes: partitions by replica (SPU id), by owner and by uid, those that move, and counted by
leader, by preferred leader and by the incarnation of their term; SPUs by their id and by group;
topics by resolution, and those that move; streams by uid and by state; tombstones by SPU id. Of a
bell, the store knows when it rang last.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from schemas.control.messages import Peer, Tombstone
from schemas.objects.metadata import Object, OwnerReference
from schemas.objects.partition import Partition
from schemas.objects.spu import Spu
from schemas.objects.stream import Stream, StreamState
from schemas.objects.topic import Topic, TopicResolution

O = TypeVar("O", bound=Object)  # noqa: E741


@cache
def _kind(cls: type[Object]) -> str:
    return cls.kind_name()


def _place(partition: Partition) -> tuple[int, str]:
    """Where a partition stands among those of its owner."""
    return partition.spec.index or 0, partition.name


@dataclass(frozen=True, slots=True)
class ObjectChanged:
    """An object appeared (``old`` is None), changed, or disappeared (``new`` is None)."""

    old: Object | None
    new: Object | None

    @property
    def object(self) -> Object:
        found = self.new or self.old
        if found is None:
            raise ValueError("a change has an old or a new object")
        return found


@dataclass(frozen=True, slots=True)
class TombstoneChanged:
    """A tombstone appeared or was removed (``present`` False)."""

    tombstone: Tombstone
    present: bool


@dataclass(frozen=True, slots=True)
class BellRang:
    """Records of an owner, by its uid, changed."""

    uid: str


Change = ObjectChanged | TombstoneChanged | BellRang


class LocalStore:
    """Objects by kind and name as of `revision`."""

    def __init__(self) -> None:
        self.revision = 0
        self._objects: dict[str, dict[str, Object]] = defaultdict(dict)
        self._spu_by_id: dict[int, str] = {}
        self._spus_by_group: dict[str, set[str]] = defaultdict(set)
        self._partitions_by_replica: dict[int, set[str]] = defaultdict(set)
        #: Index and name, sorted: a reader of all of them must not sort thousands again and again.
        self._partitions_by_owner: dict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)
        self._changes_by_owner: Counter[tuple[str, str]] = Counter()
        self._wanted_on: Counter[int] = Counter()
        self._moving: set[str] = set()
        self._preferred_by_leader: Counter[int] = Counter()
        self._led_by: Counter[int] = Counter()
        self._partition_by_uid: dict[str, str] = {}
        self._kept_by_incarnation: Counter[int] = Counter()
        self._topics_by_resolution: dict[TopicResolution, set[str]] = defaultdict(set)
        self._topics_moving: set[str] = set()
        self._streams_moving: set[str] = set()
        self._stream_by_uid: dict[str, str] = {}
        self._streams_by_state: dict[StreamState, set[str]] = defaultdict(set)
        self._bells: dict[str, int] = {}
        self._tombstones: dict[int, dict[str, Tombstone]] = defaultdict(dict)

    # -- reads of controllers and the API -------------------------------------------------

    def get(self, cls: type[O], name: str) -> O | None:
        """The object of a kind by name, or None."""
        found = self._objects[_kind(cls)].get(name)
        return found if isinstance(found, cls) else None

    def objects(self, cls: type[O]) -> list[O]:
        """All objects of a kind in the order of their names."""
        objects = self._objects[_kind(cls)]
        return [found for name in sorted(objects) if isinstance(found := objects[name], cls)]

    def spu(self, spu_id: int) -> Spu | None:
        name = self._spu_by_id.get(spu_id)
        return self.get(Spu, name) if name is not None else None

    def peers(self, spu_ids: Iterable[int]) -> tuple[Peer, ...]:
        """The addresses for other SPUs of those of these SPUs that are registered."""
        found = [spu for i in sorted(set(spu_ids)) if (spu := self.spu(i)) is not None]
        return tuple(
            Peer(
                spu_id=spu.spec.spu_id,
                host=spu.spec.private_host,
                port=spu.spec.private_endpoint.port,
            )
            for spu in found
        )

    def spus_of(self, group: str) -> list[Spu]:
        """SPUs of a group, in the order of their ids."""
        found = (self.get(Spu, name) for name in self._spus_by_group.get(group, ()))
        return sorted((spu for spu in found if spu is not None), key=lambda s: s.spec.spu_id)

    def holds_replicas(self, spu_id: int) -> bool:
        """Whether any partition has a replica on an SPU."""
        return bool(self._partitions_by_replica.get(spu_id))

    def replica_count(self, spu_id: int) -> int:
        """How many partitions have a replica on an SPU that is to stay."""
        return self._wanted_on[spu_id]

    def held_count(self, spu_id: int) -> int:
        """How many partitions have a replica on an SPU, those that leave it included."""
        return len(self._partitions_by_replica.get(spu_id, ()))

    def moving(self) -> Iterator[Partition]:
        """Partitions whose replicas move, in the order of their names."""
        return self._partitions(sorted(self._moving))

    def tombstone(self, spu_id: int, uid: str) -> Tombstone | None:
        """What keeps an SPU from a replica that it is to delete; None if nothing does."""
        return self._tombstones.get(spu_id, {}).get(uid)

    def leading_count(self, spu_id: int) -> int:
        """How many partitions have an SPU as their leader."""
        return self._led_by[spu_id]

    def preferred_count(self, spu_id: int) -> int:
        """How many partitions prefer an SPU as their leader."""
        return self._preferred_by_leader[spu_id]

    def partitions_on(self, spu_id: int) -> Iterator[Partition]:
        """Partitions with a replica on an SPU, in the order of their names."""
        return self._partitions(sorted(self._partitions_by_replica.get(spu_id, ())))

    def partitions_of(self, owner_kind: str, owner_name: str) -> list[Partition]:
        """Partitions that an owner created, in the order of their index."""
        found = self._partitions_by_owner.get((owner_kind, owner_name), ())
        return list(self._partitions(name for _index, name in found))

    def partition_count(self, owner_kind: str, owner_name: str) -> int:
        """How many partitions there are that an owner created."""
        return len(self._partitions_by_owner.get((owner_kind, owner_name), ()))

    def partition_changes(self, owner_kind: str, owner_name: str) -> int:
        """How often partitions of an owner changed since this store was made."""
        return self._changes_by_owner[(owner_kind, owner_name)]

    def elected_before(self, incarnation: int) -> int:
        """How many partitions that are not being deleted had their last election before an
        incarnation of the cluster, or none."""
        return sum(n for i, n in self._kept_by_incarnation.items() if i < incarnation)

    def partition_by_uid(self, uid: str) -> Partition | None:
        name = self._partition_by_uid.get(uid)
        return self.get(Partition, name) if name is not None else None

    def topics_in(self, *resolutions: TopicResolution) -> list[str]:
        """Names of the topics that have one of these resolutions, sorted."""
        return sorted(n for r in resolutions for n in self._topics_by_resolution.get(r, ()))

    def topics_moving(self) -> list[str]:
        """Names of the topics whose replicas are being moved, sorted."""
        return sorted(self._topics_moving)

    def is_moving(self, owner: OwnerReference) -> bool:
        """Whether the replicas of a topic or a stream are being moved."""
        names = self._streams_moving if owner.kind == "Stream" else self._topics_moving
        return owner.name in names

    def streams_moving(self) -> list[str]:
        """Names of the streams whose replicas are being moved, sorted."""
        return sorted(self._streams_moving)

    def stream_by_uid(self, uid: str) -> str | None:
        """The name of a stream."""
        return self._stream_by_uid.get(uid)

    def streams_in(self, *states: StreamState) -> list[str]:
        """Names of the streams that are in one of these states, sorted."""
        return sorted(n for state in states for n in self._streams_by_state.get(state, ()))

    def streams_of(self, scope: str) -> list[str]:
        """Names of the streams of a scope, sorted."""
        return sorted(n for n in self._objects[_kind(Stream)] if n.startswith(f"{scope}/"))

    def bell(self, uid: str) -> int:
        """The revision at which the records of an owner changed last; 0 if they never did."""
        return self._bells.get(uid, 0)

    def tombstones_of(self, spu_id: int) -> list[Tombstone]:
        return [t for _uid, t in sorted(self._tombstones.get(spu_id, {}).items())]

    def _partitions(self, names: Iterable[str]) -> Iterator[Partition]:
        for name in names:
            found = self.get(Partition, name)
            if found is not None:
                yield found

    # -- writes of the metadata dispatcher ------------------------------------------------

    def put(self, new: Object) -> ObjectChanged | None:
        """Mirror an object. None if this revision of it, or a newer one, is already here."""
        objects = self._objects[new.kind]
        old = objects.get(new.name)
        if old is not None and old.revision >= new.revision:
            return None
        if old is not None:
            self._unindex(old)
        objects[new.name] = new
        self._index(new)
        return ObjectChanged(old, new)

    def remove(self, kind: str, name: str) -> ObjectChanged | None:
        """Forget an object. None if it is not here."""
        old = self._objects[kind].pop(name, None)
        if old is None:
            return None
        self._unindex(old)
        return ObjectChanged(old, None)

    def put_tombstone(self, tombstone: Tombstone) -> TombstoneChanged | None:
        mine = self._tombstones[tombstone.spu_id]
        if mine.get(tombstone.uid) == tombstone:
            return None
        mine[tombstone.uid] = tombstone
        return TombstoneChanged(tombstone, present=True)

    def remove_tombstone(self, spu_id: int, uid: str) -> TombstoneChanged | None:
        found = self._tombstones[spu_id].pop(uid, None)
        return None if found is None else TombstoneChanged(found, present=False)

    def ring(self, uid: str, revision: int) -> BellRang | None:
        """Note that an owner's records changed. None if that is known."""
        if self._bells.get(uid, 0) >= revision:
            return None
        self._bells[uid] = revision
        return BellRang(uid)

    def remove_bell(self, uid: str) -> BellRang | None:
        return None if self._bells.pop(uid, None) is None else BellRang(uid)

    def bells(self) -> dict[str, int]:
        """Revisions of all bells, by uid."""
        return dict(self._bells)

    def object_keys(self) -> set[tuple[str, str]]:
        """(kind, name) of everything mirrored."""
        return {(kind, name) for kind, objects in self._objects.items() for name in objects}

    def names(self) -> dict[str, list[str]]:
        """Names of everything mirrored, by kind."""
        return {kind: list(objects) for kind, objects in self._objects.items()}

    def tombstone_keys(self) -> set[tuple[int, str]]:
        return {(spu, uid) for spu, mine in self._tombstones.items() for uid in mine}

    def _index(self, new: Object) -> None:
        match new:
            case Spu():
                self._spu_by_id[new.spec.spu_id] = new.name
                if new.spec.group is not None:
                    self._spus_by_group[new.spec.group].add(new.name)
            case Topic():
                self._topics_by_resolution[new.status.resolution].add(new.name)
                if new.status.moving:
                    self._topics_moving.add(new.name)
            case Stream():
                self._stream_by_uid[new.uid] = new.name
                self._streams_by_state[new.status.state].add(new.name)
                if new.status.moves is not None:
                    self._streams_moving.add(new.name)
            case Partition():
                for spu_id in new.spec.holders:
                    self._partitions_by_replica[spu_id].add(new.name)
                self._wanted_on.update(new.spec.replicas)
                if new.spec.moves:
                    self._moving.add(new.name)
                owner = (new.spec.owner.kind, new.spec.owner.name)
                insort(self._partitions_by_owner[owner], _place(new))
                self._changes_by_owner[owner] += 1
                self._preferred_by_leader[new.spec.preferred_leader] += 1
                if new.status.leader is not None:
                    self._led_by[new.status.leader] += 1
                self._partition_by_uid[new.uid] = new.name
                self._kept_by_incarnation[new.status.incarnation] += not new.deleting
            case _:
                pass

    def _unindex(self, old: Object) -> None:
        match old:
            case Spu():
                if self._spu_by_id.get(old.spec.spu_id) == old.name:
                    del self._spu_by_id[old.spec.spu_id]
                if old.spec.group is not None:
                    self._spus_by_group[old.spec.group].discard(old.name)
            case Topic():
                self._topics_by_resolution[old.status.resolution].discard(old.name)
                self._topics_moving.discard(old.name)
            case Stream():
                self._stream_by_uid.pop(old.uid, None)
                self._streams_by_state[old.status.state].discard(old.name)
                self._streams_moving.discard(old.name)
            case Partition():
                for spu_id in old.spec.holders:
                    self._partitions_by_replica[spu_id].discard(old.name)
                self._wanted_on.subtract(old.spec.replicas)
                self._moving.discard(old.name)
                owner = (old.spec.owner.kind, old.spec.owner.name)
                siblings = self._partitions_by_owner[owner]
                del siblings[bisect_left(siblings, _place(old))]
                if not siblings:
                    del self._partitions_by_owner[owner]
                self._changes_by_owner[owner] += 1
                self._preferred_by_leader[old.spec.preferred_leader] -= 1
                if old.status.leader is not None:
                    self._led_by[old.status.leader] -= 1
                self._kept_by_incarnation[old.status.incarnation] -= not old.deleting
                if self._partition_by_uid.get(old.uid) == old.name:
                    del self._partition_by_uid[old.uid]
            case _:
                pass
