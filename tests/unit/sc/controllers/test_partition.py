"""The partition controller: every branch as (view, key, now) → exact actions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sc.controllers.actions import (
    Action,
    Key,
    LeaveTombstones,
    RemovePartition,
    SendAssignment,
    SendLead,
    WakeAt,
    WriteStatus,
)
from sc.controllers.partition import assignment_of, reconcile
from sc.kv.interface import MAX_TXN_OPS
from sc.store.suspicions import RECONNECT_MS
from sc.store.view import View
from schemas.control.messages import Assignment, Lead, ReplicaReport, ReplicaRole, Tombstone
from schemas.control.session_end import SessionEnd
from schemas.ids import PartitionUid, Term, make_term
from schemas.objects.partition import LiveReplica, Partition, PartitionResolution, PartitionStatus
from tests.unit.sc.builders import (
    NO_TERM,
    TERM_1,
    TERM_2,
    live,
    partition_of,
    report_of,
    session_of,
    spu_of,
    view_of,
)

KEY = Key("Partition", "t-0")
NOW = 1_000
GRACE = 5_000
ONLINE = PartitionResolution.ONLINE
OFFLINE = PartitionResolution.OFFLINE
LEADER = ReplicaRole.LEADER


def becomes(
    partition: Partition,
    resolution: PartitionResolution,
    reason: str | None,
    *,
    leader: int | None = None,
    term: Term = NO_TERM,
    lrs: tuple[LiveReplica, ...] = (),
) -> WriteStatus:
    status = partition.status.model_copy(
        update={
            "resolution": resolution,
            "reason": reason,
            "leader": leader,
            "term": term,
            "lrs": lrs,
            "observed_generation": partition.generation,
        }
    )
    return WriteStatus(partition, status)


def unled(*replicas: int, reason: str | None = None, **more: Any) -> Partition:
    return partition_of("t", 0, replicas, reason=reason, **more)


def led(
    *replicas: int,
    resolution: PartitionResolution = ONLINE,
    reason: str | None = None,
    storage: str | None = None,
    **more: Any,
) -> Partition:
    """Led by its first replica at the first term."""
    first = replicas[0]
    return partition_of(
        "t",
        0,
        replicas,
        resolution=resolution,
        reason=reason,
        leader=more.pop("leader", first),
        term=TERM_1,
        lrs=(live(first, storage),),
        **more,
    )


def lead_of(partition: Partition) -> Lead:
    return Lead(
        uid=PartitionUid(partition.uid),
        term=partition.status.term,
        lrs=partition.status.lrs,
        revision=partition.revision,
    )


def spus(*ids: int) -> tuple[Any, ...]:
    return tuple(spu_of(i) for i in ids)


TAKEN: dict[str, Any] = {"leader": 1, "term": TERM_1, "lrs": (live(1),)}

FIRST_LEADER = [
    pytest.param(view_of(), (), id="given-no-object-then-nothing"),
    pytest.param(
        view_of(unled(1)),
        (becomes(unled(1), OFFLINE, "SPU 1 is offline"),),
        id="given-unregistered-spu-then-offline-with-reason",
    ),
    pytest.param(
        view_of(unled(1, reason="SPU 1 is offline"), *spus(1)),
        (),
        id="given-still-offline-then-nothing",
    ),
    pytest.param(
        view_of(unled(1), *spus(1), sessions=[session_of(1, complete=False)]),
        (becomes(unled(1), OFFLINE, "SPU 1 is creating its replica"),),
        id="given-session-not-told-everything-then-no-difference-is-sent",
    ),
    pytest.param(
        view_of(unled(1), *spus(1), sessions=[session_of(1)]),
        (
            SendAssignment(1, assignment_of(unled(1))),
            becomes(unled(1), OFFLINE, "SPU 1 is creating its replica"),
        ),
        id="given-online-without-report-then-assigned",
    ),
    pytest.param(
        view_of(unled(1), *spus(1), sessions=[session_of(1, report_of(unled(1)))]),
        (becomes(unled(1), OFFLINE, "SPU 1 is taking over", **TAKEN),),
        id="given-fit-replica-then-elected-alone-at-the-next-term",
    ),
    pytest.param(
        view_of(unled(1), *spus(1), sessions=[session_of(1, report_of(unled(1), revision=3))]),
        (
            SendAssignment(1, assignment_of(unled(1))),
            becomes(unled(1), OFFLINE, "SPU 1 is taking over", **TAKEN),
        ),
        id="given-replica-knows-an-older-revision-then-assigned-anew",
    ),
    pytest.param(
        view_of(unled(1), *spus(1), sessions=[session_of(1, report_of(unled(1), assigned=False))]),
        (
            SendAssignment(1, assignment_of(unled(1))),
            becomes(unled(1), OFFLINE, "SPU 1 is taking over", **TAKEN),
        ),
        id="given-replica-nobody-assigned-then-assigned",
    ),
    pytest.param(
        view_of(
            unled(1, 2, preferred=2),
            *spus(1, 2),
            sessions=[
                session_of(1, report_of(unled(1, 2))),
                session_of(2, report_of(unled(1, 2), 2)),
            ],
        ),
        (
            becomes(
                unled(1, 2, preferred=2),
                OFFLINE,
                "SPU 2 is taking over",
                leader=2,
                term=TERM_1,
                lrs=(live(2),),
            ),
        ),
        id="given-two-fit-replicas-then-the-preferred-one",
    ),
    pytest.param(
        view_of(unled(2, 1), *spus(1, 2), sessions=[session_of(1, report_of(unled(2, 1)))]),
        (becomes(unled(2, 1), OFFLINE, "SPU 1 is taking over", **TAKEN),),
        id="given-preferred-offline-then-the-next-one",
    ),
    pytest.param(
        view_of(
            unled(2, 1),
            *spus(1, 2),
            sessions=[session_of(1, report_of(unled(2, 1)))],
            grace_until_ms=GRACE,
        ),
        (
            WakeAt(KEY, GRACE),
            becomes(unled(2, 1), OFFLINE, "SPU 2 is unknown"),
        ),
        id="given-preferred-unknown-then-waited-for",
    ),
    pytest.param(
        view_of(
            unled(2, 1),
            *spus(1, 2),
            sessions=[
                session_of(1, report_of(unled(2, 1))),
                session_of(2, report_of(unled(2, 1), 2, fit=False, reason="disk damaged")),
            ],
        ),
        (becomes(unled(2, 1), OFFLINE, "SPU 1 is taking over", **TAKEN),),
        id="given-preferred-unfit-then-the-next-one",
    ),
    pytest.param(
        view_of(
            unled(2, 1, 3),
            *spus(1, 2, 3),
            sessions=[
                session_of(1, report_of(unled(2, 1, 3), 1, fit=False)),
                session_of(2, report_of(unled(2, 1, 3), 2, fit=False, reason="disk damaged")),
            ],
        ),
        (
            becomes(
                unled(2, 1, 3),
                OFFLINE,
                "SPU 2 cannot lead: disk damaged; SPU 1 cannot lead: unfit; SPU 3 is offline",
            ),
        ),
        id="given-none-may-lead-then-offline-with-every-reason",
    ),
]


def test_given_the_preferred_leader_stops_before_anyone_led_then_the_next_one_leads() -> None:
    partition = unled(2, 1)
    stops = replace(session_of(2, report_of(partition, 2)), stops_ms=NOW)
    view = view_of(partition, *spus(1, 2), sessions=[session_of(1, report_of(partition)), stops])
    chosen = becomes(partition, OFFLINE, "SPU 1 is taking over", **TAKEN)
    assert reconcile(view, KEY, NOW) == (chosen,)


OFFLINE_LED = led(1, resolution=OFFLINE, reason="its leader, SPU 1, is offline")
TAKING = led(1, resolution=OFFLINE, reason="SPU 1 is taking over")
ONE_OF_TWO = "1 of 2 replicas are live, without SPU 2"
PAIR = led(1, 2, reason=ONE_OF_TWO)
OF_THREE = led(1, 2, 3, resolution=OFFLINE, reason="SPU 1 is taking over")
LEADING = report_of(TAKING, role=LEADER, term=TERM_1 + 1)
CHOSEN = OFFLINE_LED.with_status(
    OFFLINE_LED.status.model_copy(update={"unclean_term": OFFLINE_LED.status.term})
)


def forgetful(partition: Partition, term: int) -> View:
    """SPU 1 leads, and its session began with a report that knows nothing of a term."""
    session = replace(
        session_of(1, report_of(partition)), unknown_leads={partition.uid: Term(term)}
    )
    return view_of(partition, *spus(1), sessions=[session])


ADVICE = "or elect one that is online: runnel partition elect t-0 --unclean"


def lost(reason: str, partition: Partition | None = None, advice: str = ADVICE) -> WriteStatus:
    what = "its object was lost, all replicas are needed"
    said = ", ".join(filter(None, (f"{what}: {reason}", advice)))
    return becomes(partition or unled(1, 2), OFFLINE, said)


def history(leo: int, last_term: int = 0, **more: Any) -> ReplicaReport:
    """The report of a replica with a log."""
    spu_id = more.pop("spu_id", 1)
    report = report_of(unled(1, 2), spu_id, **more)
    return report.model_copy(update={"leo": leo, "last_term": Term(last_term)})


def past(one: ReplicaReport | None, two: ReplicaReport | None) -> View:
    """Two replicas of a partition whose object is new, and what they report of their past."""
    sessions = [session_of(i, r) for i, r in ((1, one), (2, two)) if r is not None]
    return view_of(unled(1, 2), *spus(1, 2), sessions=sessions)


OLD = make_term(0, 3) + 2
CAME_BACK = unled(1, 2).with_metadata(annotations={"runnel/restored": "x"})
LOST = [
    pytest.param(
        view_of(CAME_BACK, *spus(1, 2), sessions=[session_of(2, history(0, spu_id=2))]),
        (lost("SPU 1 is offline; bring them back", CAME_BACK),),
        id="given-object-came-back-and-only-an-empty-replica-then-it-does-not-lead",
    ),
    pytest.param(
        past(history(9, OLD, term=OLD), None),
        (lost("SPU 2 is offline; bring them back"),),
        id="given-object-removed-and-a-replica-away-then-all-are-waited-for",
    ),
    pytest.param(
        past(history(9, OLD, term=OLD), history(9, fit=False, reason="wet", spu_id=2)),
        (lost("SPU 2 cannot lead: wet; bring them back"),),
        id="given-object-removed-and-a-replica-unfit-then-nobody-leads",
    ),
    pytest.param(
        past(history(9, OLD, term=OLD, role=LEADER, revision=0), history(9, OLD, spu_id=2)),
        (
            SendAssignment(1, assignment_of(unled(1, 2))),
            lost("the SC is asking SPU 1, SPU 2", advice=""),
        ),
        id="given-object-removed-and-a-replica-that-may-lead-then-its-end-is-not-known-yet",
    ),
    pytest.param(
        past(history(9, OLD - 1, term=OLD), history(5, OLD, spu_id=2)),
        (
            becomes(
                unled(1, 2),
                OFFLINE,
                "SPU 2 is taking over",
                leader=2,
                term=make_term(0, 4),
                lrs=(live(2),),
            ),
        ),
        id="given-object-removed-then-the-last-term-leads-above-every-term-seen",
    ),
    pytest.param(
        past(history(5, OLD), history(9, OLD, term=OLD, spu_id=2)),
        (
            becomes(
                unled(1, 2),
                OFFLINE,
                "SPU 2 is taking over",
                leader=2,
                term=make_term(0, 4),
                lrs=(live(2),),
            ),
        ),
        id="given-object-removed-and-equal-terms-then-the-longer-log-leads",
    ),
]

LED = [
    pytest.param(
        view_of(TAKING, *spus(1), sessions=[session_of(1, report_of(TAKING))]),
        (SendLead(1, lead_of(TAKING)),),
        id="given-elected-and-written-then-told-to-lead",
    ),
    pytest.param(
        view_of(TAKING, *spus(1), sessions=[session_of(1, report_of(TAKING, revision=4))]),
        (SendAssignment(1, assignment_of(TAKING)), SendLead(1, lead_of(TAKING))),
        id="given-leader-knows-an-older-revision-then-assigned-before-it-leads",
    ),
    pytest.param(
        view_of(
            TAKING,
            *spus(1),
            sessions=[session_of(1, report_of(TAKING, revision=4), complete=False)],
        ),
        (),
        id="given-leader-that-has-yet-to-hear-everything-then-that-comes-first",
    ),
    pytest.param(
        view_of(TAKING, *spus(1), sessions=[session_of(1, report_of(TAKING, assigned=False))]),
        (SendAssignment(1, assignment_of(TAKING)), SendLead(1, lead_of(TAKING))),
        id="given-leader-not-assigned-then-assigned-before-it-leads",
    ),
    pytest.param(
        view_of(
            OF_THREE,
            *spus(1, 2, 3),
            sessions=[
                session_of(1, report_of(OF_THREE, revision=4)),
                session_of(2, report_of(OF_THREE, 2, revision=4)),
                session_of(3, report_of(OF_THREE, 3, revision=4, role=LEADER, term=7)),
            ],
        ),
        (
            *(SendAssignment(spu, assignment_of(OF_THREE)) for spu in (3, 1, 2)),
            SendLead(1, lead_of(OF_THREE)),
        ),
        id="given-a-leader-that-is-to-lead-no-longer-then-it-is-told-first",
    ),
    pytest.param(
        view_of(TAKING, *spus(1), sessions=[session_of(1, LEADING)]),
        (becomes(TAKING, ONLINE, None, **TAKEN),),
        id="given-leader-reports-this-term-then-online",
    ),
    pytest.param(
        view_of(TAKING, *spus(1), sessions=[session_of(1, report_of(TAKING, role=LEADER, term=7))]),
        (SendLead(1, lead_of(TAKING)),),
        id="given-leader-reports-an-older-term-then-told-to-lead-at-this-one",
    ),
    pytest.param(
        view_of(
            TAKING, *spus(1), sessions=[session_of(1, report_of(TAKING, role=LEADER, term=TERM_2))]
        ),
        (SendLead(1, lead_of(TAKING)),),
        id="given-leader-reports-a-later-term-then-not-called-online",
    ),
    pytest.param(
        view_of(
            TAKING,
            *spus(1),
            sessions=[session_of(1, report_of(TAKING, role=ReplicaRole.STOPPED, term=TERM_1))],
        ),
        (SendLead(1, lead_of(TAKING)),),
        id="given-leader-stopped-leading-then-told-to-lead",
    ),
    pytest.param(
        view_of(led(1), *spus(1), sessions=[session_of(1, LEADING)]),
        (),
        id="given-online-then-nothing",
    ),
    pytest.param(
        view_of(led(1, 2), *spus(1, 2), sessions=[session_of(1, LEADING)]),
        (becomes(led(1, 2), ONLINE, ONE_OF_TWO, **TAKEN),),
        id="given-fewer-live-than-wanted-then-reason-says-so",
    ),
    pytest.param(
        view_of(PAIR, *spus(1, 2), sessions=[session_of(1, LEADING), session_of(2)]),
        (SendAssignment(2, assignment_of(PAIR)),),
        id="given-follower-came-online-then-assigned-and-status-stays",
    ),
    pytest.param(
        view_of(led(1), *spus(1)),
        (becomes(led(1), OFFLINE, "its leader, SPU 1, is offline", **TAKEN),),
        id="given-leader-went-offline-then-offline-and-leader-and-term-stay",
    ),
    pytest.param(
        view_of(PAIR, *spus(1, 2), sessions=[session_of(2, report_of(PAIR, 2))]),
        (
            becomes(
                PAIR,
                OFFLINE,
                "its leader, SPU 1, is offline; no other live replica may lead",
                **TAKEN,
            ),
        ),
        id="given-leader-offline-and-other-not-in-lrs-then-nobody-else-is-elected",
    ),
    pytest.param(view_of(OFFLINE_LED, *spus(1)), (), id="given-leader-still-offline-then-nothing"),
    pytest.param(
        view_of(OFFLINE_LED, *spus(1), sessions=[session_of(1, complete=False)]),
        (becomes(OFFLINE_LED, OFFLINE, "SPU 1 has not reported its replica yet", **TAKEN),),
        id="given-leader-back-without-report-then-waited-for",
    ),
    pytest.param(
        view_of(OFFLINE_LED, *spus(1), sessions=[session_of(1, report_of(OFFLINE_LED))]),
        (
            SendLead(1, lead_of(OFFLINE_LED)),
            becomes(OFFLINE_LED, OFFLINE, "SPU 1 is taking over", **TAKEN),
        ),
        id="given-leader-came-back-then-told-to-lead-at-the-same-term",
    ),
    pytest.param(
        forgetful(OFFLINE_LED, OFFLINE_LED.status.term),
        (becomes(OFFLINE_LED, OFFLINE, "SPU 1 is taking over", **{**TAKEN, "term": TERM_2}),),
        id="given-leader-came-back-and-knows-nothing-of-its-term-then-elected-at-the-next",
    ),
    pytest.param(
        forgetful(CHOSEN, CHOSEN.status.term),
        (
            SendLead(1, lead_of(CHOSEN).model_copy(update={"unclean_term": CHOSEN.status.term})),
            becomes(CHOSEN, OFFLINE, "SPU 1 is taking over", **TAKEN),
        ),
        id="given-an-unclean-election-chose-a-disk-that-knows-nothing-then-told-to-lead",
    ),
    pytest.param(
        forgetful(OFFLINE_LED, OFFLINE_LED.status.term - 1),
        (
            SendLead(1, lead_of(OFFLINE_LED)),
            becomes(OFFLINE_LED, OFFLINE, "SPU 1 is taking over", **TAKEN),
        ),
        id="given-the-term-that-it-knew-nothing-of-is-over-then-told-to-lead",
    ),
    pytest.param(
        view_of(led(1), *spus(1), grace_until_ms=GRACE),
        (WakeAt(KEY, GRACE),),
        id="given-leader-unknown-then-status-stays-and-looked-at-again",
    ),
    pytest.param(
        view_of(led(1), *spus(1), grace_until_ms=NOW),
        (becomes(led(1), OFFLINE, "its leader, SPU 1, is offline", **TAKEN),),
        id="given-leader-missing-after-grace-then-offline",
    ),
    pytest.param(
        view_of(led(1), *spus(1), sessions=[session_of(1, report_of(led(1), storage="new"))]),
        (
            becomes(
                led(1),
                OFFLINE,
                "SPU 1 came back without its data: its storage is new,"
                " the live replica's was storage-1",
                **TAKEN,
            ),
        ),
        id="given-leader-lost-its-disk-then-not-told-to-lead",
    ),
    pytest.param(
        view_of(
            led(1), *spus(1), sessions=[session_of(1, report_of(led(1), fit=False, reason="fsync"))]
        ),
        (becomes(led(1), OFFLINE, "the replica on SPU 1 is unfit: fsync", **TAKEN),),
        id="given-leader-unfit-then-offline-with-its-reason",
    ),
    pytest.param(
        view_of(led(1), *spus(1), sessions=[session_of(1, report_of(led(1), fit=False))]),
        (becomes(led(1), OFFLINE, "the replica on SPU 1 is unfit: no reason given", **TAKEN),),
        id="given-leader-unfit-without-words-then-reason-says-that",
    ),
    pytest.param(
        view_of(partition_of("t", 0, (2,), leader=1, term=TERM_1, lrs=(live(1),)), *spus(1, 2)),
        (
            becomes(
                partition_of("t", 0, (2,), leader=1, term=TERM_1, lrs=(live(1),)),
                OFFLINE,
                "SPU 1 leads, but the spec gives it no replica",
                **TAKEN,
            ),
        ),
        id="given-leader-outside-the-spec-then-offline-with-reason",
    ),
    pytest.param(
        view_of(led(1).with_metadata(generation=2), *spus(1), sessions=[session_of(1, LEADING)]),
        (becomes(led(1).with_metadata(generation=2), ONLINE, None, **TAKEN),),
        id="given-spec-changed-then-generation-observed",
    ),
]


def truncated(before: int, start: int = 0) -> Partition:
    """Led, and to be truncated; ``start`` is what the status says."""
    partition = led(1)
    return partition.model_copy(
        update={
            "spec": partition.spec.model_copy(update={"truncate_before": before}),
            "status": partition.status.model_copy(update={"start_offset": start}),
        }
    )


@pytest.mark.parametrize(
    ("before", "status", "reported", "expected"),
    [
        pytest.param(40, 0, 0, None, id="given-a-leader-that-has-not-truncated-then-nothing"),
        pytest.param(40, 0, 39, None, id="given-retention-alone-then-nothing"),
        pytest.param(40, 0, 40, 40, id="given-a-leader-that-has-truncated-then-it-is-written"),
        pytest.param(40, 0, 90, 40, id="given-retention-beyond-then-the-truncation-is-written"),
        pytest.param(40, 40, 90, None, id="given-it-is-written-then-nothing"),
        pytest.param(60, 40, 90, 60, id="given-a-further-one-then-it-is-written"),
    ],
)
def test_start_offset(before: int, status: int, reported: int, expected: int | None) -> None:
    partition = truncated(before, status)
    report = LEADING.model_copy(update={"log_start": reported})
    view = view_of(partition, *spus(1), sessions=[session_of(1, report)])
    wanted = (
        ()
        if expected is None
        else (
            WriteStatus(partition, partition.status.model_copy(update={"start_offset": expected})),
        )
    )
    assert reconcile(view, KEY, NOW) == wanted


def grave(partition: Partition, *ids: int) -> tuple[Tombstone, ...]:
    return tuple(Tombstone(uid=PartitionUid(partition.uid), spu_id=i) for i in ids)


DELETED = partition_of("t", 0, (1, 2), deleting=True)
MOVED = partition_of("t", 0, (1,), leader=3, term=TERM_1, lrs=(live(3), live(1)), deleting=True)
DELETION = [
    pytest.param(
        view_of(DELETED),
        (RemovePartition(DELETED, grave(DELETED, 1, 2)),),
        id="given-deletion-then-removed-with-a-tombstone-for-each-replica",
    ),
    pytest.param(
        view_of(MOVED, *spus(1), sessions=[session_of(1, report_of(MOVED))]),
        (RemovePartition(MOVED, grave(MOVED, 1, 3)),),
        id="given-lrs-member-outside-the-spec-then-it-has-a-tombstone-too",
    ),
]


def test_given_very_many_replicas_then_their_tombstones_are_left_in_several_writes() -> None:
    wide = partition_of("t", 0, tuple(range(1, 251)), deleting=True)
    first, second, last = reconcile(view_of(wide), KEY, NOW)
    assert isinstance(first, LeaveTombstones)
    assert isinstance(second, LeaveTombstones)
    assert isinstance(last, RemovePartition)
    left = [action.tombstones for action in (first, second, last)]
    assert [grave for graves in left for grave in graves] == list(grave(wide, *range(1, 251)))
    assert max(map(len, left)) < MAX_TXN_OPS


@pytest.mark.parametrize(("view", "actions"), [*FIRST_LEADER, *LOST, *LED, *DELETION])
def test_partition(view: View, actions: tuple[Action, ...]) -> None:
    assert reconcile(view, KEY, NOW) == actions


def test_given_later_term_then_election_takes_the_one_after() -> None:
    partition = unled(1, term=TERM_1)
    view = view_of(partition, spu_of(1), sessions=[session_of(1, report_of(partition))])
    (action,) = reconcile(view, KEY, NOW)
    assert isinstance(action, WriteStatus)
    assert getattr(action.status, "term", None) == TERM_2


def test_given_partition_then_assignment_takes_everything_from_one_revision() -> None:
    partition = led(1, 2, revision=9)
    assert assignment_of(partition) == Assignment(
        uid=PartitionUid(partition.uid),
        name="t-0",
        topic="t",
        index=0,
        replicas=(1, 2),
        log=partition.spec.log,
        leader=1,
        term=TERM_1,
        lrs=(live(1),),
        revision=9,
    )


def suspecting(view: View, *spu_ids: int) -> View:
    """The same view, in which these SPUs left a moment ago because the SC was silent."""
    for spu_id in spu_ids:
        view.suspicions.ended(spu_id, SessionEnd.CLOSED, NOW)
    return view


TWO = partition_of("t", 0, (1, 2), leader=1, term=TERM_1, lrs=(live(1), live(2)), resolution=ONLINE)


@pytest.mark.parametrize(
    ("suspect", "sessions"),
    [
        pytest.param(1, [2], id="given-leader-suspect-then-no-election"),
        pytest.param(2, [1], id="given-follower-suspect-then-it-stays-live"),
    ],
)
def test_given_a_suspect_then_nothing_changes_until_its_time_is_over(
    suspect: int, sessions: list[int]
) -> None:
    reports = {
        1: report_of(TWO, 1, role=LEADER, term=Term(TERM_1 + 1)),
        2: report_of(TWO, 2),
    }
    view = view_of(TWO, *spus(1, 2), sessions=[session_of(i, reports[i]) for i in sessions])
    suspecting(view, suspect)
    assert reconcile(view, KEY, NOW) == (WakeAt(KEY, NOW + RECONNECT_MS),)
    late = reconcile(view, KEY, NOW + RECONNECT_MS)
    (write,) = [action for action in late if isinstance(action, WriteStatus)]
    assert isinstance(write.status, PartitionStatus)
    assert write.status.lrs == (live(sessions[0]),)
