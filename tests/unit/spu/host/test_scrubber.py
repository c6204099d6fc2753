"""Scrubbing: all records are verified in time, slowly, and damage takes its usual path."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from spu.host import scrubber as scrubber_module
from spu.host.scrubber import LEAST_BYTES_S, MOST_BYTES_S, Scrubber
from tests.unit.spu.builders import (
    UID,
    Spu,
    assignment_of,
    batch_of,
    new_uid,
    open_spu,
    produce,
    settings_of,
    until,
)
from tests.unit.spu.storage.test_verification import flip

OTHER = new_uid()


async def filled(path: Path) -> Spu:
    log = settings_of(segment=1 << 10)
    spu = await open_spu(path, assignment_of(log=log), assignment_of(OTHER, log=log))
    for uid in (UID, OTHER):
        replica = await spu.serve(uid)
        for _ in range(20):
            await produce(replica, batch_of(2, b"x" * 160))
    return spu


async def test_given_damage_that_nobody_reads_then_it_is_found_and_the_others_are_checked(
    tmp_path: Path,
) -> None:
    spu = await filled(tmp_path)
    replica, other = spu.host.replica(UID), spu.host.replica(OTHER)
    flip(replica._log.segments[1].path, 100)
    scrubber = spu.host.scrubber
    await scrubber.scrub()
    assert (replica.fit, other.fit) == (False, True)
    assert "CRC32C" in (replica.report().reason or "")
    assert (scrubber.passes, scrubber.damaged) == (1, 1)
    assert other.size_bytes < scrubber.checked_bytes < 2 * other.size_bytes
    # What is unfit is not read again.
    before = scrubber.checked_bytes
    await scrubber.scrub()
    assert (scrubber.checked_bytes - before, scrubber.damaged) == (other.size_bytes, 1)
    await spu.host.close()


async def test_given_a_period_then_passes_are_repeated_until_the_spu_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrubber_module, "DELAY_S", 0.0)
    spu = await filled(tmp_path)
    scrubber = Scrubber({UID: spu.replica}, spu.host.read_threads, 0.01)
    running = asyncio.create_task(scrubber.run())
    await until(lambda: scrubber.passes >= 3)
    assert scrubber.checked_bytes >= 3 * spu.replica.size_bytes
    running.cancel()
    await asyncio.wait([running])
    never = Scrubber({UID: spu.replica}, spu.host.read_threads, None)
    await never.run()
    assert never.passes == 0
    await spu.host.close()


@pytest.mark.parametrize(
    ("total", "rate"),
    [
        pytest.param(0, LEAST_BYTES_S, id="given-little-then-the-least-rate"),
        pytest.param(5_000 << 20, 10 << 20, id="given-more-then-half-of-the-period"),
        pytest.param(1 << 50, MOST_BYTES_S, id="given-too-much-then-the-highest-rate"),
    ],
)
async def test_rates(spu: Spu, total: int, rate: int) -> None:
    assert Scrubber({}, spu.host.read_threads, 1_000.0)._bytes_s(total) == rate


async def test_given_a_rate_then_a_pass_takes_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spu = await filled(tmp_path)
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def pause(delay_s: float) -> None:
        pauses.append(delay_s)
        await sleep(0)

    with monkeypatch.context() as patch:
        patch.setattr(scrubber_module, "SLICE_BYTES", 1)
        patch.setattr(asyncio, "sleep", pause)
        await spu.host.scrubber.scrub()
    assert len(pauses) >= 40
    assert sum(pauses) >= spu.host.scrubber.checked_bytes / LEAST_BYTES_S * 0.99
    await spu.host.close()
