"""The assignment feed: leaders with endpoints, or the reason for none."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from unittest import mock

from sc.api import feeds
from sc.api.assignments import assignments
from schemas.control.assignments import Assignments, Endpoint, ReplicaEndpoint
from tests.integration.sc.calls import call, created, feed, online
from tests.integration.sc.conftest import RunningSc
from tests.simulated_spu import SimulatedSpu


async def test_given_assignments_then_leaders_with_endpoints_or_the_reason_for_none(
    sc: RunningSc,
) -> None:
    await created(
        sc,
        "Spu",
        "spu-1",
        {"spuId": 1, "publicEndpoint": {"port": 7001, "ingress": [{"hostname": "box.lan"}]}},
    )
    await created(sc, "Topic", "empty", {})
    async with SimulatedSpu(1, sc.private):
        await sc.until("spus", "spu-1", "online")
        await created(sc, "Topic", "t", {"partitions": 2, "compression": "zstd"})
        for name in ("t-0", "t-1", "empty-0"):
            await sc.until("partitions", name, "online")
        _, body = await call(sc, "GET", "/v1/assignments?topic=t&topic=absent")
    found = Assignments.model_validate(body)
    assert found.cluster_uid == sc.controller.leadership.cluster_uid
    (topic,) = found.topics
    assert (topic.name, topic.partition_count, topic.compression) == ("t", 2, "zstd")
    assert [p.index for p in topic.partitions] == [0, 1]
    for partition in topic.partitions:
        assert partition.leader == 1
        assert partition.endpoint is not None
        assert (partition.endpoint.host, partition.endpoint.port) == ("box.lan", 7001)
        assert partition.term > 0
        assert partition.replicas == (), "there is the leader only"
    _, everything = await call(sc, "GET", "/v1/assignments")
    assert [t["name"] for t in everything["topics"]] == ["empty", "t"]


async def test_given_a_replicated_topic_then_its_replicas_are_told_and_which_of_them_are_live(
    sc: RunningSc,
) -> None:
    for spu_id in (1, 2):
        ingress = {"port": 7000 + spu_id, "ingress": [{"hostname": f"box-{spu_id}.lan"}]}
        await created(sc, "Spu", f"spu-{spu_id}", {"spuId": spu_id, "publicEndpoint": ingress})

    async def replicas() -> tuple[ReplicaEndpoint, ...]:
        _, body = await call(sc, "GET", "/v1/assignments?topic=t")
        (partition,) = Assignments.model_validate(body).topics[0].partitions
        return partition.replicas

    async with SimulatedSpu(1, sc.private):
        async with SimulatedSpu(2, sc.private):
            for spu_id in (1, 2):
                await sc.until("spus", f"spu-{spu_id}", "online")
            await created(sc, "Topic", "t", {"assignment": [{"id": 0, "replicas": [1, 2]}]})
            await sc.until("partitions", "t-0", "online")
            (stored,) = sc.controller.view.store.partitions_of("Topic", "t")
            live = {member.spu_id for member in stored.status.lrs}
            assert 1 in live
            assert await replicas() == tuple(
                ReplicaEndpoint(
                    spu=spu_id,
                    endpoint=Endpoint(host=f"box-{spu_id}.lan", port=7000 + spu_id),
                    live=spu_id in live,
                )
                for spu_id in (1, 2)
            )
        await sc.until("spus", "spu-2", "offline")
        assert [replica.spu for replica in await replicas()] == [1]


async def test_given_assignments_watched_then_the_leader_is_seen_to_come_and_go(
    sc: RunningSc,
) -> None:
    async with feed(sc, "/v1/assignments?topic=t&watch=true") as watch:
        first = await watch.assignments()
        assert first.topics == ()
        last = first
        async with online(sc, 1):
            await created(sc, "Topic", "other", {})
            await created(sc, "Topic", "t", {})
            while not (last.topics and any(p.leader == 1 for p in last.topics[0].partitions)):
                following = await watch.assignments()
                assert following.revision > last.revision
                assert following.topics != last.topics
                last = following
            (led,) = last.topics[0].partitions
            assert led.endpoint is not None
        while any(p.leader is not None for p in last.topics[0].partitions):
            last = await watch.assignments()
        (gone,) = last.topics[0].partitions
        assert (gone.endpoint, gone.reason) == (None, "its leader, SPU 1, is offline")
        assert gone.term == led.term
        await call(sc, "DELETE", "/v1/topics/t")
        while last.topics:
            last = await watch.assignments()


async def test_given_many_readers_then_a_change_is_computed_once_for_all(sc: RunningSc) -> None:
    await created(sc, "Spu", "spu-1", {"spuId": 1})
    await created(sc, "Topic", "a", {})
    await created(sc, "Topic", "b", {})
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(SimulatedSpu(1, sc.private))
        for name in ("a-0", "b-0"):
            await sc.until("partitions", name, "online")
        opened = [feed(sc, "/v1/assignments?watch=true&topic=a") for _ in range(20)]
        readers = [await stack.enter_async_context(one) for one in opened]
        for reader in readers:
            await reader.assignments()
        with mock.patch.object(feeds, "assignments", wraps=assignments) as computed:
            # Nobody here is concerned by these.
            await created(sc, "Topic", "d", {}, labels={"team": "x"})
            await created(sc, "Topic", "c", {})
            await sc.until("partitions", "c-0", "online")
            assert computed.call_count == 0
            await call(sc, "PATCH", "/v1/topics/a", {"spec": {"compression": "zstd"}})
            found = await asyncio.gather(*(reader.assignments() for reader in readers))
            assert {one.topics[0].compression for one in found} == {"zstd"}
            # The change and the status that follows it; not twenty times.
            assert computed.call_count <= 4
