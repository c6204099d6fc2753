"""The mirror of an SC: what it knows of the cluster and its SCs, and whether it may be old."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from sc import mirror as mirror_module
from sc.kv import open_kv
from sc.kv.interface import KV, Delete, Put
from sc.leadership import Identity
from sc.mirror import Mirror
from sc.store.codec import encode_object
from schemas.errors import ConflictError
from schemas.objects.topic import Topic
from tests.polling import eventually
from tests.unit.sc.builders import SC, topic_of


@pytest.fixture
async def kv() -> AsyncIterator[KV]:
    store = await open_kv("memory:")
    yield store
    await store.close()


@asynccontextmanager
async def followed(mirror: Mirror) -> AsyncIterator[None]:
    await mirror.load()
    work = asyncio.create_task(mirror.run())
    try:
        yield
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


async def test_given_scs_that_come_and_go_then_it_knows_them_and_who_leads(kv: KV) -> None:
    mirror = Mirror(kv, "test")
    keys, entry = mirror.keys, SC.model_dump_json(by_alias=True).encode()
    await kv.txn([], [Put(keys.identity, Identity("u").encode()), Put(keys.sc("sc:1"), entry)])
    async with followed(mirror):
        assert (mirror.cluster_uid, mirror.controllers, mirror.leader) == ("u", {"sc:1": SC}, None)
        newer = b'{"name":"sc:9","public":"p","private":"q","version":"9","since":"-",'
        newer += b'"instance":"i","tellsMore":[1]}'
        await kv.txn([], [Put(keys.sc("sc:9"), newer), Put(keys.leader, newer)])
        await kv.txn([], [Put(keys.sc("sc:3"), b"{")])
        await eventually(lambda: mirror.leader is not None)
        assert mirror.leader_entry is not None
        assert mirror.leader_entry.name == "sc:9"
        await eventually(lambda: sorted(mirror.controllers) == ["sc:1", "sc:9"])
        await kv.txn([], [Delete(keys.sc("sc:1")), Delete(keys.leader)])
        await eventually(lambda: list(mirror.controllers) == ["sc:9"])
        assert mirror.leader is None


async def test_given_a_kv_that_was_emptied_then_the_sc_ends(
    kv: KV, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = Mirror(kv, "test")
    await kv.txn([], [Put(mirror.keys.identity, Identity("u").encode())])
    await mirror.load()

    async def emptied() -> int:
        return 0

    monkeypatch.setattr(kv, "revision", emptied)
    with pytest.raises(ExceptionGroup) as raised:
        await mirror.run()
    assert raised.group_contains(ConflictError, match="it was emptied or restored")


async def test_given_a_kv_with_another_past_then_the_sc_ends(kv: KV) -> None:
    mirror = Mirror(kv, "test")
    await mirror.load()
    mirror.reader.other_past = "the KV has a key of revision 2, and this SC has seen it at 3"
    with pytest.raises(ExceptionGroup) as raised:
        async with asyncio.timeout(5):
            await mirror.run()
    said = "this SC has seen it at 3: it was emptied or restored"
    assert raised.group_contains(ConflictError, match=said)


async def test_given_a_broken_watch_then_it_is_stale_until_it_has_listed_again(
    kv: KV, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror_module, "PROBE_S", 0.01)
    now_ms = 0
    mirror = Mirror(kv, "test", clock_ms=lambda: now_ms)
    topic = topic_of("t")
    key = mirror.keys.object(Topic.PLURAL, topic.name)
    await kv.txn([], [Put(key, encode_object(topic, "x"))])
    async with followed(mirror):
        assert mirror.stale_ms == 0
        mirror.store.remove("Topic", "t")
        # As long as nothing can be listed either.
        repair, mirror.reader.repair = mirror.reader.repair, asyncio.Event().wait  # type: ignore[method-assign, assignment]
        mirror.reader.broken = "the connection was lost"
        await eventually(lambda: mirror.stale_ms == 1)
        now_ms = 11_000
        assert mirror.stale_ms == 11_000
    mirror.reader.repair = repair  # type: ignore[method-assign]
    work = asyncio.create_task(mirror._probe())
    await eventually(lambda: mirror.stale_ms == 0)
    assert mirror.store.get(Topic, "t") is not None
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)


async def test_given_an_sc_that_stood_still_then_it_is_stale_until_the_kv_answers(kv: KV) -> None:
    now_ms = 0
    mirror = Mirror(kv, "test", clock_ms=lambda: now_ms)
    now_ms = 60_000
    assert mirror.stale_ms == 60_000
    await mirror.load()
    assert mirror.stale_ms == 0
    for stood_still_ms, stale_ms in ((6_000, 0), (6_001, 6_001), (60_000, 60_000)):
        now_ms = 60_000 + stood_still_ms
        assert mirror.stale_ms == stale_ms
    # It is not the KV that was away.
    assert mirror.kv_health.away_ms == 0
    await mirror.kv_health.probe()
    assert mirror.stale_ms == 0
