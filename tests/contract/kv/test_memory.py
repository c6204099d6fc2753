"""The contract on the memory backend, and that it is deterministic."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from sc.kv.interface import KV, Put
from sc.kv.memory import MemoryKV
from schemas.errors import CompactedError, NotFoundError

from .store import KEEP_REVISIONS, put
from .suite import KVContract


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class TestMemory(KVContract):
    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    @pytest.fixture
    async def kv(self, clock: Clock) -> AsyncIterator[KV]:
        self.clock_in_use = clock
        store = MemoryKV(clock=clock, keep_revisions=KEEP_REVISIONS)
        yield store
        await store.close()

    async def advance(self, kv: KV, seconds: float) -> None:
        assert isinstance(kv, MemoryKV)
        self.clock_in_use.now += seconds
        await kv.expire_leases()


async def test_given_same_calls_then_same_store() -> None:
    async def run() -> object:
        clock = Clock()
        kv = MemoryKV(clock=clock)
        leases = [await kv.lease_grant(ttl_ms) for ttl_ms in (2_000, 1_000, 2_000)]
        for lease in leases:
            await kv.txn((), [Put(f"k{lease}", b"", lease)])
        clock.now += 5
        expired = await kv.expire_leases()
        watch = kv.watch("", 1)
        batches = [await anext(watch) for _ in range(6)]
        await kv.close()
        return leases, expired, batches

    assert await run() == await run()


async def test_given_leases_then_next_expiry_tells_when_to_look() -> None:
    clock = Clock()
    kv = MemoryKV(clock=clock)
    assert kv.next_expiry() is None
    lease = await kv.lease_grant(1_500)
    await put(kv, "a", b"", lease)
    assert kv.next_expiry() == 1001.5
    clock.now = 1001.0
    assert await kv.expire_leases() == 0
    await kv.lease_keep_alive(lease)
    assert kv.next_expiry() == 1002.5
    clock.now = 1002.5
    assert await kv.expire_leases() == 1
    assert kv.next_expiry() is None
    await kv.close()


async def test_given_lease_past_its_time_then_it_cannot_be_kept_alive() -> None:
    clock = Clock()
    kv = MemoryKV(clock=clock)
    lease = await kv.lease_grant(1_000)
    clock.now += 1
    with pytest.raises(NotFoundError):
        await kv.lease_keep_alive(lease)
    assert await kv.expire_leases() == 1
    await kv.close()


async def test_given_bytes_bound_then_history_is_cut_by_size() -> None:
    kv = MemoryKV(keep_bytes=100_000)
    first = await put(kv, "a")
    for _ in range(30):
        await put(kv, "a", b"x" * 10_000)
    with pytest.raises(CompactedError) as caught:
        await kv.get("a", revision=first)
    oldest = caught.value.first_available
    assert await kv.revision() - 12 < oldest < await kv.revision() - 5
    await kv.close()
