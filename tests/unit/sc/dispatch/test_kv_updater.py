"""The KV updater: what each action does to the KV, and when it may not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sc.controllers.actions import (
    BeginMove,
    CreatePartitions,
    CreateSpu,
    EndMove,
    KvAction,
    LeaveTombstones,
    MarkDeleting,
    RemoveObject,
    RemovePartition,
    RemoveSpu,
    RemoveTombstone,
    ReplaceTombstone,
    RestoreTopic,
    RewriteSpu,
    TellMoves,
    WritePartitionSpec,
    WriteSpuSpec,
    WriteStatus,
)
from sc.controllers.unclean import with_wish
from sc.dispatch.fences import LeaderFence
from sc.dispatch.kv_updater import KvUpdater
from sc.kv.interface import KV, MAX_TXN_OPS, Delete, ModRevisionIs, Put
from sc.leadership import Claim, Recovery, acquire, begin_recovery, stand
from sc.store.codec import decode_object, decode_tombstone, encode_object, encode_tombstone
from schemas.causality import caused_by
from schemas.errors import ConflictError, FencedError
from schemas.objects.keys import ClusterKeys
from schemas.objects.metadata import Object
from schemas.objects.partition import Partition, UncleanElection
from schemas.objects.spu import Spu
from schemas.objects.spu_group import SpuTemplate
from schemas.objects.stream import StreamState, StreamStatus
from schemas.objects.topic import TopicResolution, TopicStatus
from tests.unit.sc.builders import (
    NO_TERM,
    group_of,
    live,
    member_of,
    partition_of,
    spu_of,
    tombstone_of,
    topic_of,
)
from tests.unit.sc.streams.world import stream_of

KEYS = ClusterKeys("test")
STATUS = TopicStatus(resolution=TopicResolution.PENDING, observed_generation=1)


class Bench:
    """An updater in office over a KV."""

    def __init__(self, kv: KV, updater: KvUpdater) -> None:
        self.kv = kv
        self.updater = updater

    async def store(self, obj: Object) -> Any:
        """Write an object as a user would; gives the copy that a mirror has."""
        result = await self.kv.txn([], [Put(self.key(obj), encode_object(obj, "user"))])
        return obj.with_metadata(resource_version=str(result.revision))

    async def register(self, spu: Spu) -> Spu:
        """Store an SPU together with the key that keeps its id to itself."""
        await self.kv.txn([], [Put(KEYS.spu_id(spu.spec.spu_id), spu.name.encode())])
        stored: Spu = await self.store(spu)
        return stored

    async def one_of_all(self, number: int) -> KvAction:
        """An action of one of twelve kinds, on objects that it finds as it knows them."""
        topic, partition = await self.store(topic_of()), await self.store(partition_of())
        group, spu = await self.store(GROUP), await self.register(member_of(GROUP, 1))
        actions = [
            *actions_on(topic, partition, spu),
            CreatePartitions(topic, (fresh(5),)),
            CreateSpu(unborn(2), group),
            RemoveTombstone(tombstone_of(partition, 1)),
        ]
        return actions[number]

    async def read(self, obj: Object) -> tuple[Object, str] | None:
        found = await self.kv.get(self.key(obj))
        return None if found is None else decode_object(obj.PLURAL, found.value, found.mod_revision)

    async def raw(self) -> dict[str, bytes]:
        page = await self.kv.range(KEYS.root)
        return {item.key: item.value for item in page.items}

    def key(self, obj: Object) -> str:
        return KEYS.object(obj.PLURAL, obj.name)


@pytest.fixture
async def bench(kv: KV) -> Bench:
    leadership = await acquire(kv, KEYS)
    return Bench(kv, KvUpdater(kv, KEYS, LeaderFence(KEYS, lambda: leadership)))


async def test_write_status(bench: Bench) -> None:
    topic = await bench.store(topic_of())
    with caused_by("api-7"):
        revision = await bench.updater.carry_out(WriteStatus(topic, STATUS))
    expected = topic.with_status(STATUS).with_metadata(resource_version=str(revision))
    assert await bench.read(topic) == (expected, "api-7")
    assert revision == await bench.kv.revision()


async def test_write_partition_spec_raises_the_generation(bench: Bench) -> None:
    partition = await bench.store(partition_of())
    spec = partition.spec.model_copy(update={"replicas": (1, 2)})
    revision = await bench.updater.carry_out(WritePartitionSpec(partition, spec))
    found = await bench.read(partition)
    assert found is not None
    assert (found[0].spec, found[0].generation, found[0].revision) == (spec, 2, revision)
    assert found[0].status == partition.status


async def test_tell_moves_leaves_the_rest_of_the_status(bench: Bench) -> None:
    active = StreamStatus(state=StreamState.ACTIVE, segments=2, reason="it rains")
    stream = await bench.store(stream_of().with_status(active))
    for moves in ("they move", None):
        revision = await bench.updater.carry_out(TellMoves(stream, moves))
        found = await bench.read(stream)
        assert found is not None
        stream = found[0]
        assert stream.status == active.model_copy(update={"moves": moves})
        assert (stream.revision, stream.generation) == (revision, 1)


def fresh(index: int) -> Partition:
    made = partition_of("t", index)
    return made.with_metadata(resource_version=None, generation=None, creation_timestamp=None)


async def test_create_partitions_all_in_one_revision(bench: Bench) -> None:
    topic = await bench.store(topic_of())
    before = await bench.kv.revision()
    revision = await bench.updater.carry_out(CreatePartitions(topic, (fresh(0), fresh(1))))
    assert revision == before + 1
    for index in (0, 1):
        found = await bench.read(fresh(index))
        assert found is not None
        assert (found[0].uid, found[0].generation) == (fresh(index).uid, 1)
        assert found[0].metadata.creation_timestamp is not None


async def test_create_partitions_creates_none_when_one_exists(bench: Bench) -> None:
    topic, there = await bench.store(topic_of()), await bench.store(partition_of("t", 1, (9,)))
    before = await bench.raw()
    with pytest.raises(ConflictError):
        await bench.updater.carry_out(CreatePartitions(topic, (fresh(0), fresh(1))))
    assert await bench.raw() == before
    assert await bench.read(there) == (there, "user")


async def test_the_largest_chunk_of_partitions_fits_one_transaction(bench: Bench) -> None:
    from sc.controllers.topic_size import CREATE_CHUNK

    assert CREATE_CHUNK < MAX_TXN_OPS
    many = tuple(
        partition_of("t" * 200, n, tuple(range(32))).with_metadata(resource_version=None)
        for n in range(CREATE_CHUNK)
    )
    topic = await bench.store(topic_of())
    await bench.updater.carry_out(CreatePartitions(topic, many))


async def test_create_partitions_creates_none_when_their_topic_changed(bench: Bench) -> None:
    topic = await bench.store(topic_of())
    await bench.store(topic_of(partitions=7))
    before = await bench.raw()
    with pytest.raises(ConflictError):
        await bench.updater.carry_out(CreatePartitions(topic, (fresh(0),)))
    assert await bench.raw() == before


async def test_mark_deleting_keeps_everything_else(bench: Bench) -> None:
    topic = await bench.store(topic_of(partitions=3))
    await bench.updater.carry_out(MarkDeleting(topic))
    found = await bench.read(topic)
    assert found is not None
    assert found[0].deleting
    assert (found[0].spec, found[0].status) == (topic.spec, topic.status)


async def test_remove_partition_leaves_tombstones_in_the_same_revision(bench: Bench) -> None:
    partition = await bench.store(partition_of("t", 0, (1, 2)))
    graves = (tombstone_of(partition, 1), tombstone_of(partition, 2))
    before = await bench.kv.revision()
    assert await bench.updater.carry_out(RemovePartition(partition, graves)) == before + 1
    assert await bench.read(partition) is None
    for grave in graves:
        found = await bench.kv.get(KEYS.tombstone(grave.spu_id, grave.uid))
        assert found is not None
        assert decode_tombstone(found.value) == grave


async def test_leave_tombstones_keeps_the_partition(bench: Bench) -> None:
    partition = await bench.store(partition_of("t", 0, (1, 2)))
    graves = (tombstone_of(partition, 1), tombstone_of(partition, 2))
    await bench.updater.carry_out(LeaveTombstones(partition, graves))
    assert await bench.read(partition) == (partition, "user")
    for grave in graves:
        found = await bench.kv.get(KEYS.tombstone(grave.spu_id, grave.uid))
        assert found is not None
        assert decode_tombstone(found.value) == grave


GROUP = group_of()


async def test_a_move_begins_only_where_no_former_replica_is_to_be_deleted(bench: Bench) -> None:
    partition, spu = await bench.store(partition_of("t", 0, (1,))), await bench.store(spu_of(2))
    spec = partition.spec.model_copy(update={"replicas": (1, 2), "joining": (2,)})
    grave = tombstone_of(partition, 2)
    await bench.updater.carry_out(ReplaceTombstone(partition, grave))
    before = await bench.raw()
    with pytest.raises(ConflictError):
        await bench.updater.carry_out(BeginMove(partition, spec, (spu,)))
    assert await bench.raw() == before
    await bench.updater.carry_out(RemoveTombstone(grave))
    await bench.updater.carry_out(BeginMove(partition, spec, (spu,)))
    found = await bench.read(partition)
    assert found is not None
    assert isinstance(found[0], Partition)
    assert (found[0].spec, found[0].generation) == (spec, partition.generation + 1)


async def test_a_move_begins_only_on_spus_that_are_as_they_were(bench: Bench) -> None:
    partition, spu = await bench.store(partition_of("t", 0, (1,))), await bench.store(spu_of(2))
    await bench.updater.carry_out(RewriteSpu(spu))
    with pytest.raises(ConflictError):
        await bench.updater.carry_out(BeginMove(partition, partition.spec, (spu,)))


async def test_a_move_ends_with_its_tombstones_in_one_revision(bench: Bench) -> None:
    partition = await bench.store(partition_of("t", 0, (2,), leaving=(1,)))
    spec = partition.spec.model_copy(update={"leaving": None})
    before = await bench.kv.revision()
    end = EndMove(partition, spec, (tombstone_of(partition, 1),))
    assert await bench.updater.carry_out(end) == before + 1
    found = await bench.read(partition)
    assert found is not None
    assert isinstance(found[0], Partition)
    assert found[0].spec == spec
    assert await bench.kv.get(KEYS.tombstone(1, partition.uid)) is not None


def unborn(spu_id: int) -> Spu:
    return member_of(GROUP, spu_id).with_metadata(
        resource_version=None, generation=None, creation_timestamp=None
    )


async def test_create_spu_takes_its_id_in_the_same_revision(bench: Bench) -> None:
    group = await bench.store(GROUP)
    before = await bench.kv.revision()
    with caused_by("api-7"):
        revision = await bench.updater.carry_out(CreateSpu(unborn(1), group))
    assert revision == before + 1
    found = await bench.read(unborn(1))
    assert found is not None
    created, cause = found
    assert (created.uid, created.generation, created.revision) == (unborn(1).uid, 1, revision)
    assert (created.spec, created.metadata.labels) == (unborn(1).spec, {"spugroup": "g"})
    assert created.metadata.creation_timestamp is not None
    assert cause == "api-7"
    taken = await bench.kv.get(KEYS.spu_id(1))
    assert taken is not None
    assert (taken.value, taken.mod_revision) == (b"g-1", revision)


@pytest.mark.parametrize(
    "there",
    [
        pytest.param(spu_of(1), id="given-its-id-taken-then-conflict"),
        pytest.param(spu_of(77, name="g-1"), id="given-its-name-taken-then-conflict"),
        pytest.param(member_of(GROUP, 1), id="given-made-already-then-conflict"),
    ],
)
async def test_create_spu_leaves_what_is_there(bench: Bench, there: Spu) -> None:
    await bench.register(there)
    group = await bench.store(GROUP)
    before = await bench.raw()
    with pytest.raises(ConflictError):
        await bench.updater.carry_out(CreateSpu(unborn(1), group))
    assert await bench.raw() == before


async def test_write_spu_spec_raises_the_generation(bench: Bench) -> None:
    spu = await bench.register(member_of(GROUP, 1))
    spec = member_of(group_of(template=SpuTemplate(rack="b")), 1).spec
    revision = await bench.updater.carry_out(WriteSpuSpec(spu, spec))
    found = await bench.read(spu)
    assert found is not None
    assert (found[0].spec, found[0].generation, found[0].revision) == (spec, 2, revision)
    assert (found[0].uid, found[0].status) == (spu.uid, spu.status)


async def test_remove_spu_frees_its_id_and_forgets_its_tombstones(bench: Bench) -> None:
    spu = await bench.register(member_of(GROUP, 1))
    other = await bench.register(member_of(GROUP, 11))
    # The id of the other one begins with the same digit.
    graves = [tombstone_of(partition_of("gone", i), n) for i, n in ((0, 1), (1, 1), (2, 11))]
    for grave in graves:
        key = KEYS.tombstone(grave.spu_id, grave.uid)
        await bench.kv.txn([], [Put(key, encode_tombstone(grave))])
    before, revision = set(await bench.raw()), await bench.kv.revision()
    assert await bench.updater.carry_out(RemoveSpu(spu)) == revision + 1
    assert before - set(await bench.raw()) == {
        bench.key(spu),
        KEYS.spu_id(1),
        *(KEYS.tombstone(1, grave.uid) for grave in graves[:2]),
    }
    assert await bench.read(other) == (other, "user")


async def test_given_removed_then_the_id_can_be_taken_again(bench: Bench) -> None:
    await bench.updater.carry_out(RemoveSpu(await bench.register(spu_of(1))))
    await bench.updater.carry_out(CreateSpu(unborn(1), await bench.store(GROUP)))
    assert await bench.read(unborn(1)) is not None


async def test_create_spu_creates_none_when_its_group_changed(bench: Bench) -> None:
    """A creation without an answer that arrives late, when the group is being deleted, or gone."""
    group = await bench.store(GROUP)
    await bench.updater.carry_out(MarkDeleting(group))
    before = await bench.raw()
    with pytest.raises(ConflictError):
        await bench.updater.carry_out(CreateSpu(unborn(1), group))
    assert await bench.raw() == before


async def test_rewrite_spu_gives_it_another_revision_and_fails_placements_under_way(
    bench: Bench,
) -> None:
    topic, spu = await bench.store(topic_of()), await bench.register(spu_of(1))
    revision = await bench.updater.carry_out(RewriteSpu(spu))
    assert revision > spu.revision
    found = await bench.read(spu)
    assert found is not None
    assert found[0] == spu.with_metadata(resource_version=str(revision))
    before = await bench.raw()
    with pytest.raises(ConflictError):
        await bench.updater.carry_out(CreatePartitions(topic, (fresh(0),), (spu,)))
    assert await bench.raw() == before


async def test_given_the_first_partitions_then_a_change_decided_before_them_loses(
    bench: Bench,
) -> None:
    topic = await bench.store(topic_of())
    action = CreatePartitions(topic, (fresh(0),), owner_status=STATUS)
    revision = await bench.updater.carry_out(action)
    found = await bench.read(topic)
    assert found is not None
    assert (found[0].status, found[0].spec) == (STATUS, topic.spec)
    assert found[0].revision == revision
    changed = Put(bench.key(topic), encode_object(topic_of(partitions=7), "user"))
    late = await bench.kv.txn([ModRevisionIs(bench.key(topic), topic.revision)], [changed])
    assert not late.succeeded


async def test_restore_topic_restores_none_when_its_partition_is_gone(bench: Bench) -> None:
    partition = await bench.store(partition_of())
    await bench.updater.carry_out(RemovePartition(partition, ()))
    before = await bench.raw()
    with pytest.raises(ConflictError):
        await bench.updater.carry_out(RestoreTopic(topic_of(), partition))
    assert await bench.raw() == before


async def test_remove_object(bench: Bench) -> None:
    topic = await bench.store(topic_of())
    await bench.updater.carry_out(RemoveObject(topic))
    assert await bench.read(topic) is None


async def test_remove_tombstone_and_again(bench: Bench) -> None:
    grave = tombstone_of(partition_of(), 1)
    await bench.kv.txn([], [Put(KEYS.tombstone(1, grave.uid), encode_tombstone(grave))])
    before = await bench.kv.revision()
    assert await bench.updater.carry_out(RemoveTombstone(grave)) == before + 1
    assert await bench.kv.get(KEYS.tombstone(1, grave.uid)) is None
    # Nothing is written, so there is no revision that the mirror could be waited for.
    assert await bench.updater.carry_out(RemoveTombstone(grave)) == 0


def actions_on(topic: Any, partition: Any, spu: Any) -> list[KvAction]:
    return [
        WriteStatus(topic, STATUS),
        WritePartitionSpec(partition, partition.spec),
        MarkDeleting(topic),
        RemovePartition(partition, (tombstone_of(partition, 1),)),
        LeaveTombstones(partition, (tombstone_of(partition, 1),)),
        RewriteSpu(spu),
        RemoveObject(topic),
        WriteSpuSpec(spu, spu.spec),
        RemoveSpu(spu),
    ]


@pytest.mark.parametrize("number", range(9))
async def test_given_object_changed_meanwhile_then_conflict_and_nothing_done(
    bench: Bench, number: int
) -> None:
    topic, partition = await bench.store(topic_of()), await bench.store(partition_of())
    spu = await bench.register(member_of(GROUP, 1))
    for obj in (topic, partition, spu):
        await bench.store(obj)
    before = await bench.raw()
    with pytest.raises(ConflictError, match="changed meanwhile") as raised:
        await bench.updater.carry_out(actions_on(topic, partition, spu)[number])
    assert raised.value.details["revision"] == await bench.kv.revision()
    assert await bench.raw() == before


@pytest.mark.parametrize("number", range(9))
async def test_given_object_gone_then_conflict_and_it_stays_gone(bench: Bench, number: int) -> None:
    before = await bench.raw()
    gone = topic_of(), partition_of(), member_of(GROUP, 1)
    with pytest.raises(ConflictError):
        await bench.updater.carry_out(actions_on(*gone)[number])
    assert await bench.raw() == before


@pytest.mark.parametrize("number", range(12))
async def test_given_another_sc_in_office_then_fenced_and_nothing_done(
    bench: Bench, number: int
) -> None:
    action = await bench.one_of_all(number)
    await acquire(bench.kv, KEYS)
    before = await bench.raw()
    with pytest.raises(FencedError, match="another SC has taken over"):
        await bench.updater.carry_out(action)
    assert await bench.raw() == before


@pytest.mark.parametrize("guard", [None, "office", "entry", "lease"])
@pytest.mark.parametrize("number", range(12))
async def test_given_one_guard_that_does_not_hold_then_nothing_is_done(
    kv: KV, number: int, guard: str | None
) -> None:
    leadership = await stand(kv, KEYS, Claim(await kv.lease_grant(60_000), b"one"))
    assert leadership is not None
    bench = Bench(kv, KvUpdater(kv, KEYS, LeaderFence(KEYS, lambda: leadership)))
    action = await bench.one_of_all(number)
    match guard:
        case "office":
            await kv.txn([], [Put(KEYS.current_office, b"another")])
        case "entry":
            await kv.txn([], [Put(KEYS.office(leadership.holder), b"another")])
        case "lease":
            await kv.txn([], [Delete(KEYS.leader)])
        case _:
            await bench.updater.carry_out(action)
            return
    before = await bench.raw()
    with pytest.raises((FencedError, ConflictError)):
        await bench.updater.carry_out(action)
    assert await bench.raw() == before


async def test_given_no_chain_then_the_stored_cause_is_a_dash(bench: Bench) -> None:
    topic = await bench.store(topic_of())
    await bench.updater.carry_out(WriteStatus(topic, STATUS))
    found = await bench.kv.get(bench.key(topic))
    assert found is not None
    assert json.loads(found.value)["cause"] == "-"


async def test_given_live_replicas_computed_from_an_older_view_then_they_never_land(
    bench: Bench,
) -> None:
    """What was asked for of one revision is not written over another, however alike they are."""
    old = await bench.store(partition_of("t", 0, (1, 2), leader=1, lrs=(live(1), live(2))))
    alone = old.status.model_copy(update={"lrs": (live(1),)})
    revision = await bench.updater.carry_out(WriteStatus(old, old.status))
    with pytest.raises(ConflictError, match="changed meanwhile"):
        await bench.updater.carry_out(WriteStatus(old, alone))
    found = await bench.read(old)
    assert found is not None
    assert (found[0].status, found[0].revision) == (old.status, revision)
    assert revision > old.revision, "written although nothing changed: a later revision"


async def test_given_recovery_that_began_meanwhile_then_decided_anew_and_not_fenced(
    kv: KV,
) -> None:
    leadership = await acquire(kv, KEYS)
    held = [leadership]
    bench = Bench(kv, KvUpdater(kv, KEYS, LeaderFence(KEYS, lambda: held[-1])))
    topic = await bench.store(topic_of())
    recovering = await begin_recovery(
        kv, KEYS, leadership, 1, Recovery("sc", "2026-01-01T00:00:00.000Z", "why", "cause")
    )
    before = await bench.raw()
    with pytest.raises(ConflictError, match="changed meanwhile"):
        await bench.updater.carry_out(WriteStatus(topic, STATUS))
    assert await bench.raw() == before
    held.append(recovering)
    assert await bench.updater.carry_out(WriteStatus(topic, STATUS))


async def test_given_status_that_answers_an_annotation_then_both_are_one_write(
    bench: Bench,
) -> None:
    wish = UncleanElection(term=NO_TERM)
    partition = await bench.store(with_wish(partition_of(), wish))
    answer = partition.status.model_copy(update={"reason": "turned down"})
    await bench.updater.carry_out(WriteStatus(with_wish(partition, None), answer))
    found = await bench.read(partition)
    assert found is not None
    assert (found[0].metadata.annotations, found[0].status) == ({}, answer)
    with pytest.raises(ConflictError):
        await bench.updater.carry_out(WriteStatus(with_wish(partition, None), answer))
