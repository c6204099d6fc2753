"""In which order a local cluster's daemons are started again, and what that leaves as it was."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from runnel.local import cluster as cluster_module
from runnel.local.cluster import ClusterDaemons
from runnel.local.plan import ClusterPlan, Daemon
from runnel.local.state import ClusterState
from schemas.daemon.process import ProcessId
from schemas.errors import StorageFailedError

RUNS = ProcessId(1, "now")


class FakeStartup:
    """Notes what it is to start."""

    done: list[object]

    def __init__(self, *_: object) -> None:
        self.keep_spus = False

    def bring_up(self, missing: list[Daemon]) -> None:
        assert self.keep_spus, "an SPU that the user has removed would be back"
        FakeStartup.done.append([one.name for one in missing])


@pytest.mark.parametrize(
    ("running", "order"),
    [
        pytest.param({"etcd-0", "sc-0", "sc-1"}, ["KV"], id="given-all-run-then-none-is-started"),
        pytest.param(
            {"etcd-0", "sc-0"}, ["KV", ["sc-1"]], id="given-no-sc-1-then-not-without-the-kv"
        ),
        pytest.param({"sc-0", "sc-1"}, [["etcd-0"], "KV"], id="given-no-etcd-then-that-is-first"),
    ],
)
def test_what_does_not_run_is_started_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, running: set[str], order: list[object]
) -> None:
    def alive(_state: ClusterState, _data_dir: Path) -> dict[str, ProcessId]:
        return dict.fromkeys(running, RUNS)

    def require_kv(_controllers: dict[str, Any]) -> None:
        FakeStartup.done.append("KV")

    FakeStartup.done = []
    monkeypatch.setattr(ClusterState, "alive", alive)
    monkeypatch.setattr(cluster_module, "Startup", FakeStartup)
    monkeypatch.setattr(cluster_module, "require_kv", require_kv)
    monkeypatch.setattr(cluster_module, "order_of", lambda *_: [])
    monkeypatch.setattr(cluster_module, "restart_spus", lambda *_: ["spu-0"])
    cluster = ClusterDaemons(tmp_path)
    cluster.directory.save(ClusterState.of(ClusterPlan(tmp_path, kv="etcd", scs=2), {}))
    missing = [name for step in order if isinstance(step, list) for name in step]
    assert cluster.restart(lambda _: None) == [*missing, "spu-0"]
    assert FakeStartup.done == order


def test_given_a_full_disk_then_no_sc_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(_processes: object) -> None:
        raise AssertionError("it could not be started again")

    def full(_fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(ClusterState, "alive", lambda *_: {"sc-0": RUNS})
    monkeypatch.setattr(cluster_module, "require_kv", lambda _: None)
    monkeypatch.setattr(cluster_module, "_sc_roles", lambda _: {"sc-0": "leader"})
    monkeypatch.setattr(cluster_module, "stop", stop)
    cluster = ClusterDaemons(tmp_path)
    cluster.directory.save(ClusterState.of(ClusterPlan(tmp_path), {}))
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageFailedError, match=f"^{tmp_path / 'cluster.json'} cannot be written"):
        cluster.restart(lambda _: None)
