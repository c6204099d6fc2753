"""The rebalance controller: what it waits for, what it begins, and when it is done."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sc.controllers.actions import (
    Action,
    BeginMove,
    Key,
    WakeAt,
    WritePartitionSpec,
    WriteStatus,
)
from sc.controllers.membership.rebalance import (
    LEADERS_AT_ONCE,
    LEADERS_WAIT,
    LOOK_MS,
    TAKE_OVER_MS,
    reconcile,
)
from sc.dispatch.affected import affected_keys, keys_of_session
from sc.dispatch.loop import note_election
from sc.store.local_store import ObjectChanged
from sc.store.view import View
from schemas.control.messages import ReplicaRole
from schemas.control.session_end import SessionEnd
from schemas.ids import Term
from schemas.objects.metadata import Metadata
from schemas.objects.partition import Partition, PartitionResolution, PartitionStatus
from schemas.objects.rebalance import (
    Rebalance,
    RebalanceResolution,
    RebalanceSpec,
    RebalanceStatus,
)
from tests.unit.sc.builders import (
    DELETED_AT,
    TERM_1,
    TERM_2,
    live,
    partition_of,
    report_of,
    session_of,
    spu_of,
    topic_of,
    view_of,
)

NOW = 1_000
KEY = Key("Rebalance", "r")


def rebalance(
    resolution: RebalanceResolution = RebalanceResolution.PENDING,
    *,
    name: str = "r",
    leaders_only: bool = False,
    plan_only: bool = False,
) -> Rebalance:
    return Rebalance(
        metadata=Metadata(name=name, uid=name, generation=1, resource_version="1"),
        spec=RebalanceSpec(leaders_only=leaders_only, plan_only=plan_only),
        status=RebalanceStatus(resolution=resolution),
    )


def led(index: int, *replicas: int, leader: int | None = None, **more: Any) -> Partition:
    return partition_of(
        more.pop("topic", "t"),
        index,
        replicas,
        resolution=PartitionResolution.ONLINE,
        leader=replicas[0] if leader is None else leader,
        term=TERM_1,
        lrs=tuple(map(live, replicas)),
        **more,
    )


def seen(*objects: Any, online: tuple[int, ...] = (1, 2)) -> View:
    partitions = [one for one in objects if isinstance(one, Partition)]
    sessions = []
    for i in online:
        held = [p for p in partitions if i in p.spec.holders]
        reports = [
            report_of(
                p,
                i,
                role=ReplicaRole.LEADER if p.status.leader == i else ReplicaRole.FOLLOWER,
                term=TERM_1 + 1,
            )
            for p in held
        ]
        sessions.append(session_of(i, *reports))
    return view_of(*objects, *map(spu_of, online), sessions=sessions)


def status_in(actions: tuple[Action, ...]) -> RebalanceStatus:
    (found,) = [
        a.status
        for a in actions
        if isinstance(a, WriteStatus) and isinstance(a.status, RebalanceStatus)
    ]
    return found


def test_given_uneven_replicas_then_a_round_of_moves_begins() -> None:
    view = seen(rebalance(), *(led(i, 1) for i in range(4)))
    actions = reconcile(view, KEY, NOW)
    begun = [a for a in actions if isinstance(a, BeginMove)]
    assert [(a.partition.name, a.spec.replicas, a.spec.leaving) for a in begun] == [
        ("t-0", (2,), (1,)),
        ("t-1", (2,), (1,)),
    ]
    status = status_in(actions)
    assert (status.resolution, status.left) == (RebalanceResolution.MOVING, 2)


def test_given_a_round_is_under_way_then_the_next_one_waits() -> None:
    moving = led(0, 2, leader=1, joining=(2,), leaving=(1,))
    view = seen(rebalance(), moving, *(led(i, 1) for i in range(1, 6)))
    (written,) = reconcile(view, KEY, NOW)
    assert isinstance(written, WriteStatus)
    assert written.status.reason == "replicas move"


def test_given_a_round_and_newcomers_that_are_offline_then_they_are_named() -> None:
    moving = led(0, 2, 3, leader=1, joining=(2, 3), leaving=(1,))
    (written,) = reconcile(seen(rebalance(), moving, online=(1,)), KEY, NOW)
    assert isinstance(written, WriteStatus)
    said = "replicas move; some are to come to SPUs 2, 3, which are offline"
    assert written.status.reason == said


def told(reason: str, *, left: int) -> Rebalance:
    """One that has begun."""
    status = RebalanceStatus(
        resolution=RebalanceResolution.MOVING, reason=reason, left=left, observed_generation=1
    )
    return rebalance().with_status(status)


def planned(*_: Any, **__: Any) -> None:
    """For where no plan is to be made."""
    raise AssertionError("planned")


def test_given_a_round_is_under_way_then_nothing_is_planned_and_the_number_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moving = led(0, 2, leader=1, joining=(2,), leaving=(1,))
    begun = told("replicas move", left=7)
    view = seen(begun, moving, *(led(i, 1) for i in range(1, 6)))
    monkeypatch.setattr("sc.controllers.membership.rebalance.make_plan", planned)
    assert reconcile(view, KEY, NOW) == ()


def test_given_leaders_that_take_over_then_nothing_is_planned_before_they_lead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun = told("leaders move", left=7)
    elected = taking_over(0, 2, 1)
    view = seen(begun, elected, *(led(i, 1) for i in range(1, 6)))
    view.preferred_elections.decided(2, elected.uid, TERM_1, NOW, 1)
    # As soon as they lead, or have not for long enough, it goes on.
    assert len(reconcile(view, KEY, NOW + TAKE_OVER_MS)) > 1
    monkeypatch.setattr("sc.controllers.membership.rebalance.make_plan", planned)
    assert reconcile(view, KEY, NOW + 1) == (WakeAt(KEY, NOW + TAKE_OVER_MS),)


def test_given_more_than_may_move_at_once_then_the_others_are_not_looked_at() -> None:
    many = [led(i, 1 + i % 8) for i in range(8 * 20)]
    looked: list[str] = []

    def size(partition: Partition) -> None:
        looked.append(partition.name)

    view = replace(seen(rebalance(), *many, online=tuple(range(1, 17))), size=size)
    actions = reconcile(view, KEY, NOW)
    assert sum(isinstance(a, BeginMove) for a in actions) == 64
    assert status_in(actions).left == 80
    assert len(looked) == 64


def test_given_even_replicas_then_preferences_change_before_leaders() -> None:
    view = seen(rebalance(), led(0, 1, 2), led(1, 1, 2))
    actions = reconcile(view, KEY, NOW)
    (changed,) = [a for a in actions if isinstance(a, WritePartitionSpec)]
    assert (changed.partition.name, changed.spec.replicas) == ("t-0", (2, 1))
    assert changed.spec.preferred_leader == 2


def test_given_a_leader_that_is_not_preferred_then_it_moves_at_once() -> None:
    view = seen(rebalance(), led(0, 2, 1, leader=1), led(1, 1, 2))
    (election, written) = reconcile(view, KEY, NOW)
    assert isinstance(election, WriteStatus)
    assert isinstance(election.status, PartitionStatus)
    assert (election.object.name, election.status.leader) == ("t-0", 2)
    assert status_in((written,)).reason == "leaders move"


def taking_over(index: int, *replicas: int) -> Partition:
    """Its preferred leader is elected, and does not lead yet."""
    found = led(index, *replicas)
    reason = f"SPU {replicas[0]} is taking over"
    update = {"resolution": PartitionResolution.OFFLINE, "reason": reason}
    return found.with_status(found.status.model_copy(update=update))


def test_given_elections_are_under_way_then_neither_done_nor_the_next_ones() -> None:
    for other in led(1, 1, 2), led(1, 1, 2, leader=2):
        elected = taking_over(0, 2, 1)
        view = seen(rebalance(leaders_only=True), elected, other)
        view.preferred_elections.decided(2, elected.uid, TERM_1, NOW, 1)
        wake, written = reconcile(view, KEY, NOW)
        status = status_in((written,))
        assert (status.resolution, status.reason) == (RebalanceResolution.MOVING, "leaders move")
        # An SPU whose disk hangs does not hold it up for ever.
        assert wake == WakeAt(KEY, NOW + TAKE_OVER_MS)
        later = reconcile(view, KEY, NOW + TAKE_OVER_MS)
        assert wake not in later
        status = status_in(later)
        if other.status.leader == 1:
            assert status.resolution is RebalanceResolution.DONE
            assert status.reason == (
                "all is balanced, but the leaders elected for 1 partition do not lead yet"
            )
        else:
            assert status.resolution is RebalanceResolution.MOVING


@pytest.mark.parametrize(
    ("others", "elections"),
    [
        pytest.param(partition_of("u", 0, (1,), leader=1), 3, id="given-no-leader-for-long"),
        pytest.param(taking_over(0, 1), 1, id="given-others-take-over"),
        pytest.param(
            taking_over(0, 1).with_metadata(deletion_timestamp=DELETED_AT), 3, id="given-deleted"
        ),
    ],
)
def test_given_partitions_without_a_leader_then_only_elections_count_that_are_under_way(
    others: Partition, elections: int
) -> None:
    many = [
        others.with_metadata(name=f"other-{i}", uid=f"other-{i}") for i in range(LEADERS_AT_ONCE)
    ]
    astray = [led(i, 2, 1, leader=1) for i in range(3)]
    even = [led(i, 1, topic="even") for i in range(3)]
    view = seen(rebalance(leaders_only=True), *many, *astray, *even)
    actions = reconcile(view, KEY, NOW)
    found = [a for a in actions if isinstance(a, WriteStatus) and isinstance(a.object, Partition)]
    assert len(found) == elections


def test_given_who_was_elected_is_gone_then_it_is_not_waited_for() -> None:
    view = seen(rebalance(), taking_over(0, 2), led(1, 1), online=(1,))
    assert status_in(reconcile(view, KEY, NOW)).resolution is RebalanceResolution.DONE


def test_given_who_was_elected_cannot_lead_then_the_rebalance_looks_again() -> None:
    before = taking_over(0, 2, 1)
    unfit = before.status.model_copy(update={"reason": "the replica on SPU 2 is unfit"})
    after = before.with_status(unfit)
    view = seen(rebalance(RebalanceResolution.MOVING), after)
    assert KEY in affected_keys(ObjectChanged(before, after), view.store)


@pytest.mark.parametrize("gone", [True, False], ids=["gone", "marked"])
def test_given_a_partition_that_is_deleted_then_the_rebalance_that_waits_for_it_looks_again(
    gone: bool,
) -> None:
    view = seen(rebalance(RebalanceResolution.MOVING))
    for partition, wakes in (taking_over(0, 2, 1), True), (led(0, 2, 1), False):
        marked = partition.with_metadata(deletion_timestamp=DELETED_AT)
        change = ObjectChanged(partition, None if gone else marked)
        assert (KEY in affected_keys(change, view.store)) is wakes


def test_given_one_that_looks_each_second_then_no_partition_has_it_look_as_well() -> None:
    """Where an SPU is lost thousands of partitions change, and each look is at all of them."""
    moving = rebalance(RebalanceResolution.MOVING)
    waits = moving.with_status(moving.status.model_copy(update={"reason": LEADERS_WAIT}))
    change = ObjectChanged(taking_over(0, 2, 1), led(0, 2, 1, leader=1))
    for found, wakes in (moving, True), (waits, False):
        assert (KEY in affected_keys(change, seen(found).store)) is wakes


def test_given_all_is_even_then_done_and_nothing_more() -> None:
    view = seen(rebalance(), led(0, 1, 2), led(1, 2, 1))
    status = status_in(reconcile(view, KEY, NOW))
    assert (status.resolution, status.reason) == (RebalanceResolution.DONE, "all is balanced")
    done = seen(rebalance(RebalanceResolution.DONE), *(led(i, 1) for i in range(4)))
    assert reconcile(done, KEY, NOW) == ()


@pytest.mark.parametrize("plan_only", [False, True])
def test_given_no_spu_that_may_hold_replicas_then_nothing_is_called_balanced(
    plan_only: bool,
) -> None:
    nobody = view_of(rebalance(plan_only=plan_only), led(0, 1), spu_of(1), spu_of(2))
    status = status_in(reconcile(nobody, KEY, NOW))
    assert (status.resolution, status.reason) == (
        RebalanceResolution.MOVING,
        "nothing can move: no SPU is online that may hold replicas",
    )
    # Then there is nothing to balance.
    empty = status_in(reconcile(view_of(rebalance(plan_only=plan_only)), KEY, NOW))
    assert empty.reason == "all is balanced"


def test_given_leaders_only_then_replicas_stay() -> None:
    view = seen(rebalance(leaders_only=True), *(led(i, 1) for i in range(4)))
    assert status_in(reconcile(view, KEY, NOW)).resolution is RebalanceResolution.DONE


def test_given_a_plan_then_it_is_told_and_nothing_moves() -> None:
    view = seen(rebalance(plan_only=True), *(led(i, 1) for i in range(4)))
    (written,) = reconcile(view, KEY, NOW)
    status = status_in((written,))
    assert status.resolution is RebalanceResolution.PLANNED
    assert status.reason == "replicas of 2 partitions move"
    assert [(m.partition, m.before, m.after) for m in status.moves] == [
        ("t-0", (1,), (2,)),
        ("t-1", (1,), (2,)),
    ]


def test_given_only_elections_are_due_then_the_plan_says_so() -> None:
    astray = [led(0, 1, 2, leader=2), led(1, 2, 1, leader=2)]
    (written,) = reconcile(seen(rebalance(plan_only=True), *astray), KEY, NOW)
    status = status_in((written,))
    assert (status.reason, status.left) == ("the preferred leaders of 1 partition take over", 0)
    assert status.moves == ()


def test_given_a_preferred_leader_that_is_away_then_the_plan_says_so() -> None:
    astray = led(0, 1, 2, leader=2)
    view = seen(rebalance(plan_only=True), astray, online=(2,))
    status = status_in(reconcile(view, KEY, NOW))
    assert status.reason == (
        "all is balanced, but 1 partition cannot be led by the preferred leader now"
    )


def test_given_a_preference_that_changes_then_the_plan_counts_no_election_by_the_old_one() -> None:
    both = [led(0, 1, 2, leader=2), led(1, 1, 2)]
    (written,) = reconcile(seen(rebalance(plan_only=True), *both), KEY, NOW)
    status = status_in((written,))
    assert status.reason == "of 1 partition only the leader moves"
    assert [(m.partition, m.after) for m in status.moves] == [("t-0", (2, 1))]


@pytest.mark.parametrize(
    "fixed",
    [
        pytest.param(
            (topic_of("u", rows={0: (1,), 1: (1,)}), led(0, 1, topic="u"), led(1, 1, topic="u")),
            id="given-rows-of-the-user",
        ),
        pytest.param((partition_of("u", 0, (1,)), partition_of("u", 1, (1,))), id="given-unled"),
    ],
)
def test_given_partitions_that_may_not_move_then_they_stay(fixed: tuple[Any, ...]) -> None:
    status = status_in(reconcile(seen(rebalance(), *fixed), KEY, NOW))
    assert status.resolution is RebalanceResolution.DONE


def test_given_another_one_before_it_then_it_waits() -> None:
    first = rebalance(RebalanceResolution.MOVING, name="a")
    view = seen(first, rebalance(), *(led(i, 1) for i in range(4)))
    status = status_in(reconcile(view, KEY, NOW))
    assert (status.resolution, status.reason) == (
        RebalanceResolution.PENDING,
        "it begins when a is done",
    )


def test_given_an_spu_that_drains_then_it_gets_nothing() -> None:
    spu = spu_of(2)
    drained = spu.model_copy(update={"spec": spu.spec.model_copy(update={"drain": True})})
    view = view_of(
        rebalance(),
        spu_of(1),
        drained,
        *(led(i, 1) for i in range(4)),
        sessions=[session_of(1), session_of(2)],
    )
    assert status_in(reconcile(view, KEY, NOW)).resolution is RebalanceResolution.DONE


def test_given_a_leader_that_lost_its_partition_again_then_done_and_not_moved_to_and_fro() -> None:
    before = led(0, 2, 1, leader=1)
    view = seen(rebalance(), before, led(1, 1, 2))
    (election, _) = reconcile(view, KEY, NOW)
    assert isinstance(election, WriteStatus)
    assert isinstance(election.status, PartitionStatus)
    note_election(view, election, NOW)
    # It was not written: somebody else has changed the partition.
    assert election in reconcile(view, KEY, NOW + 10_000)
    # It was, and the SPU has lost the partition again.
    lost = {"term": Term(election.status.term + 65_536)}
    later = before.with_status(before.status.model_copy(update=lost))
    view.store.put(later.with_metadata(resource_version=str(before.revision + 1)))
    found = status_in(reconcile(view, KEY, NOW + 10_000))
    assert found.resolution is RebalanceResolution.DONE
    assert found.reason == (
        "all is balanced, but 1 partition cannot be led by the preferred leader now"
    )


def with_live(partition: Partition, *spu_ids: int) -> Partition:
    lrs = tuple(map(live, spu_ids))
    return partition.with_status(partition.status.model_copy(update={"lrs": lrs}))


#: Partitions of which SPU 1 has lost the replica on SPU 3, or that their preferred leader joins.
LOST = led(0, 2, 1, 3, leader=1)
JOINS = with_live(LOST, 1)


def waiting(astray: Partition, online: tuple[int, ...] = (1, 2)) -> View:
    """SPU 2 may not lead its partition yet, and SPU 3 was lost a moment ago."""
    moving = rebalance(RebalanceResolution.MOVING, leaders_only=True)
    view = seen(moving, astray, led(1, 1, 2, 3), online=online)
    view.suspicions.ended(3, SessionEnd.LOST, NOW)
    return view


@pytest.mark.parametrize("astray", [LOST, JOINS], ids=["lost", "joins"])
def test_given_preferred_leaders_that_may_not_lead_yet_then_not_done(astray: Partition) -> None:
    view = waiting(astray)
    wake, written = reconcile(view, KEY, NOW)
    assert wake == WakeAt(KEY, NOW + LOOK_MS)
    status = status_in((written,))
    assert (status.resolution, status.left) == (RebalanceResolution.MOVING, 1)
    assert status.reason == "preferred leaders wait until they may lead"
    # Nobody waits for ever, also if the SC lags meanwhile.
    view.suspicions.tick(NOW)
    view.suspicions.tick(NOW + 5_000)
    ends_ms = NOW + TAKE_OVER_MS
    assert reconcile(view, KEY, ends_ms - 1)[0] == WakeAt(KEY, ends_ms)
    assert status_in(reconcile(view, KEY, ends_ms)).resolution is RebalanceResolution.DONE
    joined = with_live(astray, 1, 2).with_metadata(resource_version=str(astray.revision + 1))
    view.store.put(joined)
    (election, _) = reconcile(view, KEY, NOW + LOOK_MS)
    assert isinstance(election, WriteStatus)
    assert isinstance(election.status, PartitionStatus)
    assert election.status.leader == 2


@pytest.mark.parametrize(
    ("term", "found"),
    [
        pytest.param(TERM_2, RebalanceResolution.MOVING, id="given-another-leader-moved"),
        pytest.param(TERM_1, RebalanceResolution.DONE, id="given-a-new-partition"),
    ],
)
def test_given_an_election_meanwhile_then_others_are_waited_for_if_a_leader_moved(
    term: Term, found: RebalanceResolution
) -> None:
    view = waiting(JOINS)
    view.preferred_elections.decided(1, "another", term, NOW + 1, 1)
    assert status_in(reconcile(view, KEY, NOW + TAKE_OVER_MS)).resolution is found


def test_given_a_preferred_leader_that_was_lost_a_moment_ago_then_it_is_waited_for() -> None:
    view = waiting(LOST, online=(1,))
    view.store.put(spu_of(2))
    assert status_in(reconcile(view, KEY, NOW)).resolution is RebalanceResolution.MOVING
    ended = status_in(reconcile(view, KEY, NOW + TAKE_OVER_MS))
    assert ended.resolution is RebalanceResolution.DONE


@pytest.mark.parametrize("why", ["stops", "drains"])
def test_given_a_preferred_leader_that_is_to_lead_nothing_then_it_is_not_waited_for(
    why: str,
) -> None:
    view = waiting(LOST)
    if why == "stops":
        view.sessions[2].stops_ms = NOW
    elif why == "drains":
        spu = spu_of(2, revision=2)
        spec = spu.spec.model_copy(update={"drain": True})
        view.store.put(spu.model_copy(update={"spec": spec}))
    assert status_in(reconcile(view, KEY, NOW)).resolution is RebalanceResolution.DONE


def test_given_an_spu_that_is_back_then_a_rebalance_that_waited_for_it_looks_again() -> None:
    view = seen(rebalance(), led(0, 1))
    view.suspicions.ended(3, SessionEnd.CLOSED, NOW)
    view.store.put(spu_of(3))
    status = status_in(reconcile(view, KEY, NOW))
    assert status.resolution is RebalanceResolution.PENDING
    assert status.reason == "waiting for spu-3 to connect again"
    assert KEY in keys_of_session(3, view.store)
