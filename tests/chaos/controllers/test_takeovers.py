"""The leading SC is killed, stopped, ended and asked to step down, under writes; all
SCs are killed and started again, and a standby is stopped and killed; and the leading one is
stopped as it loses an SPU, so that it has something to write when it goes on. The benchmark of
takeovers does so more often."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any, Final

import pytest

from tests.architecture.source import ROOT
from tests.contract.kv.etcd_server import require_etcd

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(600)]
TAKEOVERS: Final = {
    "--kills": 3,
    "--stops": 2,
    "--step-downs": 6,
    "--ends": 4,
    "--alls": 1,
    "--losses": 2,
}
STANDBYS: Final = {"--standbys": 1}


def test_given_takeovers_then_no_record_is_lost_and_nobody_is_elected_for_them() -> None:
    """The benchmark's own run: its figures are printed, not judged. The lease is shorter than the
    default, and long enough for a renewal on a machine with other work."""
    wanted = TAKEOVERS | STANDBYS
    counts = [word for name, count in wanted.items() for word in (name, str(count))]
    command = [sys.executable, "-m", "benchmarks.takeovers", "--json", "--lease", "4s", *counts]
    environment = {**os.environ, "RUNNEL_ETCD": str(require_etcd())}
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=580, env=environment
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    found: dict[str, Any] = json.loads(done.stdout)
    print(json.dumps(found, indent=2))
    assert found["takeovers"] == sum(TAKEOVERS.values())
    assert found["acknowledged"] > 500
    assert (found["lost"], found["twice"], found["elections"]) == (0, 0, 0)
    # Nobody takes the office without a need, and back.
    assert found["offices"] == found["takeovers"]
    # What it had to do, its successor has done, once.
    assert found["writtenByTheDeposed"] == []
    assert found["electedOtherwise"] == []
