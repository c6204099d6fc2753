"""Whose processor time counts, and whether the cluster is here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runnel.bench.cpu import LocalDaemons, Meter, find_local
from runnel.local.cluster import ClusterDaemons
from runnel.net.address import parse_addresses
from schemas.errors import NotFoundError

PIDS = {"sc-0": 11, "spu-0": 12}


def status(**pids: int | None) -> dict[str, Any]:
    found = {**PIDS, **{name.replace("_", "-"): pid for name, pid in pids.items()}}
    rows = [{"name": name, "pid": pid} for name, pid in found.items()]
    return {
        "address": "127.0.0.1:9003",
        "dataDir": "/data",
        "etcd": [],
        "sc": rows[:1],
        "spus": rows[1:],
    }


HERE = LocalDaemons(Path("/data"), PIDS)
ELSEWHERE = LocalDaemons(Path("/data"), None)
CASES: dict[str, tuple[dict[str, Any], str, list[str], LocalDaemons | None]] = {
    "given-its-address-then-it-is-here": (status(), "127.0.0.1:9003", ["spu-0"], HERE),
    "given-another-name-of-this-host": (status(), "localhost:9003", ["spu-0"], HERE),
    "given-several-scs-then-one-is-enough": (status(), "far:1,[::1]:9003", ["spu-0"], HERE),
    "given-another-port-then-it-is-not-it": (status(), "localhost:9999", ["spu-0"], None),
    "given-another-host-then-it-is-not-it": (status(), "far:9003", ["spu-0"], None),
    "given-an-spu-elsewhere-then-without-pids": (
        status(),
        "localhost:9003",
        ["spu-0", "far"],
        ELSEWHERE,
    ),
    "given-a-stopped-sc-then-without-pids": (
        status(sc_0=None),
        "localhost:9003",
        ["spu-0"],
        ELSEWHERE,
    ),
    "given-an-spu-that-is-stopped-and-not-online-then-without-it": (
        status(spu_1=None),
        "localhost:9003",
        ["spu-0"],
        HERE,
    ),
}


@pytest.mark.parametrize(("found", "sc", "online", "expected"), CASES.values(), ids=CASES)
def test_find_local(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    found: dict[str, Any],
    sc: str,
    online: list[str],
    expected: LocalDaemons | None,
) -> None:
    monkeypatch.setenv("RUNNEL_HOME", str(tmp_path))
    monkeypatch.setattr(ClusterDaemons, "status", lambda _self: found)
    assert find_local(parse_addresses(sc), online) == expected


def test_given_no_local_cluster_then_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RUNNEL_HOME", str(tmp_path))
    with pytest.raises(NotFoundError):
        ClusterDaemons(tmp_path / "local").status()
    assert find_local(parse_addresses("localhost:9003"), []) is None


def test_meter_knows_its_own_process_and_those_it_is_given() -> None:
    meter = Meter({"me": os.getpid()})
    sum(i * i for i in range(1_000_000))
    used = meter.stop()
    assert used.client_s > 0
    assert used.daemons is not None
    assert used.total_s == used.client_s + used.daemons["me"]
    assert 0 <= used.machine <= 1


def test_given_a_daemon_that_ended_then_nothing_is_said_of_any() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        meter = Meter({"me": os.getpid(), "gone": process.pid})
        process.communicate(b"\n")
    used = meter.stop()
    assert (used.daemons, used.total_s) == (None, None)


def test_given_no_pids_then_only_the_client_counts() -> None:
    used = Meter(None).stop()
    assert (used.daemons, used.total_s) == (None, None)
