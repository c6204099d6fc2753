"""A local cluster whose directory is on a disk without room is stopped and deleted all the same."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from runnel.local import metadata, offline_admin, supervisor
from runnel.local.cluster import ClusterDaemons
from runnel.local.metadata import migrate
from runnel.local.plan import ClusterPlan
from runnel.local.state import ClusterState, is_ours
from runnel.local.supervisor import Order
from schemas.daemon.process import ProcessId, started_at
from schemas.errors import StorageFailedError
from tests.ports import free_base_port

FULL = "cannot be written: No space left on device; make room on its disk, and repeat the command"


def fill(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on no small file can be written."""

    def full(_fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterDaemons:
    monkeypatch.setenv("RUNNEL_HOME", str(tmp_path / "home"))
    return ClusterDaemons(tmp_path / "data")


@pytest.fixture
def controller(cluster: ClusterDaemons) -> Iterator[subprocess.Popen[bytes]]:
    """A stand-in for the SC of the cluster, which is written down."""
    config = cluster.directory.config_file("sc-0")
    with subprocess.Popen(
        ["/bin/sh", "-c", "read line", "-m", "sc", "-c", str(config)], stdin=subprocess.PIPE
    ) as process:
        known = ProcessId(process.pid, started_at(process.pid))
        save(cluster, {"sc-0": known})
        try:
            yield process
        finally:
            process.kill()


def save(cluster: ClusterDaemons, processes: dict[str, ProcessId]) -> ClusterPlan:
    plan = ClusterPlan(cluster.data_dir, base_port=free_base_port(cluster.data_dir, 1))
    cluster.directory.save(ClusterState.of(plan, processes))
    return plan


def test_a_stop_stops_all_and_says_what_is_not_written(
    cluster: ClusterDaemons,
    controller: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = cluster.data_dir / "cluster.json"
    with monkeypatch.context() as patch:
        fill(patch)
        with pytest.raises(StorageFailedError) as failed:
            cluster.stop()
        assert failed.value.message == f"sc-0 stopped, but {state} {FULL}"
        assert controller.wait(10) == -15
        assert cluster.directory.names() == {"cluster.json", "lock"}
        with pytest.raises(StorageFailedError, match=f"^nothing runs, but {state} "):
            cluster.stop()
    assert cluster.stop() == []
    assert cluster.require().processes == {}


def test_a_delete_makes_room(
    cluster: ClusterDaemons,
    controller: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fill(monkeypatch)
    cluster.delete()
    assert controller.wait(10) == -15
    assert not cluster.data_dir.exists()


@pytest.mark.parametrize("first", [True, False], ids=["first", "again"])
def test_a_start_names_the_file(
    cluster: ClusterDaemons, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    plan = ClusterPlan(cluster.data_dir, base_port=free_base_port(cluster.data_dir, 1))
    left = {"lock"}
    if not first:
        save(cluster, {})
        left |= {"cluster.json", "sc-0"}
    fill(monkeypatch)
    with pytest.raises(StorageFailedError) as failed:
        cluster.start(plan, lambda _: None)
    assert failed.value.message == f"{cluster.directory.config_file('sc-0')} {FULL}"
    if first:
        assert not cluster.data_dir.exists()
    else:
        assert cluster.directory.names() == left


def test_a_directory_that_refuses_writes_is_not_called_full(
    cluster: ClusterDaemons, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_fd: int) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(StorageFailedError, match="Read-only file system; mend that, and repeat"):
        save(cluster, {})


@pytest.mark.parametrize("name", ["cluster.tmp", "sc-0.tmp", "etcd-0.tmp", "dashboard.tmp"])
def test_what_a_killed_command_leaves_is_of_the_cluster(name: str) -> None:
    assert is_ours(name)


class _FakeStartup:
    def __init__(self, *_: object) -> None:
        self.started: list[ProcessId] = []

    def bring_up_etcd(self) -> None:
        pass


def _migrate(cluster: ClusterDaemons) -> None:
    migrate(cluster, "etcd", lambda _: None)


def _restore(cluster: ClusterDaemons) -> None:
    with metadata._started_kv(cluster, lambda _: None):
        raise StorageFailedError("the store is full")


@pytest.mark.parametrize(
    ("kv", "do", "again"), [("sqlite", _migrate, ["sc-0"]), ("etcd", _restore, [])]
)
def test_what_ran_before_a_move_runs_after_it_has_failed(
    cluster: ClusterDaemons,
    monkeypatch: pytest.MonkeyPatch,
    kv: str,
    do: Callable[[ClusterDaemons], None],
    again: list[str],
) -> None:
    started: list[str] = []

    def inspect_kv(*_: object) -> dict[str, Any]:
        raise StorageFailedError("the store is full")

    def stop(_processes: Iterable[ProcessId]) -> None:
        pass

    monkeypatch.setattr(metadata, "Startup", _FakeStartup)
    monkeypatch.setattr(metadata, "stop", stop)
    monkeypatch.setattr(metadata, "check_ports", lambda _: None)
    monkeypatch.setattr(offline_admin, "inspect_kv", inspect_kv)
    monkeypatch.setattr(ClusterState, "alive", lambda *_: {"sc-0": ProcessId(1, "now")})
    monkeypatch.setattr(ClusterDaemons, "start_again", lambda *_: started.append("sc-0"))
    plan = ClusterPlan(cluster.data_dir, kv=kv)
    cluster.directory.save(ClusterState.of(plan, {}))
    fill(monkeypatch)
    with pytest.raises(StorageFailedError, match=r"^the store is full$"):
        do(cluster)
    assert started == again


def test_a_program_hears_why_its_cluster_did_not_start(cluster: ClusterDaemons) -> None:
    class FullCluster:
        data_dir = cluster.data_dir

        def load(self) -> None:
            pass

        def plan(self, *_: object, dashboard: bool) -> None:
            pass

        def start(self, *_: object, remember: bool) -> None:
            raise StorageFailedError("sc-0.yaml")

        def stop(self) -> None:
            raise StorageFailedError("cluster.json")

    order = Order(str(cluster.data_dir), False, 1, 24_000, None, None)
    with pytest.raises(StorageFailedError, match=r"^sc-0\.yaml$"):
        supervisor._run(cast("ClusterDaemons", FullCluster()), order)
