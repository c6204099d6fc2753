"""The KV store: objects with revisions, compare-and-swap, and the office of the SC that may write.

Every write is remembered, so that a backup of any revision can be restored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sc.leadership import Identity
from schemas.control.messages import Tombstone
from schemas.objects.metadata import Object
from schemas.objects.partition import Partition


class Written(NamedTuple):
    """What a revision made of an object; ``new`` is None for a removal. ``graves`` are tombstones
    that came with it, ``dug`` those that went."""

    revision: int
    kind: str
    name: str
    new: Object | None
    graves: tuple[Tombstone, ...] = ()
    dug: tuple[Tombstone, ...] = ()


class DeposedError(Exception):
    """Another SC has taken office: this one writes no more."""


Watcher = Callable[[Written], None]


class Kv:
    """Objects by kind and name. ``watchers`` are called with every write, in order.

    ``tenures`` says at which revision whoever took office began, ``identity`` whether the cluster
    recovers. ``copy`` counts how often the store was replaced by a backup: nothing that was sent to
    the one before arrives in this one.
    """

    def __init__(self, uid: str) -> None:
        self.revision = 1
        self.office = 0
        self.copy = 0
        self.identity = Identity(uid)
        self.tenures: dict[str, int] = {}
        self.history: list[Written] = []
        self.watchers: list[Watcher] = []
        self._objects: dict[tuple[str, str], Object] = {}
        self._graves: dict[tuple[int, str], Tombstone] = {}
        self._identities: list[tuple[int, Identity]] = [(1, self.identity)]

    def acquire(self, holder: str) -> int:
        """Become the SC in office, or begin another tenure: earlier ones are over."""
        self.revision += 1
        self.office = self.tenures[holder] = self.revision
        return self.office

    def become(self, identity: Identity) -> None:
        """Write what the cluster is."""
        self.revision += 1
        self.identity = identity
        self._identities.append((self.revision, identity))

    def can_restore(self, revision: int, objects: int) -> bool:
        """Whether so many objects were there at a revision of the same incarnation."""
        then = {(w.kind, w.name): w.new for w in self.history if w.revision <= revision}
        same = any(r <= revision and i == self.identity for r, i in self._identities)
        return sum(new is not None for new in then.values()) == objects and same

    def restore(self, revision: int) -> None:
        """Become what this was at a revision. What was written since is gone."""
        self.copy += 1
        self.revision = revision
        self.history = [written for written in self.history if written.revision <= revision]
        self.tenures = {who: began for who, began in self.tenures.items() if began <= revision}
        self._identities = [found for found in self._identities if found[0] <= revision]
        self.identity = self._identities[-1][1]
        self._objects.clear()
        self._graves.clear()
        for written in self.history:
            self._bury(written)
            if written.new is None:
                self._objects.pop((written.kind, written.name), None)
            else:
                self._objects[written.kind, written.name] = written.new

    def objects(self) -> list[Object]:
        """Everything there is, in the order of kinds and names."""
        return [self._objects[key] for key in sorted(self._objects)]

    def partition(self, name: str) -> Partition | None:
        found = self._objects.get(("Partition", name))
        return found if isinstance(found, Partition) else None

    def graves(self) -> list[Tombstone]:
        """All tombstones, by SPU and partition."""
        return [self._graves[key] for key in sorted(self._graves)]

    def has_grave(self, spu: int, uid: str) -> bool:
        return (spu, uid) in self._graves

    def swap(
        self, office: int, before: Object, new: Object, graves: tuple[Tombstone, ...] = ()
    ) -> int | None:
        """Replace an object that is still at the revision of ``before``, and leave tombstones.
        Gives the revision of the write, None where the object changed meanwhile. Raises
        DeposedError."""
        if not may_write(office, self.office):
            raise DeposedError
        found = self._objects.get((before.kind, before.name))
        if not is_current(found, before):
            return None
        return self.put(new, graves)

    def dig(self, office: int, grave: Tombstone) -> int:
        """Forget a tombstone. Raises DeposedError."""
        if not may_write(office, self.office):
            raise DeposedError
        self.revision += 1
        self._tell(Written(self.revision, "", "", None, dug=(grave,)))
        return self.revision

    def bury(self, office: int, before: Object, grave: Tombstone) -> int | None:
        """Leave a tombstone, if an object is at the revision of ``before``. Raises DeposedError."""
        if not may_write(office, self.office):
            raise DeposedError
        if not is_current(self._objects.get((before.kind, before.name)), before):
            return None
        self.revision += 1
        self._tell(Written(self.revision, "", "", None, graves=(grave,)))
        return self.revision

    def put(self, new: Object, graves: tuple[Tombstone, ...] = ()) -> int:
        """Write an object whatever was there."""
        self.revision += 1
        new = new.with_metadata(resource_version=str(self.revision))
        self._objects[new.kind, new.name] = new
        self._tell(Written(self.revision, new.kind, new.name, new, graves))
        return self.revision

    def remove(self, old: Object) -> None:
        """Remove an object whatever is there."""
        self.revision += 1
        self._objects.pop((old.kind, old.name), None)
        self._tell(Written(self.revision, old.kind, old.name, None))

    def _tell(self, written: Written) -> None:
        self.history.append(written)
        self._bury(written)
        for watcher in tuple(self.watchers):
            watcher(written)

    def _bury(self, written: Written) -> None:
        for grave in written.graves:
            self._graves[grave.spu_id, grave.uid] = grave
        for grave in written.dug:
            self._graves.pop((grave.spu_id, grave.uid), None)


def may_write(office: int, now: int) -> bool:
    """The guard of every write."""
    return office == now


def is_current(found: Object | None, before: Object) -> bool:
    """The compare of every write."""
    return found is not None and found.revision == before.revision
