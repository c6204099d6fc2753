"""Preferred leader election: when all is calm, one after the other, and never to the unfit."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from sc.controllers.actions import Action, Key, WakeAt, WriteStatus
from sc.controllers.partition import reconcile
from sc.controllers.preferred_leader import AGAIN_MS, CALM_MS, PACE_MS, elect_now
from sc.dispatch.loop import note_election
from sc.store.view import STOPS_MS, PreferredElections, View
from schemas.control.messages import ElectionRequest, ReplicaRole, SpuRequest
from schemas.control.session_end import SessionEnd
from schemas.ids import PartitionUid, Term
from schemas.objects.partition import Partition, PartitionResolution, PartitionStatus
from tests.unit.sc.builders import (
    TERM_1,
    TERM_2,
    live,
    lrs_request_of,
    partition_of,
    report_of,
    session_of,
    spu_of,
    unreachable_of,
    view_of,
)
from tests.unit.sc.controllers.test_replication_laws import replicated
from tests.unit.sc.world import World

#: When the last session opened.
OPENED = 100_000
CALM = OPENED + CALM_MS


#: Of an election before the one in which SPU 2 leads.
EARLIER = Term(TERM_1 - 65_536)


def away(index: int = 0, *, lrs: tuple[int, ...] = (1, 2), leader: int = 2) -> Partition:
    """A healthy partition that prefers SPU 1 and is led by another one."""
    return partition_of(
        "t",
        index,
        (1, 2),
        leader=leader,
        term=TERM_1,
        lrs=tuple(live(i) for i in lrs),
        resolution=PartitionResolution.ONLINE,
    )


def calm_view(*partitions: Partition, **preferred: Any) -> View:
    """Both SPUs have had sessions since `OPENED`; ``preferred`` is what SPU 1 reports."""
    leads: dict[str, Any] = {"role": ReplicaRole.LEADER, "term": Term(TERM_1 + 1)}
    sessions = [
        session_of(1, *(report_of(p, 1, **preferred) for p in partitions)),
        session_of(2, *(report_of(p, 2, **leads) for p in partitions)),
    ]
    view = view_of(*partitions, spu_of(1), spu_of(2), sessions=sessions)
    for spu_id in (1, 2):
        view.suspicions.opened(spu_id, OPENED)
    return view


def look(view: View, partition: Partition, now_ms: int) -> tuple[Action, ...]:
    """Reconcile, and note what was decided as the loop does."""
    actions = reconcile(view, Key("Partition", partition.name), now_ms)
    for action in actions:
        note_election(view, action, now_ms)
    return actions


def elects(actions: tuple[Action, ...], leader: int) -> bool:
    """Whether the only action is an election of this SPU."""
    match actions:
        case (WriteStatus(_, PartitionStatus() as status),):
            return (status.leader, status.term) == (leader, TERM_2)
    return False


def wake(partition: Partition, at_ms: int) -> tuple[Action, ...]:
    return (WakeAt(Key("Partition", partition.name), at_ms),)


def test_given_calm_then_the_preferred_leader_is_elected_and_all_stay_live() -> None:
    partition = away()
    actions = look(calm_view(partition), partition, CALM)
    assert elects(actions, 1)
    (write,) = actions
    assert isinstance(write, WriteStatus)
    assert isinstance(write.status, PartitionStatus)
    assert write.status.lrs == partition.status.lrs
    assert write.status.resolution is PartitionResolution.OFFLINE


@pytest.mark.parametrize("now_ms", [OPENED, CALM - 1])
def test_given_a_session_opened_a_moment_ago_then_looked_at_again_later(now_ms: int) -> None:
    partition = away()
    assert look(calm_view(partition), partition, now_ms) == wake(partition, CALM)


def test_given_another_spu_was_lost_then_calm_begins_anew() -> None:
    partition = away()
    view = calm_view(partition)
    view.suspicions.opened(3, OPENED)
    view.suspicions.ended(3, SessionEnd.LOST, CALM - 10)
    assert look(view, partition, CALM) == wake(partition, CALM - 10 + CALM_MS)


def test_given_the_sc_lagged_then_calm_begins_anew() -> None:
    partition = away()
    view = calm_view(partition)
    view.suspicions.tick(CALM - 5_000)
    view.suspicions.tick(CALM - 10)
    assert look(view, partition, CALM) == wake(partition, CALM - 10 + CALM_MS)


def stopping(view: View, spu_id: int, now_ms: int) -> View:
    view.sessions[spu_id].stops_ms = now_ms
    return view


def test_given_the_preferred_leader_stops_then_it_gets_nothing_back_before_it_could_be_gone() -> (
    None
):
    partition = away()
    view = stopping(calm_view(partition), 1, CALM)
    assert look(view, partition, CALM + 20) == wake(partition, CALM + STOPS_MS)
    assert elect_now(view, partition, CALM + 20) is None
    assert elects(look(view, partition, CALM + STOPS_MS), 1)


@pytest.mark.parametrize(
    ("partition", "preferred"),
    [
        pytest.param(away(leader=1), {}, id="given-it-leads-already"),
        pytest.param(away(lrs=(2,)), {}, id="given-not-live"),
        pytest.param(away(), {"fit": False}, id="given-unfit"),
        pytest.param(away(), {"storage": "new"}, id="given-another-disk"),
    ],
)
def test_never_elected(partition: Partition, preferred: dict[str, Any]) -> None:
    view = calm_view(partition, **preferred)
    assert not elects(look(view, partition, CALM), 1)


def test_given_a_sealed_partition_then_its_leader_moves_now_as_well() -> None:
    partition = away()
    update = {"resolution": PartitionResolution.SEALED}
    sealed = partition.with_status(partition.status.model_copy(update=update))
    assert elect_now(calm_view(sealed), sealed, OPENED) is not None
    update = {"resolution": PartitionResolution.OFFLINE}
    offline = partition.with_status(partition.status.model_copy(update=update))
    assert elect_now(calm_view(offline), offline, OPENED) is None


@pytest.mark.parametrize(("tells", "of"), [(1, 2), (2, 1)])
def test_given_a_preferred_leader_that_is_cut_off_from_a_live_replica_then_not_elected(
    tells: int, of: int
) -> None:
    partition = away()
    view = calm_view(partition)
    assert elect_now(view, partition, OPENED) is not None
    view.sessions[tells].unreachable = {of: unreachable_of(of)}
    assert not elects(look(view, partition, CALM), 1)
    assert elect_now(view, partition, CALM) is None
    view.sessions[tells].unreachable = {9: unreachable_of(9)}
    assert elects(look(view, partition, CALM), 1)


def test_given_a_preferred_leader_that_lost_it_again_then_not_at_once_again() -> None:
    partition = away()
    view = calm_view(partition)
    assert elects(look(view, partition, CALM), 1)
    # Nothing of it was written.
    assert elect_now(view, partition, CALM + 1) is not None
    view.preferred_elections.decided(1, partition.uid, EARLIER, CALM, AGAIN_MS)
    assert elect_now(view, partition, CALM + AGAIN_MS - 1) is None
    assert elect_now(view, partition, CALM + AGAIN_MS) is not None


def test_given_an_spu_came_or_went_or_another_is_preferred_now_then_at_once_again() -> None:
    partition = away()
    view = calm_view(partition)
    view.preferred_elections.decided(1, partition.uid, EARLIER, CALM, AGAIN_MS)
    view.suspicions.ended(3, SessionEnd.LOST, CALM + 1)
    assert elect_now(view, partition, CALM + 2) is not None
    view = calm_view(partition)
    view.preferred_elections.decided(2, partition.uid, EARLIER, CALM, AGAIN_MS)
    assert elect_now(view, partition, CALM + 2) is not None


def test_given_a_preferred_leader_that_is_suspect_then_not_elected() -> None:
    partition = away()
    view = calm_view(partition)
    assert isinstance(view.sessions, dict)
    del view.sessions[1]
    view.suspicions.ended(1, SessionEnd.CLOSED, CALM - 10)
    assert not elects(look(view, partition, CALM), 1)


def test_given_a_flapping_preferred_leader_then_not_elected() -> None:
    partition = away()
    view = calm_view(partition)
    for _ in range(2):
        view.suspicions.ended(1, SessionEnd.LOST, OPENED + 1_000)
        view.suspicions.opened(1, OPENED + 1_000)
    now_ms = OPENED + 1_000 + CALM_MS
    assert look(view, partition, now_ms) == wake(partition, now_ms + CALM_MS)
    assert elects(look(view, partition, now_ms + CALM_MS), 1)


def test_given_many_then_one_per_spu_in_five_seconds() -> None:
    partitions = [away(i) for i in range(4)]
    view = calm_view(*partitions)
    assert elects(look(view, partitions[0], CALM), 1)
    assert look(view, partitions[1], CALM) == wake(partitions[1], CALM + 2 * PACE_MS)
    assert look(view, partitions[3], CALM + 1) == wake(partitions[3], CALM + 4 * PACE_MS)
    assert elects(look(view, partitions[1], CALM + PACE_MS), 1)


def test_given_the_same_partition_soon_after_then_not_again() -> None:
    partition = away()
    view = calm_view(partition)
    # It was given back, and has been lost again since.
    view.preferred_elections.decided(1, partition.uid, EARLIER, CALM, AGAIN_MS)
    soon = look(view, partition, CALM + 3 * PACE_MS)
    assert soon == wake(partition, CALM + AGAIN_MS)
    assert elects(look(view, partition, CALM + AGAIN_MS), 1)


def test_given_an_election_that_was_not_written_then_again_as_soon_as_others() -> None:
    partition = away()
    view = calm_view(partition)
    assert elects(look(view, partition, CALM), 1)
    # It may still be on its way.
    assert look(view, partition, CALM + PACE_MS - 1) == wake(partition, CALM + PACE_MS)
    assert elects(look(view, partition, CALM + PACE_MS), 1)


def leaders(world: World) -> Counter[int | None]:
    """How many partitions each SPU leads; all of them are online."""
    partitions = world.store.objects(Partition)
    assert {p.status.resolution for p in partitions} == {PartitionResolution.ONLINE}
    return Counter(p.status.leader for p in partitions)


def test_given_a_failover_then_leaders_go_home_one_after_the_other() -> None:
    world = replicated(1, 3)
    world.settle()
    assert leaders(world) == {1: 3}
    world.disconnect(1)
    world.settle()
    assert set(leaders(world)) == {2, 3}
    back_ms = world.now_ms
    world.connect(1)
    world.work_off()
    for partition in world.store.objects(Partition):
        request = lrs_request_of(partition, live(1), live(2), live(3))
        assert partition.status.leader is not None
        world.ask(partition.status.leader, SpuRequest(lrs=(request,)))
    world.work_off()
    assert set(leaders(world)) == {2, 3}
    world.settle()
    assert leaders(world) == {1: 3}
    assert world.now_ms - back_ms >= AGAIN_MS


def test_given_an_spu_that_stops_in_a_calm_cluster_then_it_keeps_nothing_that_it_hands_over() -> (
    None
):
    world = replicated(1, 3)
    world.settle()
    for partition in world.store.objects(Partition):
        request = lrs_request_of(partition, live(1), live(2), live(3))
        world.ask(1, SpuRequest(lrs=(request,)))
    world.settle()
    world.now_ms += CALM_MS
    for partition in [*world.store.objects(Partition)]:
        term = world.sessions[1].reports[partition.uid].term
        asks = ElectionRequest(uid=PartitionUid(partition.uid), term=term, reason="its SPU stops")
        world.ask(1, SpuRequest(elections=(asks,)))
        world.work_off()
    assert set(leaders(world)) == {2, 3}
    world.disconnect(1, SessionEnd.GOODBYE)
    world.connect(1)
    assert world.view.stops_until_ms(1) == 0


def test_given_old_elections_then_they_are_forgotten_and_later_ones_of_the_same_count() -> None:
    elections = PreferredElections()
    for uid, now_ms in (("a", 0), ("b", 10), ("a", 20), ("c", 109), ("d", 110)):
        elections.decided(1, uid, TERM_1, now_ms, forget_ms=100)
    times = {"a": 20, "c": 109, "d": 110}
    assert elections.by_partition == {uid: (at, 1, TERM_1) for uid, at in times.items()}
    assert elections.by_spu == {1: 110}
