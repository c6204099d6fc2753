"""A site at the end of a line serves on while it is cut, is reached while it is bad, and loses and
repeats nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.machines.test_more_machines import NAMESPACE, require_machines

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One life of a site, for all tests."""
    require_machines()
    if not os.access("/dev/net/tun", os.W_OK):
        pytest.skip("no TAP devices here")
    home = tmp_path_factory.mktemp("edge") / "m"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [*NAMESPACE, sys.executable, "-m", "tests.chaos.edge.live_on_a_line", str(home)],
        capture_output=True,
        text=True,
        timeout=580,
        env={**os.environ, "PATH": path},
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_given_a_cut_line_then_the_sc_says_so_and_all_is_as_before_after_it(
    seen: dict[str, Any],
) -> None:
    assert seen["offline at home"]["edge-1"] == "online"
    assert seen["online after the cut"] < 20
    assert seen["elections after the cut"] == {}


def test_given_a_bad_line_then_sessions_last_and_users_at_home_go_on(
    seen: dict[str, Any],
) -> None:
    # When the line turns bad, its ends do not know yet how slow it is. If they never asked their
    # kernel, three or four sessions would end in most runs.
    assert seen["sessions ended on a bad line"] <= 2
    assert seen["acknowledged over a bad line"] > 20
    assert seen["read over a bad line"] > 20


def test_given_a_line_that_flaps_then_nothing_grows_and_all_is_online_soon(
    seen: dict[str, Any],
) -> None:
    assert seen["online after flapping"] < 20
    for name, grown in seen["growth"].items():
        assert grown["files"] <= 10, name
        assert grown["memory"] <= 30 << 10, name
    assert seen["growth"]["edge-7"]["lines"] <= 60


@pytest.mark.parametrize("topic", ["alone", "site", "far"])
def test_what_was_acknowledged_is_there_once_and_in_order(seen: dict[str, Any], topic: str) -> None:
    kept = seen["kept"][topic]
    assert kept.pop("acknowledged") > 20
    assert kept == {"failed": [], "lost": [], "twice": 0, "in order": True, "read twice": 0}
