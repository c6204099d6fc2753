"""A local cluster on a disk that is full to the last byte: it is stopped, and deleted."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import SQLITE_ALONE, Command
from tests.ports import free_base_port

pytestmark = pytest.mark.slow


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 8 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("a disk that can be filled needs the right to mount one")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def fill(disk: Path) -> None:
    """Take every byte that is left."""
    with (disk / "ballast").open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while file.write(bytes(size)):
                    pass
            except OSError:
                continue


@SQLITE_ALONE
def test_given_a_full_disk_then_it_stops_says_what_to_do_and_is_deleted(
    disk: Path, runnel: Command
) -> None:
    data = disk / "data"
    place = ("--data-dir", str(data))
    base = free_base_port(data, 1)
    runnel("cluster", "start", *place, "--base-port", str(base))
    try:
        fill(disk)
        said = runnel.fails("cluster", "stop", *place, code=1)
        assert f"sc-0, spu-0 stopped, but {data / 'cluster.json'} cannot be written" in said
        found = runnel.json("cluster", "status", *place)
        assert {row["state"] for part in ("sc", "spus") for row in found[part]} == {"stopped"}
        said = runnel.fails("cluster", "start", *place, code=1)
        assert f"{data / 'sc-0.yaml'} cannot be written" in said
        assert "make room on its disk" in said
        assert not list(data.rglob("*.tmp"))
    finally:
        runnel("cluster", "delete", "--yes", *place)
    assert [path.name for path in disk.iterdir()] == ["ballast"]
