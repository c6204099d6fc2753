"""Who leads a partition next. Pure.

Only a member of the live replica set (LRS) may: commits needed all of them, so that any one has
every acknowledged record. It must be online with the storage it had when it joined, and fit. Of
several the one with the longest log leads, then the preferred leader, then the SPU that leads
least; ties by lowest id. Leader, term and LRS are written together, and an election adds nobody.
"""

from __future__ import annotations

from sc.store.view import View
from schemas.ids import next_election
from schemas.messages import ReplicaReport
from schemas.partition import LiveReplica, Partition, PartitionResolution, PartitionStatus


def candidates(view: View, partition: Partition) -> list[int]:
    """SPUs that may lead, the best first. The leader of now is not among them."""
    reports = _live(view, partition)
    return sorted(
        (i for i in reports if i != partition.status.leader and i in partition.spec.replicas),
        key=lambda i: (
            -reports[i].last_term,
            -reports[i].leo,
            i != partition.spec.preferred_leader,
            view.store.leading_count(i),
            i,
        ),
    )


def elect(view: View, partition: Partition) -> PartitionStatus | None:
    """The status with a new leader at the next term; None where nobody may lead.

    Members of the LRS that are away or unfit are dropped if enough of it remain for
    ``minInSyncReplicas``; else all stay members.
    """
    found = candidates(view, partition)
    if not found:
        return None
    status, live = partition.status, _live(view, partition)
    kept = tuple(member for member in status.lrs if member.spu_id in live)
    enough = len(kept) >= partition.spec.log.min_in_sync_replicas
    return status.model_copy(
        update={
            "resolution": PartitionResolution.OFFLINE,
            "reason": f"SPU {found[0]} is taking over",
            "leader": found[0],
            "term": next_election(status.term),
            "lrs": kept if enough else status.lrs,
        }
    )


def _live(view: View, partition: Partition) -> dict[int, ReplicaReport]:
    """What the fit members of the LRS that are online report."""
    return {
        member.spu_id: report
        for member in partition.status.lrs
        if (report := view.report(member.spu_id, partition.uid)) is not None
        and _same(member, report)
    }


def _same(member: LiveReplica, report: ReplicaReport) -> bool:
    return report.fit and report.storage_id == member.storage_id
