"""Who leads a partition next. Pure.

Only a member of the live replica set (LRS) may lead: every commit needed all members, so each of
them has every acknowledged record. The member must be online with the storage it had when it
joined, and fit. Of several, one whose SPU does not stop leads before the others, then one whose SPU
is not flapping (`sc.store.suspicions`), then the one with the latest and longest log, then the one
that cannot reach the fewest of the other live replicas, then one that is to stay, then the
preferred leader, then the SPU that leads the fewest partitions, counting elections that are decided
but not written yet; ties go to the lowest id. Leader, term and LRS are written together, and an
election adds no member.
`sc.controllers.live_set` decides which members it removes, which may include the former leader.

A replica that was elected and refuses reports that it is unfit, or asks for an election: then the
next candidate is tried, at a higher term.
"""

from __future__ import annotations

from collections.abc import Collection

from sc.controllers.live_set import members_health, remove_unfit
from sc.store.view import View
from schemas.control.messages import ReplicaReport
from schemas.objects.partition import Partition, PartitionResolution, PartitionStatus, taking_over


def candidates(view: View, partition: Partition, now_ms: int) -> list[int]:
    """SPUs that may lead, the best first. The current leader, if it may lead, is the last."""
    status, found = (
        partition.status,
        members_health(view, partition.uid, partition.status.lrs, now_ms),
    )
    live = {member.spu_id for member, health in found.items() if health.live}
    reports: dict[int, ReplicaReport] = {}
    for spu_id in live.intersection(partition.spec.holders):
        if (report := view.report(spu_id, partition.uid)) is not None:
            reports[spu_id] = report
    return sorted(
        reports,
        key=lambda i: (
            i == status.leader,
            view.stops_until_ms(i) > now_ms,
            view.suspicions.is_flapping(i, now_ms),
            -reports[i].last_term,
            -reports[i].leo,
            cut_off_from(view, i, live),
            i not in partition.spec.replicas,
            i != partition.spec.preferred_leader,
            view.leading_count(i),
            i,
        ),
    )


def cut_off_from(view: View, spu_id: int, live: Collection[int]) -> int:
    """How many of the live replicas an SPU cannot replicate with, as far as SPUs have told. A
    leader commits nothing without those that have to stay."""
    return sum(view.cut_off(spu_id, other) is not None for other in live)


def elect(
    view: View, partition: Partition, now_ms: int, *, another: bool = False
) -> PartitionStatus | None:
    """The status with the best candidate as leader at the next term; None if no SPU may lead.

    ``another``: not the current leader.
    """
    status = partition.status
    found = candidates(view, partition, now_ms)
    if another and status.leader in found:
        found.remove(status.leader)
    if not found:
        return None
    return elected(view, partition, found[0], now_ms)


def elected(view: View, partition: Partition, leader: int, now_ms: int) -> PartitionStatus:
    """The status with a certain live replica, which is online and fit, as leader at the next
    term."""
    status, minimum = partition.status, partition.spec.log.min_in_sync_replicas
    health = members_health(view, partition.uid, status.lrs, now_ms)
    return status.model_copy(
        update={
            "resolution": PartitionResolution.OFFLINE,
            "reason": taking_over(leader),
            "leader": leader,
            "term": view.next_term(status.term),
            "lrs": remove_unfit(status.lrs, leader, health, minimum),
        }
    )
