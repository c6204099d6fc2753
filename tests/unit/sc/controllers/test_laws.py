"""Laws of the controllers over random small worlds."""

from __future__ import annotations

import copy
import os
import random

from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from sc.controllers import reconcile
from sc.controllers.actions import Key, WakeAt
from sc.controllers.membership.begin import may_move
from sc.controllers.membership.resize import of_topic
from sc.controllers.spu_group import is_draining
from sc.controllers.spu_restarts import runs_by
from sc.dispatch.metadata import MetadataDispatcher
from sc.store.view import SessionState, View
from schemas.objects.partition import Partition, PartitionResolution
from schemas.objects.spu import Spu, SpuResolution
from schemas.objects.spu_group import SpuGroup, SpuGroupResolution
from schemas.objects.topic import Topic, TopicResolution
from tests.laws import examples
from tests.unit.sc.builders import spu_of, topic_of
from tests.unit.sc.controllers.drawn_events import Events
from tests.unit.sc.controllers.drawn_worlds import Setting, settings_of_worlds
from tests.unit.sc.world import World

#: Without the phase that explains failures: it traces every line.
LAW = settings(
    # `make sim` asks for more worlds.
    max_examples=int(os.environ.get("RUNNEL_SIM_WORLDS", examples(25))),
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
)
SEEDS = st.integers(0, 2**32)


@LAW
@given(settings_of_worlds(), SEEDS)
def test_same_view_in_any_order_gives_the_same_actions(setting: Setting, seed: int) -> None:
    one, again = setting.build(), setting.build()
    shuffled = setting.build(random.Random(seed))
    for key in one.all_keys():
        actions = reconcile(one.view, key, one.now_ms)
        assert reconcile(one.view, key, one.now_ms) == actions
        assert reconcile(again.view, key, again.now_ms) == actions
        assert reconcile(shuffled.view, key, shuffled.now_ms) == actions


@LAW
@given(settings_of_worlds())
def test_every_world_comes_to_rest_and_then_asks_for_nothing(setting: Setting) -> None:
    world = setting.build()
    world.settle()
    for key in world.all_keys():
        assert reconcile(world.view, key, world.now_ms) == ()


@LAW
@given(settings_of_worlds(one_order=True), SEEDS)
def test_lost_repeated_and_reordered_events_lead_to_the_same_end(
    setting: Setting, seed: int
) -> None:
    rng = random.Random(seed)
    orderly, chaotic = setting.build(), setting.build(rng)
    orderly.settle()
    orderly.full_pass()
    chaotic.chaotic(rng)
    chaotic.full_pass()
    assume(not orderly.moved and not chaotic.moved)
    assert chaotic.state() == orderly.state()


@LAW
@given(settings_of_worlds(), st.data())
def test_events_wake_every_key_that_has_something_to_do(
    setting: Setting, data: st.DataObject
) -> None:
    """After any event, looking only at the keys it woke leaves nothing for a full pass."""
    world = setting.build()
    world.settle()
    happened = []
    for _ in range(data.draw(st.integers(1, 6))):
        happened.append(Events(world, data).one())
        # Sometimes the next event comes when only some of the keys were looked at.
        for _ in range(data.draw(st.integers(0, 3))):
            if world.waiting:
                key = data.draw(st.sampled_from(list(world.waiting)))
                del world.waiting[key]
                world.step(key)
    world.settle()
    left = {k: a for k in world.all_keys() if (a := reconcile(world.view, k, world.now_ms))}
    assert not left, happened


def test_given_spu_gone_and_back_before_anyone_looked_then_the_waiting_topic_is_placed() -> None:
    world = World()
    world.put(spu_of(1, SpuResolution.INIT))
    world.settle()
    world.connect(1)
    world.settle()
    world.disconnect(1)
    world.put(topic_of("t", TopicResolution.PENDING))
    world.step(Key("Topic", "t"))
    waits = world.store.get(Topic, "t")
    assert waits is not None
    assert waits.status.resolution is TopicResolution.INSUFFICIENT_RESOURCES
    del world.waiting[Key("Topic", "t")]
    world.connect(1)
    world.settle()
    placed = world.store.get(Topic, "t")
    assert placed is not None
    assert placed.status.resolution is TopicResolution.PROVISIONED


@LAW
@given(settings_of_worlds())
def test_rest_means_led_partitions_have_live_replicas_and_topics_say_how_it_is(
    setting: Setting,
) -> None:
    world = setting.build()
    world.settle()
    for topic in world.store.objects(Topic):
        mine = world.store.partitions_of("Topic", topic.name)
        assert topic.status.observed_generation == topic.generation
        if topic.status.resolution is TopicResolution.PROVISIONED:
            assert topic.status.replica_map == tuple(p.spec.replicas for p in mine)
            assert len(mine) >= topic.spec.partition_count
        else:
            assert topic.status.reason
            assert not topic.deleting
    for partition in world.store.objects(Partition):
        status = partition.status
        assert not partition.deleting
        assert (status.leader is None) == (not status.lrs)
        assert status.leader is None or status.leader in {m.spu_id for m in status.lrs}
        if status.resolution is PartitionResolution.ONLINE:
            assert status.leader in world.sessions
        else:
            assert status.reason
    for spu in world.store.objects(Spu):
        online = spu.spec.spu_id in world.sessions
        resolution = spu.status.resolution
        assert (resolution in (SpuResolution.ONLINE, SpuResolution.DRAINING)) == online


@LAW
@given(settings_of_worlds())
def test_rest_means_groups_have_their_spus_and_no_others_or_say_why(setting: Setting) -> None:
    world = setting.build()
    world.settle()
    for group in world.store.objects(SpuGroup):
        ids = [spu.spec.spu_id for spu in world.store.spus_of(group.name)]
        wanted = range(group.spec.min_id, group.spec.last_id + 1)
        held = [i for i in ids if world.store.holds_replicas(i)]
        assert group.status.observed_generation == group.generation or group.deleting
        if group.deleting:
            # Ends with the first SPU that holds replicas, from the highest id down.
            assert held
            assert ids == [i for i in ids if i <= max(held)]
            assert "once its replicas have moved" in (group.status.reason or "")
        elif group.status.resolution is SpuGroupResolution.RESERVED:
            assert set(wanted) <= set(ids)
            outside = [i for i in ids if i not in wanted]
            assert not outside or max(outside) in held
        else:
            assert group.status.resolution is SpuGroupResolution.INVALID
            assert group.status.reason
        for spu in world.store.spus_of(group.name):
            if spu.spec.spu_id in world.sessions:
                draining = spu.status.resolution is SpuResolution.DRAINING
                goes = group.deleting or (
                    group.status.resolution is SpuGroupResolution.RESERVED
                    and spu.spec.spu_id not in wanted
                )
                assert draining == goes
    managed = {s.name: runs_by(s.spec) for s in world.store.objects(Spu) if s.spec.group}
    assert {name: runs_by(found.spec) for name, found in world.provisioned.items()} == managed
    ids = [spu.spec.spu_id for spu in world.store.objects(Spu)]
    assert len(ids) == len(set(ids))


@LAW
@given(settings_of_worlds(), st.data())
def test_rest_means_replicas_are_where_they_are_wanted_or_it_is_said_why(
    setting: Setting, data: st.DataObject
) -> None:
    world = setting.build()
    world.settle()
    happened = []
    for _ in range(data.draw(st.integers(1, 6))):
        happened.append(Events(world, data).one())
        if data.draw(st.booleans()):
            world.settle()
    world.settle()
    view = world.view
    for partition in world.store.objects(Partition):
        spec, status = partition.spec, partition.status
        assert set(spec.joining or ()) <= set(spec.replicas), happened
        assert not set(spec.leaving or ()) & set(spec.replicas), happened
        assert {m.spu_id for m in status.lrs} <= set(spec.holders), happened
        if spec.moves and status.resolution is PartitionResolution.ONLINE:
            able = [
                (found := view.report(i, partition.uid)) is not None and found.fit
                for i in spec.replicas
            ]
            assert not all(able) or "turned down" in (status.reason or ""), happened
            assert "its replicas move" in (status.reason or ""), happened
    for spu in world.store.objects(Spu):
        if is_draining(world.store, spu) and spu.name in world.registered:
            held = list(world.store.partitions_on(spu.spec.spu_id))
            graves = world.store.tombstones_of(spu.spec.spu_id)
            away = spu.spec.spu_id not in world.sessions
            assert bool(spu.status.drained) == (not held and (away or not graves)), happened
            ready = [p for p in held if not p.spec.moves and may_move(view, p) is None]
            assert not ready or ";" in (spu.status.reason or ""), happened
        else:
            assert not spu.status.drained, happened
    for topic in world.store.objects(Topic):
        mine = world.store.partitions_of("Topic", topic.name)
        if topic.status.resolution is TopicResolution.PROVISIONED:
            moving = [p for p in mine if p.spec.moves or not of_topic(topic.spec).is_met(p)]
            assert bool(topic.status.moving) == bool(moving), happened
            ready = [p for p in moving if not p.spec.moves and may_move(view, p) is None]
            assert not ready or ";" in (topic.status.reason or ""), happened


def test_given_wake_at_then_it_names_its_own_key_and_the_end_of_the_grace_period() -> None:
    world = World(grace_until_ms=5_000)
    world.put(spu_of(1))
    world.registered["spu-1"] = 1
    actions = reconcile(world.view, Key("Spu", "spu-1"), 1_000)
    assert WakeAt(Key("Spu", "spu-1"), 5_000) in actions
    assert not [a for a in reconcile(world.view, Key("Spu", "spu-1"), 5_000) if type(a) is WakeAt]


def test_given_unknown_kind_then_nothing_to_do() -> None:
    view = View()
    assert reconcile(view, Key("Pipeline", "p"), 0) == ()
    assert reconcile(view, Key("Nonsense", "p"), 0) == ()


def test_given_copied_session_then_the_copy_is_judged_the_same() -> None:
    """A view is only data: a copy of it cannot be told from the original."""
    world = World()
    world.put(spu_of(1, SpuResolution.INIT))
    world.settle()
    world.connect(1)
    key = Key("Spu", "spu-1")
    sessions: dict[int, SessionState] = copy.deepcopy(world.sessions)
    twin = View(world.store, sessions, dict(world.registered), 0)
    MetadataDispatcher(twin, sessions, lambda *_: None)
    assert reconcile(twin, key, 0) == reconcile(world.view, key, 0)
