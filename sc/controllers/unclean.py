"""Unclean elections: the election of a replica that may lack committed records. Pure.

An operator asks for one (`schemas.objects.partition.UncleanElection`, kept as an annotation of the
partition) when no member of the live replica set (LRS) can be elected and none will return. The
request names the term that the operator saw, and is void at any other. It is answered once: by the
election or, if a member returned or no replica can lead, by a refusal in the status's reason.
Either write removes the annotation, so that an old request never takes effect. While the state of a
member is not known, the request waits.

No operator is needed if all members are unfit only because of an unclean boot: when all of them are
online, the one whose log is furthest ahead leads.

Every such election is recorded in the status: followers may discard committed records only for a
leader of an unclean election.
"""

from __future__ import annotations

from typing import Final

from pydantic import ValidationError

from sc.controllers.live_set import Fitness, members_health, unfit_text
from sc.controllers.recovery import elect_of_all, holds_most, lost_live_set, pending, take_over
from sc.store.view import Liveness, View
from schemas.control.messages import ReplicaReport
from schemas.ids import format_term, make_term
from schemas.objects.partition import UNCLEAN_ELECTION, Partition, PartitionStatus, UncleanElection

#: When the term of a partition was lost, an offline replica may have seen later terms than those
#: that answered. It will not have seen this many more leader changes.
_LEAP: Final = make_term(0, 1 << 20)


def wish_of(partition: Partition) -> UncleanElection | str | None:
    """The request that waits for an answer, or what is wrong with it, or None."""
    text = partition.metadata.annotations.get(UNCLEAN_ELECTION)
    if text is None:
        return None
    try:
        return UncleanElection.model_validate_json(text)
    except ValidationError:
        return f"{UNCLEAN_ELECTION} does not parse: {text}"


def with_wish(partition: Partition, wish: UncleanElection | None) -> Partition:
    """A copy that waits for this unclean election, or for none."""
    kept = {k: v for k, v in partition.metadata.annotations.items() if k != UNCLEAN_ELECTION}
    if wish is not None:
        kept[UNCLEAN_ELECTION] = wish.model_dump_json(by_alias=True, exclude_none=True)
    return partition.with_metadata(annotations=kept)


def decide(
    view: View, partition: Partition, wish: UncleanElection, now_ms: int
) -> PartitionStatus | str | None:
    """The status with the new leader, or why there is none, or None while that is not known yet."""
    status = partition.status
    if wish.term != status.term:
        asked, found = format_term(wish.term), format_term(status.term)
        return f"it was requested at term {asked}, but the term is {found} now"
    lost = lost_live_set(view, partition)
    if lost is not None:
        if elect_of_all(view, partition, lost, now_ms).term != status.term:
            return "all replicas have answered: the one whose log is furthest ahead leads"
    elif status.leader is None:
        return (
            "it has had no leader yet: the first replica that is online leads, and nothing is lost"
        )
    else:
        health = members_health(view, partition.uid, status.lrs, now_ms)
        able = [m for m in status.lrs if health[m].live and m.spu_id in partition.spec.holders]
        if able:
            return (
                f"SPU {able[0].spu_id} is a live replica, online and fit: no record has to be lost"
            )
        if after_unclean_boot(view, partition) is not None:
            return "all live replicas are online: the one whose log is furthest ahead leads"
        if any(s.fitness is Fitness.UNKNOWN for s in health.values()):
            return None
    if any(view.liveness(i, now_ms) is Liveness.UNKNOWN for i in partition.spec.holders):
        return None
    reports = {i: r for i in partition.spec.holders if (r := view.report(i, partition.uid))}
    leader = _candidate(view, partition, wish.leader, reports, now_ms)
    if isinstance(leader, str):
        return leader
    known = max(status.term, *(report.term for report in reports.values()))
    past = known + _LEAP if lost is not None and not pending(view, partition) else 0
    return take_over(view, partition, leader, reports, unclean=True, past=past)


def _candidate(
    view: View,
    partition: Partition,
    named: int | None,
    reports: dict[int, ReplicaReport],
    now_ms: int,
) -> int | str:
    """The SPU that is to lead, or why there is none."""
    if named is None:
        able = {i: report for i, report in reports.items() if report.may_lead_uncleanly}
        return holds_most(partition, able) if able else "no replica is online and fit"
    if named not in partition.spec.holders:
        return f"SPU {named} holds no replica of it"
    if named not in reports:
        state = view.liveness(named, now_ms).value
        return f"SPU {named} is {state}, and has reported no replica"
    report = reports[named]
    return named if report.may_lead_uncleanly else unfit_text(named, report)


def after_unclean_boot(view: View, partition: Partition) -> PartitionStatus | None:
    """Status with a new leader if all members of the LRS are online, and each is unfit only because
    of an unclean boot; else None."""
    reports: dict[int, ReplicaReport] = {}
    for member in partition.status.lrs:
        report = view.report(member.spu_id, partition.uid)
        if report is None or report.storage_id != member.storage_id:
            return None
        if report.fit or not report.unclean_boot:
            return None
        reports[member.spu_id] = report
    able = {i: report for i, report in reports.items() if i in partition.spec.holders}
    if not able:
        return None
    return take_over(view, partition, holds_most(partition, able), reports, unclean=True)
