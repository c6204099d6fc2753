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

from bisect import insort
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sc.scheduler.row_changes import Seat
from sc.scheduler.rows import location


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
    """Replicas while they are balanced."""

    def __init__(self, rows: Sequence[Row], seats: Iterable[Seat]) -> None:
        self.now = {row.name: row.replicas for row in rows}
        self._places = {seat.spu_id: seat for seat in seats}
        self._ignore_racks = {row.name for row in rows if row.ignore_racks}
        self._loads: Counter[int] = Counter(dict.fromkeys(self._places, 0))
        #: Of each SPU, the partitions that it may give away, in the order of their names.
        self._held: dict[int, list[str]] = {spu_id: [] for spu_id in self._places}
        for row in sorted(rows, key=lambda row: row.name):
            there = [i for i in row.replicas if i in self._places]
            self._loads.update(there)
            if not row.fixed:
                for spu_id in there:
                    self._held[spu_id].append(row.name)

    def next_move(self) -> tuple[str, int, int] | None:
        """A partition, and between which SPUs one of its replicas goes."""
        order = sorted(self._loads, key=lambda i: (self._loads[i], i))
        for giver in reversed(order):
            for taker in order:
                if self._loads[giver] - self._loads[taker] < 2:
                    break
                for name in self._held[giver]:
                    if self._may_go(name, giver, taker):
                        return name, giver, taker
        return None

    def carry_out(self, name: str, giver: int, taker: int) -> None:
        self.now[name] = tuple(taker if i == giver else i for i in self.now[name])
        self._loads[giver] -= 1
        self._loads[taker] += 1
        self._held[giver].remove(name)
        insort(self._held[taker], name)

    def _may_go(self, name: str, giver: int, taker: int) -> bool:
        replicas = self.now[name]
        if taker in replicas:
            return False
        return name in self._ignore_racks or _keeps_apart(replicas, giver, taker, self._places)


def _keeps_apart(
    replicas: Sequence[int], giver: int, taker: int, places: Mapping[int, Seat]
) -> bool:
    """Whether the replicas are on as many regions and racks with the taker as with the giver."""
    after = [taker if i == giver else i for i in replicas]
    return all(
        len({_where(i, places)[level] for i in after})
        >= len({_where(i, places)[level] for i in replicas})
        for level in (0, 1)
    )


def _where(spu_id: int, places: Mapping[int, Seat]) -> tuple[object, object]:
    seat = places.get(spu_id, Seat(spu_id))
    return location(spu_id, seat.region, seat.rack)


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
        #: Of each SPU, the partitions that it may pass on, in the order of their names.
        self._led: dict[int, list[str]] = {}
        for row in sorted(rows, key=lambda row: row.name):
            self._loads[row.replicas[0]] += row.replicas[0] in able
            if not row.fixed:
                self._led.setdefault(row.replicas[0], []).append(row.name)

    def prefer(self, name: str, leader: int) -> None:
        replicas = self.now[name]
        self._loads[replicas[0]] -= 1
        self._loads[leader] += 1
        self._led[replicas[0]].remove(name)
        insort(self._led.setdefault(leader, []), name)
        self.now[name] = (leader, *(i for i in replicas if i != leader))

    def next_chain(self) -> list[tuple[str, int]] | None:
        """Partitions and their new leaders, each taking over from the next one's former leader, so
        that one SPU leads one fewer and another one more, which led at least two fewer."""
        least = min((self._loads[i] for i in self._able), default=0)
        for giver in sorted(self._able, key=lambda i: (-self._loads[i], i)):
            if self._loads[giver] - least < 2:
                return None
            if (chain := self._chain_from(giver)) is not None:
                return chain
        return None

    def _chain_from(self, giver: int) -> list[tuple[str, int]] | None:
        came_by: dict[int, tuple[str, int]] = {}
        waiting = deque([giver])
        while waiting:
            spu_id = waiting.popleft()
            for name in self._led.get(spu_id, ()):
                for other in self.now[name][1:]:
                    if other in came_by or other == giver or other not in self._able:
                        continue
                    came_by[other] = (name, spu_id)
                    if self._loads[other] < self._loads[giver] - 1:
                        return _walk_back(came_by, giver, other)
                    waiting.append(other)
        return None


def _walk_back(
    came_by: Mapping[int, tuple[str, int]], giver: int, taker: int
) -> list[tuple[str, int]]:
    chain: list[tuple[str, int]] = []
    while taker != giver:
        name, before = came_by[taker]
        chain.append((name, taker))
        taker = before
    return chain
