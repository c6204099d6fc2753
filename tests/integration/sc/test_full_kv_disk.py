"""An SC whose SQLite file is on a disk without room: it says so, refuses in time, and recovers."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sc.kv.sqlite import SqliteKV
from tests.integration.sc.calls import call, created
from tests.integration.sc.conftest import RunningSc, manifest, run_sc
from tests.integration.sc.test_lost_kv import metric
from tests.polling import eventually

pytestmark = pytest.mark.slow


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 4 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("a disk that can be filled needs the right to mount one")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def fill(disk: Path) -> Path:
    """Take every byte that is left."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while file.write(bytes(size)):
                    pass
            except OSError:
                continue
    return ballast


async def health_is(sc: RunningSc, status: int) -> bool:
    return (await call(sc, "GET", "/health"))[0] == status


async def test_given_a_full_disk_then_health_says_so_before_a_write_and_each_write_is_answered(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sc.controller.PROBE_S", 0.05)
    monkeypatch.setattr("sc.kv.sqlite.ANSWER_S", 1.0)
    kv = await SqliteKV.open(disk / "kv.db")
    try:
        async with run_sc(kv) as sc:
            await created(sc, "Topic", "before", {"partitions": 1})
            await sc.until("topics", "before", "insufficientResources")
            assert await health_is(sc, 200)
            ballast = fill(disk)
            await eventually(lambda: health_is(sc, 503))
            assert not os.statvfs(disk).f_bavail
            _, health = await call(sc, "GET", "/health")
            assert health["code"] == "NOT_READY"
            assert f"the disk under {disk / 'kv.db'} is full" in health["message"]
            assert await metric(sc, "runnel_sc_kv_up") == 0
            assert await metric(sc, "runnel_sc_kv_away_seconds") == 0
            status, refused = await call(
                sc, "POST", "/v1/topics", manifest("Topic", "during", {"partitions": 1})
            )
            assert (status, refused["code"]) == (503, "OVERLOADED")
            assert (await call(sc, "GET", "/v1/topics/before"))[0] == 200
            ballast.unlink()
            await eventually(lambda: health_is(sc, 200))
            assert await metric(sc, "runnel_sc_kv_up") == 1
            await created(sc, "Topic", "during", {"partitions": 1})
    finally:
        await kv.close()


async def test_given_a_write_that_finds_the_disk_full_then_504_and_then_503(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sc.controller.PROBE_S", 60.0)
    monkeypatch.setattr("sc.kv.sqlite.ANSWER_S", 1.0)
    kv = await SqliteKV.open(disk / "kv.db")
    try:
        async with run_sc(kv) as sc:
            await created(sc, "Topic", "before", {"partitions": 1})
            await sc.until("topics", "before", "insufficientResources")
            ballast = fill(disk)
            statuses = {}
            for number in range(50):
                body = manifest("Topic", f"t{number}", {"partitions": 1})
                body["metadata"] = {"name": f"t{number}", "annotations": {"a": "x" * 10_000}}
                status, _ = await call(sc, "POST", "/v1/topics", body)
                statuses[number] = status
                if status == 503:
                    break
            # The file had a little room of its own.
            assert list(statuses.values())[-2:] == [504, 503]
            ballast.unlink()
            await eventually(lambda: not kv._full)
            # What had no answer in time was written when there was room.
            await sc.until("topics", f"t{len(statuses) - 2}", "insufficientResources")
            assert (await call(sc, "GET", f"/v1/topics/t{len(statuses) - 1}"))[0] == 404
    finally:
        await kv.close()
