"""The partition controller: it tells SPUs which replicas to hold, and makes one the leader.

If a partition has never had a leader, the first of its replicas that is online leads: it alone is
the first live replica set (LRS), so that choosing it cannot lose anything. From then on the leader
changes only to another member of the LRS (`sc.controllers.election`), and after a while back to the
preferred one (`sc.controllers.preferred_leader`); if the LRS has only one member, the controller
waits for it. The SPU is told to lead only after leader, term and LRS are
in the KV together. ``online`` follows the leader's own report that it leads at that term. Whether
it can commit then is another question (`sc.controllers.commit_obstacles`).

A leader asks for changes of the LRS; `sc.controllers.live_set` decides which are allowed. The
controller answers a request of the current leader, at its term and the object's revision, with a
write in any case, because the leader waits for a later revision. The reason for turning a request
down stays in the status until leader, LRS or spec change. Members that are unfit or offline leave
without a request.

If the KV does not know which replicas were live, all are asked (`sc.controllers.recovery`). If no
live replica will come back, an operator may have another one lead (`sc.controllers.unclean`).

Deletion leaves, in one transaction, a tombstone for every replica: an SPU that is offline deletes
its replica when it returns, so deletion never waits for it. During a recovery, deletion waits.
"""

from __future__ import annotations

from typing import Final

from sc.controllers.actions import (
    Action,
    EndMove,
    Key,
    LeaveTombstones,
    RemovePartition,
    SendAssignment,
    SendLead,
    WakeAt,
    WritePartitionSpec,
    WriteStatus,
)
from sc.controllers.commit_obstacles import commit_obstacles
from sc.controllers.election import elect
from sc.controllers.live_set import (
    answer,
    member_health,
    members_health,
    remove_unfit,
)
from sc.controllers.membership.steps import Waits, next_step
from sc.controllers.preferred_leader import elect_preferred
from sc.controllers.recovery import (
    elect_of_all,
    found_elsewhere,
    lost_live_set,
    may_hold,
    pending,
)
from sc.controllers.sealing import led_as, to_be_sealed, why_not_sealed
from sc.controllers.unclean import after_unclean_boot, decide, wish_of, with_wish
from sc.store.view import Liveness, View
from schemas.control.messages import (
    Assignment,
    ElectionRequest,
    Lead,
    LrsRequest,
    ReplicaRole,
    Tombstone,
)
from schemas.ids import MAX_RESTARTS, PartitionUid, election_term, restarts_of
from schemas.objects.partition import (
    LiveReplica,
    Partition,
    PartitionResolution,
    PartitionStatus,
    is_led,
    taking_over,
)

#: Tombstones that one transaction leaves.
TOMBSTONES_AT_ONCE: Final = 100
#: Precedes the requests that were turned down, at the end of a reason.
_TURNED_DOWN = "turned down: "


def reconcile(view: View, key: Key, now_ms: int) -> tuple[Action, ...]:
    """Take one partition a step closer to being led by a replica that may lead it."""
    partition = view.store.get(Partition, key.name)
    if partition is None:
        return ()
    if partition.deleting:
        return _deletion(view, partition)
    actions = _assignments(view, partition)
    if (decided_at_ms := view.decided_at_ms(may_hold(view, partition), now_ms)) is not None:
        actions.append(WakeAt(key, decided_at_ms))
    status, refusals = partition.status, list[str]()
    ruling = _rule_on_wish(view, partition, now_ms)
    if isinstance(ruling, str):
        refusals.append(f"unclean election: {ruling}")
    if isinstance(ruling, PartitionStatus):
        wish = ruling
    elif (what := lost_live_set(view, partition)) is not None:
        if elsewhere := found_elsewhere(view, partition):
            leaving = (*(partition.spec.leaving or ()), *elsewhere)
            spec = partition.spec.model_copy(update={"leaving": leaving})
            return (*actions, WritePartitionSpec(partition, spec))
        wish = elect_of_all(view, partition, what, now_ms)
    elif status.leader is None:
        wish = _first_leader(view, partition, now_ms)
    else:
        wish = _led(view, partition, status.leader, actions, refusals, now_ms)
    if any(isinstance(action, EndMove) for action in actions):
        # It is the answer to whatever the leader asked for.
        return tuple(actions)
    if not is_led(wish):
        # Whether it could commit is a question only while it has a leader.
        wish = wish.model_copy(update={"writable": None})
    wish = _with_refusals(partition, wish, refusals)
    wish = wish.model_copy(update={"observed_generation": partition.generation})
    if ruling is not None:
        # In the same write as its answer; otherwise it could be answered twice.
        answered = _with_nothing_archived(with_wish(partition, None), wish)
        actions.append(WriteStatus(answered, wish))
    elif wish.unclean_term != status.unclean_term:
        actions.append(WriteStatus(_with_nothing_archived(partition, wish), wish))
    elif wish != status or _lrs_request(view, partition) is not None:
        actions.append(WriteStatus(partition, wish))
    return tuple(actions)


def _rule_on_wish(view: View, partition: Partition, now_ms: int) -> PartitionStatus | str | None:
    """The answer to a request for an unclean election; None while there is none."""
    wish = wish_of(partition)
    if wish is None or isinstance(wish, str):
        return wish
    return decide(view, partition, wish, now_ms)


def _with_nothing_archived(partition: Partition, wish: PartitionStatus) -> Partition:
    """After an unclean election, the log may hold other records than the archive: until a run has
    compared them, retention keeps everything."""
    if wish.unclean_term == partition.status.unclean_term or not partition.spec.archived_before:
        return partition
    spec = partition.spec.model_copy(update={"archived_before": 0})
    return partition.model_copy(update={"spec": spec})


def _deletion(view: View, partition: Partition) -> tuple[Action, ...]:
    if not view.recovering:
        graves = _tombstones(partition)
        # One transaction holds only so many. Those that an SPU has confirmed when the object is
        # still there, because the SC died in between, are left and confirmed once more.
        starts = range(0, len(graves), TOMBSTONES_AT_ONCE)
        *first, last = [graves[i : i + TOMBSTONES_AT_ONCE] for i in starts]
        return (
            *(LeaveTombstones(partition, some) for some in first),
            RemovePartition(partition, last),
        )
    waits = _offline(partition.status, "it is deleted when the recovery of the cluster is over")
    update = {"observed_generation": partition.generation, "writable": None}
    waits = waits.model_copy(update=update)
    return () if waits == partition.status else (WriteStatus(partition, waits),)


def assignment_for(view: View, partition: Partition) -> Assignment:
    """What an SPU is told about a partition. Until its recovery is over it has no leader: that ends
    any leadership an SPU still has."""
    found = assignment_of(partition)
    if to_be_sealed(view, partition):
        found = found.model_copy(update={"sealed": True})
    if pending(view, partition):
        return found.model_copy(update={"leader": None, "lrs": ()})
    return found


def assignment_of(partition: Partition) -> Assignment:
    """What an SPU must know about a partition, all of it from one revision."""
    owner = partition.spec.owner
    return Assignment(
        uid=PartitionUid(partition.uid),
        name=partition.name,
        topic=owner.name,
        index=partition.spec.index or 0,
        replicas=partition.spec.holders,
        log=partition.spec.log,
        leader=partition.status.leader,
        term=partition.status.term,
        lrs=partition.status.lrs,
        unclean_term=partition.status.unclean_term,
        truncate_before=partition.spec.truncate_before or 0,
        archived_before=partition.spec.archived_before,
        revision=partition.revision,
    )


def _assignments(view: View, partition: Partition) -> list[Action]:
    actions: list[Action] = []
    # One that is to lead no longer is told first. What it sends to its followers after another one
    # leads, they have to cut before they follow that one, and producers wait for as long.
    for spu_id in sorted(partition.spec.holders, key=lambda i: not _is_leading(view, partition, i)):
        session = view.sessions.get(spu_id)
        if session is None or not session.complete:
            continue
        report = session.reports.get(partition.uid)
        if report is None or not view.knows(report, partition):
            actions.append(SendAssignment(spu_id, assignment_for(view, partition)))
    return actions


def _is_leading(view: View, partition: Partition, spu_id: int) -> bool:
    """Whether an SPU leads a partition as far as it has reported."""
    report = view.report(spu_id, partition.uid)
    return report is not None and report.role is ReplicaRole.LEADER


def _first_leader(view: View, partition: Partition, now_ms: int) -> PartitionStatus:
    """Status of a partition that has had no leader: with one as soon as a replica can lead."""
    status = partition.status
    first = partition.spec.preferred_leader
    order = sorted(
        partition.spec.replicas, key=lambda i: (view.stops_until_ms(i) > now_ms, i != first)
    )
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
                "reason": taking_over(spu_id),
                "leader": spu_id,
                "term": view.next_term(status.term),
                "lrs": (LiveReplica(spu_id=spu_id, storage_id=report.storage_id),),
            }
        )
    return _offline(status, "; ".join(reasons))


def _lrs_request(view: View, partition: Partition) -> LrsRequest | None:
    """The current leader's request that is based on the partition's current revision."""
    status = partition.status
    session = None if status.leader is None else view.sessions.get(status.leader)
    found = None if session is None else session.lrs_requests.get(partition.uid)
    if found is None or found.revision != partition.revision:
        return None
    return found if election_term(found.term) == status.term else None


def _election_request(view: View, partition: Partition) -> ElectionRequest | None:
    """The current leader's request for another leader, if nothing has changed since."""
    status = partition.status
    session = None if status.leader is None else view.sessions.get(status.leader)
    found = None if session is None else session.elections.get(partition.uid)
    if found is None or found.revision != partition.revision:
        return None
    return found.request if election_term(found.request.term) == status.term else None


def _led(
    view: View,
    partition: Partition,
    leader: int,
    actions: list[Action],
    refusals: list[str],
    now_ms: int,
) -> PartitionStatus:
    """Status of a partition that has a leader; adds the order to lead if it is due, and
    the requests that are turned down."""
    status = partition.status
    if leader not in partition.spec.holders:
        return _offline(status, f"SPU {leader} leads, but the spec gives it no replica")
    match view.liveness(leader, now_ms):
        case Liveness.UNKNOWN:
            return status
        case Liveness.OFFLINE:
            stuck = _stuck(view, partition, f"its leader, SPU {leader}, is offline", now_ms)
            return elect(view, partition, now_ms) or _offline(status, stuck)
        case Liveness.ONLINE:
            report = view.report(leader, partition.uid)
    if report is None:
        return _offline(status, f"SPU {leader} has not reported its replica yet")
    if (unfit := _unfit(view, partition, leader, now_ms)) is not None:
        stuck = _stuck(view, partition, unfit, now_ms)
        elected = elect(view, partition, now_ms) or after_unclean_boot(view, partition)
        return elected or _offline(status, stuck)
    leads = report.role is ReplicaRole.LEADER and election_term(report.term) == status.term
    if (asked := _election_request(view, partition)) is not None:
        # A new term helps only an SPU that has used up the restarts of this one.
        another = restarts_of(asked.term) < MAX_RESTARTS
        elected = elect(view, partition, now_ms, another=another)
        if elected is not None:
            return elected
        refusals.append(f"another leader, {asked.reason}: no other live replica may lead")
    if not leads and _may_have_led(view, partition, leader):
        return elect(view, partition, now_ms) or status
    moving = next_step(view, partition, leader, now_ms) if leads and partition.spec.moves else None
    if isinstance(moving, EndMove):
        actions.append(moving)
        return status
    if isinstance(moving, Waits) and moving.until_ms is not None:
        actions.append(WakeAt(Key("Partition", partition.name), moving.until_ms))
    # A leader that was elected although unfit is fit, and may ask for members, once it leads.
    wish = _with_live_set(view, partition, leader, refusals, now_ms) if report.fit else status
    if leads:
        obstacle, writable = commit_obstacles(view, partition, wish.lrs, now_ms)
        # Once nothing is in the way of a seal, the status changes, and all SPUs hear of it.
        waits = f"its replicas move: {moving.why}" if isinstance(moving, Waits) else None
        said = (obstacle, waits, why_not_sealed(view, partition))
        reason = "; ".join(filter(None, said)) or None
        truncated = partition.spec.truncate_before or 0
        done = report.log_start >= truncated > status.start_offset
        wish = wish.model_copy(
            update={
                **led_as(partition, report),
                "reason": reason,
                "writable": writable,
                "start_offset": truncated if done else status.start_offset,
            }
        )
        if wish.lrs == status.lrs and not refusals and isinstance(moving, PartitionStatus):
            return moving
        if wish == status and not refusals and not partition.spec.moves:
            preferred = elect_preferred(view, partition, now_ms)
            if isinstance(preferred, int):
                actions.append(WakeAt(Key("Partition", partition.name), preferred))
            elif preferred is not None:
                return preferred
    else:
        wish = _offline(wish, taking_over(leader))
        told = view.knows(report, partition) or view.sessions[leader].complete
        if wish.lrs == status.lrs and told:
            # If it does not know this revision yet, its assignment goes out before the order.
            actions.append(SendLead(leader, _lead_of(partition)))
    return wish


def _may_have_led(view: View, partition: Partition, leader: int) -> bool:
    """Whether the leader may have led in this term already, on a disk that knows nothing of it.

    Somebody may have put an old copy of its files back. If it led in the term again, its records
    could pass for others of the same term that a follower holds. An SPU is sent no order to lead
    unless its session began before the election, or with a report that knows of the term: so a
    replica that has forgotten a term never leads in it.
    """
    session, status = view.sessions.get(leader), partition.status
    if session is None or status.unclean_term == status.term:
        # An unclean election has chosen this very disk, whatever it forgot.
        return False
    return session.unknown_leads.get(partition.uid) == status.term


def _unfit(view: View, partition: Partition, leader: int, now_ms: int) -> str | None:
    """Why an online leader must not lead, or None."""
    status = partition.status
    for member in status.lrs:
        if member.spu_id == leader:
            if _elected_unfit(view, partition, member):
                return None
            return member_health(view, partition.uid, member, now_ms).why or None
    return f"SPU {leader} leads, but is not a live replica"


def _elected_unfit(view: View, partition: Partition, leader: LiveReplica) -> bool:
    """Whether the leader was elected although an unclean boot or an old disk made it unfit, and has
    not led since: it is fit as soon as it leads."""
    status, report = partition.status, view.report(leader.spu_id, partition.uid)
    if report is None or report.storage_id != leader.storage_id or report.fit:
        return False
    led = election_term(report.term) == status.term
    excused = report.unclean_boot or bool(report.old)
    return excused and status.unclean_term == status.term and not led


def _lead_of(partition: Partition) -> Lead:
    return Lead(
        uid=PartitionUid(partition.uid),
        term=partition.status.term,
        lrs=partition.status.lrs,
        unclean_term=partition.status.unclean_term,
        revision=partition.revision,
    )


def _with_live_set(
    view: View, partition: Partition, leader: int, refusals: list[str], now_ms: int
) -> PartitionStatus:
    """The status with the live replica set as it should be under a leader that is online and fit;
    adds why it is not the set that the leader asked for."""
    status, minimum = partition.status, partition.spec.log.min_in_sync_replicas
    request = _lrs_request(view, partition)
    members = {*status.lrs, *(request.lrs if request is not None else ())}
    health = members_health(view, partition.uid, members, now_ms)
    if request is None:
        lrs = remove_unfit(status.lrs, leader, health, minimum)
    else:
        replicas = partition.spec.replicas
        found = answer(request, status.lrs, leader, health, replicas=replicas, minimum=minimum)
        lrs = found.lrs
        if found.refusal is not None:
            refusals.append(found.refusal)
    return status if lrs == status.lrs else status.model_copy(update={"lrs": lrs})


def _with_refusals(
    partition: Partition, wish: PartitionStatus, refusals: list[str]
) -> PartitionStatus:
    """The status with the requests that were turned down now, or before if nothing else changed."""
    before, said = partition.status, "; ".join(refusals)
    if not said and wish.reason == before.reason:
        return wish
    still = {"reason": before.reason, "observed_generation": partition.generation}
    if not said and wish.model_copy(update=still) == before:
        _, found, rest = (before.reason or "").rpartition(_TURNED_DOWN)
        said = rest if found else ""
    if not said:
        return wish
    reasons = [] if wish.reason is None else [wish.reason]
    reason = "; ".join((*reasons, f"{_TURNED_DOWN}{said}"))
    return wish.model_copy(update={"reason": reason})


def _stuck(view: View, partition: Partition, what: str, now_ms: int) -> str:
    """Why nobody leads: what is wrong with the leader, and with each possible successor."""
    status = partition.status
    if len(partition.spec.holders) == 1:
        return what
    found = members_health(view, partition.uid, status.lrs, now_ms)
    others = [s.why for m, s in found.items() if m.spu_id != status.leader and s.why]
    return "; ".join((f"{what}; no other live replica may lead", *others))


def _offline(status: PartitionStatus, reason: str) -> PartitionStatus:
    return status.model_copy(
        update={"resolution": PartitionResolution.OFFLINE, "reason": reason or None}
    )


def _tombstones(partition: Partition) -> tuple[Tombstone, ...]:
    """One for each SPU that may hold a replica, whatever its storage: the uid never comes back."""
    holders = dict.fromkeys((*partition.spec.holders, *(m.spu_id for m in partition.status.lrs)))
    return tuple(Tombstone(uid=PartitionUid(partition.uid), spu_id=i) for i in holders)
