"""The benchmark beside other systems measures a cluster, and prints its table."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.source import ROOT

pytestmark = pytest.mark.slow
ROWS = {
    "produce, MB/s", "consume, MB/s", "processor of both, s/GB", "send, records/s",
    "end to end p50, ms", "end to end p99, ms", "processor, s per 60,000 records",
    "memory of brokers, MB", "failover, ms",
}  # fmt: skip


@pytest.mark.timeout(300)
def test_runnel_alone_with_three_brokers(tmp_path: Path) -> None:
    module = [sys.executable, "-m", "benchmarks.peers", "--peers", "runnel", "--brokers", "3"]
    few = ["--durability", "replicated", "--rounds", "2", "--scale", "0.01"]
    done = subprocess.run(
        [*module, *few, "--directory", str(tmp_path)],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith("RUNNEL_")},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    _, title, _, head, _, *rows = done.stdout.rstrip("\n").split("\n")
    assert (title, head) == ("### 3 brokers, replicated", "|  | Runnel |")
    cells = dict(row.strip("| ").split(" | ") for row in rows)
    assert cells.keys() == ROWS
    assert all(" to " in cell for cell in cells.values()), cells
    assert list(tmp_path.iterdir()) == []
