"""What somebody changed, or removed, by hand in the KV is put right, and the rest goes on."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator

import pytest

from sc.kv.interface import KV, Delete, Put, range_all
from schemas.control.messages import ReplicaReport
from schemas.ids import PartitionUid, StorageId
from schemas.objects.metadata import Object
from schemas.objects.partition import Partition
from schemas.objects.topic import Topic
from tests.integration.sc.calls import call
from tests.integration.sc.conftest import RunningSc
from tests.polling import eventually
from tests.simulated_spu import SimulatedSpu


@pytest.fixture
async def spu(sc: RunningSc) -> AsyncIterator[SimulatedSpu]:
    """One SPU with a topic of two partitions."""
    await sc.create("Spu", "spu-1", {"spuId": 1})
    async with SimulatedSpu(1, sc.private) as spu:
        await sc.until("spus", "spu-1", "online")
        await sc.create("Topic", "t", {"partitions": 2, "retention": {"time": "1h"}})
        for i in (0, 1):
            await sc.until("partitions", f"t-{i}", "online")
        yield spu


async def remove(sc: RunningSc, *names: tuple[str, str]) -> None:
    """Remove objects behind the SC's back."""
    keys = [sc.controller.keys.object(plural, name) for plural, name in names]
    await sc.controller.kv.txn([], [Delete(key) for key in keys])


def objects(sc: RunningSc) -> dict[str, Object]:
    store = sc.controller.view.store
    return {o.name: o for o in (*store.objects(Topic), *store.objects(Partition))}


async def back(sc: RunningSc, before: dict[str, Object], *names: str) -> None:
    """Wait until these objects are there again, newer and with the same uids."""

    def there() -> bool:
        now = objects(sc)
        return all(
            name in now
            and now[name].revision > before[name].revision
            and now[name].uid == before[name].uid
            for name in names
        )

    await eventually(there)


async def test_given_a_partition_removed_then_it_is_led_where_its_data_is(
    sc: RunningSc, spu: SimulatedSpu
) -> None:
    before = objects(sc)
    term = before["t-1"].status.term
    await remove(sc, ("partitions", "t-1"))
    await back(sc, before, "t-1")
    again = await sc.until("partitions", "t-1", "online")
    assert again.status.term > term, "a term is never used twice"
    assert again.spec == before["t-1"].spec
    assert len(spu.replicas) == 2


async def test_given_a_topic_removed_then_it_comes_back_from_its_partitions(
    sc: RunningSc, spu: SimulatedSpu
) -> None:
    before = objects(sc)
    await remove(sc, ("topics", "t"))
    await back(sc, before, "t")
    again = await sc.until("topics", "t", "provisioned")
    assert again.spec.log_settings == before["t"].spec.log_settings
    assert again.spec.partition_count == 2
    assert again.status.replica_map == before["t"].status.replica_map
    assert (
        "compression, archive and labels are lost" in again.metadata.annotations["runnel/restored"]
    )
    assert set(spu.replicas) == {before["t-0"].uid, before["t-1"].uid}


async def test_given_an_object_that_does_not_parse_then_the_rest_goes_on_and_it_is_reported(
    sc: RunningSc, spu: SimulatedSpu, kv: KV
) -> None:
    key = sc.controller.keys.object("topics", "broken")
    await kv.txn([], [Put(key, b"{")])
    await sc.create("Topic", "after", {})
    await sc.until("topics", "after", "provisioned")
    assert "does not parse" in sc.controller.reader.unreadable[key]
    assert (await kv.get(key)) is not None, "kept for whoever can read it"
    text = await (await sc.http.get(f"{sc.public}/metrics")).text()
    assert "unreadable" in text
    _, cluster = await call(sc, "GET", "/v1/cluster")
    (found,) = cluster["unreadable"]
    assert found["key"] == key
    assert "does not parse" in found["why"]


async def test_given_a_status_changed_by_hand_then_it_is_put_right(
    sc: RunningSc, spu: SimulatedSpu, kv: KV
) -> None:
    key = sc.controller.keys.object("topics", "t")
    found = await kv.get(key)
    assert found is not None
    data = json.loads(found.value)
    data["status"].update(resolution="insufficientResources", replicaMap=[[7]])
    await kv.txn([], [Put(key, json.dumps(data).encode())])
    await sc.controller.feed.applied(found.mod_revision + 1)
    topic = await sc.until("topics", "t", "provisioned")
    assert topic.status.replica_map == ((1,), (1,))


async def test_given_an_spu_removed_then_its_id_and_tombstones_go_and_it_may_come_back(
    sc: RunningSc, spu: SimulatedSpu, kv: KV
) -> None:
    keys = sc.controller.keys
    await remove(sc, ("spus", "spu-1"))
    await sc.controller.repair()
    assert await kv.get(keys.spu_id(1)) is None
    await sc.call("DELETE", "/v1/topics/t")
    await sc.until_gone("topics", "t")
    await sc.controller.repair()
    left = [item.key async for page in range_all(kv, keys.tombstones) for item in page.items]
    assert left == []
    status, _ = await sc.create("Spu", "spu-1", {"spuId": 1})
    assert status == 201
    await sc.until("spus", "spu-1", "online")


async def test_given_replicas_nobody_knows_then_they_are_kept_and_reported(
    sc: RunningSc, spu: SimulatedSpu
) -> None:
    stranger = ReplicaReport(uid=PartitionUid(str(uuid.uuid4())), storage_id=StorageId("disk"))
    spu.replicas[stranger.uid] = stranger
    await spu.__aexit__(None, None, None)
    await sc.until("spus", "spu-1", "offline")
    async with spu:

        async def reported() -> bool:
            found = await sc.until("spus", "spu-1", "online")
            return stranger.uid in str(found.status.reason)

        await eventually(reported)
        assert stranger.uid in spu.replicas
        assert stranger.uid not in spu.deleted
