"""What runs after a restore and a backup of a local cluster whose own etcd had ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from runnel.local import metadata, offline_admin
from runnel.local.cluster import ClusterDaemons
from runnel.local.plan import ClusterPlan
from runnel.local.state import ClusterState, DataDirectory
from schemas.daemon.process import ProcessId
from schemas.errors import RunnelError, StorageFailedError

ETCD, SC, SC_AGAIN = (ProcessId(pid, "now") for pid in (1, 2, 3))
FILE = Path("backup.ndjson")


class FakeStartup:
    """Starts an etcd, and writes that down."""

    def __init__(self, directory: DataDirectory, _plan: object, state: ClusterState, _: object):
        self.started: list[ProcessId] = []
        self._directory, self._state = directory, state

    def bring_up_etcd(self) -> None:
        self.started.append(ETCD)
        self._state.processes["etcd-0"] = ETCD
        self._directory.save(self._state)


def _restore(cluster: ClusterDaemons) -> None:
    metadata.restore(cluster, FILE, lambda _: None, by="test", dry_run=False)


def _restore_in_vain(cluster: ClusterDaemons) -> None:
    with pytest.raises(StorageFailedError):
        metadata.restore(cluster, FILE, lambda _: None, by="a failure", dry_run=False)


def _look(cluster: ClusterDaemons) -> None:
    metadata.restore(cluster, FILE, lambda _: None, by="test", dry_run=True)


def _back_up(cluster: ClusterDaemons) -> None:
    metadata.back_up(cluster, FILE, lambda _: None)


@pytest.mark.parametrize(
    ("ran", "do", "runs"),
    [
        pytest.param(
            {"sc-0": SC}, _restore, {"etcd-0": ETCD, "sc-0": SC_AGAIN}, id="given-an-sc-then-both"
        ),
        pytest.param(
            {"sc-0": SC},
            _restore_in_vain,
            {"etcd-0": ETCD, "sc-0": SC_AGAIN},
            id="given-an-sc-and-a-failure-then-both",
        ),
        pytest.param({}, _restore, {}, id="given-none-then-none"),
        pytest.param({}, _restore_in_vain, {}, id="given-none-and-a-failure-then-none"),
        pytest.param({"sc-0": SC}, _look, {"sc-0": SC}, id="given-a-dry-run-then-what-ran"),
        pytest.param({"sc-0": SC}, _back_up, {"sc-0": SC}, id="given-a-backup-then-what-ran"),
    ],
)
def test_what_runs_afterwards(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ran: dict[str, ProcessId],
    do: Callable[[ClusterDaemons], None],
    runs: dict[str, ProcessId],
) -> None:
    stopped: list[ProcessId] = []

    def stop(processes: Iterable[ProcessId]) -> None:
        stopped.extend(processes)

    def alive(state: ClusterState, _data_dir: Path) -> dict[str, ProcessId]:
        return dict(state.processes)

    def restore_kv(*_: object, by: str, dry_run: bool = False, **_more: object) -> dict[str, Any]:
        if by == "a failure" and not dry_run:
            raise StorageFailedError(by)
        return {"cluster": "local"}

    def start_again(cluster: ClusterDaemons, *_: object) -> None:
        state = cluster.require()
        if "etcd-0" not in state.processes:
            raise RunnelError("no KV")
        state.processes["sc-0"] = SC_AGAIN
        cluster.directory.save(state)

    monkeypatch.setattr(metadata, "Startup", FakeStartup)
    monkeypatch.setattr(metadata, "stop", stop)
    monkeypatch.setattr(metadata, "check_ports", lambda _: None)
    monkeypatch.setattr(offline_admin, "restore_kv", restore_kv)
    monkeypatch.setattr(offline_admin, "back_up_kv", lambda *_: {})
    monkeypatch.setattr(ClusterState, "alive", alive)
    monkeypatch.setattr(ClusterDaemons, "start_again", start_again)
    cluster = ClusterDaemons(tmp_path)
    cluster.directory.save(ClusterState.of(ClusterPlan(tmp_path, kv="etcd"), dict(ran)))
    do(cluster)
    assert cluster.require().processes == runs
    # The last etcd that was started.
    assert (stopped[-1:] == [ETCD]) == ("etcd-0" not in runs)
