"""The contract on a real etcd."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from sc.kv.interface import KV, Delete, WatchBatch, range_all
from schemas.errors import CompactedError

from .etcd_server import keeps_compacted_deletions, require_client, require_etcd, single_member
from .store import KEEP_REVISIONS, put, take
from .suite import KVContract

require_client()

from sc.kv.etcd import EtcdKV, EtcdOptions  # noqa: E402 - after the check that it can be imported


async def empty(kv: KV) -> None:
    pages = [page async for page in range_all(kv, "", page_size=128)]
    for page in pages:
        await kv.txn((), [Delete(item.key) for item in page.items])


class EtcdContract(KVContract):
    """Inherit beside two fixtures: ``etcd_binary``, and the ``endpoint`` where it serves."""

    @pytest.fixture(autouse=True)
    def know_the_version(self, etcd_binary: Path) -> None:
        self.keeps_compacted_deletions = keeps_compacted_deletions(etcd_binary)

    @pytest.fixture
    async def kv(self, endpoint: str) -> AsyncIterator[KV]:
        store = await EtcdKV.open(EtcdOptions((endpoint,), keep_revisions=KEEP_REVISIONS))
        await empty(store)
        yield store
        await store.close()

    async def advance(self, kv: KV, seconds: float) -> None:
        # etcd looks for expired leases twice a second.
        await asyncio.sleep(seconds + 0.7)

    # etcd counts real seconds, ten of them here. The other tests of leases see them count.
    @pytest.mark.slow
    async def test_given_keep_alive_then_lease_lives_on(self, kv: KV) -> None:
        await super().test_given_keep_alive_then_lease_lives_on(kv)

    async def test_given_compaction_overtakes_a_slow_watch_then_it_is_told(self, kv: KV) -> None:
        # What had been sent before the compaction may still be told, so that it takes more than
        # connections and etcd's own queue hold to fall behind.
        start = await put(kv, "a")
        async with kv.watch("a", start) as watch:
            await take(watch, 1)
            for _ in range(20):
                last = max(await asyncio.gather(*[put(kv, "a", b"x" * 50_000) for _ in range(20)]))
            await kv.compact(last)
            seen: list[WatchBatch] = []

            async def read_on() -> None:
                while True:
                    seen.extend(await take(watch, 1))

            with pytest.raises(CompactedError) as caught:
                await read_on()
        assert [batch.revision for batch in seen] == list(range(start + 1, start + 1 + len(seen)))
        assert 0 < len(seen) < 400
        assert caught.value.first_available == last


@pytest.fixture(scope="module")
def etcd_binary() -> Path:
    return require_etcd()


@pytest.fixture(scope="module")
def endpoint(etcd_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with single_member(etcd_binary, tmp_path_factory.mktemp("etcd")) as member:
        yield member.endpoint


class TestEtcd(EtcdContract):
    pass
