"""Records of a pass: all of one revision; those that never change are read once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from sc.controllers.streams.records import StreamPaths, is_fixed
from sc.dispatch.records import RecordReader
from sc.kv.interface import Delete, Put
from sc.kv.memory import MemoryKV
from sc.store.records import GetRecord, ListRecords, NotReadError, Records, get, listed, need
from schemas.objects.keys import ClusterKeys

KEYS = ClusterKeys("c")
PATHS = StreamPaths("u")


class Bench:
    def __init__(self, cache_bytes: int = 1 << 20) -> None:
        self.kv = MemoryKV(clock=lambda: 0.0)
        self.reader = RecordReader(
            self.kv, KEYS, is_fixed, now_ms=lambda: 77, cache_bytes=cache_bytes
        )

    async def put(self, path: str, value: bytes = b"v") -> None:
        await self.kv.txn([], [Put(KEYS.record(path), value)])


def story(of: Callable[[Bench], Awaitable[None]]) -> Callable[[], None]:
    def run() -> None:
        asyncio.run(_run())

    async def _run() -> None:
        await of(Bench())

    run.__name__ = of.__name__
    return run


@story
async def test_given_writes_in_a_pass_then_it_sees_none_of_them(bench: Bench) -> None:
    await bench.put(PATHS.state, b"1")
    first = await bench.reader.read(None, [GetRecord(PATHS.state)])
    assert first.at_ms == 77
    await bench.put(PATHS.plan, b"2")
    both = await bench.reader.read(first, [GetRecord(PATHS.plan)])
    assert get(both, PATHS.plan) is None
    found = get(both, PATHS.state)
    assert found is not None
    assert (found.value, found.revision, both.newest) == (b"1", found.revision, found.revision)
    later = await bench.reader.read(None, [GetRecord(PATHS.plan)])
    assert get(later, PATHS.plan) is not None


@story
async def test_given_a_record_that_never_changes_then_it_is_read_once(bench: Bench) -> None:
    await bench.put(PATHS.sealed(3), b"s")
    want = GetRecord(PATHS.sealed(3))
    first = await bench.reader.read(None, [want])
    await bench.kv.txn([], [Delete(KEYS.record(PATHS.sealed(3)))])
    assert (await bench.reader.read(None, [want])).found == first.found
    bench.reader.clear()
    assert (await bench.reader.read(None, [want])).found == {want: ()}


@story
async def test_given_a_listing_then_it_is_kept_once_its_last_record_is_there(bench: Bench) -> None:
    want = PATHS.epoch_want(1)
    await bench.put(PATHS.epoch(0))
    assert len((await bench.reader.read(None, [want])).found[want]) == 1
    await bench.put(PATHS.epoch(1))
    await bench.put(PATHS.epoch(2))
    assert len((await bench.reader.read(None, [want])).found[want]) == 2
    kept = bench.reader.cached_bytes
    assert kept > 0
    assert len((await bench.reader.read(None, [want])).found[want]) == 2
    assert bench.reader.cached_bytes == kept


@story
async def test_given_records_that_change_then_they_are_never_kept(bench: Bench) -> None:
    for path in (PATHS.state, PATHS.plan, PATHS.accepted, PATHS.request("r"), PATHS.outcome("r")):
        await bench.put(path)
        await bench.reader.read(None, [GetRecord(path)])
    await bench.reader.read(None, [ListRecords(PATHS.outcomes, 10)])
    assert bench.reader.cached_bytes == 0


def test_given_little_room_then_what_was_used_last_stays() -> None:
    async def told() -> None:
        bench = Bench(cache_bytes=700)
        wants = [GetRecord(PATHS.sealed(n)) for n in range(5)]
        for want in wants:
            await bench.put(want.path)
            await bench.reader.read(None, [want])
        assert bench.reader.cached_bytes <= 700
        await bench.kv.txn([], [Delete(KEYS.record(want.path)) for want in wants])
        assert (await bench.reader.read(None, wants[-1:])).found[wants[-1]]
        assert not (await bench.reader.read(None, wants[:1])).found[wants[0]]

    asyncio.run(told())


def test_given_what_was_not_read_then_all_of_it_is_asked_for_together() -> None:
    one, two = GetRecord("a"), ListRecords("b/", 5)
    with pytest.raises(NotReadError) as got:
        need(None, one, two)
    assert got.value.wants == (one, two)
    records = Records(5, 0, {one: ()})
    with pytest.raises(NotReadError) as got:
        need(records, one, two)
    assert got.value.wants == (two,)
    with pytest.raises(NotReadError):
        listed(records, two)
    assert get(records, "a") is None
    assert records.newest == 0
