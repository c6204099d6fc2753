"""SPUs that run by another spec than their restored objects have: what they wait for, and that each
way out ends the wait."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sc.controllers.actions import Key
from sc.controllers.spu_restarts import runs_by
from sc.store.view import Provisioned
from schemas.objects.partition import LiveReplica, Partition
from schemas.objects.spu import Spu, SpuResolution, Storage
from schemas.objects.spu_group import SpuGroup
from schemas.objects.topic import Topic, TopicResolution
from tests.unit.sc.builders import (
    group_of,
    member_of,
    spu_of,
    topic_of,
)
from tests.unit.sc.controllers.groups import template
from tests.unit.sc.world import World

#: The group of the backup, and that of now.
GROUP = group_of(replicas=1)
NEWER = group_of(replicas=1, template=template(storage=Storage(log_dir="/newer")), generation=2)
ONE = Key("Spu", "g-1")
LOST = "spu-9"
#: Times that everything is looked at: far more than any way out takes.
PASSES = 12


def restored(*, min_in_sync: int) -> World:
    """One SPU runs by a spec that its object does not have, and shares a partition with one that is
    away for good; a third one could take the replica."""
    world = World()
    world.put(GROUP)
    world.put(spu_of(9, SpuResolution.INIT))
    world.settle()
    for spu_id in (1, 9):
        world.connect(spu_id)
    world.put(topic_of("t", partitions=1, factor=2, minimum=min_in_sync))
    world.settle()
    catch_up(world)
    assert [m.spu_id for m in partition(world).status.lrs] == [1, 9]
    world.disconnect(9)
    world.put(spu_of(8, SpuResolution.INIT))
    world.settle()
    world.connect(8)
    world.settle()
    world.provisioned["g-1"] = Provisioned(member_of(NEWER, 1).spec)
    world.trouble("g-1", None)
    look(world)
    return world


def partition(world: World) -> Partition:
    found = world.store.get(Partition, "t-0")
    assert found is not None
    return found


def object_of(world: World, spu: str = "g-1") -> Spu:
    found = world.store.get(Spu, spu)
    assert found is not None
    return found


def follows(world: World) -> bool:
    """Whether the process runs by the spec of its object."""
    return runs_by(world.provisioned["g-1"].spec) == runs_by(object_of(world).spec)


def catch_up(world: World) -> None:
    """Leaders ask for all that are there and not live."""
    for found in world.store.objects(Partition):
        uid, leader = found.uid, found.status.leader
        members = {m.spu_id: m for m in found.status.lrs}
        for spu_id in found.spec.replicas:
            if (report := world.view.report(spu_id, uid)) is not None and spu_id not in members:
                members[spu_id] = LiveReplica(spu_id=spu_id, storage_id=report.storage_id)
        if leader is not None and len(members) > len(found.status.lrs):
            world.ask_for(found, tuple(members[i] for i in sorted(members)))
    world.work_off()


def look(world: World) -> None:
    """Everything that is due happens, again and again. A wait looks again by itself for ever, so
    that the world never comes to rest."""
    for _ in range(PASSES):
        world.work_off()
        catch_up(world)
        world.steps, world.now_ms = 0, world.now_ms + 500
        for key in [key for key, at in world.timers.items() if at <= world.now_ms]:
            del world.timers[key]
            world.waiting[key] = None


def drained(world: World, *, to: tuple[int, ...] | None = None) -> None:
    spu = object_of(world, LOST)
    update = {"drain": True, "drain_to": to}
    changed = spu.model_copy(update={"spec": spu.spec.model_copy(update=update)})
    world.put(changed.with_metadata(generation=spu.generation + 1))


def registered_again(world: World) -> None:
    """It was deleted by force, which leaves its partitions as they are."""
    world.remove(object_of(world, LOST))
    look(world)
    assert "SPU 9 is not registered; register it again" in str(object_of(world).status.reason)
    assert not follows(world)
    world.put(spu_of(9, SpuResolution.INIT))
    look(world)
    drained(world)


def fewer_replicas(world: World) -> None:
    topic = world.store.get(Topic, "t")
    assert topic is not None
    assert topic.status.resolution is TopicResolution.PROVISIONED
    update = {"replication_factor": 1, "min_in_sync_replicas": 1}
    changed = topic.model_copy(update={"spec": topic.spec.model_copy(update=update)})
    world.put(changed.with_metadata(generation=topic.generation + 1))


def newer_manifest(world: World) -> None:
    """Somebody applies what the process runs by: it stays where it is."""
    group = world.store.get(SpuGroup, "g")
    assert group is not None
    changed = group.model_copy(update={"spec": NEWER.spec})
    world.put(changed.with_metadata(generation=group.generation + 1))
    look(world)
    assert world.provisioned["g-1"].spec == member_of(NEWER, 1).spec


def drains_itself(world: World) -> None:
    """Its own replicas go to others, together with those of the lost one."""
    world.put(spu_of(7, SpuResolution.INIT))
    world.work_off()
    world.connect(7)
    spu = object_of(world)
    changed = spu.model_copy(update={"spec": spu.spec.model_copy(update={"drain": True})})
    world.put(changed.with_metadata(generation=spu.generation + 1))
    drained(world)


WAYS_OUT = [
    pytest.param(drained, id="given-the-lost-one-drains-then-the-wait-ends"),
    pytest.param(lambda w: drained(w, to=(8,)), id="given-it-is-replaced-then-the-wait-ends"),
    pytest.param(lambda w: w.connect(9), id="given-it-is-back-then-the-wait-ends"),
    pytest.param(registered_again, id="given-deleted-registered-and-drained-then-the-wait-ends"),
    pytest.param(fewer_replicas, id="given-fewer-replicas-then-the-wait-ends"),
    pytest.param(newer_manifest, id="given-the-newer-manifest-then-the-wait-ends"),
    pytest.param(drains_itself, id="given-both-drain-then-the-wait-ends"),
]


@pytest.mark.parametrize("way_out", WAYS_OUT)
@pytest.mark.parametrize("min_in_sync", [1, 2])
def test_way_out(way_out: Callable[[World], None], min_in_sync: int) -> None:
    world = restored(min_in_sync=min_in_sync)
    until = (
        "until all replicas of t-0 are live: spu-9 is offline; bring it back, or have others take"
        " its replicas: runnel spu drain spu-9"
    )
    spu, group = object_of(world), world.store.get(SpuGroup, "g")
    assert not follows(world), "it left the directory of the last live replica"
    assert spu.status.resolution is SpuResolution.ONLINE
    assert spu.status.reason == f"its process goes on by another spec than this one {until}"
    assert group is not None
    said = f"the spec of the SPU is not in force yet for g-1: waiting {until}"
    assert group.status.reason == said
    way_out(world)
    look(world)
    assert follows(world)
    assert "another spec" not in str(object_of(world).status.reason)
    group = world.store.get(SpuGroup, "g")
    assert group is not None
    assert group.status.reason is None
