"""The steps of a move: each state of a partition that moves, and what is next."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sc.controllers.actions import EndMove, Key, SendAssignment, WakeAt, WriteStatus
from sc.controllers.election import elected
from sc.controllers.membership.steps import BACK_MS, Waits, next_step
from sc.controllers.partition import reconcile
from sc.store.suspicions import ENDS_MS
from sc.store.view import STOPS_MS, View
from schemas.control.messages import ReplicaRole, Tombstone
from schemas.control.session_end import SessionEnd
from schemas.ids import PartitionUid, StorageId
from schemas.objects.partition import LiveReplica, Partition, PartitionResolution, PartitionStatus
from tests.unit.sc.builders import (
    TERM_1,
    live,
    lrs_request_of,
    partition_of,
    report_of,
    session_of,
    spu_of,
    unreachable_of,
    view_of,
)

NOW = 1_000
KEY = Key("Partition", "t-0")


def moving(
    replicas: tuple[int, ...],
    lrs: tuple[int, ...],
    *,
    joining: tuple[int, ...] | None = None,
    leaving: tuple[int, ...] | None = None,
    leader: int = 1,
    **more: Any,
) -> Partition:
    return partition_of(
        "t",
        0,
        replicas,
        resolution=PartitionResolution.ONLINE,
        leader=leader,
        term=TERM_1,
        lrs=tuple(map(live, lrs)),
        joining=joining,
        leaving=leaving,
        **more,
    )


def seen(
    partition: Partition,
    *online: int,
    asks: tuple[LiveReplica, ...] = (),
    unfit: tuple[int, ...] = (),
    **of_leader: Any,
) -> View:
    """All SPUs of a partition are registered, and these have a session with its replica."""
    leader = partition.status.leader
    sessions = []
    for i in online:
        role = ReplicaRole.LEADER if i == leader else ReplicaRole.FOLLOWER
        more = of_leader if i == leader else {}
        report = report_of(partition, i, role=role, term=TERM_1 + 1, fit=i not in unfit, **more)
        wanted = [lrs_request_of(partition, *asks)] if asks and i == leader else []
        sessions.append(session_of(i, report, asks=wanted))
    ids = {*partition.spec.holders, *online}
    return view_of(partition, *(spu_of(i) for i in sorted(ids)), sessions=sessions)


def step(partition: Partition, *online: int, **more: Any) -> PartitionStatus | EndMove | Waits:
    leader = partition.status.leader
    assert leader is not None
    return next_step(seen(partition, *online, **more), partition, leader, NOW)


def ended(
    partition: Partition, *gone: int, storage: bool = True, joining: tuple[int, ...] | None = None
) -> EndMove:
    spec = partition.spec.model_copy(update={"joining": joining, "leaving": None})
    graves = tuple(
        Tombstone(
            uid=PartitionUid(partition.uid),
            spu_id=i,
            storage_id=StorageId(f"storage-{i}") if storage else None,
        )
        for i in gone
    )
    return EndMove(partition, spec, graves)


def without(partition: Partition, *gone: int) -> PartitionStatus:
    kept = tuple(m for m in partition.status.lrs if m.spu_id not in gone)
    return partition.status.model_copy(update={"lrs": kept})


GROWS = moving((1, 2, 3), (1,), joining=(2, 3))
GREW = moving((1, 2, 3), (1, 2, 3), joining=(2, 3))
REPLACES = moving((1, 2, 4), (1, 2, 3), joining=(4,), leaving=(3,))
REPLACED = moving((1, 2, 4), (1, 2, 3, 4), joining=(4,), leaving=(3,))
LEFT = moving((1, 2, 4), (1, 2, 4), joining=(4,), leaving=(3,))
LEADER_GOES = moving((4,), (1, 4), joining=(4,), leaving=(1,))
SHRINKS = moving((1, 2), (1, 2, 3), leaving=(3,))
DEAD = moving((1, 2, 4), (1, 2), joining=(4,), leaving=(3,))

STEPS = [
    pytest.param(GROWS, (1, 2, 3), Waits("SPUs 2, 3 catch up"), id="given-newcomers-then-waits"),
    pytest.param(GREW, (1, 2, 3), ended(GREW), id="given-all-have-joined-then-ends"),
    pytest.param(
        GROWS,
        (1,),
        Waits("SPUs 2, 3 are offline, and 2 of those that stay must be live"),
        id="given-newcomers-are-gone-and-too-few-live-then-waits",
    ),
    pytest.param(
        one := moving((1, 2, 3), (1, 2), joining=(2, 3)),
        (1, 2),
        ended(one),
        id="given-one-newcomer-is-gone-and-enough-live-then-ends",
    ),
    pytest.param(
        REPLACES,
        (1, 2, 3, 4),
        Waits("SPU 4 catches up"),
        id="given-the-newcomer-is-behind-then-nobody-leaves",
    ),
    pytest.param(
        REPLACES,
        (1, 2, 3),
        without(REPLACES, 3),
        id="given-the-newcomer-is-gone-then-enough-are-left-to-go-on",
    ),
    pytest.param(
        REPLACED, (1, 2, 3, 4), without(REPLACED, 3), id="given-all-joined-then-the-old-one-leaves"
    ),
    pytest.param(
        REPLACED,
        (1, 3, 4),
        without(REPLACED, 3),
        id="given-one-that-stays-is-offline-then-the-majority-goes-on",
    ),
    pytest.param(
        REPLACED,
        (1, 3),
        Waits("SPUs 2, 4 are offline, and 2 of those that stay must be live"),
        id="given-the-majority-is-offline-then-waits",
    ),
    pytest.param(
        few := moving((1, 2, 4), (1, 2, 3, 4), joining=(4,), leaving=(3,), minimum=3),
        (1, 3, 4),
        Waits("SPU 2 is offline, and 3 of those that stay must be live"),
        id="given-the-minimum-asks-for-more-then-waits",
    ),
    pytest.param(
        most := moving((1,), (1, 2, 3), leaving=(2, 3), minimum=2),
        (1, 2, 3),
        without(most, 2, 3),
        id="given-a-minimum-above-all-that-stay-then-waits-for-no-more-than-these",
    ),
    pytest.param(LEFT, (1, 2, 3, 4), ended(LEFT, 3), id="given-it-left-then-ends-with-a-tombstone"),
    pytest.param(
        LEFT, (1, 2, 4), ended(LEFT, 3, storage=False), id="given-it-is-away-then-any-storage"
    ),
    pytest.param(
        DEAD,
        (1, 2, 4),
        Waits("SPU 4 catches up"),
        id="given-a-lost-one-is-replaced-then-its-place-waits-for-the-newcomer",
    ),
    pytest.param(SHRINKS, (1, 2, 3), without(SHRINKS, 3), id="given-fewer-then-the-last-leaves"),
]


@pytest.mark.parametrize(("partition", "online", "expected"), STEPS)
def test_next_step(
    partition: Partition, online: tuple[int, ...], expected: PartitionStatus | EndMove | Waits
) -> None:
    assert step(partition, *online) == expected


def lost(*ends_ms: int, spu_id: int = 4, end: SessionEnd = SessionEnd.LOST) -> View:
    """A view without an SPU, whose sessions ended then."""
    view = seen(REPLACES, 1, 2, 3)
    for at_ms in ends_ms:
        view.suspicions.opened(spu_id, at_ms)
        view.suspicions.ended(spu_id, end, at_ms)
    return view


MOMENT = Waits("SPU 4 was lost, and may be back soon", NOW + BACK_MS)


def test_given_a_newcomer_that_was_lost_a_moment_ago_then_who_leaves_waits_for_a_while() -> None:
    assert next_step(lost(NOW), REPLACES, 1, NOW) == MOMENT
    assert next_step(lost(NOW), REPLACES, 1, NOW + BACK_MS - 1) == MOMENT
    assert next_step(lost(NOW), REPLACES, 1, NOW + BACK_MS) == without(REPLACES, 3)
    woken, written = reconcile(lost(NOW), KEY, NOW)
    assert woken == WakeAt(KEY, NOW + BACK_MS)
    assert isinstance(written, WriteStatus)
    assert written.status.reason == f"its replicas move: {MOMENT.why}"


def test_given_a_newcomer_that_is_lost_again_and_again_then_nobody_waits() -> None:
    assert next_step(lost(NOW - 20_000, NOW), REPLACES, 1, NOW) == without(REPLACES, 3)
    # Ends that are no losses, or far apart: the first one counts.
    for end in SessionEnd.GOODBYE, SessionEnd.LOST:
        view = lost(NOW - 90_000, NOW - 1_000, end=end)
        assert next_step(view, REPLACES, 1, NOW) == without(REPLACES, 3)
    later = lost(NOW - ENDS_MS, NOW)
    assert next_step(later, REPLACES, 1, NOW) == MOMENT


def test_given_growth_and_a_newcomer_that_was_lost_a_moment_ago_then_it_is_waited_for() -> None:
    """With the end the minimum rises, and the two that are live would be one too few to lose."""
    grows = moving((1, 2, 4), (1, 2), joining=(2, 4))
    assert next_step(lost(NOW), grows, 1, NOW) == MOMENT
    assert next_step(lost(NOW), grows, 1, NOW + BACK_MS) == ended(grows)


def test_given_a_newcomer_that_is_back_and_live_then_nobody_waits() -> None:
    view = seen(REPLACED, 1, 2, 3, 4)
    view.suspicions.ended(4, SessionEnd.LOST, NOW - 2)
    view.suspicions.opened(4, NOW - 1)
    assert next_step(view, REPLACED, 1, NOW) == without(REPLACED, 3)


def test_given_another_one_was_lost_then_nobody_waits() -> None:
    partition = moving((1, 2, 4), (1, 2, 3, 4), joining=(4,), leaving=(3,))
    view = seen(partition, 1, 3, 4)
    view.suspicions.ended(2, SessionEnd.LOST, NOW)
    assert next_step(view, partition, 1, NOW) == without(partition, 3)


def test_given_who_leaves_is_no_copy_more_then_nobody_waits() -> None:
    left = moving((1, 2, 4), (1, 2), joining=(4,), leaving=(3,))
    assert next_step(lost(NOW), left, 1, NOW) == ended(left, 3)


def test_given_the_newcomer_is_no_spu_any_more_then_nobody_waits() -> None:
    view = lost(NOW)
    view.store.remove("Spu", "spu-4")
    assert next_step(view, REPLACES, 1, NOW) == without(REPLACES, 3)


def test_given_the_leader_leaves_then_the_preferred_leader_is_elected_first() -> None:
    view = seen(LEADER_GOES, 1, 4)
    found = next_step(view, LEADER_GOES, 1, NOW)
    assert found == elected(view, LEADER_GOES, 4, NOW)
    assert isinstance(found, PartitionStatus)
    assert {m.spu_id for m in found.lrs} == {1, 4}


def test_given_the_preferred_leader_is_away_then_another_one_that_stays_takes_over() -> None:
    partition = moving((4, 2, 3), (1, 2, 3), joining=(4,), leaving=(1,))
    found = step(partition, 1, 2, 3)
    assert isinstance(found, PartitionStatus)
    assert found.leader == 2


def test_given_the_preferred_leader_is_cut_off_then_another_one_takes_over() -> None:
    partition = moving((4, 2, 3), (1, 2, 3, 4), joining=(4,), leaving=(1,))
    view = seen(partition, 1, 2, 3, 4)
    view.sessions[3].unreachable = {4: unreachable_of(4)}
    found = next_step(view, partition, 1, NOW)
    assert isinstance(found, PartitionStatus)
    assert found.leader == 2


def test_given_the_preferred_leader_stops_then_another_one_takes_over() -> None:
    partition = moving((4, 2, 3), (1, 2, 3, 4), joining=(4,), leaving=(1,))
    view = seen(partition, 1, 2, 3, 4)
    view.sessions[4].stops_ms = NOW
    found = next_step(view, partition, 1, NOW)
    assert isinstance(found, PartitionStatus)
    assert found.leader == 2


def test_given_the_others_are_cut_off_then_a_move_waits_for_one_that_stops() -> None:
    """One that does not reach a live replica commits nothing, and the leader may lead on."""
    partition = moving((4, 2, 3), (1, 2, 3, 4), joining=(4,), leaving=(1,))
    view = seen(partition, 1, 2, 3, 4)
    view.sessions[2].stops_ms = NOW
    view.sessions[3].unreachable = {4: unreachable_of(4)}
    view.sessions[4].unreachable = {3: unreachable_of(3)}
    waits = Waits("SPU 2, which is to lead, stops", NOW + STOPS_MS)
    assert next_step(view, partition, 1, NOW) == waits


def test_given_the_only_one_that_may_lead_stops_then_the_move_waits_until_it_is_gone() -> None:
    """It has just handed the partition over to the one that leaves."""
    view = seen(LEADER_GOES, 1, 4)
    view.sessions[4].stops_ms = NOW
    waits = Waits("SPU 4, which is to lead, stops", NOW + STOPS_MS)
    assert next_step(view, LEADER_GOES, 1, NOW) == waits
    then = next_step(view, LEADER_GOES, 1, NOW + STOPS_MS)
    assert then == elected(view, LEADER_GOES, 4, NOW + STOPS_MS)


def test_given_the_leader_does_not_know_then_nothing_is_deleted() -> None:
    """It would wait for the acknowledgement of a disk that is gone."""
    found = step(LEFT, 1, 2, 3, 4, revision=LEFT.revision - 1)
    assert found == Waits("SPU 1, its leader, hears of it")


def test_given_the_cluster_recovers_then_nothing_is_deleted() -> None:
    view = replace(seen(LEFT, 1, 2, 3, 4), recovering=True)
    found = next_step(view, LEFT, 1, NOW)
    assert found == Waits("the recovery of the cluster is not over")


def test_given_the_leader_asks_for_the_one_that_left_then_the_end_is_the_answer() -> None:
    wanted = tuple(map(live, (1, 2, 3, 4)))
    view = seen(LEFT, 1, 2, 3, 4, asks=wanted)
    assert reconcile(view, KEY, NOW) == (ended(LEFT, 3),)


def test_given_a_newcomer_is_asked_for_then_it_joins_before_anything_else() -> None:
    wanted = tuple(map(live, (1, 2, 3, 4)))
    view = seen(REPLACES, 1, 2, 3, 4, asks=wanted)
    (written,) = reconcile(view, KEY, NOW)
    assert isinstance(written, WriteStatus)
    assert isinstance(written.status, PartitionStatus)
    assert written.status.lrs == wanted


def test_given_one_that_leaves_is_asked_for_then_it_is_turned_down() -> None:
    partition = moving((1, 2, 4), (1, 2), joining=(4,), leaving=(3,))
    view = seen(partition, 1, 2, 3, 4, asks=tuple(map(live, (1, 2, 3))))
    (written,) = reconcile(view, KEY, NOW)
    assert isinstance(written, WriteStatus)
    assert "SPU 3 cannot join" in (written.status.reason or "")


def test_given_a_move_then_all_holders_are_told_and_the_reason_says_it() -> None:
    view = seen(REPLACES, 1, 2, 3)
    assert isinstance(view.sessions, dict)
    view.sessions[4] = session_of(4)
    told, written = reconcile(view, KEY, NOW)
    assert isinstance(told, SendAssignment)
    assert (told.spu_id, told.assignment.replicas) == (4, (1, 2, 4, 3))
    assert isinstance(written, WriteStatus)
    assert written.status.reason == "its replicas move: SPU 4 catches up"
    assert isinstance(written.status, PartitionStatus)
    assert written.status.writable is None


def test_given_a_leader_that_leaves_and_is_lost_then_one_that_stays_is_preferred() -> None:
    partition = moving((2, 4), (1, 2, 3), joining=(4,), leaving=(1, 3))
    (*_, written) = reconcile(seen(partition, 2, 3), KEY, NOW)
    assert isinstance(written, WriteStatus)
    assert isinstance(written.status, PartitionStatus)
    assert written.status.leader == 2


def test_given_only_one_that_leaves_is_left_then_it_leads() -> None:
    """What is committed is there: nobody has to wait for the others."""
    partition = moving((2, 4), (2, 3), joining=(4,), leaving=(3,), leader=2, minimum=1)
    (*_, written) = reconcile(seen(partition, 3), KEY, NOW)
    assert isinstance(written, WriteStatus)
    assert isinstance(written.status, PartitionStatus)
    assert written.status.leader == 3
