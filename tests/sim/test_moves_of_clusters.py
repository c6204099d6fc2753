"""Scenes of moves in a whole cluster, and the deliberate bugs that each must show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from sc.controllers.membership import resize
from sc.controllers.membership.begin import respecified
from schemas.objects.partition import Partition
from schemas.objects.spu import Spu
from schemas.objects.topic import LogSettings, TopicSpec
from tests.sim.cluster.clients import SimProducer
from tests.sim.cluster.layout import Layout, Plan
from tests.sim.cluster.network import SC
from tests.sim.cluster.world import World
from tests.sim.moving_mutants import OF_CLUSTERS

SECOND: Final = 1_000_000
BEGINS_US: Final = 4 * SECOND


def cluster(spus: int, replicas: tuple[int, ...], minimum: int = 1) -> World:
    """A cluster without faults, whose partition ``t-0`` is written to all the time."""
    world = World(0, Layout(tuple(range(1, spus + 1)), (Plan("t-0", replicas, minimum),)))
    world.faulty = False
    for spu in world.spus.values():
        spu.start()
    SimProducer(world, "t-0", 1).begin()
    world.clock.run_until(BEGINS_US)
    assert committed_by(world, BEGINS_US) > 0
    return world


def found(world: World) -> Partition:
    partition = world.kv.partition("t-0")
    assert partition is not None
    return partition


def wanted_on(world: World, *replicas: int) -> None:
    """Other SPUs are to hold the partition."""
    before = found(world)
    spec = respecified(before, replicas)
    world.kv.put(before.model_copy(update={"spec": spec}))


def committed_by(world: World, at_us: int) -> int:
    """Where what is committed ends at a time."""
    world.clock.run_until(at_us)
    return world.ledgers["t-0"].end


def a_leader_moves() -> None:
    """Both replicas move to other SPUs."""
    world = cluster(4, (1, 2))
    wanted_on(world, 3, 4)
    world.clock.run_until(BEGINS_US + 20 * SECOND)
    assert not found(world).spec.moves, "the move does not end"
    assert {m.spu_id for m in found(world).status.lrs} == {3, 4}
    assert all(not world.spus[i].replicas for i in (1, 2))


def a_newcomer_is_away() -> None:
    """The move has to wait, and clients write on."""
    world = cluster(4, (1, 2))
    wanted_on(world, 3, 4)
    world.spus[4].crash(power_fails=False)
    before = committed_by(world, BEGINS_US + SECOND)
    after = committed_by(world, BEGINS_US + 5 * SECOND)
    assert after > before, "nothing is committed while a newcomer is away"
    assert found(world).spec.moves
    assert {m.spu_id for m in found(world).status.lrs} >= {1, 2}


def an_spu_is_emptied() -> None:
    """An SPU that is told to be drained holds nothing, and nothing is named on it."""
    world = cluster(4, (1, 2, 3))
    (spu,) = (o for o in world.kv.objects() if isinstance(o, Spu) and o.spec.spu_id == 1)
    spec = spu.spec.model_copy(update={"drain": True})
    world.kv.put(spu.model_copy(update={"spec": spec}))
    for _ in range(2_000):
        world.clock.run_until(world.clock.now_us + 10_000)
        (spu,) = (o for o in world.kv.objects() if isinstance(o, Spu) and o.spec.spu_id == 1)
        if spu.status.drained:
            break
    assert spu.status.drained
    assert 1 not in found(world).spec.holders, "what is drained holds a replica"
    assert not world.spus[1].replicas


def settled(world: World, topic: TopicSpec, log: LogSettings) -> None:
    """The partition gets these settings when it may, as the controller of its topic has it."""
    before, wanted = found(world), resize.of_topic(topic)
    now = resize.settings_for_now(wanted, before, log)
    if now != before.spec.log:
        spec = before.spec.model_copy(update={"log": now})
        world.kv.put(before.model_copy(update={"spec": spec}))
    world.clock.after(SECOND // 10, settled, world, topic, log)


def a_topic_shrinks() -> None:
    """Three replicas, of which two are to be live, become one: clients write on all the time."""
    world = cluster(3, (1, 2, 3), minimum=2)
    wanted_on(world, 1)
    settled(world, TopicSpec(partitions=1, replication_factor=1), LogSettings())
    before = committed_by(world, BEGINS_US + SECOND)
    assert committed_by(world, BEGINS_US + 10 * SECOND) > before
    assert not found(world).spec.moves
    assert {m.spu_id for m in found(world).status.lrs} == {1}


def a_topic_grows() -> None:
    """One replica becomes three, of which two are to be live, and the newcomers are not reached for
    a while: clients write on."""
    world = cluster(3, (1,))
    for peer in (2, 3):
        world.network.cut(1, peer, both=True)
    wanted_on(world, 1, 2, 3)
    topic = TopicSpec(partitions=1, replication_factor=3)
    settled(world, topic, LogSettings(min_in_sync_replicas=2))
    before = committed_by(world, BEGINS_US + SECOND)
    after = committed_by(world, BEGINS_US + 4 * SECOND)
    assert after > before, "nothing is committed before newcomers are live"
    for peer in (2, 3):
        world.network.heal(1, peer)
    world.clock.run_until(BEGINS_US + 20 * SECOND)
    assert found(world).spec.log.min_in_sync_replicas == 2
    assert len(found(world).status.lrs) == 3
    assert not found(world).spec.moves


def an_order_takes_long() -> None:
    """A newcomer's disk is slow: while it makes its replica, its session ends, and the partition is
    to be where it was. When it is back it has nothing."""
    world = cluster(3, (1, 2))
    newcomer, took_us = world.spus[3], [3 * SECOND]
    newcomer.disk_us = lambda: took_us[0]  # type: ignore[method-assign]
    wanted_on(world, 1, 3)
    world.clock.run_until(BEGINS_US + SECOND // 10)
    took_us[0] = 2_000
    world.network.blocked.update({(3, SC), (SC, 3)})
    world.sc.sessions[3].breaks()
    wanted_on(world, 1, 2)
    world.clock.run_until(BEGINS_US + 2 * SECOND)
    assert not found(world).spec.moves
    world.network.heal(3, SC)
    world.clock.run_until(BEGINS_US + 20 * SECOND)
    assert 3 in world.sc.sessions
    assert not world.kv.graves()
    assert not newcomer.replicas, "an order from before is obeyed"


#: Scenes, and what is said of them where the bug is there.
SCENES: Final[dict[str, tuple[Callable[[], None], str]]] = {
    "who leaves is told nothing": (a_leader_moves, "the move does not end"),
    "who leaves is sent no records": (a_newcomer_is_away, "while a newcomer is away"),
    "a drain ends while replicas move": (an_spu_is_emptied, "what is drained holds a replica"),
    "an order is carried out after the session that brought it": (
        an_order_takes_long,
        "an order from before is obeyed",
    ),
    "the minimum falls when replicas have left": (a_topic_shrinks, "1 stay, the minimum is 2"),
    "the minimum rises before replicas are live": (a_topic_grows, "before newcomers are live"),
}


def test_every_deliberate_bug_has_a_scene() -> None:
    assert {*SCENES} == {*OF_CLUSTERS}


@pytest.mark.parametrize("bug", SCENES)
def test_given_a_deliberate_bug_then_a_scene_shows_it(bug: str) -> None:
    scene, shown = SCENES[bug]
    scene()
    with OF_CLUSTERS[bug](), pytest.raises(AssertionError, match=shown):
        scene()
