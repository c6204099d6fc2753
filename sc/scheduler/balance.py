"""Which replicas and preferred leaders to move so that SPUs hold equally many. Pure.

Replicas first: as long as two SPUs differ by two or more, one replica goes from the fullest that
has one to give to the emptiest that may take it: a partition that the emptier SPU does not hold,
and whose replicas stay on as many racks and regions as before. Each such
move is one that every balance needs, so without racks there are as few as possible.

Then leaders, within the replicas as they will be: a preference is passed on along the shortest
chain of partitions from an SPU that is preferred most to one that is preferred by two fewer. When
no chain is left, no choice of preferred leaders is more even.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from sc.scheduler.row_changes import Seat
from sc.scheduler.rows import Location, location


@dataclass(frozen=True, slots=True)
class Row:
    """A partition: its replicas, the preferred leader first. One that is ``fixed`` counts, and
    does not move."""

    name: str
    replicas: tuple[int, ...]
    ignore_racks: bool = False
    fixed: bool = False


def balanced_replicas(rows: Sequence[Row], seats: Iterable[Seat]) -> dict[str, tuple[int, ...]]:
    """The rows that change, by name. Only SPUs that have a seat give or get replicas."""
    scale = _Scale(rows, seats)
    while (move := scale.next_move()) is not None:
        scale.carry_out(*move)
    before = {row.name: row.replicas for row in rows}
    return {name: to for name, to in scale.now.items() if to != before[name]}


class _Scale:
    """Replicas while they are balanced. It remembers what cannot move, so that no partition is
    looked at again and again."""

    def __init__(self, rows: Sequence[Row], seats: Iterable[Seat]) -> None:
        self.now = {row.name: row.replicas for row in rows}
        self._where = {s.spu_id: location(s.spu_id, s.region, s.rack) for s in seats}
        self._ignore_racks = {row.name for row in rows if row.ignore_racks}
        self._loads: Counter[int] = Counter(dict.fromkeys(self._where, 0))
        #: Of each SPU, the partitions that it may give away, in the order of their names.
        self._held: dict[int, list[str]] = {spu_id: [] for spu_id in self._where}
        #: Of each giver and taker, the partition before which none may go; None if none at all may.
        self._first: dict[int, dict[int, str | None]] = {spu_id: {} for spu_id in self._where}
        #: Those that had nothing to give, with the loads of then.
        self._stuck: set[int] = set()
        for row in sorted(rows, key=lambda row: row.name):
            there = [i for i in row.replicas if i in self._loads]
            self._loads.update(there)
            if not row.fixed:
                for spu_id in there:
                    self._held[spu_id].append(row.name)
        for spu_id in {i for row in rows for i in row.replicas} - set(self._loads):
            self._where[spu_id] = location(spu_id, None, None)

    def next_move(self) -> tuple[str, int, int] | None:
        """A partition, and between which SPUs one of its replicas goes."""
        order = sorted(self._loads, key=lambda i: (self._loads[i], i))
        for giver in reversed(order):
            if giver in self._stuck:
                continue
            for taker in order:
                if self._loads[giver] - self._loads[taker] < 2:
                    break
                if (name := self._first_to_go(giver, taker)) is not None:
                    return name, giver, taker
            self._stuck.add(giver)
        return None

    def carry_out(self, name: str, giver: int, taker: int) -> None:
        self.now[name] = tuple(taker if i == giver else i for i in self.now[name])
        self._loads[giver] -= 1
        self._loads[taker] += 1
        _remove(self._held[giver], name)
        insort(self._held[taker], name)
        # The giver may take from more SPUs than before, and who holds this one may give to more.
        least, holders = self._loads[giver] + 2, self.now[name]
        self._stuck = {i for i in self._stuck if self._loads[i] < least and i not in holders}
        for holder in holders:
            self._look_again(name, holder)

    def _first_to_go(self, giver: int, taker: int) -> str | None:
        firsts, held = self._first[giver], self._held[giver]
        if (first := firsts.get(taker, "")) is not None:
            left = islice(held, bisect_left(held, first), None)
            first = next((name for name in left if self._may_go(name, giver, taker)), None)
            firsts[taker] = first
        return first

    def _look_again(self, name: str, holder: int) -> None:
        """One replica of a partition has moved, so another one may have become free to go."""
        firsts = self._first.get(holder, {})
        for taker, first in firsts.items():
            if (first is None or name < first) and self._may_go(name, holder, taker):
                firsts[taker] = name

    def _may_go(self, name: str, giver: int, taker: int) -> bool:
        """Whether a replica may go; all replicas stay on as many regions and racks."""
        replicas = self.now[name]
        if taker in replicas:
            return False
        if name in self._ignore_racks:
            return True
        here, there = self._where[giver], self._where[taker]
        return here == there or _keeps_apart(
            here, there, [self._where[i] for i in replicas if i != giver]
        )


def _keeps_apart(here: Location, there: Location, others: Sequence[Location]) -> bool:
    """Whether a replica there is on as many regions and racks with the others as one here."""
    for level in (0, 1):
        taken = {where[level] for where in others}
        if there[level] in taken and here[level] not in taken:
            return False
    return True


def _remove(names: list[str], name: str) -> None:
    """Take a name out of a sorted list."""
    del names[bisect_left(names, name)]


def balanced_leaders(rows: Sequence[Row], able: Iterable[int]) -> dict[str, tuple[int, ...]]:
    """The rows that change, by name: the same replicas, another one first. Only SPUs that are
    ``able`` become preferred leaders."""
    preferences = _Preferences(rows, set(able))
    while (chain := preferences.next_chain()) is not None:
        for name, leader in chain:
            preferences.prefer(name, leader)
    before = {row.name: row.replicas for row in rows}
    return {name: to for name, to in preferences.now.items() if to != before[name]}


class _Preferences:
    """Preferred leaders while they are balanced."""

    def __init__(self, rows: Sequence[Row], able: set[int]) -> None:
        self.now = {row.name: row.replicas for row in rows}
        self._able = able
        self._loads: Counter[int] = Counter(dict.fromkeys(able, 0))
        #: Of each SPU, the partitions that it may pass on to each other one, in the order of their
        #: names.
        self._led: dict[int, dict[int, list[str]]] = {}
        #: Those from which no chain begins, and none will: whoever they reach leads too many to
        #: take one more, also from an SPU that leads fewer, so no other chain changes what they
        #: reach.
        self._stuck: set[int] = set()
        for row in sorted(rows, key=lambda row: row.name):
            first, *others = row.replicas
            self._loads[first] += first in able
            if not row.fixed:
                led = self._led.setdefault(first, {})
                for other in others:
                    led.setdefault(other, []).append(row.name)

    def prefer(self, name: str, leader: int) -> None:
        first, *others = self.now[name]
        self._loads[first] -= 1
        self._loads[leader] += 1
        for other in others:
            _remove(self._led[first][other], name)
        rest = [i for i in (first, *others) if i != leader]
        led = self._led.setdefault(leader, {})
        for other in rest:
            insort(led.setdefault(other, []), name)
        self.now[name] = (leader, *rest)

    def next_chain(self) -> list[tuple[str, int]] | None:
        """Partitions and their new leaders, each taking over from the next one's former leader, so
        that one SPU leads one fewer and another one more, which led at least two fewer."""
        least = min((self._loads[i] for i in self._able), default=0)
        for giver in sorted(self._able - self._stuck, key=lambda i: (-self._loads[i], i)):
            if self._loads[giver] - least < 2:
                return None
            if (chain := self._chain_from(giver)) is not None:
                return chain
            self._stuck.add(giver)
        return None

    def _chain_from(self, giver: int) -> list[tuple[str, int]] | None:
        came_by: dict[int, tuple[str, int]] = {}
        waiting = deque([giver])
        while waiting:
            spu_id = waiting.popleft()
            for name, other in self._next_to(spu_id):
                if other in came_by or other == giver or other not in self._able:
                    continue
                came_by[other] = (name, spu_id)
                if self._loads[other] < self._loads[giver] - 1:
                    return _walk_back(came_by, giver, other)
                waiting.append(other)
        return None

    def _next_to(self, spu_id: int) -> list[tuple[str, int]]:
        """The SPUs that an SPU may pass a partition on to, each with the first of these, in the
        order in which its partitions name them."""
        firsts = ((names[0], other) for other, names in self._led.get(spu_id, {}).items() if names)
        return sorted(firsts, key=lambda first: (first[0], self.now[first[0]].index(first[1])))


def _walk_back(
    came_by: Mapping[int, tuple[str, int]], giver: int, taker: int
) -> list[tuple[str, int]]:
    chain: list[tuple[str, int]] = []
    while taker != giver:
        name, before = came_by[taker]
        chain.append((name, taker))
        taker = before
    return chain
