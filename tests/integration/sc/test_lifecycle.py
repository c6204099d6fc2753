"""The SC loop end to end, with simulated SPUs: what users see of topics, partitions and SPUs."""

from __future__ import annotations

from sc.kv.interface import KV, Delete
from sc.store.local_store import ObjectChanged
from schemas.control.session_end import SessionEnd
from schemas.objects.partition import Partition, PartitionStatus
from schemas.objects.topic import Topic
from tests.integration.sc.calls import register
from tests.integration.sc.conftest import RunningSc, run_sc
from tests.polling import eventually
from tests.simulated_spu import SimulatedSpu


async def test_spu_goes_from_init_to_online_to_offline_and_back(sc: RunningSc) -> None:
    await register(sc, 1)
    await sc.until("spus", "spu-1", "init")
    async with SimulatedSpu(1, sc.private):
        await sc.until("spus", "spu-1", "online")
    await sc.until("spus", "spu-1", "offline")
    async with SimulatedSpu(1, sc.private):
        await sc.until("spus", "spu-1", "online")


async def test_topic_is_provisioned_and_its_partitions_are_led(sc: RunningSc) -> None:
    await register(sc, 1, 2, 3)
    async with SimulatedSpu(1, sc.private), SimulatedSpu(2, sc.private) as two:
        async with SimulatedSpu(3, sc.private):
            for i in (1, 2, 3):
                await sc.until("spus", f"spu-{i}", "online")
            status, _ = await sc.create("Topic", "orders", {"partitions": 6})
            assert status == 201
            topic = await sc.until("topics", "orders", "provisioned")
            assert isinstance(topic, Topic)
            leaders = [row[0] for row in topic.status.replica_map]
            assert sorted(leaders) == [1, 1, 2, 2, 3, 3]
            for i in range(6):
                partition = await sc.until("partitions", f"orders-{i}", "online")
                assert isinstance(partition.status, PartitionStatus)
                assert partition.status.leader == leaders[i]
                assert [m.spu_id for m in partition.status.lrs] == [leaders[i]]
        led = [i for i, leader in enumerate(leaders) if leader == 3]
        for i in led:
            gone = await sc.until("partitions", f"orders-{i}", "offline")
            assert gone.status.leader == 3
            assert "SPU 3" in str(gone.status.reason)
        assert len(two.leads) == 2


async def test_topic_waits_for_spus_and_is_provisioned_when_one_arrives(sc: RunningSc) -> None:
    await register(sc, 1, 2)
    async with SimulatedSpu(1, sc.private):
        await sc.until("spus", "spu-1", "online")
        await sc.create("Topic", "t", {"partitions": 1, "replicationFactor": 2})
        waiting = await sc.until("topics", "t", "insufficientResources")
        assert waiting.status.reason == (
            "replicationFactor 2 needs 2 online SPUs; 1 of 2 registered are online"
        )
        async with SimulatedSpu(2, sc.private):
            await sc.until("topics", "t", "provisioned")


async def test_deleted_topic_goes_and_the_absent_spu_deletes_when_it_returns(sc: RunningSc) -> None:
    await register(sc, 1, 2)
    absent = SimulatedSpu(2, sc.private)
    async with SimulatedSpu(1, sc.private) as one:
        async with absent:
            for i in (1, 2):
                await sc.until("spus", f"spu-{i}", "online")
            await sc.create("Topic", "t", {"partitions": 2})
            for i in (0, 1):
                await sc.until("partitions", f"t-{i}", "online")
        await sc.until("spus", "spu-2", "offline")
        status, _ = await sc.call("DELETE", "/v1/topics/t")
        assert status == 202
        await sc.until_gone("topics", "t")
        assert len(absent.replicas) == 1
        await eventually(lambda: not one.replicas)
        async with absent:
            await eventually(
                lambda: not absent.replicas and not sc.controller.view.store.tombstones_of(2)
            )
    assert not sc.controller.view.store.objects(Partition)


async def test_partition_stays_offline_when_the_disk_was_lost(sc: RunningSc) -> None:
    await register(sc, 1)
    spu = SimulatedSpu(1, sc.private)
    async with spu:
        await sc.until("spus", "spu-1", "online")
        await sc.create("Topic", "t", {})
        await sc.until("partitions", "t-0", "online")
    await sc.until("partitions", "t-0", "offline")
    spu.lose_disk()
    led_before = len(spu.leads)
    async with spu:
        await sc.until("spus", "spu-1", "online")

        async def refused() -> bool:
            partition = await sc.until("partitions", "t-0", "offline")
            return "without its data" in str(partition.status.reason)

        await eventually(refused)
        assert len(spu.leads) == led_before


async def test_restarted_sc_waits_for_spus_before_it_calls_them_offline(kv: KV) -> None:
    async with run_sc(kv) as first:
        await register(first, 1)
        spu = SimulatedSpu(1, first.private)
        async with spu:
            await first.until("spus", "spu-1", "online")
            await first.create("Topic", "t", {})
            await first.until("partitions", "t-0", "online")
            before = first.controller.view.store.get(Partition, "t-0")
            assert before is not None
    async with run_sc(kv, grace_ms=60_000) as second:
        unknown = await second.until("spus", "spu-1", "unknown")
        assert unknown.status.reason == "waiting for the SPU to connect again"
        kept = second.controller.view.store.get(Partition, "t-0")
        assert kept is not None
        assert kept.status.leader == 1
        again = SimulatedSpu(1, second.private)
        again.replicas, again.cluster_uid = spu.replicas, spu.cluster_uid
        async with again:
            await second.until("spus", "spu-1", "online")
            await second.until("partitions", "t-0", "online")
        after = second.controller.view.store.get(Partition, "t-0")
        assert after is not None
        assert after.status.term == before.status.term


async def test_deposed_sc_cannot_write_a_status(kv: KV) -> None:
    async with run_sc(kv) as old:
        await register(old, 1)
        await old.until("spus", "spu-1", "init")
        async with run_sc(kv) as new, SimulatedSpu(1, old.private):
            await eventually(old.work.done)
            assert old.work.exception() is not None
            assert "another SC has taken over" in repr(old.work.exception())
            assert (await new.until("spus", "spu-1", "init")).status.observed_generation == 1


async def test_change_made_by_hand_in_the_kv_is_repaired(sc: RunningSc, kv: KV) -> None:
    await register(sc, 1)
    async with SimulatedSpu(1, sc.private):
        await sc.until("spus", "spu-1", "online")
        await sc.create("Topic", "t", {"partitions": 2})
        first = await sc.until("partitions", "t-1", "online")
        await kv.txn([], [Delete(sc.controller.keys.object("partitions", "t-1"))])

        async def restored() -> bool:
            again = await sc.until("partitions", "t-1", "online")
            return again.revision > first.revision and again.uid == first.uid

        await eventually(restored)


async def test_given_spu_that_left_a_silent_sc_then_its_partitions_stay_online(
    sc: RunningSc,
) -> None:
    await register(sc, 1)
    seen: list[PartitionStatus] = []

    def note(change: object) -> None:
        if isinstance(change, ObjectChanged) and isinstance(change.new, Partition):
            seen.append(change.new.status)

    async with SimulatedSpu(1, sc.private) as spu:
        await sc.until("spus", "spu-1", "online")
        await sc.create("Topic", "t", {})
        await sc.until("partitions", "t-0", "online")
        sessions = sc.controller.view.sessions
        generation = sessions[1].generation
        sc.controller.feed.listen(note)
        assert spu.session is not None
        spu.session.close("the SC missed 3 heartbeats", SessionEnd.SILENT)
        await eventually(lambda: 1 in sessions and sessions[1].generation > generation)
        await sc.until("spus", "spu-1", "online")
        await eventually(lambda: sc.controller.queue.idle)
        await sc.until("partitions", "t-0", "online")
    assert seen == []
