"""The examples do what they say."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.e2e.conftest import PYTHON

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.long
def test_racks_are_told_apart(tmp_path: Path) -> None:
    done = subprocess.run(
        [PYTHON, str(EXAMPLES / "02-racks" / "racks.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    payments = done.stdout.partition("payments:")[2].partition("partitions led")[0]
    placed = [
        line.partition(":")[2].split() for line in payments.splitlines() if "partition" in line
    ]
    assert len(placed) == 6
    for replicas in placed:
        assert sorted(replica[-2] for replica in replicas) == ["a", "b", "c"]
    assert len({replicas[0] for replicas in placed}) == 6, "each of the six SPUs leads one"


@pytest.mark.long
def test_a_stream_is_scaled_under_its_writer(tmp_path: Path) -> None:
    done = subprocess.run(
        [PYTHON, str(EXAMPLES / "06-streams" / "scale.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 segments became 8" in done.stdout
    assert "records of 20 keys read in order, through 4 epochs" in done.stdout
