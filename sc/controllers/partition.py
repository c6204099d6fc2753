"""The partition controller: replicas told what to hold, one of them made the leader.

A partition that nobody led yet goes to the first of its replicas that is online: that one alone
is the first live replica set (LRS), so that nothing can be lost by choosing it. From then on the
leader changes only to another member of the LRS (`sc.controllers.election`); while the LRS has one
member that member is waited for. The SPU is told to lead only after leader, term and LRS
stand in the KV together. ``online`` follows the leader's own report that it leads at that term.

An object that somebody removed from the KV comes back without leader and LRS: then all replicas are
asked, and the one with the last term and the highest offset leads.

Deletion leaves, in one transaction, a tombstone for every replica: an SPU that is away is told
to delete when it returns, so that deletion never waits for it.
"""

from __future__ import annotations

from sc.controllers.actions import (
    Action,
    Key,
    RemovePartition,
    SendAssignment,
    SendLead,
    WakeAt,
    WriteStatus,
)
from sc.controllers.election import elect
from sc.store.view import Liveness, View
from schemas.ids import PartitionUid, election_term, next_election
from schemas.messages import Assignment, Lead, ReplicaReport, ReplicaRole, Tombstone
from schemas.partition import LiveReplica, Partition, PartitionResolution, PartitionStatus

#: Annotation of what somebody removed from the KV, and that came back.
RESTORED = "runnel/restored"


def reconcile(view: View, key: Key, now_ms: int) -> tuple[Action, ...]:
    """Take one partition a step closer to being led by a replica that may lead it."""
    partition = view.store.get(Partition, key.name)
    if partition is None:
        return ()
    if partition.deleting:
        return (RemovePartition(partition, _tombstones(partition)),)
    actions = _assignments(view, partition)
    if any(view.liveness(i, now_ms) is Liveness.UNKNOWN for i in partition.spec.replicas):
        actions.append(WakeAt(key, view.grace_until_ms))
    status = partition.status
    if status.leader is None:
        wish = _first_leader(view, partition, now_ms)
    else:
        wish = _led(view, partition, status.leader, actions, now_ms)
    wish = wish.model_copy(update={"observed_generation": partition.generation})
    if wish != status:
        actions.append(WriteStatus(partition, wish))
    return tuple(actions)


def assignment_of(partition: Partition) -> Assignment:
    """What an SPU must know of a partition, all of it from one revision."""
    owner = partition.spec.owner
    return Assignment(
        uid=PartitionUid(partition.uid),
        name=partition.name,
        topic=owner.name,
        index=partition.spec.index or 0,
        replicas=partition.spec.replicas,
        log=partition.spec.log,
        leader=partition.status.leader,
        term=partition.status.term,
        lrs=partition.status.lrs,
        revision=partition.revision,
    )


def _assignments(view: View, partition: Partition) -> list[Action]:
    actions: list[Action] = []
    for spu_id in partition.spec.replicas:
        session = view.sessions.get(spu_id)
        if session is None or not session.complete:
            continue
        report = session.reports.get(partition.uid)
        if report is None or report.revision < partition.revision or not report.assigned:
            actions.append(SendAssignment(spu_id, assignment_of(partition)))
    return actions


def _first_leader(view: View, partition: Partition, now_ms: int) -> PartitionStatus:
    """Status of a partition nobody led: with a leader as soon as one can be named."""
    status = partition.status
    if (lost := _lost(view, partition, now_ms)) is not None:
        return lost
    order = sorted(partition.spec.replicas, key=lambda i: i != partition.spec.preferred_leader)
    reasons = []
    for spu_id in order:
        liveness = view.liveness(spu_id, now_ms)
        if liveness is not Liveness.ONLINE:
            reasons.append(f"SPU {spu_id} is {liveness.value}")
            if liveness is Liveness.UNKNOWN:
                break
            continue
        report = view.report(spu_id, partition.uid)
        if report is None:
            reasons = [f"SPU {spu_id} is creating its replica"]
            break
        if not report.fit:
            reasons.append(f"SPU {spu_id} cannot lead: {report.reason or 'unfit'}")
            continue
        return status.model_copy(
            update={
                "resolution": PartitionResolution.OFFLINE,
                "reason": f"SPU {spu_id} is taking over",
                "leader": spu_id,
                "term": next_election(status.term),
                "lrs": (LiveReplica(spu_id=spu_id, storage_id=report.storage_id),),
            }
        )
    return _offline(status, "; ".join(reasons))


def _lost(view: View, partition: Partition, now_ms: int) -> PartitionStatus | None:
    """Status of a partition whose object is new though its replicas were led before: somebody
    removed it from the KV. None for one that is really new.

    Who was live is not known any more: all replicas are waited for, and the one that has most
    leads, at a higher term than any of them has seen.
    """
    reports = {i: view.report(i, partition.uid) for i in partition.spec.replicas}
    led = any(report is not None and report.term for report in reports.values())
    if not led and RESTORED not in partition.metadata.annotations:
        return None
    found = {i: r for i, r in reports.items() if r is not None}
    missing = [f"SPU {i} is {view.liveness(i, now_ms).value}" for i in reports if i not in found]
    unfit = [f"SPU {i} cannot lead: {r.reason or 'unfit'}" for i, r in found.items() if not r.fit]
    if missing or unfit:
        why = "; ".join(missing + unfit)
        return _offline(partition.status, f"its object was lost, all replicas are needed: {why}")
    leader = max(found, key=lambda i: (found[i].last_term, found[i].leo, -i))
    return partition.status.model_copy(
        update={
            "resolution": PartitionResolution.OFFLINE,
            "reason": f"SPU {leader} is taking over",
            "leader": leader,
            "term": next_election(max(election_term(r.term) for r in found.values())),
            "lrs": (LiveReplica(spu_id=leader, storage_id=found[leader].storage_id),),
        }
    )


def _led(
    view: View, partition: Partition, leader: int, actions: list[Action], now_ms: int
) -> PartitionStatus:
    """Status of a partition that has a leader; adds the order to lead where it is due."""
    status = partition.status
    if leader not in partition.spec.replicas:
        return _offline(status, f"SPU {leader} leads but holds no replica by the spec")
    match view.liveness(leader, now_ms):
        case Liveness.UNKNOWN:
            return status
        case Liveness.OFFLINE:
            if (elected := elect(view, partition)) is not None:
                return elected
            others = "; no other live replica may lead" if len(partition.spec.replicas) > 1 else ""
            return _offline(status, f"its leader, SPU {leader}, is offline{others}")
        case Liveness.ONLINE:
            report = view.report(leader, partition.uid)
    if report is None:
        return _offline(status, f"SPU {leader} has not reported its replica yet")
    unfit = _unfit(status, leader, report)
    if unfit is not None:
        return elect(view, partition) or _offline(status, unfit)
    if report.role is ReplicaRole.LEADER and election_term(report.term) == status.term:
        return status.model_copy(
            update={"resolution": PartitionResolution.ONLINE, "reason": _shortage(partition)}
        )
    if report.revision >= partition.revision and report.assigned:
        lead = Lead(
            uid=PartitionUid(partition.uid),
            term=status.term,
            lrs=status.lrs,
            revision=partition.revision,
        )
        actions.append(SendLead(leader, lead))
    return _offline(status, f"SPU {leader} is taking over")


def _unfit(status: PartitionStatus, leader: int, report: ReplicaReport) -> str | None:
    """Why a live leader must not lead, or None."""
    expected = next((m.storage_id for m in status.lrs if m.spu_id == leader), None)
    if expected is not None and report.storage_id != expected:
        return (
            f"SPU {leader} came back without its data: storage {report.storage_id},"
            f" the live replica was {expected}"
        )
    if not report.fit:
        return f"the replica on SPU {leader} is unfit: {report.reason or 'no reason given'}"
    return None


def _shortage(partition: Partition) -> str | None:
    live, wanted = len(partition.status.lrs), len(partition.spec.replicas)
    if live >= wanted:
        return None
    return f"{live} of {wanted} replicas are live"


def _offline(status: PartitionStatus, reason: str) -> PartitionStatus:
    return status.model_copy(
        update={"resolution": PartitionResolution.OFFLINE, "reason": reason or None}
    )


def _tombstones(partition: Partition) -> tuple[Tombstone, ...]:
    """One for each SPU that may hold a replica, whatever its storage: the uid never comes back."""
    holders = dict.fromkeys((*partition.spec.replicas, *(m.spu_id for m in partition.status.lrs)))
    return tuple(Tombstone(uid=PartitionUid(partition.uid), spu_id=i) for i in holders)
