"""The phases of `benchmarks.kv`: operations on each store, through the interface of the SC."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np

from sc.kv.interface import DEFAULT_PAGE, KV, ModRevisionIs, Op, Put, range_all

T = TypeVar("T")

VALUE: Final = os.urandom(256)
IN_FLIGHT: Final = 64
BATCH_OPS: Final = 100
BATCHES_IN_FLIGHT: Final = 8
#: Single puts cycle through this many keys, so that none is always the last one written.
PUT_KEYS: Final = 1_000
EVENTS_TIMEOUT_S: Final = 30.0
#: Turns of each backend in each phase.
ROUNDS: Final = 5
#: The time before each turn that does not count, as a share of the turn's time.
WARM_UP: Final = 0.2


@dataclass(frozen=True, slots=True)
class Measured:
    """One backend. A transaction is one compare and one put, an operation one put of a batch;
    rates and ``list_s`` are medians of the turns. ``puts`` and ``events`` count the samples."""

    version: str
    put_p50_ms: float
    put_p99_ms: float
    transactions_per_s: float
    batched_operations_per_s: float
    event_p50_ms: float
    event_p99_ms: float
    list_s: float
    puts: int
    events: int


@dataclass(frozen=True, slots=True)
class Phases:
    """The results of all backends, by name; samples are one list for each turn."""

    puts: dict[str, list[list[float]]]
    transactions_per_s: dict[str, list[float]]
    events: dict[str, list[list[float]]]
    batches_per_s: dict[str, list[float]]
    lists: dict[str, list[float]]

    def of(self, name: str, version: str) -> Measured:
        """One backend's results."""
        puts = [seconds for turn in self.puts[name] for seconds in turn]
        events = [seconds for turn in self.events[name] for seconds in turn]
        batches = statistics.median(self.batches_per_s[name])
        return Measured(
            version=version,
            put_p50_ms=percentile_ms(puts, 50),
            put_p99_ms=percentile_ms(puts, 99),
            transactions_per_s=round(statistics.median(self.transactions_per_s[name]), 1),
            batched_operations_per_s=round(batches * BATCH_OPS, 1),
            event_p50_ms=percentile_ms(events, 50),
            event_p99_ms=percentile_ms(events, 99),
            list_s=round(statistics.median(self.lists[name]), 4),
            puts=len(puts),
            events=len(events),
        )


async def measure(
    stores: dict[str, KV], between: Callable[[], None], *, seconds: float, keys: int
) -> Phases:
    """All phases on empty stores, ``seconds`` each for every store; the list has ``keys`` keys.

    ``between`` is called before each round of turns.
    """

    async def rounds(phase: Callable[[KV], Awaitable[T]]) -> dict[str, list[T]]:
        found: dict[str, list[T]] = {name: [] for name in stores}
        for _ in range(ROUNDS):
            between()
            for name, kv in stores.items():
                found[name].append(await phase(kv))
        return found

    turn = seconds / ROUNDS
    # The phase that leaves most objects in this process comes last: they slow down Python's garbage
    # collector.
    puts = await rounds(lambda kv: put_times(kv, turn))
    transactions = await rounds(lambda kv: transactions_per_s(kv, turn))
    events = await rounds(lambda kv: event_times(kv, turn))
    batches = await rounds(lambda kv: batches_per_s(kv, turn))
    for kv in stores.values():
        await fill(kv, keys)
        await list_time(kv, keys)
    lists = await rounds(lambda kv: list_time(kv, keys))
    return Phases(puts, transactions, events, batches, lists)


async def put_times(kv: KV, seconds: float) -> list[float]:
    """Seconds of puts, one after the other."""

    async def put(number: int) -> float:
        begin = time.perf_counter()
        await kv.txn((), (Put(f"put/{number % PUT_KEYS}", VALUE),))
        return time.perf_counter() - begin

    return await _one_by_one(put, seconds)


async def transactions_per_s(kv: KV, seconds: float) -> float:
    """Transactions that write a key if nobody else has written it; each worker has its own key."""
    keys = [f"transact/{worker}" for worker in range(IN_FLIGHT)]
    found = [await kv.get(key) for key in keys]
    revisions = [0 if item is None else item.mod_revision for item in found]

    async def transact(worker: int) -> None:
        key = keys[worker]
        result = await kv.txn((ModRevisionIs(key, revisions[worker]),), (Put(key, VALUE),))
        assert result.succeeded
        revisions[worker] = result.revision

    return await _together(transact, IN_FLIGHT, seconds)


async def batches_per_s(kv: KV, seconds: float) -> float:
    """Transactions of `BATCH_OPS` puts."""
    batches = [_puts(f"batch/{worker}/", BATCH_OPS) for worker in range(BATCHES_IN_FLIGHT)]

    async def write(worker: int) -> None:
        await kv.txn((), batches[worker])

    return await _together(write, BATCHES_IN_FLIGHT, seconds)


async def event_times(kv: KV, seconds: float) -> list[float]:
    """Seconds from the call of a put until a watch delivers its event, one after the other."""
    # Bounded, because a put that fails has no event.
    async with (
        asyncio.timeout(EVENTS_TIMEOUT_S + 2 * seconds),
        kv.watch("event/", await kv.revision() + 1) as watch,
    ):

        async def put_and_see(number: int) -> float:
            begin = time.perf_counter()
            put = asyncio.create_task(kv.txn((), (Put(f"event/{number % PUT_KEYS}", VALUE),)))
            batch = await anext(watch)
            taken = time.perf_counter() - begin
            # The put's own answer may come after the event, and does not count.
            assert batch.revision == (await put).revision
            return taken

        return await _one_by_one(put_and_see, seconds)


async def fill(kv: KV, keys: int) -> None:
    """Put ``keys`` keys."""
    puts = _puts("list/", keys)
    starts = iter(range(0, keys, BATCH_OPS))

    async def write() -> None:
        for start in starts:
            await kv.txn((), puts[start : start + BATCH_OPS])

    async with asyncio.TaskGroup() as group:
        for _ in range(BATCHES_IN_FLIGHT):
            group.create_task(write())


async def list_time(kv: KV, keys: int) -> float:
    """Seconds to list all that `fill` put, in pages of the default size."""
    begin = time.perf_counter()
    found = [len(page.items) async for page in range_all(kv, "list/", page_size=DEFAULT_PAGE)]
    taken = time.perf_counter() - begin
    assert sum(found) == keys
    return taken


def _puts(prefix: str, count: int) -> list[Op]:
    return [Put(f"{prefix}{number:06}", VALUE) for number in range(count)]


async def _one_by_one(sample: Callable[[int], Awaitable[float]], seconds: float) -> list[float]:
    """The times that the samples return; each gets its number."""
    times: list[float] = []
    for span in (WARM_UP * seconds, seconds):
        times.clear()
        end = time.perf_counter() + span
        while not times or time.perf_counter() < end:
            times.append(await sample(len(times)))
    return times


async def _together(step: Callable[[int], Awaitable[None]], workers: int, seconds: float) -> float:
    """Steps per second of ``workers`` workers at once, each doing one step after the other."""

    async def work(worker: int, end: float) -> int:
        steps = 0
        while steps == 0 or time.perf_counter() < end:
            await step(worker)
            steps += 1
        return steps

    rate = 0.0
    for span in (WARM_UP * seconds, seconds):
        begin = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work(worker, begin + span)) for worker in range(workers)]
        rate = sum(task.result() for task in tasks) / (time.perf_counter() - begin)
    return rate


def percentile_ms(times: list[float], percent: float) -> float:
    """A percentile of seconds, in ms."""
    return round(float(np.percentile(times, percent)) * 1e3, 4)
