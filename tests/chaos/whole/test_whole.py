"""Two minutes of everything at once: all promises are kept, and progress comes back in time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.source import ROOT
from tests.chaos.machines.test_more_machines import require_machines
from tests.contract.kv.etcd_server import require_client, require_etcd

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(500)]

SEED = os.environ.get("RUNNEL_CHAOS_SEED", "4")


def test_given_all_kinds_of_faults_at_once_then_all_promises_are_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require_machines()
    require_client()
    command = [sys.executable, "-m", "tests.chaos.whole", "--minutes", "2", "--seed", SEED]
    done = subprocess.run(
        [*command, "--directory", str(tmp_path / "run")],
        cwd=ROOT,
        env={**os.environ, "RUNNEL_TEST_ETCD": str(require_etcd())},
        capture_output=True,
        text=True,
        timeout=480,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6_000:] + done.stderr[-3_000:]
    with capsys.disabled():
        print(f"\n{done.stdout[done.stdout.rindex('seed ') :]}")
