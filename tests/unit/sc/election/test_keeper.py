"""The keeper of a lease, over a KV whose clock the test sets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from sc.election import keeper as keeper_module
from sc.election.keeper import LeaseKeeper
from sc.kv.interface import Put
from sc.kv.memory import MemoryKV
from schemas.errors import UnreachableError
from tests.polling import eventually


class FlakyKV(MemoryKV):
    """Answers no renewals while ``away``."""

    away = False

    async def lease_keep_alive(self, lease: int) -> int:
        if self.away:
            raise UnreachableError("away")
        return await super().lease_keep_alive(lease)


class Bench:
    """A keeper of a lease of three seconds, and its time."""

    def __init__(self) -> None:
        self.kv = FlakyKV()
        self.now_ms = 0
        self.changes: list[int] = []
        self.keeper = LeaseKeeper(
            self.kv, lambda: self.now_ms, lambda: self.changes.append(self.keeper.lease), 3_000
        )

    async def until(self, condition: Callable[[], bool]) -> None:
        await eventually(condition)


@asynccontextmanager
async def running(bench: Bench) -> AsyncIterator[None]:
    work = asyncio.create_task(bench.keeper.run())
    try:
        await eventually(lambda: bench.keeper.lease != 0)
        yield
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(keeper_module, "RETRY_S", 0.001)
    # Time passes when the test says so: what is due is due at once.
    sleep = asyncio.sleep

    async def short(seconds: float) -> None:
        await sleep(min(seconds, 0.001))

    monkeypatch.setattr("sc.election.keeper.asyncio.sleep", short)
    return Bench()


async def test_given_renewals_then_it_holds_on(bench: Bench) -> None:
    async with running(bench):
        for now_ms in (1_500, 3_000, 4_500):
            bench.now_ms = now_ms
            await eventually(lambda: bench.keeper.left_ms == 2_000)
            assert bench.keeper.holds()
        assert len(bench.changes) == 1


async def test_given_no_answer_then_it_ends_by_its_own_clock(bench: Bench) -> None:
    async with running(bench):
        await bench.until(lambda: bench.keeper.holds())
        bench.kv.away = True
        bench.now_ms = 1_999
        assert bench.keeper.holds()
        bench.now_ms = 2_000
        assert not bench.keeper.holds()
        assert bench.keeper.left_ms == 0
        bench.kv.away = False
        await bench.until(lambda: bench.keeper.holds())
        assert len(bench.changes) == 1, "the KV has kept it"


async def test_given_the_kv_has_ended_it_then_another_one_is_taken(bench: Bench) -> None:
    async with running(bench):
        first = bench.keeper.lease
        await bench.kv.lease_revoke(first)
        await bench.until(lambda: bench.keeper.lease not in (0, first))
        assert bench.changes == [first, 0, bench.keeper.lease]
        assert bench.keeper.holds()


async def test_given_it_is_given_back_then_its_keys_go(bench: Bench) -> None:
    async with running(bench):
        await bench.kv.txn([], [Put("k", b"", bench.keeper.lease)])
    await bench.keeper.give_back()
    assert await bench.kv.get("k") is None
    assert not bench.keeper.holds()
