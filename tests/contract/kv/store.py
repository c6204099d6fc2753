"""A store under test: what its tests are given, and short forms of its calls."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator

import pytest

from sc.kv.interface import KV, Delete, Put, Watch, WatchBatch

DEADLINE_S = 20
KEEP_REVISIONS = 400
"""Stores under test keep about this many revisions."""


async def put(kv: KV, key: str, value: bytes = b"v", lease: int = 0) -> int:
    """Put one key; its revision."""
    return (await kv.txn((), [Put(key, value, lease)])).revision


async def delete(kv: KV, key: str) -> int:
    return (await kv.txn((), [Delete(key)])).revision


async def keys(kv: KV, prefix: str = "", revision: int = 0) -> list[str]:
    return [kv.key for kv in (await kv.range(prefix, revision=revision)).items]


async def take(watch: Watch, count: int) -> list[WatchBatch]:
    async with asyncio.timeout(DEADLINE_S):
        return [await anext(watch) for _ in range(count)]


async def assert_silent(watch: Watch) -> None:
    """The watch has nothing to tell now."""
    pending = asyncio.ensure_future(anext(watch))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not pending.done()
    pending.cancel()
    await asyncio.wait([pending])


class StoreTests(ABC):
    """Tests that get a store: define the ``kv`` fixture (an empty one) and `advance`."""

    keeps_compacted_deletions = True
    """Whether a deletion at the compacted revision itself can be watched. A fault of etcd before
    3.5.16, where only what is newer is certain."""

    @pytest.fixture
    @abstractmethod
    def kv(self) -> AsyncIterator[KV]:
        """An empty store that keeps about `KEEP_REVISIONS` revisions, closed afterwards."""

    @abstractmethod
    async def advance(self, kv: KV, seconds: float) -> None:
        """Let time pass for the store's leases; return when those that are due have expired."""
