"""Placement of the replicas of new partitions.

Constraints, never broken:

1. the replicas of one partition are on different SPUs;
2. an SPU takes no more replicas than its free storage has room for.

Goals, each only if it does not harm one before it:

3. replicas of one partition are in distinct regions if there are enough, else in all of them;
   then in distinct racks if there are enough, else evenly over them; then evenly over regions;
4. leaders are spread evenly over the SPUs;
5. replicas are spread evenly over the SPUs;
6. ties go to the lowest id, so that the same input always gives the same answer.

Existing placements count for 4 and 5. The first replica of a row is its preferred leader.

Locations form a tree. A rack belongs to its region: rack ``r1`` of region ``eu`` is not rack ``r1``
of ``us``. An SPU that names no rack counts as a rack of its own; if it names no region, its rack
counts as a region. Without any names, every SPU is equally far from every other.

Algorithm: one partition after the other, greedily. The leader is the SPU with the fewest leaders,
then the fewest replicas. Each further replica goes to a region that the row does not use yet, to
the rack that it uses least, to the region that it uses least, to the SPU with the fewest replicas:
each rule decides only ties of those before it. If storage is short, a row takes so many of the
SPUs with most room that the rows after it can still be placed. `sc.scheduler.rows` says how this is
done without looking at all SPUs for each partition.

Guarantees. The score of a placement is, in order of comparison: replicas in a region that their
partition already uses, pairs of a partition in one rack, pairs in one region, max-min leaders,
max-min replicas.

- A placement is found if and only if one exists.
- While free storage limits nothing, the score is the best possible in all but max-min replicas,
  whatever is already placed. If storage is short, finding a placement comes before all goals.
- Max-min replicas are at most 1 if nothing is placed and no racks or regions are named (tried
  for up to 150 SPUs). Otherwise greed can cost some: at most 2 above the best for up to 5 empty
  SPUs in 3 racks, 4 partitions and 3 replicas (tested against every possible placement).

Worked example: SPUs 0 and 1 in rack a, SPU 2 in rack b, nothing placed, 3 partitions of 2
replicas. Partition 0: all are equal, leader 0; rack b is unused, follower 2. Partition 1: 1 and 2
lead nothing, 1 holds less: leader 1; follower 2. Partition 2: only 2 leads nothing: leader 2; 0
and 1 in rack a hold one each: follower 0. Rows: (0, 2), (1, 2), (2, 0). SPU 2 holds three and the
others two and one: leaders are even, and racks come before even replicas.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise

from sc.scheduler.rows import Rows, Spu, location
from schemas.objects.quantities import format_size


@dataclass(frozen=True, slots=True)
class Candidate:
    """An SPU that may take replicas; ``free_bytes`` None: not known, so no limit."""

    spu_id: int
    rack: str | None = None
    region: str | None = None
    free_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """How many partitions prefer an SPU as leader and how many replicas it holds, by SPU id."""

    leaders: Mapping[int, int] = field(default_factory=dict)
    replicas: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, placed: Iterable[tuple[int, Sequence[int]]]) -> Load:
        """The load of partitions, each as (preferred leader, replicas)."""
        leaders: Counter[int] = Counter()
        replicas: Counter[int] = Counter()
        for leader, row in placed:
            leaders[leader] += 1
            replicas.update(row)
        return cls(leaders, replicas)


@dataclass(frozen=True, slots=True)
class Request:
    """The partitions to place.

    ``replica_bytes``: free storage that each replica takes up; 0 if that is not known, and
    then any free storage will do. ``registered``: how many SPUs there are, online or not, for the
    text of a shortage; None: as many as candidates. ``draining``: how many of them are online, but
    are to get no replicas. Raises ValueError for impossible counts.
    """

    partitions: int
    replication_factor: int = 1
    ignore_racks: bool = False
    replica_bytes: int = 0
    registered: int | None = None
    draining: int = 0

    def __post_init__(self) -> None:
        if self.partitions < 0 or self.replication_factor < 1 or self.replica_bytes < 0:
            raise ValueError(f"not a valid request for replicas: {self}")


@dataclass(frozen=True, slots=True)
class Placement:
    """One row of SPU ids for each partition, the preferred leader first."""

    rows: list[tuple[int, ...]]


class Constraint(Enum):
    """What can keep partitions from being placed."""

    ONLINE_SPUS = "online SPUs"
    """Fewer candidates than replicas of one partition."""
    FREE_STORAGE = "free storage"
    """Too few of them have storage for a replica."""
    ROOM = "room"
    """Enough have some, but not for all partitions."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why nothing is placed: SPUs (for ROOM: replicas) needed and available, and a text."""

    constraint: Constraint
    needed: int
    available: int
    reason: str


def place(
    candidates: Iterable[Candidate], request: Request, load: Load | None = None
) -> Placement | Shortage:
    """Rows for all the partitions asked for, or for none of them.

    Load of SPUs that are no candidates is ignored. Raises ValueError if an id occurs twice.
    """
    load = load or Load()
    spus = [
        Spu(
            spu_id=c.spu_id,
            location=location(c.spu_id, None, None)
            if request.ignore_racks
            else location(c.spu_id, c.region, c.rack),
            room=_room(c.free_bytes, request),
            leaders=load.leaders.get(c.spu_id, 0),
            replicas=load.replicas.get(c.spu_id, 0),
        )
        for c in sorted(candidates, key=lambda c: c.spu_id)
    ]
    for one, other in pairwise(spus):
        if one.spu_id == other.spu_id:
            raise ValueError(f"SPU {one.spu_id} is a candidate twice")
    shortage = _shortage(spus, request)
    if shortage is not None:
        return shortage
    rows = Rows(spus, request.partitions, request.replication_factor)
    return Placement([rows.place() for _ in range(request.partitions)])


def _room(free_bytes: int | None, request: Request) -> int:
    """How many of the partitions may have a replica on an SPU."""
    if free_bytes is None:
        return request.partitions
    if request.replica_bytes == 0:
        return request.partitions if free_bytes > 0 else 0
    return min(max(free_bytes, 0) // request.replica_bytes, request.partitions)


def _shortage(spus: Sequence[Spu], request: Request) -> Shortage | None:
    factor, online = request.replication_factor, len(spus)
    needs = f"replicationFactor {factor} needs {factor}"
    if request.partitions == 0:
        return None
    if online < factor:
        registered = online if request.registered is None else request.registered
        reason = f"{needs} online SPUs; {online} of {registered} registered are online"
        if request.draining:
            reason = f"{reason} and not draining"
        return Shortage(Constraint.ONLINE_SPUS, factor, online, reason)
    usable = sum(1 for s in spus if s.room)
    size = format_size(request.replica_bytes)
    if usable < factor:
        storage = f"{size} of free storage each" if request.replica_bytes else "free storage"
        has = f"{'has' if usable == 1 else 'have'} {'that' if request.replica_bytes else 'some'}"
        reason = f"{needs} SPUs with {storage}; {usable} of {online} online {has}"
        return Shortage(Constraint.FREE_STORAGE, factor, usable, reason)
    # No SPU has room for more replicas than there are rows, so rows fit if all replicas do.
    needed, room = request.partitions * factor, sum(s.room for s in spus)
    if room < needed:
        reason = (
            f"{request.partitions} new partitions with replicationFactor {factor} need storage for"
            f" {needed} replicas of {size}; the {online} online SPUs have room for {room}"
        )
        return Shortage(Constraint.ROOM, needed, room, reason)
    return None
