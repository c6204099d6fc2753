"""The local store: its indexes beside a recomputation, and revisions that never go back."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sc.store.local_store import LocalStore, ObjectChanged, TombstoneChanged
from schemas.control.messages import Peer, Tombstone
from schemas.ids import PartitionUid
from schemas.objects.metadata import Object
from schemas.objects.partition import Partition
from schemas.objects.spu import Spu
from schemas.objects.topic import Topic, TopicResolution
from tests.laws import examples
from tests.unit.sc.builders import (
    group_of,
    member_of,
    partition_of,
    spu_of,
    tombstone_of,
    topic_of,
)

IDS = (1, 2, 3)
TOPICS = ("a", "b")
GROUPS = ("g", "h")


class StoreBesideAList(RuleBasedStateMachine):
    """Random puts and removes; after each, every index says what a plain search says."""

    def __init__(self) -> None:
        super().__init__()
        self.store = LocalStore()
        self.objects: dict[tuple[str, str], Object] = {}
        self.graves: dict[tuple[int, str], Tombstone] = {}
        self.revision = 0

    def put(self, obj: Object) -> None:
        self.revision += 1
        new = obj.with_metadata(resource_version=str(self.revision))
        old = self.objects.get((obj.kind, obj.name))
        assert self.store.put(new) == ObjectChanged(old, new)
        self.objects[(obj.kind, obj.name)] = new

    @rule(spu_id=st.sampled_from(IDS), name=st.sampled_from(["spu-0", "spu-1", "g-1"]))
    def put_spu(self, spu_id: int, name: str) -> None:
        self.put_spu_with_free_id(spu_of(spu_id, name=name))

    @rule(spu_id=st.sampled_from(IDS), group=st.sampled_from(GROUPS))
    def put_managed_spu(self, spu_id: int, group: str) -> None:
        self.put_spu_with_free_id(member_of(group_of(group), spu_id))

    def put_spu_with_free_id(self, spu: Spu) -> None:
        holders = [o.name for o in self.objects.values() if _is_spu(o, spu.spec.spu_id)]
        if holders in ([], [spu.name]):
            self.put(spu)

    @rule(name=st.sampled_from(TOPICS), resolution=st.sampled_from(list(TopicResolution)))
    def put_topic(self, name: str, resolution: TopicResolution) -> None:
        self.put(topic_of(name, resolution))

    @rule(
        topic=st.sampled_from(TOPICS),
        index=st.integers(0, 2),
        replicas=st.lists(st.sampled_from(IDS), min_size=1, unique=True).map(tuple),
        uid=st.sampled_from([None, "another"]),
    )
    def put_partition(
        self, topic: str, index: int, replicas: tuple[int, ...], uid: str | None
    ) -> None:
        partition = partition_of(topic, index, replicas)
        if uid is not None:
            partition = partition.with_metadata(uid=f"{uid}-{partition.name}")
        self.put(partition)

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        if not self.objects:
            assert self.store.remove("Topic", "absent") is None
            return
        key = data.draw(st.sampled_from(sorted(self.objects)))
        old = self.objects.pop(key)
        assert self.store.remove(*key) == ObjectChanged(old, None)
        assert self.store.remove(*key) is None

    @rule(data=st.data())
    def put_an_older_copy(self, data: st.DataObject) -> None:
        if self.objects:
            obj = self.objects[data.draw(st.sampled_from(sorted(self.objects)))]
            older = data.draw(st.integers(0, obj.revision))
            assert self.store.put(obj.with_metadata(resource_version=str(older))) is None

    @rule(spu_id=st.sampled_from(IDS), index=st.integers(0, 1))
    def bury(self, spu_id: int, index: int) -> None:
        grave = tombstone_of(partition_of("gone", index), spu_id)
        known = (spu_id, grave.uid) in self.graves
        change = self.store.put_tombstone(grave)
        assert change == (None if known else TombstoneChanged(grave, present=True))
        self.graves[(spu_id, grave.uid)] = grave

    @rule(spu_id=st.sampled_from(IDS), index=st.integers(0, 1))
    def forget(self, spu_id: int, index: int) -> None:
        uid = partition_of("gone", index).uid
        old = self.graves.pop((spu_id, uid), None)
        change = self.store.remove_tombstone(spu_id, uid)
        assert change == (None if old is None else TombstoneChanged(old, present=False))

    def of(self, cls: type[Object]) -> list[Object]:
        return [self.objects[key] for key in sorted(self.objects) if key[0] == cls.kind_name()]

    @invariant()
    def objects_are_those_put(self) -> None:
        assert self.store.object_keys() == set(self.objects)
        names = self.store.names()
        assert {(kind, name) for kind in names for name in names[kind]} == set(self.objects)
        for cls in (Spu, Topic, Partition):
            assert self.store.objects(cls) == self.of(cls)
        for (kind, name), obj in self.objects.items():
            assert type(obj).kind_name() == kind
            assert self.store.get(type(obj), name) == obj

    @invariant()
    def indexes_say_what_a_search_says(self) -> None:
        partitions = [p for p in self.of(Partition) if isinstance(p, Partition)]
        for spu_id in IDS:
            found = [o for o in self.of(Spu) if _is_spu(o, spu_id)]
            assert self.store.spu(spu_id) == (found[0] if found else None)
            on = [p for p in partitions if spu_id in p.spec.replicas]
            assert list(self.store.partitions_on(spu_id)) == on
            assert self.store.holds_replicas(spu_id) == bool(on)
            assert self.store.replica_count(spu_id) == len(on)
            prefer = [p for p in partitions if p.spec.preferred_leader == spu_id]
            assert self.store.preferred_count(spu_id) == len(prefer)
            graves = [g for (i, _), g in sorted(self.graves.items()) if i == spu_id]
            assert self.store.tombstones_of(spu_id) == graves
        spus = [o for o in self.of(Spu) if isinstance(o, Spu)]
        for group in GROUPS:
            members = [o for o in spus if o.spec.group == group]
            assert self.store.spus_of(group) == sorted(members, key=lambda o: o.spec.spu_id)
        for name in TOPICS:
            mine = [p for p in partitions if p.spec.owner.name == name]
            assert self.store.partitions_of("Topic", name) == mine
        for partition in partitions:
            assert self.store.partition_by_uid(partition.uid) == partition
        for resolution in TopicResolution:
            names = [
                t.name
                for t in self.of(Topic)
                if isinstance(t, Topic) and t.status.resolution is resolution
            ]
            assert self.store.topics_in(resolution) == names
        assert self.store.tombstone_keys() == set(self.graves)


def _is_spu(obj: Object, spu_id: int) -> bool:
    return isinstance(obj, Spu) and obj.spec.spu_id == spu_id


TestStoreBesideAList = StoreBesideAList.TestCase
TestStoreBesideAList.settings = settings(max_examples=examples(10), stateful_step_count=25)


@pytest.mark.parametrize(
    ("revisions", "kept"),
    [
        pytest.param((1, 2), 2, id="given-newer-then-taken"),
        pytest.param((2, 1), 2, id="given-older-then-ignored"),
        pytest.param((2, 2), 2, id="given-same-then-ignored"),
    ],
)
def test_put(revisions: Iterable[int], kept: int) -> None:
    store = LocalStore()
    for revision in revisions:
        store.put(topic_of(revision=revision))
    found = store.get(Topic, "t")
    assert found is not None
    assert found.revision == kept


def test_given_more_than_ten_partitions_then_the_order_is_that_of_the_index() -> None:
    store = LocalStore()
    for index in range(12):
        store.put(partition_of("t", index))
    assert [p.spec.index for p in store.partitions_of("Topic", "t")] == list(range(12))


def test_given_ids_of_different_length_then_spus_of_a_group_by_number() -> None:
    store = LocalStore()
    for spu_id in (100, 9, 10):
        store.put(member_of(group_of(), spu_id))
    assert [spu.spec.spu_id for spu in store.spus_of("g")] == [9, 10, 100]


def test_given_spu_renamed_then_the_removal_of_the_old_object_keeps_the_new_one() -> None:
    store = LocalStore()
    store.put(spu_of(1, name="old"))
    store.put(spu_of(1, name="new", revision=2))
    store.remove("Spu", "old")
    found = store.spu(1)
    assert found is not None
    assert found.name == "new"


def test_given_spus_then_peers_are_those_that_are_registered_each_once() -> None:
    store = LocalStore()
    for spu_id in (2, 1, 3):
        store.put(spu_of(spu_id))
    found = store.peers((2, 9, 1, 2))
    assert found == tuple(Peer(spu_id=i, host="localhost", port=9006) for i in (1, 2))


def test_given_several_resolutions_then_their_topics_together_in_order() -> None:
    store = LocalStore()
    store.put(topic_of("b", TopicResolution.PENDING))
    store.put(topic_of("a", TopicResolution.INVALID_CONFIG))
    store.put(topic_of("c", TopicResolution.PROVISIONED))
    found = store.topics_in(TopicResolution.PENDING, TopicResolution.INVALID_CONFIG)
    assert found == ["a", "b"]


def test_given_change_without_objects_then_it_has_no_subject() -> None:
    with pytest.raises(ValueError, match="old or a new"):
        _ = ObjectChanged(None, None).object


@given(st.text(max_size=8))
def test_tombstones_are_found_by_any_uid(uid: str) -> None:
    store = LocalStore()
    grave = Tombstone(uid=PartitionUid(uid), spu_id=1)
    store.put_tombstone(grave)
    assert store.tombstones_of(1) == [grave]
    assert store.tombstones_of(2) == []
