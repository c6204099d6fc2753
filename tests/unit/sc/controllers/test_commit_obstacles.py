"""What keeps a led partition from committing: every branch as (view, key, now) → exact actions."""

from __future__ import annotations

from typing import Any

import pytest

from sc.controllers.actions import Action, Key, WakeAt, WriteStatus
from sc.controllers.partition import reconcile
from sc.store.view import SessionState, View
from schemas.control.messages import ReplicaRole
from schemas.objects.partition import Partition, PartitionResolution, PartitionStatus
from tests.unit.sc.builders import (
    TERM_1,
    live,
    partition_of,
    report_of,
    session_of,
    spu_of,
    unreachable_of,
    view_of,
)

KEY = Key("Partition", "t-0")
NOW = 1_000
GRACE = 5_000


def led(*lrs: int, **more: Any) -> Partition:
    """Two replicas, both of which commits need, led by SPU 2; these of them are live."""
    known: dict[str, Any] = {"leader": 2, "term": TERM_1, "minimum": 2}
    known |= {"resolution": PartitionResolution.ONLINE, "preferred": 2}
    return partition_of("t", 0, (1, 2), lrs=tuple(map(live, lrs)), **(known | more))


def leader(partition: Partition, *, says: str | None = None, **more: Any) -> SessionState:
    role = ReplicaRole.LEADER
    return session_of(2, report_of(partition, 2, role=role, term=TERM_1 + 1, reason=says), **more)


def follower(partition: Partition, **more: Any) -> SessionState:
    return session_of(1, report_of(partition, 1, role=ReplicaRole.FOLLOWER), **more)


def seen(partition: Partition, *sessions: SessionState, **more: Any) -> View:
    return view_of(partition, spu_of(1), spu_of(2), sessions=sessions, **more)


def becomes(partition: Partition, reason: str | None, writable: bool | None) -> WriteStatus:
    update = {"reason": reason, "writable": writable}
    return WriteStatus(partition, partition.status.model_copy(update=update))


BOTH, ONE, SPARE = led(1, 2), led(2), led(1, 2, minimum=1)
FEW = "1 of 2 replicas are live, without SPU 1; "
UNTIL = "nothing is committed until 2 are live: {}, or lower minInSyncReplicas of the topic"
BACK_AGAIN = "those that are there join when they have caught up; bring the others back"
REFUSED = "SPU 2 cannot reach SPU 1 at edge-1:9006: connection refused"
BACK = "SPU 1 cannot reach SPU 2 at edge-2:9006: connection refused"
NEEDED = (
    "nothing is committed without SPU 1, because minInSyncReplicas is 2: have them reach each"
    " other, or lower minInSyncReplicas of the topic"
)
STALLED = "SPU 2, its leader, has committed nothing for a while"
FULL = "SPU 2 takes no records: no room"

CASES = [
    pytest.param(seen(BOTH, leader(BOTH), follower(BOTH)), (), id="given-all-well-then-nothing"),
    pytest.param(
        seen(ONE, leader(ONE), follower(ONE)),
        (becomes(ONE, FEW + UNTIL.format(BACK_AGAIN), False),),
        id="given-fewer-live-than-the-minimum-then-not-writable",
    ),
    pytest.param(
        seen(ONE, leader(ONE, unreachable=[unreachable_of(1)]), follower(ONE)),
        (becomes(ONE, f"{FEW}{REFUSED}; {UNTIL.format('have them reach each other')}", False),),
        id="given-the-leader-cannot-reach-the-other-then-the-reason-says-so",
    ),
    pytest.param(
        seen(ONE, leader(ONE), follower(ONE, unreachable=[unreachable_of(2)])),
        (becomes(ONE, f"{FEW}{BACK}; {UNTIL.format('have them reach each other')}", False),),
        id="given-the-other-cannot-reach-the-leader-then-the-reason-says-so",
    ),
    pytest.param(
        seen(ONE, leader(ONE, unreachable=[unreachable_of(1)])),
        (becomes(ONE, FEW + UNTIL.format(BACK_AGAIN), False),),
        id="given-an-unreachable-spu-that-is-offline-then-it-has-to-come-back",
    ),
    pytest.param(
        seen(BOTH, leader(BOTH, unreachable=[unreachable_of(7)]), follower(BOTH)),
        (),
        id="given-another-spu-is-unreachable-then-nothing",
    ),
    pytest.param(
        seen(BOTH, leader(BOTH, unreachable=[unreachable_of(1)]), follower(BOTH)),
        (becomes(BOTH, f"{REFUSED}; {NEEDED}", False),),
        id="given-the-leader-cannot-reach-a-live-one-that-must-stay-then-not-writable",
    ),
    pytest.param(
        seen(BOTH, leader(BOTH), follower(BOTH, unreachable=[unreachable_of(2)])),
        (becomes(BOTH, f"{BACK}; {NEEDED}", False),),
        id="given-a-live-one-that-must-stay-cannot-reach-the-leader-then-not-writable",
    ),
    pytest.param(
        seen(SPARE, leader(SPARE, unreachable=[unreachable_of(1)]), follower(SPARE)),
        (becomes(SPARE, REFUSED, None),),
        id="given-the-leader-may-do-without-the-one-it-cannot-reach-then-only-the-reason",
    ),
    pytest.param(
        seen(BOTH, leader(BOTH, stalled=[BOTH]), follower(BOTH)),
        (becomes(BOTH, STALLED, False),),
        id="given-the-leader-has-committed-nothing-then-not-writable",
    ),
    pytest.param(
        seen(BOTH, leader(BOTH), follower(BOTH, stalled=[BOTH])),
        (),
        id="given-another-spu-says-so-then-nothing",
    ),
    pytest.param(
        seen(led(1, 2, reason=STALLED, writable=False), leader(BOTH), follower(BOTH)),
        (becomes(led(1, 2, reason=STALLED, writable=False), None, None),),
        id="given-it-commits-again-then-writable",
    ),
    pytest.param(
        seen(
            led(1, 2, reason=STALLED, writable=False), leader(BOTH, stalled=[BOTH]), follower(BOTH)
        ),
        (),
        id="given-it-is-known-already-then-nothing-is-written",
    ),
    pytest.param(
        seen(BOTH, leader(BOTH, says="no room"), follower(BOTH)),
        (becomes(BOTH, FULL, False),),
        id="given-the-leader-refuses-records-then-not-writable",
    ),
    pytest.param(
        seen(led(1, 2, writable=False), leader(BOTH), grace_until_ms=GRACE),
        (WakeAt(KEY, GRACE),),
        id="given-a-live-replica-is-unknown-then-the-answer-stays",
    ),
]


@pytest.mark.parametrize(("view", "actions"), CASES)
def test_commit_obstacles(view: View, actions: tuple[Action, ...]) -> None:
    assert reconcile(view, KEY, NOW) == actions


def test_given_nobody_leads_then_it_is_no_question() -> None:
    before = led(1, 2, leader=1, writable=False)
    (written,) = [
        a
        for a in reconcile(seen(before, leader(before), follower(before)), KEY, NOW)
        if isinstance(a, WriteStatus)
    ]
    status = written.status
    assert isinstance(status, PartitionStatus)
    assert (status.resolution, status.writable) == (PartitionResolution.OFFLINE, None)
