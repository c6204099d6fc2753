"""Rows of replicas, one after the other: the machinery of `sc.scheduler.placement`.

That module says which SPUs are chosen and why; this one finds them without looking at every SPU for
every row. SPUs are kept in heaps: in one by leaders, and in a tree of heaps (racks hold SPUs,
regions hold racks) by replicas. SPUs that a row uses are set aside until the row ends. `Storage`
makes sure that the rows to come remain possible.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush

#: Region and rack of an SPU; both unique in the cluster.
Location = tuple[object, object]
#: Replica count and id of an SPU; for a group: those of its SPU that comes first.
Rank = tuple[int, int]


def location(spu_id: int, region: str | None, rack: str | None) -> Location:
    """Region and rack of an SPU. A level without a name takes that below: the rack, or the SPU."""
    named_rack = ("spu", region, spu_id) if rack is None else ("rack", region, rack)
    return (named_rack if region is None else ("region", region), named_rack)


class Spu:
    """An SPU while rows are placed. ``room``: how many more rows may have a replica on it."""

    __slots__ = ("leaders", "location", "queued", "replicas", "room", "spu_id", "uses")

    def __init__(
        self, spu_id: int, location: Location, room: int, leaders: int, replicas: int
    ) -> None:
        self.spu_id = spu_id
        self.location = location
        self.room = room
        self.leaders = leaders
        self.replicas = replicas
        self.uses = 0
        self.queued: Rank | None = None

    def first(self) -> tuple[tuple[int, ...], Spu] | None:
        return None if self.uses else ((self.replicas, self.spu_id), self)

    def rank(self) -> Rank | None:
        return (self.replicas, self.spu_id) if self.room else None

    def end_row(self) -> None:
        self.uses = 0


class Group:
    """SPUs of a rack, or racks of a region: the child that the row uses least comes first.

    Children that the row does not use wait in a heap by rank; those that it uses are few and
    examined one by one. An entry of the heap counts while its child is ``queued`` with that
    rank; other entries are stale and dropped when they come up.
    """

    __slots__ = ("_heap", "_in_use", "queued", "uses")

    def __init__(self, children: Iterable[Spu | Group]) -> None:
        self.uses = 0
        self.queued: Rank | None = None
        self._in_use: list[Spu | Group] = []
        self._heap: list[tuple[Rank, Spu | Group]] = []
        for child in children:
            self._queue(child)

    def first(self) -> tuple[tuple[int, ...], Spu] | None:
        """The SPU to take next, after its score: uses on the path down to it, then its rank.

        None if the row uses every SPU that has room.
        """
        unused = self._first_unused()
        children = self._in_use if unused is None else (unused,)
        firsts = [(self._score(child, f[0]), f[1]) for child in children if (f := child.first())]
        return min(firsts, key=lambda first: first[0], default=None)

    def rank(self) -> Rank | None:
        """Between rows: the rank of the SPU that comes first; None if none has room."""
        return None if self._first_unused() is None else self._heap[0][0]

    def use(self, child: Spu | Group) -> None:
        """Count one more use of a child by the row."""
        if not child.uses:
            self._in_use.append(child)
        child.uses += 1

    def end_row(self) -> None:
        for child in self._in_use:
            child.end_row()
            self._queue(child)
        self._in_use.clear()
        self.uses = 0

    def _score(self, child: Spu | Group, below: tuple[int, ...]) -> tuple[int, ...]:
        return (child.uses, *below)

    def _queue(self, child: Spu | Group) -> None:
        rank = child.rank()
        if rank != child.queued:
            child.queued = rank
            if rank is not None:
                heappush(self._heap, (rank, child))

    def _first_unused(self) -> Spu | Group | None:
        while self._heap:
            rank, child = self._heap[0]
            if rank == child.queued:
                if not child.uses:
                    return child
                child.queued = None
            heappop(self._heap)
        return None


class Regions(Group):
    """All regions: unused ones come first; among used ones the rack that is used least counts more.

    So racks differ while there are enough, even if regions have different numbers of racks.
    """

    __slots__ = ()

    def _score(self, child: Spu | Group, below: tuple[int, ...]) -> tuple[int, ...]:
        return (below[0], child.uses, *below[1:])


class Storage:
    """Which SPUs a row must have, so that the rows after it can still be placed.

    An SPU is *ample* while it has room for all rows that remain. With the room of an ample SPU
    counted as that many, rows can be placed exactly while the room of all SPUs is at least the
    replicas that remain (Gale and Ryser's condition for rows of one size); ``spare`` is the
    surplus. A row lowers spare by one for each ample SPU that it leaves out, and for no other.
    """

    def __init__(self, spus: Sequence[Spu], rows: int, replication_factor: int) -> None:
        self.ample = [s for s in spus if s.room >= rows]
        self._remaining = rows
        self._spare = sum(min(s.room, rows) for s in spus) - rows * replication_factor
        self._by_room: dict[int, list[Spu]] = {}
        for spu in spus:
            self._wait(spu)

    def must_take(self) -> int:
        """The smallest number of ample SPUs that the next row must use."""
        # In the last row every SPU with room is ample, so nothing needs care.
        return len(self.ample) - self._spare if self._remaining > 1 else 0

    def is_ample(self, spu: Spu) -> bool:
        return spu.room >= self._remaining

    def take(self, row: Sequence[Spu]) -> None:
        """Count a placed row. Ample SPUs stay ample; others may become so as fewer rows remain."""
        ample = [self.is_ample(spu) for spu in row]
        self._spare -= len(self.ample) - sum(ample)
        for spu, was_ample in zip(row, ample, strict=True):
            spu.room -= 1
            if not was_ample:
                self._wait(spu)
        self._remaining -= 1
        waited = self._by_room.pop(self._remaining, ())
        self.ample.extend(spu for spu in waited if self.is_ample(spu))

    def _wait(self, spu: Spu) -> None:
        if not self.is_ample(spu):
            self._by_room.setdefault(spu.room, []).append(spu)


class Rows:
    """Places row after row on SPUs. There must be room for all ``rows`` of them."""

    def __init__(self, spus: Sequence[Spu], rows: int, replication_factor: int) -> None:
        spus = [s for s in spus if s.room]
        self._replication_factor = replication_factor
        self._storage = Storage(spus, rows, replication_factor)
        self._by_leaders = [(_leader_rank(s), s) for s in spus]
        heapify(self._by_leaders)
        places: dict[object, dict[object, list[Spu]]] = {}
        for spu in spus:
            region, rack = spu.location
            places.setdefault(region, {}).setdefault(rack, []).append(spu)
        racks = {rack: Group(found) for inside in places.values() for rack, found in inside.items()}
        regions = {region: Group(racks[r] for r in inside) for region, inside in places.items()}
        self._groups = {s.spu_id: (regions[s.location[0]], racks[s.location[1]]) for s in spus}
        self._all = Regions(regions.values())

    def place(self) -> tuple[int, ...]:
        """The SPU ids of one more row, the preferred leader first."""
        must = self._storage.must_take()
        row: list[Spu] = []
        for left in range(self._replication_factor, 0, -1):
            # The leader needs no check: all must be ample only if no other SPU has room.
            spu = self._follower(ample_only=must >= left) if row else self._leader()
            region, rack = self._groups[spu.spu_id]
            self._all.use(region)
            region.use(rack)
            rack.use(spu)
            row.append(spu)
            must -= self._storage.is_ample(spu)
        row[0].leaders += 1
        for spu in row:
            spu.replicas += 1
        self._storage.take(row)
        self._all.end_row()
        for spu in row:
            heappush(self._by_leaders, (_leader_rank(spu), spu))
        return tuple(spu.spu_id for spu in row)

    def _leader(self) -> Spu:
        while True:
            rank, spu = self._by_leaders[0]
            if spu.room and rank == _leader_rank(spu):
                return spu
            heappop(self._by_leaders)

    def _follower(self, ample_only: bool) -> Spu:
        if ample_only:
            return min((s for s in self._storage.ample if not s.uses), key=self._follower_score)
        first = self._all.first()
        if first is None:
            raise ValueError("fewer SPUs with room than replicas in a row")
        return first[1]

    def _follower_score(self, spu: Spu) -> tuple[int, ...]:
        region, rack = self._groups[spu.spu_id]
        return (min(region.uses, 1), rack.uses, region.uses, spu.replicas, spu.spu_id)


def _leader_rank(spu: Spu) -> tuple[int, int, int]:
    return (spu.leaders, spu.replicas, spu.spu_id)
