"""What keeps a partition that has a leader from committing records, in words and as a condition.

Pure. A partition is not *writable* if fewer replicas are live than its minimum, if a live replica
that has to stay is offline or cut off from the leader, if its leader refuses records or has
committed nothing for a while although records wait. Otherwise nothing is known to be in the way.
Replicas that are missing without doing harm are in the reason alone. Where two SPUs cannot reach
each other, the reason says so: to bring others back would not help.

Neighbours: `sc.controllers.partition` writes the answer into the status, `sc.controllers.live_set`
says which replicas are live, `sc.dispatch.metadata` keeps what SPUs report.
"""

from __future__ import annotations

from typing import Final

from sc.controllers.live_set import Fitness, LiveSet, members_health, unfit_text
from sc.store.view import View
from schemas.objects.partition import Partition

#: Constant, however many of them are there: each other reason is a write, and a revision.
BACK: Final = "those that are there join when they have caught up; bring the others back"


def commit_obstacles(
    view: View, partition: Partition, lrs: LiveSet, now_ms: int
) -> tuple[str | None, bool | None]:
    """The reason of a partition that its leader leads with this live replica set, and whether it is
    writable: False, or None if nothing is known to be in the way."""
    wanted, minimum = partition.spec.replicas, partition.spec.log.min_in_sync_replicas
    leader = partition.status.leader
    live = {member.spu_id for member in lrs}
    help_ = f"or lower minInSyncReplicas of the {partition.spec.owner.kind.lower()}"
    found, blocked = list[str](), False
    missing = [i for i in wanted if i not in live]
    # One that has just been added catches up: nothing is wrong with that.
    if lost := [i for i in missing if i not in (partition.spec.joining or ())]:
        names = ", ".join(f"SPU {i}" for i in lost)
        found.append(f"{len(lrs)} of {len(wanted)} replicas are live, without {names}")
    cut_off = _cut_off(view, partition, leader)
    found += cut_off.values()
    for spu_id in missing:
        report = view.report(spu_id, partition.uid)
        if report is not None and not report.fit:
            found.append(unfit_text(spu_id, report))
        elif report is not None and report.reason is not None:
            found.append(f"SPU {spu_id} says: {report.reason}")
    if len(lrs) < minimum:
        advice = "have them reach each other" if cut_off else BACK
        found.append(f"nothing is committed until {minimum} are live: {advice}, {help_}")
        blocked = True
    elif len(lrs) - len(needed := sorted(live & cut_off.keys())) < minimum:
        names = " and ".join(f"SPU {i}" for i in needed)
        found.append(
            f"nothing is committed without {names}, because minInSyncReplicas is {minimum}: have"
            f" them reach each other, {help_}"
        )
        blocked = True
    report = None if leader is None else view.report(leader, partition.uid)
    if report is not None and report.reason is not None:
        found.append(f"SPU {leader} takes no records: {report.reason}")
        blocked = True
    if leader is not None and _is_stalled(view, partition, leader):
        found.append(f"SPU {leader}, its leader, has committed nothing for a while")
        blocked = True
    health = members_health(view, partition.uid, lrs, now_ms)
    if any(member.fitness is Fitness.UNKNOWN for member in health.values()):
        # It will be known soon; until then, an answer that was given stays.
        known = False if blocked else partition.status.writable
        return "; ".join(found) or None, known
    for member in lrs:
        if health[member].fitness is Fitness.OFFLINE:
            found.append(
                f"nothing is committed until SPU {member.spu_id}, which is offline, is back: it"
                f" stays live because minInSyncReplicas is {minimum}; start it, {help_}"
            )
            blocked = True
    return "; ".join(found) or None, False if blocked else None


def _cut_off(view: View, partition: Partition, leader: int | None) -> dict[int, str]:
    """The SPUs with a replica that cannot replicate with the leader's SPU, and why."""
    if leader is None:
        return {}
    others = [i for i in partition.spec.holders if i != leader]
    return {i: why for i in others if (why := view.cut_off(leader, i)) is not None}


def _is_stalled(view: View, partition: Partition, leader: int) -> bool:
    session = view.sessions.get(leader)
    return session is not None and partition.uid in session.stalled
