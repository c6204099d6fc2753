"""Laws of live replica sets and elections: a few SPUs and partitions, and whatever may happen.

What may not happen at a write is checked by the world, where the write lands.
"""

from __future__ import annotations

import os

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from sc.controllers import reconcile
from sc.controllers.actions import Key
from schemas.control.messages import (
    ElectionRequest,
    LrsRequest,
    ReplicaReport,
    ReplicaRole,
    SpuRequest,
)
from schemas.ids import PartitionUid, StorageId, Term, election_term, next_election
from schemas.objects.partition import LiveReplica, Partition, PartitionResolution
from schemas.objects.spu import SpuResolution
from schemas.objects.topic import TopicResolution
from tests.laws import examples
from tests.unit.sc.builders import TERM_1, live, partition_of, spu_of, topic_of
from tests.unit.sc.world import ModelSpu, World

REPLICAS = (1, 2, 3)
LAW = settings(
    max_examples=int(os.environ.get("RUNNEL_SIM_WORLDS", examples(25))),
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
)


def replicated(minimum: int, partitions: int, grace_until_ms: int = 0) -> World:
    """Three SPUs that are online and hold replicas of all partitions, all of them live."""
    world = World(grace_until_ms=grace_until_ms)
    rows: dict[int, tuple[int, ...]] = dict.fromkeys(range(partitions), REPLICAS)
    topic = topic_of(
        "t",
        TopicResolution.PROVISIONED,
        rows=rows,
        replica_map=tuple(rows.values()),
        minimum=minimum,
    )
    world.put(topic)
    for spu_id in REPLICAS:
        world.put(spu_of(spu_id))
        world.registered[f"spu-{spu_id}"] = spu_id
        world.spus[spu_id] = ModelSpu(spu_id)
    for index in rows:
        leader = REPLICAS[index % len(REPLICAS)]
        partition = partition_of(
            topic,
            index,
            REPLICAS,
            resolution=PartitionResolution.ONLINE,
            leader=leader,
            term=TERM_1,
            lrs=tuple(live(i) for i in REPLICAS),
        )
        world.put(partition)
        for spu_id in REPLICAS:
            leads = spu_id == leader
            world.spus[spu_id].replicas[partition.uid] = ReplicaReport(
                uid=PartitionUid(partition.uid),
                storage_id=StorageId(f"storage-{spu_id}"),
                role=ReplicaRole.LEADER if leads else ReplicaRole.FOLLOWER,
                term=Term(TERM_1 + 1) if leads else Term(0),
                revision=world.store.revision,
            )
    for spu_id in REPLICAS:
        world.connect(spu_id)
    return world


class Happenings:
    """What SPUs do, and what is done to them."""

    def __init__(self, world: World, data: st.DataObject) -> None:
        self.world = world
        self.data = data

    def one(self) -> str:
        draw = self.data.draw
        choices = [self.session, self.replica, self.change, self.grow, self.grow, self.election]
        return draw(st.sampled_from(choices))(draw(st.sampled_from(self.partitions())))

    def partitions(self) -> list[Partition]:
        return self.world.store.objects(Partition)

    def session(self, _partition: Partition) -> str:
        spu_id = self.data.draw(st.sampled_from(REPLICAS))
        if spu_id in self.world.sessions:
            self.world.disconnect(spu_id)
            return f"SPU {spu_id} goes"
        self.world.connect(spu_id)
        return f"SPU {spu_id} comes"

    def replica(self, partition: Partition) -> str:
        """It becomes unfit, or comes back under a new storage, or follows again."""
        spu_id = self.data.draw(st.sampled_from(REPLICAS))
        idle, uid = ReplicaRole.IDLE, partition.uid
        if self.world.spus[spu_id].replicas[uid].fit and self.data.draw(st.booleans()):
            self.world.change_replica(spu_id, uid, fit=False, role=ReplicaRole.STOPPED)
            return f"{partition.name} on SPU {spu_id} is unfit"
        storage = StorageId(f"{spu_id}-{self.world.store.revision}-{self.world.steps}")
        self.world.change_replica(spu_id, uid, fit=True, role=idle, storage_id=storage)
        return f"{partition.name} on SPU {spu_id} is rebuilt as {storage}"

    def grow(self, partition: Partition) -> str:
        """What a leader asks for when its followers have caught up."""
        status, sessions = partition.status, self.world.sessions
        reports = {i: sessions[i].reports.get(partition.uid) for i in sorted(sessions)}
        found = (
            LiveReplica(spu_id=i, storage_id=report.storage_id)
            for i, report in reports.items()
            if report is not None and report.fit
        )
        live_ids = {m.spu_id for m in status.lrs}
        joining = [member for member in found if member.spu_id not in live_ids]
        if not joining or status.leader not in sessions:
            return "nobody could join"
        request = LrsRequest(
            uid=PartitionUid(partition.uid),
            term=Term(status.term + 1),
            revision=partition.revision,
            lrs=(*status.lrs, joining[0]),
            reason="caught up",
        )
        self.world.ask(status.leader, SpuRequest(lrs=(request,)))
        return f"SPU {joining[0].spu_id} caught up with {partition.name}"

    def change(self, partition: Partition) -> str:
        """A request for other live replicas, mostly one that a good leader could make."""
        draw, status, uid = self.data.draw, partition.status, partition.uid
        held = [
            LiveReplica(spu_id=i, storage_id=self.world.spus[i].replicas[uid].storage_id)
            for i in REPLICAS
        ]
        before = set(status.lrs)
        around = [before | {m} for m in held] + [before - {m} for m in before]
        wild = [set(draw(st.lists(st.sampled_from([*held, *before, live(9)]), max_size=4)))]
        asked = draw(st.sampled_from([*around, *around, *wild]))
        lrs = tuple(sorted(asked, key=lambda m: (m.spu_id, m.storage_id)))
        revision = partition.revision - draw(st.sampled_from([0, 0, 0, 0, 1]))
        term = draw(self.terms(status.term))
        request = LrsRequest(
            uid=PartitionUid(uid), term=term, revision=revision, lrs=lrs, reason="asked"
        )
        asker = self.asker(partition)
        self.world.ask(asker, SpuRequest(lrs=(request,)))
        return f"SPU {asker} asks {request}"

    def election(self, partition: Partition) -> str:
        term, asker = self.data.draw(self.terms(partition.status.term)), self.asker(partition)
        request = ElectionRequest(uid=PartitionUid(partition.uid), term=term, reason="short")
        self.world.ask(asker, SpuRequest(elections=(request,)))
        return f"SPU {asker} asks {request}"

    def asker(self, partition: Partition) -> int:
        leader = partition.status.leader or 1
        return self.data.draw(st.sampled_from([leader, leader, leader, *REPLICAS]))

    def terms(self, term: Term) -> st.SearchStrategy[Term]:
        now = Term(term + 1)
        others = [Term(term + 7), Term(term), Term(TERM_1 + 1), next_election(term)]
        return st.sampled_from([now] * 4 + others)


def looked_at(world: World, data: st.DataObject, at_most: int) -> None:
    """Only some of the keys that wait are looked at, in any order."""
    for _ in range(data.draw(st.integers(0, at_most))):
        if world.waiting:
            key = data.draw(st.sampled_from(list(world.waiting)))
            del world.waiting[key]
            world.step(key)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    minimum, partitions = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    return replicated(minimum, partitions, draw(st.sampled_from([0, 0, 5_000])))


@LAW
@given(worlds(), st.data())
def test_whatever_happens_it_comes_to_rest_with_a_leader_that_is_live(
    world: World, data: st.DataObject
) -> None:
    happened = []
    terms: dict[str, Term] = {}
    happenings = Happenings(world, data)
    for _ in range(data.draw(st.integers(3, 16))):
        happened.append(happenings.one())
        looked_at(world, data, 6)
        for partition in happenings.partitions():
            assert partition.status.term >= terms.get(partition.name, TERM_1)
            terms[partition.name] = partition.status.term
    world.settle()
    # One last request each that nothing else overtakes.
    happened += [happenings.change(partition) for partition in happenings.partitions()]
    world.settle()
    for key in world.all_keys():
        assert reconcile(world.view, key, world.now_ms) == (), happened
    for partition in happenings.partitions():
        rest(world, partition)


def rest(world: World, partition: Partition) -> None:
    """What is true of a partition when nothing is left to do."""
    status, minimum = partition.status, partition.spec.log.min_in_sync_replicas
    fit = {
        member.spu_id
        for member in status.lrs
        if member.spu_id in world.sessions
        and (found := world.sessions[member.spu_id].reports[partition.uid]).fit
        and found.storage_id == member.storage_id
    }
    if not fit:
        assert status.resolution is PartitionResolution.OFFLINE
        assert status.reason
        return
    assert status.leader in fit
    assert status.resolution is PartitionResolution.ONLINE
    report = world.sessions[status.leader or 0].reports[partition.uid]
    assert (report.role, election_term(report.term)) == (ReplicaRole.LEADER, status.term)
    online = {m.spu_id for m in status.lrs if m.spu_id in world.sessions}
    assert online == fit, "the unfit have left"
    assert online == {m.spu_id for m in status.lrs} or len(online) < minimum
    for spu_id in world.sessions:
        request = world.sessions[spu_id].lrs_requests.get(partition.uid)
        heard = spu_id == status.leader and request is not None
        if heard and request is not None and election_term(request.term) == status.term:
            assert request.revision != partition.revision, "a request was not answered"


@LAW
@given(worlds(), st.data())
def test_the_same_view_gives_the_same_answer_and_a_request_is_answered_once(
    world: World, data: st.DataObject
) -> None:
    world.settle()
    happenings = Happenings(world, data)
    for _ in range(data.draw(st.integers(1, 4))):
        happenings.one()
    for partition in happenings.partitions():
        key = Key("Partition", partition.name)
        once = reconcile(world.view, key, world.now_ms)
        assert reconcile(world.view, key, world.now_ms) == once
    world.settle()
    revision = world.store.revision
    world.full_pass()
    assert world.store.revision == revision, "a write that nobody asked for"


def test_given_spus_that_come_and_go_one_by_one_then_only_a_live_replica_ever_leads() -> None:
    """All are lost one after the other: who is left leads; who comes back alone does not."""
    world = replicated(1, 1)
    world.settle()
    for spu_id in (1, 2):
        world.disconnect(spu_id)
        world.settle()
    world.disconnect(3)
    world.settle()
    (partition,) = world.store.objects(Partition)
    assert (partition.status.leader, partition.status.lrs) == (3, (live(3),))
    world.connect(1)
    world.settle()
    (partition,) = world.store.objects(Partition)
    assert partition.status.resolution is PartitionResolution.OFFLINE
    assert "no other live replica may lead" in (partition.status.reason or "")
    world.connect(3)
    world.settle()
    (partition,) = world.store.objects(Partition)
    assert partition.status.resolution is PartitionResolution.ONLINE
    assert partition.status.reason == "1 of 3 replicas are live, without SPU 1, SPU 2"
    (spu,) = [s for s in world.store.objects(type(spu_of(1))) if s.spec.spu_id == 2]
    assert spu.status.resolution is SpuResolution.OFFLINE
