"""The live replicas of a led partition: what the controller changes by itself, and what it answers
a leader that asks. Every branch as (view, key, now) → exact actions."""

from __future__ import annotations

from typing import Any

import pytest

from sc.controllers.actions import Action, Key, SendAssignment, WakeAt, WriteStatus
from sc.controllers.partition import assignment_of, reconcile
from sc.store.view import ElectionAsked, SessionState, View
from schemas.control.messages import LrsRequest, ReplicaRole
from schemas.ids import MAX_RESTARTS
from schemas.objects.partition import LiveReplica, Partition, PartitionResolution
from tests.unit.sc.builders import (
    TERM_1,
    TERM_2,
    election_request_of,
    live,
    lrs_request_of,
    partition_of,
    report_of,
    session_of,
    spu_of,
    view_of,
)

KEY = Key("Partition", "t-0")
NOW = 1_000
GRACE = 5_000
ONLINE, OFFLINE = PartitionResolution.ONLINE, PartitionResolution.OFFLINE
LEADER, FOLLOWER = ReplicaRole.LEADER, ReplicaRole.FOLLOWER


def becomes(
    partition: Partition,
    resolution: PartitionResolution,
    reason: str | None,
    **more: Any,
) -> WriteStatus:
    """The write of a status; what is not named stays."""
    update = {"resolution": resolution, "reason": reason, **more}
    update["observed_generation"] = partition.generation
    return WriteStatus(partition, partition.status.model_copy(update=update))


TRIO = (1, 2, 3)
ALL = (live(1), live(2), live(3))
HELP = "start it, or lower minInSyncReplicas of the topic"


def trio(*lrs: int | LiveReplica, reason: str | None = None, **more: Any) -> Partition:
    """Three replicas, led by SPU 1 at the first term; all of them are live unless it is said."""
    members = tuple(m if isinstance(m, LiveReplica) else live(m) for m in lrs or TRIO)
    known: dict[str, Any] = {"leader": 1, "term": TERM_1, "resolution": ONLINE, "minimum": 2} | more
    return partition_of("t", 0, TRIO, lrs=members, reason=reason, **known)


def leading(partition: Partition, *asks: LrsRequest, **more: Any) -> SessionState:
    """The leader's session: it leads, and asks for something."""
    report = report_of(partition, 1, role=LEADER, term=TERM_1 + 1)
    return session_of(1, report, asks=asks, **more)


def follows(partition: Partition, spu_id: int, **report: Any) -> SessionState:
    return session_of(spu_id, report_of(partition, spu_id, role=FOLLOWER, **report))


def group(partition: Partition, *sessions: SessionState, **more: Any) -> View:
    return view_of(partition, *(spu_of(i) for i in TRIO), sessions=sessions, **more)


def set_of(
    partition: Partition,
    reason: str | None,
    *lrs: int,
    resolution: PartitionResolution = ONLINE,
    writable: bool | None = None,
) -> WriteStatus:
    """The write after which these are live under the same leader and term."""
    members = tuple(live(i) for i in lrs)
    return becomes(partition, resolution, reason, lrs=members, writable=writable)


TWO_OF_THREE = "2 of 3 replicas are live, without SPU {}"
BACK = trio(resolution=OFFLINE, reason="its leader, SPU 1, is offline")
BLOCKED = (
    "nothing is committed until SPU {}, which is offline, is back: it stays live because"
    " minInSyncReplicas is 2; " + HELP
)
ALONE = (
    "1 of 3 replicas are live, without SPU 2, SPU 3; {}nothing is committed until 2 are live: those"
    " that are there join when they have caught up; bring the others back, or lower"
    " minInSyncReplicas of the topic"
)
#: What the SC does to the live replicas by itself.
SHRINK = [
    pytest.param(
        group(trio(), leading(trio()), follows(trio(), 2), follows(trio(), 3)),
        (),
        id="given-all-live-then-nothing",
    ),
    pytest.param(
        group(trio(), leading(trio()), follows(trio(), 2)),
        (set_of(trio(), TWO_OF_THREE.format(3), 1, 2),),
        id="given-follower-offline-then-it-leaves",
    ),
    pytest.param(
        group(trio(), leading(trio()), follows(trio(), 2), grace_until_ms=GRACE),
        (WakeAt(KEY, GRACE),),
        id="given-follower-unknown-then-it-stays-and-is-looked-at-again",
    ),
    pytest.param(
        group(
            trio(1, 2),
            leading(trio(1, 2)),
            follows(trio(1, 2), 2),
            follows(trio(1, 2), 3, reason="it keeps its log"),
        ),
        (set_of(trio(1, 2), f"{TWO_OF_THREE.format(3)}; SPU 3 says: it keeps its log", 1, 2),),
        id="given-a-fit-follower-that-does-not-follow-then-its-reason",
    ),
    pytest.param(
        group(trio(1, 2), leading(trio(1, 2)), follows(trio(1, 2), 3)),
        (
            set_of(
                trio(1, 2), f"{TWO_OF_THREE.format(3)}; {BLOCKED.format(2)}", 1, 2, writable=False
            ),
        ),
        id="given-follower-offline-and-the-minimum-lost-then-it-stays-and-the-reason-says-what-to-do",
    ),
    pytest.param(
        group(trio(), leading(trio())),
        (set_of(trio(), f"{BLOCKED.format(2)}; {BLOCKED.format(3)}", 1, 2, 3, writable=False),),
        id="given-two-followers-offline-and-one-too-many-then-both-stay",
    ),
    pytest.param(
        group(trio(minimum=1), leading(trio())),
        (set_of(trio(minimum=1), "1 of 3 replicas are live, without SPU 2, SPU 3", 1),),
        id="given-two-followers-offline-and-enough-left-then-both-leave",
    ),
    pytest.param(
        group(
            trio(1, 2),
            leading(trio()),
            follows(trio(), 2, fit=False, reason="fsync failed"),
        ),
        (
            set_of(
                trio(1, 2),
                ALONE.format("the replica on SPU 2 is unfit: fsync failed; "),
                1,
                writable=False,
            ),
        ),
        id="given-follower-unfit-then-it-leaves-whatever-the-minimum",
    ),
    pytest.param(
        group(trio(), leading(trio()), follows(trio(), 2), follows(trio(), 3, storage="new")),
        (set_of(trio(), TWO_OF_THREE.format(3), 1, 2),),
        id="given-follower-with-another-storage-then-it-leaves",
    ),
    pytest.param(
        group(trio(), leading(trio()), follows(trio(), 2), session_of(3)),
        (SendAssignment(3, assignment_of(trio())),),
        id="given-follower-that-did-not-report-then-it-stays",
    ),
    pytest.param(
        group(trio(), leading(trio()), session_of(3)),
        (SendAssignment(3, assignment_of(trio())),),
        id="given-somebody-may-still-report-then-the-offline-one-stays-and-nothing-is-said-yet",
    ),
    pytest.param(
        group(BACK, session_of(1, report_of(BACK)), follows(BACK, 2)),
        (set_of(BACK, "SPU 1 is taking over", 1, 2, resolution=OFFLINE),),
        id="given-leader-back-without-a-follower-then-one-write-and-the-order-to-lead-after-it",
    ),
    pytest.param(
        group(BACK, leading(BACK), follows(BACK, 2)),
        (set_of(BACK, TWO_OF_THREE.format(3), 1, 2),),
        id="given-leader-leads-and-a-follower-offline-then-online-in-the-same-write",
    ),
    pytest.param(
        group(trio(), session_of(3)),
        (
            SendAssignment(3, assignment_of(trio())),
            set_of(
                trio(),
                "its leader, SPU 1, is offline; no other live replica may lead; SPU 2 is offline;"
                " SPU 3 has not reported its replica yet",
                1,
                2,
                3,
                resolution=OFFLINE,
            ),
        ),
        id="given-no-fit-leader-then-nobody-leaves-and-the-reason-names-them",
    ),
    pytest.param(
        group(
            trio(),
            session_of(1, report_of(trio(), fit=False, reason="wet")),
            follows(trio(), 2, storage="new"),
        ),
        (
            set_of(
                trio(),
                "the replica on SPU 1 is unfit: wet; no other live replica may lead; SPU 2 came"
                " back without its data: its storage is new, the live replica's was storage-2;"
                " SPU 3 is offline",
                1,
                2,
                3,
                resolution=OFFLINE,
            ),
        ),
        id="given-no-fit-member-then-nobody-leaves-nor-leads",
    ),
    pytest.param(
        group(trio(live(2), live(3)), leading(trio()), follows(trio(), 2), follows(trio(), 3)),
        (
            becomes(
                trio(live(2), live(3)),
                OFFLINE,
                "SPU 2 is taking over",
                leader=2,
                term=TERM_2,
                lrs=(live(2), live(3)),
            ),
        ),
        id="given-leader-that-is-no-live-replica-then-another-leads",
    ),
]


def turned_down(why: str, base: str | None = None) -> str:
    return f"turned down: {why}" if base is None else f"{base}; turned down: {why}"


MUST_STAY = "SPU 3 must stay: 2 would remain, minInSyncReplicas is 3"
STRICT, PART = trio(minimum=3), trio(1, 2, reason=TWO_OF_THREE.format(3))
REFUSED = trio(minimum=3, reason=turned_down(MUST_STAY))
GROWN = lrs_request_of(PART, *ALL)


def asks(partition: Partition, *requests: LrsRequest, **more: Any) -> View:
    """All online and fit; the leader asks."""
    leader = leading(partition, *requests, **more)
    return group(partition, leader, follows(partition, 2), follows(partition, 3))


def election(partition: Partition, *, revision: int = 5, term: int | None = None) -> ElectionAsked:
    return ElectionAsked(election_request_of(partition, term=term), revision)


def used_up(partition: Partition) -> ElectionAsked:
    """What an SPU asks for that has used up the restarts of its term."""
    return election(partition, term=partition.status.term + MAX_RESTARTS)


NO_OTHER = "another leader, too few are live: no other live replica may lead"
TWO_LEADS: dict[str, Any] = {"leader": 2, "term": TERM_2}
STANDS = trio(1, 2, minimum=3, reason=turned_down(NO_OTHER, "x"))
IDLE_1 = trio(1, resolution=OFFLINE, reason="SPU 1 is taking over", minimum=1)
#: What a leader asks for.
ASKS = [
    pytest.param(
        asks(PART, GROWN), (set_of(PART, None, 1, 2, 3),), id="given-follower-joins-then-written"
    ),
    pytest.param(
        asks(trio(), lrs_request_of(trio(), live(1), live(2))),
        (set_of(trio(), TWO_OF_THREE.format(3), 1, 2),),
        id="given-lagging-follower-then-it-leaves",
    ),
    pytest.param(
        asks(STRICT, lrs_request_of(STRICT, live(1), live(2))),
        (set_of(STRICT, turned_down(MUST_STAY), 1, 2, 3),),
        id="given-minimum-would-be-lost-then-turned-down-with-the-reason",
    ),
    pytest.param(
        asks(REFUSED, lrs_request_of(REFUSED, live(1), live(2))),
        (set_of(REFUSED, turned_down(MUST_STAY), 1, 2, 3),),
        id="given-asked-again-in-vain-then-written-although-nothing-changes",
    ),
    pytest.param(asks(REFUSED), (), id="given-answered-then-the-reason-stays-and-nothing-is-done"),
    pytest.param(
        asks(REFUSED.with_metadata(generation=2)),
        (set_of(REFUSED.with_metadata(generation=2), None, 1, 2, 3),),
        id="given-another-spec-since-then-what-was-turned-down-is-forgotten",
    ),
    pytest.param(
        group(trio(reason=turned_down("x")), leading(trio()), follows(trio(), 2)),
        (set_of(trio(reason=turned_down("x")), TWO_OF_THREE.format(3), 1, 2),),
        id="given-other-live-replicas-since-then-what-was-turned-down-is-forgotten",
    ),
    pytest.param(
        asks(trio(), lrs_request_of(trio(), *ALL)),
        (set_of(trio(), None, 1, 2, 3),),
        id="given-what-there-is-already-then-written-all-the-same",
    ),
    pytest.param(
        group(
            PART,
            leading(PART, GROWN),
            follows(PART, 2),
            follows(PART, 3, storage="new"),
        ),
        (
            set_of(
                PART,
                turned_down(
                    "SPU 3 cannot join: SPU 3 came back without its data: its storage is new,"
                    " the live replica's was storage-3",
                    TWO_OF_THREE.format(3),
                ),
                1,
                2,
            ),
        ),
        id="given-another-storage-than-the-session-reports-then-turned-down",
    ),
    pytest.param(
        asks(PART, lrs_request_of(PART, *ALL, term=TERM_1 + 7)),
        (set_of(PART, None, 1, 2, 3),),
        id="given-any-restart-of-the-term-then-heard",
    ),
    pytest.param(
        asks(PART, lrs_request_of(PART, *ALL, revision=4)),
        (),
        id="given-an-earlier-revision-then-not-heard",
    ),
    pytest.param(
        asks(PART, lrs_request_of(PART, *ALL, revision=6)),
        (),
        id="given-a-revision-the-mirror-does-not-show-yet-then-not-heard",
    ),
    pytest.param(
        asks(PART, lrs_request_of(PART, *ALL, term=1)),
        (),
        id="given-an-earlier-term-then-not-heard",
    ),
    pytest.param(
        asks(PART, lrs_request_of(PART, *ALL, term=TERM_2)),
        (),
        id="given-a-later-term-then-not-heard",
    ),
    pytest.param(
        group(
            PART,
            leading(PART),
            session_of(2, report_of(PART, 2), asks=[GROWN]),
            follows(PART, 3),
        ),
        (),
        id="given-another-spu-than-the-leader-then-not-heard",
    ),
    pytest.param(
        group(
            PART,
            session_of(1, report_of(PART, fit=False, reason="wet"), asks=[GROWN]),
        ),
        (
            set_of(
                PART,
                "the replica on SPU 1 is unfit: wet; no other live replica may lead; SPU 2 is"
                " offline",
                1,
                2,
                resolution=OFFLINE,
            ),
        ),
        id="given-an-unfit-leader-asks-then-not-granted",
    ),
    pytest.param(
        asks(trio(), elections=[election(trio())]),
        (becomes(trio(), OFFLINE, "SPU 2 is taking over", lrs=ALL, **TWO_LEADS),),
        id="given-leader-asks-for-another-then-the-next-leads-and-it-stays-live",
    ),
    pytest.param(
        asks(PART, GROWN, elections=[election(PART)]),
        (becomes(PART, OFFLINE, "SPU 2 is taking over", lrs=(live(1), live(2)), **TWO_LEADS),),
        id="given-an-election-and-a-change-then-the-election-alone",
    ),
    pytest.param(
        asks(trio(), elections=[election(trio(), revision=4)]),
        (),
        id="given-something-changed-since-then-no-election",
    ),
    pytest.param(
        asks(trio(), elections=[election(trio(), term=1)]),
        (),
        id="given-election-asked-for-in-an-earlier-term-then-none",
    ),
    pytest.param(
        group(
            trio(),
            leading(trio()),
            session_of(2, report_of(trio(), 2), elections=[election(trio())]),
            follows(trio(), 3),
        ),
        (),
        id="given-another-spu-asks-for-an-election-then-none",
    ),
    pytest.param(
        asks(trio(1), elections=[election(trio(1))]),
        (set_of(trio(1), turned_down(NO_OTHER, ALONE.format("")), 1, writable=False),),
        id="given-no-other-can-lead-then-the-leader-stays-and-the-reason-says-so",
    ),
    pytest.param(
        asks(
            trio(1, reason=turned_down(NO_OTHER, ALONE.format("")), writable=False),
            elections=[election(trio(1))],
        ),
        (),
        id="given-said-already-that-no-other-can-then-nothing-is-written",
    ),
    pytest.param(
        asks(STANDS, elections=[election(STANDS)]),
        (becomes(STANDS, OFFLINE, "SPU 2 is taking over", lrs=(live(1), live(2)), **TWO_LEADS),),
        id="given-another-can-lead-now-then-elected-by-the-request-that-still-stands",
    ),
    pytest.param(
        group(IDLE_1, session_of(1, report_of(IDLE_1), elections=[used_up(IDLE_1)])),
        (
            becomes(
                IDLE_1,
                OFFLINE,
                "SPU 1 is taking over",
                leader=1,
                term=TERM_2,
                lrs=(live(1),),
            ),
        ),
        id="given-one-that-cannot-lead-in-this-term-and-no-other-then-it-leads-in-the-next",
    ),
]


@pytest.mark.parametrize(("view", "actions"), [*SHRINK, *ASKS])
def test_live_replicas(view: View, actions: tuple[Action, ...]) -> None:
    assert reconcile(view, KEY, NOW) == actions
