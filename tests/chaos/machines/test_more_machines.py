"""``docs/howto/more-machines.md`` word for word gives a cluster that replicates; when an address is
wrong, every place where one looks says which."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(300)]

NAMESPACE = ("unshare", "--map-root-user", "--net", "--mount")
#: SPU 9 connects to SPU 7, at an address that is its own.
CANNOT_REACH = "SPU 9 cannot reach SPU 7 at localhost:9006: "


def test_the_page_gives_a_cluster_that_replicates_and_a_wrong_address_is_named(
    tmp_path: Path,
) -> None:
    require_machines()
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [*NAMESPACE, sys.executable, "-m", "tests.chaos.machines.follow_page", str(tmp_path / "m")],
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, "PATH": path},
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    said = json.loads(done.stdout.splitlines()[-1])
    broken = {"check broken": 1}
    assert {name: code for name, (code, _, _) in said.items()} == {
        name: broken.get(name, 0) for name in said
    }, said
    assert said["apply edge-7"][2] == said["apply edge-8"][2] == ""
    records = said["records"][1]
    assert "produced 1 record to readings" in records
    assert "\n21.5\n" in records
    assert "1 partition, all with a leader" in records
    assert "failed" not in records
    assert (
        "spec.privateEndpoint.host: clients reach it at edge-7.example" in said["apply broken"][2]
    )
    for name in ("check broken", "describe broken", "partitions broken"):
        assert CANNOT_REACH in said[name][1], name
    assert "cannot commit" in said["check broken"][1]
    assert "bring the others back" not in said["partitions broken"][1]
    assert "1 of 1 partitions commits nothing: late-0" in said["topics broken"][1]
    assert "produced 1 record" in said["produce mended"][1]


def require_machines() -> None:
    """Skip where this user may not make network and mount namespaces with links between them."""
    if sys.platform != "linux" or not all(map(shutil.which, ("unshare", "nsenter", "ip", "mount"))):
        pytest.skip("no namespaces here")
    try_it = "ip link add machines type bridge && mount -t tmpfs none /var/lib"
    tried = subprocess.run([*NAMESPACE, "sh", "-c", try_it], capture_output=True, text=True)
    if tried.returncode != 0:
        pytest.skip(f"no machines can be made in a namespace: {tried.stderr.strip()}")
