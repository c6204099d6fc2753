"""Consumers that are pushed to by real SPUs, while these change under them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from runnel import aio
from schemas.control.messages import Lead, LeadPartitions
from schemas.errors import DivergedError, OffsetOutOfRangeError
from schemas.objects.partition import LiveReplica
from schemas.objects.topic import LogSettings
from spu.server.listener import Listener
from tests.integration.spu.cluster import Cluster
from tests.integration.spu.served import serve
from tests.unit.runnel.fake_sc import FakeSc
from tests.unit.runnel.records.test_cursor import batch
from tests.unit.spu.builders import (
    DEADLINE_S,
    STAMP,
    TERM,
    UID,
    assign,
    assignment_of,
    open_spu,
    produce,
    settings_of,
    until,
)


@dataclass
class World:
    """SPUs in this process that hold one partition of ``orders``, and a client."""

    sc: FakeSc
    spus: Cluster
    listeners: dict[int, Listener]
    ports: dict[int, int]
    client: aio.Cluster

    def leads(self, spu: int) -> None:
        """Have the SC say who leads."""
        self.sc.endpoints = [("127.0.0.1", self.ports[spu])]
        self.sc.term = self.spus.term

    async def elect(self, spu: int, *, unclean: bool = False) -> None:
        await self.spus.elect(spu, unclean=unclean)
        self.leads(spu)

    async def append(self, count: int, size: int = 10) -> None:
        replica = self.spus.replica(self.spus.leader)
        await until(lambda: replica.is_serving)
        for _ in range(count):
            await produce(replica, batch(0, 1, padding=size))

    def sent(self, spu: int, api: str) -> int:
        return self.listeners[spu].counters.requests.get(api, 0)


async def world_of(path: Path, count: int, log: LogSettings) -> AsyncIterator[World]:
    sc = FakeSc()
    sc.add_topic("orders")
    sc.uids["orders"][0] = UID
    cluster = Cluster(path, count, log)
    await cluster.begin()
    await cluster.whole()
    listeners = {spu: Listener(opened.host) for spu, opened in cluster.spus.items()}
    ports = {spu: await one.start("127.0.0.1", 0) for spu, one in listeners.items()}
    await sc.start()
    async with aio.connect(sc.address) as client:
        world = World(sc, cluster, listeners, ports, client)
        world.leads(0)
        yield world
    for one in listeners.values():
        await one.close()
    await cluster.close()
    await sc.stop()


@pytest.fixture
async def alone(tmp_path: Path) -> AsyncIterator[World]:
    async for world in world_of(tmp_path, 1, settings_of(segment=64 << 20)):
        yield world


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[World]:
    async for world in world_of(tmp_path, 2, settings_of(segment=64 << 20)):
        yield world


async def offsets(reading: aio.Consumer, count: int) -> list[int]:
    found: list[int] = []
    async with asyncio.timeout(DEADLINE_S):
        async for record in reading:
            found.append(record.offset)
            if len(found) == count:
                break
    return found


async def test_given_leaders_that_change_then_every_record_is_pushed_once_in_order(
    two: World,
) -> None:
    found: list[int] = []
    async with two.client.consumer("orders", "earliest") as reading:
        for leader in (0, 1, 0, 1):
            await two.elect(leader)
            await two.append(5)
            found += await offsets(reading, 5)
    assert len(set(found)) == len(found) == 20
    assert found == sorted(found)
    assert two.sent(0, "subscribe") >= 2
    assert two.sent(1, "subscribe") >= 2


async def test_given_a_reader_that_stops_then_the_spu_sends_no_more_than_its_window(
    alone: World,
) -> None:
    await alone.append(40, 1 << 20)
    async with alone.client.consumer("orders", "earliest") as reading:
        assert len(await offsets(reading, 1)) == 1
        listener = alone.listeners[0]
        (connection,) = listener._connections
        flow = connection._requests._subscriptions._scheduler._flows[1]
        await until(lambda: flow.credit <= 0)
        # A record is in hand, two chunks wait for it, and at most 8 MiB are ahead of them.
        assert listener.counters.bytes_out < 12 << 20
        assert len(await offsets(reading, 39)) == 39


async def test_given_a_log_that_is_cut_under_its_reader_then_the_reader_is_told(
    alone: World,
) -> None:
    await alone.append(60, 1 << 18)
    replica = alone.spus.replica(0)
    reading = alone.client.consumer("orders", {0: 1})
    assert await offsets(reading, 1) == [1]
    replica._log.truncate_prefix(60)
    replica.tick(alone.spus.spus[0].now_us)
    await until(lambda: replica.log_start == 60)
    found: list[int] = []

    async def read_on() -> None:
        while True:
            found.extend(await offsets(reading, 1))

    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(OffsetOutOfRangeError, match="first available one is 60"):
            await read_on()
    assert found == list(range(2, 2 + len(found))), "what was on its way comes first"
    assert len(found) < 40
    await reading.close()


async def test_given_an_unclean_election_then_the_reader_is_told_where_logs_part(
    tmp_path: Path,
) -> None:
    log = settings_of(segment=64 << 20)
    async for world in world_of(tmp_path, 2, log):
        spus = world.spus
        await spus.stop(1)
        await world.listeners.pop(1).close()
        spus.lrs = spus.lrs[:1]
        spus.revision += 1
        await spus.assign()
        await world.append(3)
        async with world.client.consumer("orders", "earliest") as reading:
            read = await offsets(reading, 3)
            await world.listeners.pop(0).close()
            await spus.stop(0)
            await spus.start(1)
            world.listeners[1] = Listener(spus.spus[1].host)
            world.ports[1] = await world.listeners[1].start("127.0.0.1", 0)
            spus.lrs = (spus.member(1),)
            await world.elect(1, unclean=True)
            with pytest.raises(DivergedError) as raised:
                await offsets(reading, 1)
            assert raised.value.diverged_at <= read[0]


async def test_given_many_partitions_on_an_spu_then_a_few_requests_read_all(
    tmp_path: Path,
) -> None:
    count = 100
    sc = FakeSc()
    sc.add_topic("orders", count)
    uids = sc.uids["orders"]
    spu = await open_spu(tmp_path)
    names = [f"orders-{index}" for index in range(count)]
    await spu.host.assign(
        assign(
            *(
                assignment_of(uid, name=name, index=index, log=settings_of())
                for index, (uid, name) in enumerate(zip(uids, names, strict=True))
            )
        )
    )
    leads = (
        Lead(
            uid=uid,
            term=TERM,
            lrs=(LiveReplica(spu_id=1, storage_id=spu.storage_id(uid)),),
            revision=6,
        )
        for uid in uids
    )
    await spu.host.lead(LeadPartitions(leads=tuple(leads), stamp=STAMP))
    await until(lambda: all(spu.host.replica(uid).is_serving for uid in uids))
    async with serve(spu) as served:
        sc.endpoints = [("127.0.0.1", served.port)]
        await sc.start()
        requests = served.listener.counters.requests
        async with (
            aio.connect(sc.address) as client,
            client.consumer("orders", "earliest") as reading,
        ):
            await until(lambda: requests.get("subscribe", 0) >= 1)
            for index in (99, 0, 50):
                await produce(spu.host.replica(uids[index]), batch(0, 1))
                async with asyncio.timeout(DEADLINE_S):
                    async for record in reading:
                        assert (record.partition, record.offset) == (index, 1)
                        break
            assert requests["subscribe"] < 20
            assert "fetch" not in requests
    await sc.stop()
