"""An SPU that is to hold nothing: its replicas move to others. Pure.

An SPU is drained if its spec says so, or if its group has no place for it any more. Which replicas
are left follows from the partitions alone, so whoever looks goes on. An SPU that is lost for good
is drained as well: its replicas are made anew from those that live.
"""

from __future__ import annotations

from dataclasses import dataclass

from sc.controllers.actions import BeginMove, Key, WakeAt
from sc.controllers.membership.begin import (
    begin,
    candidates,
    decided_at_ms,
    may_move,
    respecified,
    returning,
    row_of,
)
from sc.controllers.membership.budget import Budget
from sc.scheduler.row_changes import extended
from sc.store.view import View
from schemas.objects.partition import Partition
from schemas.objects.spu import Spu
from schemas.objects.topic import Topic


@dataclass(frozen=True, slots=True)
class Draining:
    """What to begin now, and how far an SPU is: ``left`` replicas, and what is in the way."""

    actions: tuple[BeginMove | WakeAt, ...]
    left: int
    obstacle: str | None = None

    @property
    def reason(self) -> str:
        if not self.left:
            return "drained: it holds no replicas"
        replicas = "1 replica is" if self.left == 1 else f"{self.left} replicas are"
        said = f"drains: {replicas} left"
        return said if self.obstacle is None else f"{said}; {self.obstacle}"


def drain(view: View, spu: Spu, now_ms: int) -> Draining:
    """The moves that empty an SPU, as many as may begin now."""
    spu_id = spu.spec.spu_id
    held = list(view.store.partitions_on(spu_id))
    left = len(held)
    if not held:
        graves = len(view.store.tombstones_of(spu_id))
        if graves:
            return Draining((), graves, "it is deleting them")
        return Draining((), 0)
    if away := returning(view, now_ms):
        at_ms = decided_at_ms(view, now_ms)
        again = () if at_ms is None else (WakeAt(Key("Spu", spu.name), at_ms),)
        return Draining(again, left, f"waiting for {', '.join(away)} to connect again")
    actions = list[BeginMove]()
    obstacle: str | None = None
    budget = Budget(view)
    for partition in held:
        if partition.deleting or partition.spec.moves:
            continue
        found = _away_from(view, partition, spu_id, budget)
        if isinstance(found, str):
            obstacle = obstacle or found
        elif found is not None:
            actions.append(found)
    return Draining(tuple(actions), left, obstacle)


def _away_from(
    view: View, partition: Partition, spu_id: int, budget: Budget
) -> BeginMove | str | None:
    if (why := may_move(view, partition)) is not None:
        return why
    topic = _topic(view, partition)
    if topic is not None and topic.spec.assignment is not None:
        return f"topic {topic.name} names its SPUs in spec.assignment: give other rows there"
    row = tuple(i for i in partition.spec.replicas if i != spu_id)
    found = extended(
        row_of(view, row, budget),
        candidates(view, partition, budget),
        ignore_racks=topic is not None and topic.spec.ignore_rack_assignment,
    )
    if found is None:
        needed = len(partition.spec.replicas)
        return (
            f"{partition.name} needs {needed} {'SPU' if needed == 1 else 'SPUs'}, and no other SPU"
            " that is online has room for it"
        )
    # In its place: who is first is the preferred leader.
    target = tuple(found.spu_id if i == spu_id else i for i in partition.spec.replicas)
    return begin(view, partition, respecified(partition, target), budget)


def _topic(view: View, partition: Partition) -> Topic | None:
    owner = partition.spec.owner
    return view.store.get(Topic, owner.name) if owner.kind == "Topic" else None
