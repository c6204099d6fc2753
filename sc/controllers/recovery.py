"""Electing a leader when the KV no longer knows which replicas were live. Pure.

This happens in two cases. The cluster recovers: its KV was restored from a backup and lacks what
happened since (`sc.restored_kv`). Or somebody removed the partition's object, and it was created
again without leader and live replica set (LRS).

Then all replicas are asked, and the one with the last term and the longest log, as far as it is as
durable as the topic asks for, leads, alone in the LRS, at a later term than any of them has seen.
Each member of the former LRS held every committed record, and a replica with a later last term, or
the same and a longer log, holds them as well. That is certain only when all replicas have answered,
so the election waits for each that is missing or unfit.

An answer is a report that knows the object's current revision, in the cluster's incarnation. Before
it, the SPU has adopted an assignment without a leader, so the report covers all that it ever
acknowledged as a leader; otherwise its log could grow between two reports. What becomes durable
after an answer was acknowledged by nobody, or is in the answer of the leader that did. The
histories before and after a backup may have diverged, so that each of two replicas holds records
that the other lacks: elections of a recovery are recorded as unclean. So are those in which a
replica has answered that lost its memory when its host went down: what was committed may have been
in it alone.

The partition may have moved since, so that its object names SPUs which hold nothing of it any more.
Whoever reports a replica of it is a holder as well (`found_elsewhere`), so a recovery waits for all
SPUs that may be about to connect, whichever they are (`may_hold`): one that is a moment later than
the others may have all that was acknowledged since the backup. If none of the replicas
that were live by the object has its storage any more, every registered SPU may hold it, and is
needed; and if all that are there are empty, nobody leads: an SPU that was registered after the
backup may hold it. Or it was deleted, and an operator knows that.

Each write changes the object's revision, and all replicas answer again. So the reason of a waiting
partition does not change with the answers: otherwise they would never be complete. It says whom the
election waits for. That an operator may do without them it says only when nobody is about to come
any more: one that is a moment later may have all that was acknowledged.
"""

from __future__ import annotations

from collections.abc import Collection

from sc.store.view import View
from schemas.control.messages import ReplicaReport
from schemas.ids import Term
from schemas.objects.partition import (
    LiveReplica,
    Partition,
    PartitionResolution,
    PartitionStatus,
    taking_over,
)
from schemas.objects.spu import Spu

#: Annotation of an object that somebody removed from the KV, and that was restored.
RESTORED = "runnel/restored"


def pending(view: View, partition: Partition) -> bool:
    """Whether the cluster recovers, and this partition was not elected anew yet."""
    return view.recovering and partition.status.incarnation < view.incarnation


def lost_live_set(view: View, partition: Partition) -> str | None:
    """Why nobody knows which replicas were live, in words; None if the KV knows it."""
    if pending(view, partition):
        return "the KV was restored from a backup"
    if partition.status.leader is not None:
        return None
    reports = (view.report(i, partition.uid) for i in partition.spec.holders)
    led = any(report is not None and report.term for report in reports)
    return "its object was lost" if led or RESTORED in partition.metadata.annotations else None


def found_elsewhere(view: View, partition: Partition) -> tuple[int, ...]:
    """SPUs that report a replica of such a partition, although its object does not name them."""
    known = set(partition.spec.holders)
    return tuple(
        spu_id
        for spu_id, session in sorted(view.sessions.items())
        if spu_id not in known
        and (report := session.reports.get(partition.uid)) is not None
        and not _is_buried(view, spu_id, report)
    )


def may_hold(view: View, partition: Partition) -> Collection[int]:
    """SPUs without which nothing is decided about a partition while they may be about to connect:
    those that hold it, and all while a recovery has not elected its leader."""
    holders = partition.spec.holders
    if not pending(view, partition):
        return holders
    return {*holders, *(spu.spec.spu_id for spu in view.store.objects(Spu))}


def _others_may_connect(view: View, partition: Partition, now_ms: int) -> bool:
    others = set(may_hold(view, partition)).difference(partition.spec.holders)
    return view.decided_at_ms(others, now_ms) is not None


def _is_buried(view: View, spu_id: int, report: ReplicaReport) -> bool:
    """Whether a replica is to be deleted; one that has come back since then has another storage."""
    grave = view.store.tombstone(spu_id, report.uid)
    return grave is not None and grave.storage_id == report.storage_id


def _perhaps_elsewhere(view: View, partition: Partition) -> list[int]:
    """SPUs that are away and may hold a partition that has moved since its object was written. It
    follows from what was ever reported, not from who has answered: the reason must not change with
    the answers."""
    reports = ((i, view.report(i, partition.uid)) for i in partition.spec.holders)
    there = {(i, report.storage_id) for i, report in reports if report is not None}
    live = {(m.spu_id, m.storage_id) for m in partition.status.lrs}
    if not live or live & there or not pending(view, partition):
        return []
    spus = (spu.spec.spu_id for spu in view.store.objects(Spu))
    return sorted(i for i in spus if i not in view.sessions and i not in partition.spec.holders)


def _all_empty(view: View, partition: Partition) -> bool:
    """Whether none of the replicas that were live by a backup is left, and those that are there are
    empty: the partition has moved since to an SPU that the backup does not know. It follows from
    what was reported last, whether or not it is an answer."""
    if not pending(view, partition) or not partition.status.lrs:
        return False
    reports = {i: view.report(i, partition.uid) for i in partition.spec.holders}
    live = {(member.spu_id, member.storage_id) for member in partition.status.lrs}
    return all(
        report is not None
        and (i, report.storage_id) not in live
        and (report.leo, report.last_term) == (0, 0)
        for i, report in reports.items()
    )


def answers(view: View, partition: Partition) -> dict[int, ReplicaReport]:
    """What the replicas of such a partition have answered, by SPU."""
    reports = {i: view.report(i, partition.uid) for i in partition.spec.holders}
    return {
        i: report
        for i, report in reports.items()
        if report is not None and view.knows(report, partition)
    }


def elect_of_all(view: View, partition: Partition, what: str, now_ms: int) -> PartitionStatus:
    """Status with the replica that is furthest ahead as the leader, or with what it waits for."""
    troubles = []
    for i in partition.spec.holders:
        report = view.report(i, partition.uid)
        if i not in view.sessions:
            troubles.append(f"SPU {i} is {view.liveness(i, now_ms).value}")
        elif report is not None and not report.may_lead_uncleanly:
            troubles.append(f"SPU {i} cannot lead: {report.reason or 'unfit'}")
    found = answers(view, partition)
    if elsewhere := _perhaps_elsewhere(view, partition):
        troubles += [f"SPU {i} is away" for i in elsewhere]
    elif _others_may_connect(view, partition, now_ms):
        # Without their names: the reason must not change with each one that connects.
        troubles.append("SPUs that may hold it since the backup have not connected yet")
    if _all_empty(view, partition):
        troubles.append(
            "its live replicas are gone, and those that are there are empty: it was deleted after"
            " the backup, or has moved to an SPU that the backup does not know (delete it again, or"
            " register that SPU)"
        )
    if troubles or len(found) < len(partition.spec.holders):
        asking = ", ".join(f"SPU {i}" for i in partition.spec.holders)
        reason = f"{what}, all replicas are needed: "
        reason += "; ".join(troubles) if troubles else f"the SC is asking {asking}"
        if troubles and view.decided_at_ms(may_hold(view, partition), now_ms) is None:
            reason += (
                "; bring them back, or elect one that is online:"
                f" runnel partition elect {partition.name} --unclean"
            )
        update = {"resolution": PartitionResolution.OFFLINE, "reason": reason}
        return partition.status.model_copy(update=update)
    leader = holds_most(partition, found)
    # One that has forgotten what it held in memory may have been the only live one.
    unclean = pending(view, partition) or not all(report.fit for report in found.values())
    return take_over(view, partition, leader, found, unclean=unclean)


def holds_most(partition: Partition, reports: dict[int, ReplicaReport]) -> int:
    """The replica with the last term and the longest log; of equal ones a fit one, then the
    preferred leader, then the lowest id."""
    return max(
        reports,
        key=lambda i: (
            reports[i].last_term,
            reports[i].leo,
            reports[i].fit,
            i == partition.spec.preferred_leader,
            -i,
        ),
    )


def _last_unclean(status: PartitionStatus, reports: dict[int, ReplicaReport]) -> Term | None:
    """The last term that an unclean election began. Replicas know it although the object was lost:
    without it, one that has heard nothing of that election would take the log of the others for
    that of an old disk."""
    told = (report.unclean_term for report in reports.values())
    known = [term for term in (status.unclean_term, *told) if term is not None]
    return max(known, default=None)


def take_over(
    view: View,
    partition: Partition,
    leader: int,
    reports: dict[int, ReplicaReport],
    *,
    unclean: bool,
    past: int = 0,
) -> PartitionStatus:
    """Status with a replica as the leader and the only live one, at a later term than the
    partition's, those of all reports, and ``past``."""
    status = partition.status
    term = view.next_term(max(status.term, past, *(r.term for r in reports.values())))
    return status.model_copy(
        update={
            "resolution": PartitionResolution.OFFLINE,
            "reason": taking_over(leader),
            "leader": leader,
            "term": term,
            "lrs": (LiveReplica(spu_id=leader, storage_id=reports[leader].storage_id),),
            "unclean_term": term if unclean else _last_unclean(status, reports),
        }
    )
