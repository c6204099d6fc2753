"""The KV updater: what each action does to the KV, and when it may not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sc.controllers.actions import (
    CreatePartitions,
    KvAction,
    MarkDeleting,
    RemoveObject,
    RemovePartition,
    RemoveTombstone,
    WritePartitionSpec,
    WriteStatus,
)
from sc.dispatch.kv_updater import KvUpdater
from sc.kv.interface import KV, MAX_TXN_OPS, Put
from sc.office import take_office
from sc.store.codec import decode_object, decode_tombstone, encode_object, encode_tombstone
from schemas.causality import caused_by
from schemas.errors import ConflictError, FencedError
from schemas.keys import ClusterKeys
from schemas.metadata import Object
from schemas.partition import Partition
from schemas.topic import TopicResolution, TopicStatus
from tests.unit.sc.builders import partition_of, tombstone_of, topic_of

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
    return Bench(kv, KvUpdater(kv, KEYS, await take_office(kv, KEYS)))


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


def fresh(index: int) -> Partition:
    made = partition_of("t", index)
    return made.with_metadata(resource_version=None, generation=None, creation_timestamp=None)


async def test_create_partitions_all_in_one_revision(bench: Bench) -> None:
    before = await bench.kv.revision()
    revision = await bench.updater.carry_out(CreatePartitions((fresh(0), fresh(1))))
    assert revision == before + 1
    for index in (0, 1):
        found = await bench.read(fresh(index))
        assert found is not None
        assert (found[0].uid, found[0].generation) == (fresh(index).uid, 1)
        assert found[0].metadata.creation_timestamp is not None


async def test_create_partitions_creates_none_when_one_exists(bench: Bench) -> None:
    there = await bench.store(partition_of("t", 1, (9,)))
    before = await bench.raw()
    with pytest.raises(ConflictError):
        await bench.updater.carry_out(CreatePartitions((fresh(0), fresh(1))))
    assert await bench.raw() == before
    assert await bench.read(there) == (there, "user")


async def test_the_largest_chunk_of_partitions_fits_one_transaction(bench: Bench) -> None:
    from sc.controllers.topic import CREATE_CHUNK

    assert CREATE_CHUNK < MAX_TXN_OPS
    many = tuple(
        partition_of("t" * 200, n, tuple(range(32))).with_metadata(resource_version=None)
        for n in range(CREATE_CHUNK)
    )
    await bench.updater.carry_out(CreatePartitions(many))


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
    assert await bench.updater.carry_out(RemoveTombstone(grave)) == before + 1


def actions_on(topic: Any, partition: Any) -> list[KvAction]:
    return [
        WriteStatus(topic, STATUS),
        WritePartitionSpec(partition, partition.spec),
        MarkDeleting(topic),
        RemovePartition(partition, (tombstone_of(partition, 1),)),
        RemoveObject(topic),
    ]


@pytest.mark.parametrize("number", range(5))
async def test_given_object_changed_meanwhile_then_conflict_and_nothing_done(
    bench: Bench, number: int
) -> None:
    topic, partition = await bench.store(topic_of()), await bench.store(partition_of())
    await bench.store(topic)
    await bench.store(partition)
    before = await bench.raw()
    with pytest.raises(ConflictError, match="changed meanwhile") as raised:
        await bench.updater.carry_out(actions_on(topic, partition)[number])
    assert raised.value.details["revision"] == await bench.kv.revision()
    assert await bench.raw() == before


@pytest.mark.parametrize("number", range(5))
async def test_given_object_gone_then_conflict_and_it_stays_gone(bench: Bench, number: int) -> None:
    before = await bench.raw()
    with pytest.raises(ConflictError):
        await bench.updater.carry_out(actions_on(topic_of(), partition_of())[number])
    assert await bench.raw() == before


@pytest.mark.parametrize("number", range(7))
async def test_given_another_sc_in_office_then_fenced_and_nothing_done(
    bench: Bench, number: int
) -> None:
    topic, partition = await bench.store(topic_of()), await bench.store(partition_of())
    await take_office(bench.kv, KEYS)
    before = await bench.raw()
    actions = [
        *actions_on(topic, partition),
        CreatePartitions((fresh(5),)),
        RemoveTombstone(tombstone_of(partition, 1)),
    ]
    with pytest.raises(FencedError, match="another SC took office"):
        await bench.updater.carry_out(actions[number])
    assert await bench.raw() == before


async def test_given_no_chain_then_the_stored_cause_is_a_dash(bench: Bench) -> None:
    topic = await bench.store(topic_of())
    await bench.updater.carry_out(WriteStatus(topic, STATUS))
    found = await bench.kv.get(bench.key(topic))
    assert found is not None
    assert json.loads(found.value)["cause"] == "-"
