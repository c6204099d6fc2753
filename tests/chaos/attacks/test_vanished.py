"""A thousand clients whose host is gone: their places are free again within about a minute, and
those who were there before notice nothing."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from schemas.wire.keepalive import VANISHED

#: A minute of waiting: by hand, with `make chaos`.
pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]

NAMESPACE = ("unshare", "--map-root-user", "--net")
FREED_WITHIN_S = VANISHED.idle_s + VANISHED.probes * VANISHED.interval_s + 20
MAX_GAP_S = 3.0


def test_given_a_thousand_vanished_clients_then_their_places_are_free_in_a_minute(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require_namespace()
    done = subprocess.run(
        [*NAMESPACE, sys.executable, "-m", "tests.chaos.attacks.vanishing", str(tmp_path / "home")],
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    outcome = json.loads(done.stdout.splitlines()[-1])
    with capsys.disabled():
        print(f"\n{json.dumps(outcome, indent=1)}")
    assert outcome["connections"] >= 990, "they have taken all places"
    assert outcome["freed_after_s"] < FREED_WITHIN_S
    assert outcome["sc_descriptors_more"] < 20
    assert outcome["newcomer_after_s"] < FREED_WITHIN_S + 10
    for before, during in (outcome["producer"], outcome["consumer"]):
        assert during["rate"] > before["rate"] / 2
        assert during["worst_gap_s"] < MAX_GAP_S


def require_namespace() -> None:
    """Skip where this user may not make a network namespace and drop packets in it."""
    if sys.platform != "linux" or shutil.which("unshare") is None:
        pytest.skip("no network namespaces here")
    rule = "ip link set lo up && iptables -A INPUT --source 127.0.1.0/24 -j DROP"
    tried = subprocess.run([*NAMESPACE, "sh", "-c", rule], capture_output=True, text=True)
    if tried.returncode != 0:
        pytest.skip(f"no packets can be dropped in a namespace: {tried.stderr.strip()}")
