"""Clients of a partition whose only disk goes back in time: each that knows better is told."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from schemas.errors import DivergedError, OffsetOutOfRangeError
from spu.server.listener import Listener
from tests.integration.client.test_push import World, offsets, world_of
from tests.unit.spu.builders import settings_of

#: Much less than the time for which clients retry what may pass.
AT_ONCE_S = 10.0


@pytest.fixture
async def alone(tmp_path: Path) -> AsyncIterator[World]:
    async for world in world_of(tmp_path, 1, settings_of(segment=64 << 20)):
        yield world


async def put_back(world: World, copy: Path) -> None:
    """Replace the SPU's directory by a copy, as if a snapshot of its disk were restored."""
    await world.listeners.pop(0).close()
    await world.spus.stop(0)
    disk = world.spus.path / "0"
    shutil.rmtree(disk)
    shutil.copytree(copy, disk)
    await world.spus.start(0)
    world.listeners[0] = Listener(world.spus.spus[0].host)
    world.ports[0] = await world.listeners[0].start("127.0.0.1", 0)
    await world.elect(0)


async def at_once(ask: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(AT_ONCE_S):
        await ask()


async def test_given_a_producer_with_acknowledged_records_then_its_next_batch_fails(
    alone: World, tmp_path: Path
) -> None:
    async with alone.client.producer("orders") as producer:
        await producer.send(b"kept")
        shutil.copytree(alone.spus.path / "0", tmp_path / "copy")
        for _ in range(3):
            lost = await producer.send(b"lost")
        await put_back(alone, tmp_path / "copy")
        with pytest.raises(DivergedError, match="went back in time") as got:
            await at_once(lambda: producer.send(b"next"))
        assert got.value.diverged_at < lost.offset
        with pytest.raises(DivergedError):
            await producer.flush()
        await producer.send(b"after that")
    table = await alone.client.read("orders")
    assert table.column("value").to_pylist() == [b"kept", b"after that"]


async def test_given_a_producer_that_the_disk_does_not_know_then_its_next_batch_fails(
    alone: World, tmp_path: Path
) -> None:
    shutil.copytree(alone.spus.path / "0", tmp_path / "copy")
    async with alone.client.producer("orders") as producer:
        for _ in range(9):
            await producer.send(b"lost")
        await put_back(alone, tmp_path / "copy")
        with pytest.raises(DivergedError, match="this batch was written, at offset"):
            await at_once(lambda: producer.send(b"next"))
        with pytest.raises(DivergedError):
            await producer.flush()
        await producer.send(b"after that")


async def test_given_readers_above_the_end_then_they_are_told_at_once(
    alone: World, tmp_path: Path
) -> None:
    shutil.copytree(alone.spus.path / "0", tmp_path / "copy")
    await alone.append(9)
    waiting = alone.client.consumer("orders", "latest")
    await waiting.start()
    async with alone.client.consumer("orders", "earliest") as reading:
        (*_, last) = await offsets(reading, 9)
        await put_back(alone, tmp_path / "copy")
        with pytest.raises(DivergedError, match="went back in time"):
            await at_once(lambda: offsets(reading, 1))
    with pytest.raises(DivergedError, match="went back in time"):
        await at_once(lambda: offsets(waiting, 1))
    await waiting.close()
    # A reader that begins where its user has an acknowledgement.
    async with alone.client.consumer("orders", last) as late:
        with pytest.raises(OffsetOutOfRangeError, match="above the end of the log"):
            await at_once(lambda: offsets(late, 1))
