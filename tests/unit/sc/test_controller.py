"""The controller as a whole: how it begins, and its periodic pass."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from sc.controller import Controller
from sc.controllers.actions import Key
from sc.dispatch.reader import KvReader
from sc.kv import open_kv
from sc.kv.interface import KV, Put
from sc.leadership import Recovery
from sc.store.codec import CONTROLLERS, encode_object
from schemas.objects.keys import ClusterKeys
from schemas.objects.metadata import Object
from tests.polling import eventually
from tests.unit.sc.builders import partition_of, spu_of, topic_of


@pytest.fixture
async def kv() -> AsyncIterator[KV]:
    store = await open_kv("memory:")
    yield store
    await store.close()


async def store(kv: KV, *objects: Object) -> None:
    keys = ClusterKeys("test")
    await kv.txn([], [Put(keys.object(o.PLURAL, o.name), encode_object(o, "x")) for o in objects])


async def test_given_a_cluster_then_its_spus_may_connect_before_all_else(kv: KV) -> None:
    spus = [spu_of(1), spu_of(2)]
    await store(kv, topic_of(), partition_of("t", 0, (2,)), partition_of("t", 1, (1,)), *spus)
    controller = await Controller.acquire(kv, "test")
    order = [(await controller.queue.take())[0] for _ in range(5)]
    assert order[:2] == [Key("Spu", "spu-1"), Key("Spu", "spu-2")]
    assert set(order[2:]) == {
        Key("Topic", "t"),
        Key("Partition", "t-0"),
        Key("Partition", "t-1"),
    }


async def test_given_long_load_then_spus_have_their_time_to_return_after_it(
    kv: KV, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ms = 1_000
    monkeypatch.setattr("sc.mirror.boottime_ms", lambda: now_ms)
    load = KvReader.load

    async def long_load(reader: KvReader) -> None:
        nonlocal now_ms
        await load(reader)
        now_ms += 60_000

    monkeypatch.setattr(KvReader, "load", long_load)
    controller = await Controller.acquire(kv, "test", grace_ms=5_000)
    assert controller.view.grace_until_ms == 66_000


async def test_given_many_objects_then_the_periodic_pass_looks_at_all_in_slices(
    kv: KV, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sc.controller.RESYNC_SLICE", 2)
    await store(kv, *(topic_of(f"t{number}") for number in range(5)))
    controller = await Controller.acquire(kv, "test")
    while len(controller.queue):
        controller.queue.done((await controller.queue.take())[0])
    seen: list[str] = []
    longest = 0
    repair = asyncio.create_task(controller.repair())
    while not repair.done() or len(controller.queue):
        await eventually(lambda: repair.done() or len(controller.queue) > 0)
        longest = max(longest, len(controller.queue))
        if len(controller.queue):
            key, _cause = await controller.queue.take()
            seen.append(key.name)
            controller.queue.done(key)
    assert sorted(seen) == ["t0", "t1", "t2", "t3", "t4"]
    assert longest < 5


@pytest.mark.parametrize(
    ("by", "counts"), [(CONTROLLERS, True), ("ada", False)], ids=["the SC", "an operator"]
)
async def test_given_the_last_recovery_then_only_one_of_the_sc_keeps_it_from_another(
    kv: KV, by: str, counts: bool
) -> None:
    controller = await Controller.acquire(kv, "test")
    recovery = Recovery(by, "2026-01-01T00:00:00.000Z", "why", "-")
    identity = replace(controller.leadership.identity, recovery=recovery)
    controller.recoveries.leadership = replace(controller.leadership, identity=identity)
    assert (controller.recoveries._since_last_ms() is not None) is counts
