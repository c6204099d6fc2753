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
    lost_newcomers,
    may_move,
    respecified,
    row_of,
)
from sc.controllers.membership.budget import Budget
from sc.controllers.placing import decided_at_ms, returning
from sc.controllers.spu_group import is_draining
from sc.scheduler.row_changes import extended
from sc.store.view import View
from schemas.objects.partition import Partition
from schemas.objects.spu import Spu
from schemas.objects.topic import Topic


@dataclass(frozen=True, slots=True)
class Draining:
    """What to begin now, and how far an SPU is: ``left`` replicas, and what is in the way.
    ``deleting``: replicas that are elsewhere, and whose remains it has yet to delete, if it
    ``is_there``, or when it comes back; ``undeleted`` says why it cannot."""

    actions: tuple[BeginMove | WakeAt, ...]
    left: int
    obstacle: str | None = None
    deleting: int = 0
    is_there: bool = True
    undeleted: str = ""

    @property
    def is_done(self) -> bool:
        """Whether nobody need wait for it: all replicas are elsewhere."""
        return not self.left and not (self.deleting and self.is_there)

    @property
    def reason(self) -> str:
        """How far it is, in words."""
        if not self.left and not self.deleting:
            return "drained: no partition is on it"
        if not self.left:
            remains = "1 replica" if self.deleting == 1 else f"{self.deleting} replicas"
            if self.is_there:
                return (
                    "drains: all replicas are elsewhere; it deletes what is left of"
                    f" {remains}{self.undeleted}"
                )
            return (
                "drained: all replicas are elsewhere; when it is back, it deletes what is left of"
                f" {remains}"
            )
        replicas = "1 replica is" if self.left == 1 else f"{self.left} replicas are"
        said = f"drains: {replicas} left"
        return said if self.obstacle is None else f"{said}; {self.obstacle}"


def drain(view: View, spu: Spu, now_ms: int) -> Draining:
    """The moves that empty an SPU, as many as may begin now."""
    spu_id = spu.spec.spu_id
    is_there = spu_id in view.sessions
    held = list(view.store.partitions_on(spu_id))
    left = len(held)
    if not held:
        deleting = len(view.store.tombstones_of(spu_id))
        return Draining((), 0, None, deleting, is_there, view.undeleted(spu_id))
    if away := returning(view, now_ms):
        at_ms = decided_at_ms(view, now_ms)
        again = () if at_ms is None else (WakeAt(Key("Spu", spu.name), at_ms),)
        return Draining(again, left, f"waiting for {', '.join(away)} to connect again")
    actions = list[BeginMove]()
    obstacle: str | None = None
    budget = Budget(view)
    for partition in held:
        if partition.deleting or not _is_to_move(partition, spu_id):
            continue
        found = _away_from(view, partition, spu, budget)
        if isinstance(found, str):
            obstacle = obstacle or found
        elif found is not None:
            actions.append(found)
    return Draining(tuple(actions), left, obstacle or lost_newcomers(view, held, now_ms))


def _is_to_move(partition: Partition, spu_id: int) -> bool:
    """Whether a move away from an SPU may begin: not while another move takes the replica away, nor
    while one is under way that this replica, which is live, does not hold up."""
    spec = partition.spec
    if not spec.moves:
        return True
    is_live = any(member.spu_id == spu_id for member in partition.status.lrs)
    return spu_id in spec.replicas and not is_live


def _away_from(
    view: View, partition: Partition, spu: Spu, budget: Budget
) -> BeginMove | str | None:
    spu_id = spu.spec.spu_id
    if (why := may_move(view, partition)) is not None:
        return why
    topic = _topic(view, partition)
    if topic is not None and topic.spec.assignment is not None:
        return f"topic {topic.name} names its SPUs in spec.assignment: give other rows there"
    row = tuple(i for i in partition.spec.replicas if i != spu_id)
    targets = {i for i in spu.spec.drain_to or () if i not in row}
    found = extended(
        row_of(view, row, budget),
        [s for s in candidates(view, partition, budget) if not targets or s.spu_id in targets],
        ignore_racks=topic is not None and topic.spec.ignore_rack_assignment,
    )
    if found is None and targets:
        return _no_place_there(view, partition, spu, min(targets))
    if found is None:
        return _no_place(view, partition, spu_id)
    # In its place: who is first is the preferred leader.
    target = tuple(found.spu_id if i == spu_id else i for i in partition.spec.replicas)
    return begin(view, partition, respecified(partition, target), budget)


def _no_place_there(view: View, partition: Partition, drained: Spu, target: int) -> str:
    """Why a partition cannot move to the SPU that is to get it, and what helps."""
    spu = view.store.spu(target)
    another = f"name another one: runnel spu replace {drained.name} --with SPU"
    if spu is None:
        why = f"is not registered: register it, or {another}"
    elif target not in view.sessions:
        why = f"is not online: start it, or {another}"
    elif is_draining(view.store, spu):
        why = f"drains itself: {another}"
    elif view.store.tombstone(target, partition.uid) is not None:
        why = "still deletes an earlier replica of it"
    else:
        why = f"has no room for it: free some space there, or {another}"
    return f"{partition.name} is to move to SPU {target}, which {why}"


def _no_place(view: View, partition: Partition, spu_id: int) -> str:
    """Why a partition finds no SPU in the place of one that drains, and what helps."""
    needed, owner = len(partition.spec.replicas), partition.spec.owner
    online = [spu for i in view.sessions if i != spu_id and (spu := view.store.spu(i)) is not None]
    others = sum(not is_draining(view.store, spu) for spu in online)
    count = "1 SPU" if needed == 1 else f"{needed} SPUs"
    # The name of a segment says nothing to users.
    name = partition.name if owner.kind == "Topic" else f"a segment of stream {owner.name}"
    if others >= needed:
        return f"{name} needs {count}, and no other SPU that is online has room for it"
    help_ = "add SPUs"
    if others:
        fewer = f"runnel scale {owner.kind.lower()} {owner.name} --replication-factor {others}"
        help_ = f"{help_}, or have fewer replicas: {fewer}"
    there = "no other is" if not others else "1 other is" if others == 1 else f"{others} others are"
    free = "online and not draining" if others < len(online) else "online"
    return f"{name} needs {count}, and {there} {free}: {help_}"


def _topic(view: View, partition: Partition) -> Topic | None:
    owner = partition.spec.owner
    return view.store.get(Topic, owner.name) if owner.kind == "Topic" else None
