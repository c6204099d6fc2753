"""The page of three hosts, word for word, gives a cluster that survives the loss of each host, and
the page that goes on from there replaces a host."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.machines.test_more_machines import NAMESPACE, require_machines
from tests.contract.kv.etcd_server import require_client, require_etcd

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(400)]

LOST_S = 40.0
"""A lease, and what the page says of partitions whose leader was lost with the SC that led."""


def test_the_pages_give_a_cluster_that_survives_the_loss_of_each_host(tmp_path: Path) -> None:
    require_machines()
    require_client()
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    words = ("-m", "tests.chaos.machines.follow_three_hosts", str(tmp_path / "m"))
    done = subprocess.run(
        [*NAMESPACE, sys.executable, *words, str(require_etcd())],
        capture_output=True,
        text=True,
        timeout=380,
        env={**os.environ, "PATH": path, "ETCD_UNSUPPORTED_ARCH": "arm64"},
    )
    assert done.returncode == 0, done.stderr[-6_000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert {name: code for name, (code, *_) in said.items() if code} == {}, said
    assert "produced 1 record to readings" in said["records"][1]
    assert "\n21.5\n" in said["records"][1]
    assert "failed" not in said["records"][1]
    records = ["21.5"]
    for number, value in ((3, "22.5"), (1, "23.5"), (2, "24.5")):
        records.append(value)
        lines = said[f"host-{number} is lost"][1].splitlines()
        assert [line for line in lines if " leader " in line], lines
        assert not [line for line in lines if f"host-{number}" in line and " leader " in line]
        # Each record once; three partitions have no order between them.
        assert sorted(line for line in lines if re.fullmatch(r"\d+\.5", line)) == records
    # Until others lead, and no longer: also where the lost host does not even refuse.
    took_s = {number: said[f"host-{number} is lost"][3] for number in (3, 1, 2)}
    print(f"seconds of three commands while a host is lost: {took_s}")
    assert max(took_s.values()) <= LOST_S, took_s
    # Every replica of the replaced SPU has the records of its leader.
    assert said["verify"][1].count(" ok ") == 9
    assert "balanced" in said["balance"][1]
