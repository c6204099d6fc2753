"""Readers on the host of a real SPU: they read its files, and fetch whatever they cannot read."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from runnel import aio
from runnel.short_circuit import segment_file
from schemas.errors import CorruptBatchError, OffsetOutOfRangeError
from schemas.wire.located_batches import Place
from tests.integration.client.test_push import World, offsets, world_of
from tests.unit.spu.builders import DEADLINE_S, settings_of, until

COUNT = 200
SIZE = 10_000
#: The leader's first record of its term, and the one before it, are no user's.
FIRST = 2
ALL = list(range(FIRST, FIRST + COUNT))


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[World]:
    """Segments of about 50 records, so that a reader needs several files."""
    async for world in world_of(tmp_path, 2, settings_of(segment=50 * SIZE)):
        await world.elect(0)
        await world.append(COUNT, SIZE)
        yield world


def reader(world: World, start: int | str = "earliest", **choices: bool) -> aio.Consumer:
    settings = aio.ConsumerSettings(**choices)  # type: ignore[arg-type]
    from_where = {0: start} if isinstance(start, int) else start
    return world.client.consumer("orders", from_where, settings=settings)  # type: ignore[arg-type]


def bytes_sent(world: World, spu: int = 0) -> int:
    return world.listeners[spu].counters.bytes_out


async def test_given_a_reader_on_the_host_then_files_are_read_and_then_it_is_pushed_to(
    two: World,
) -> None:
    before = bytes_sent(two)
    async with reader(two) as reading:
        # The last segment holds too little to be worth a file.
        assert await offsets(reading, COUNT) == ALL
        assert bytes_sent(two) - before < COUNT * SIZE / 2
        fetches = two.sent(0, "fetch")
        assert 3 <= fetches <= 8
        await two.append(3)
        assert await offsets(reading, 3) == [ALL[-1] + 1, ALL[-1] + 2, ALL[-1] + 3]
        assert two.sent(0, "fetch") == fetches
        assert two.sent(0, "subscribe") == 1


async def test_given_a_place_in_the_middle_then_it_begins_there(two: World) -> None:
    async with reader(two, 77) as reading:
        assert await offsets(reading, 100) == list(range(77, 177))


async def test_given_it_is_switched_off_then_everything_is_sent(two: World) -> None:
    before = bytes_sent(two)
    async with reader(two, short_circuit=False) as reading:
        assert await offsets(reading, COUNT) == ALL
    assert bytes_sent(two) - before > COUNT * SIZE


async def test_given_a_paused_reader_then_no_file_stays_open(two: World) -> None:
    def open_files() -> int:
        return segment_file._open_files._count

    async with reader(two) as reading:
        assert await offsets(reading, 1) == [FIRST]
        await until(lambda: open_files() == 1)
        await reading.pause([0])
        await until(lambda: open_files() == 0)
        await reading.resume([0])
        assert await offsets(reading, COUNT - 1) == ALL[1:]


@pytest.mark.parametrize("trouble", ["another host", "no such file", "cut", "not local"])
async def test_given_files_that_cannot_be_read_then_everything_is_sent(
    two: World, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    match trouble:
        case "another host":
            monkeypatch.setattr(segment_file, "boot_id", lambda: bytes(16))
        case "no such file":
            monkeypatch.setattr(
                "spu.storage.reader.Place", lambda found, path: Place(found, f"{path}.gone")
            )
        case "cut":
            monkeypatch.setattr(segment_file, "read_at", lambda *_, **__: 0)
        case _:
            monkeypatch.setattr("spu.server.connection.is_on_one_host", lambda _: False)
    before = bytes_sent(two)
    async with reader(two) as reading:
        assert await offsets(reading, COUNT) == ALL
    assert bytes_sent(two) - before > COUNT * SIZE
    assert two.sent(0, "fetch") <= 3


async def test_given_a_cold_file_then_threads_read_it(
    two: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_at, waited = segment_file.read_at, []  # type: ignore[attr-defined]

    def from_disk(fd: int, view: memoryview, position: int, *, wait: bool) -> int:
        if not wait:
            raise BlockingIOError
        waited.append(position)
        return int(read_at(fd, view, position, wait=True))

    monkeypatch.setattr(segment_file, "read_at", from_disk)
    async with reader(two) as reading:
        assert await offsets(reading, COUNT) == ALL
    assert len(waited) >= 3


async def test_given_segments_that_are_deleted_under_the_reader_then_it_is_told(
    two: World,
) -> None:
    end = ALL[-1] + 1
    async with reader(two) as reading:
        assert await offsets(reading, 1) == [FIRST]
        replica = two.spus.replica(0)
        replica._log.truncate_prefix(end)
        replica.tick(two.spus.spus[0].now_us)
        await until(lambda: replica.log_start == end)
        found: list[int] = []

        async def read_on() -> None:
            while True:
                found.extend(await offsets(reading, 1))

        async with asyncio.timeout(DEADLINE_S):
            with pytest.raises(OffsetOutOfRangeError, match=f"first available one is {end}"):
                await read_on()
        assert found == ALL[1 : 1 + len(found)]
        assert len(found) < COUNT - 2


async def test_given_another_leader_then_its_files_are_read(two: World) -> None:
    async with reader(two) as reading:
        assert await offsets(reading, 10) == ALL[:10]
        await two.elect(1)
        assert await offsets(reading, COUNT - 10) == ALL[10:]
        await two.append(3)
        found = await offsets(reading, 3)
        assert found == sorted(set(found))
        assert found[0] > ALL[-1]


async def test_given_damage_in_the_file_then_the_leader_finds_it(two: World) -> None:
    replica = two.spus.replica(0)
    fd = os.open(replica._log.segments[1].path, os.O_RDWR)
    os.pwrite(fd, b"!!", 5_000)
    os.close(fd)
    async with reader(two) as reading:
        with pytest.raises(CorruptBatchError, match="client CRC32C is"):
            await offsets(reading, COUNT)
    assert not replica.fit
