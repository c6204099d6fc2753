"""Which processes are those of a local cluster, and which of them a start that fails leaves."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from runnel.local import cluster as cluster_module
from runnel.local.cluster import ClusterDaemons
from runnel.local.plan import ClusterPlan, Daemon
from runnel.local.starting import Startup
from runnel.local.state import ClusterState, DataDirectory
from schemas.daemon.process import ProcessId, started_at
from schemas.errors import RunnelError
from tests.ports import free_base_port


@contextmanager
def spu(directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A stand-in for an SPU that was started in this directory."""
    config = directory / "spus" / "spu-0.yaml"
    with subprocess.Popen(
        ["/bin/sh", "-c", "read line", "-m", "spu", "-c", str(config)], stdin=subprocess.PIPE
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def write_down(directory: Path, name: str, process: subprocess.Popen[bytes]) -> None:
    file = directory / "spus" / f"{name}.process.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    known = asdict(ProcessId(process.pid, started_at(process.pid)))
    file.write_text(json.dumps({"spuId": 0, "process": known, "ports": {}}))


def test_given_a_copy_whose_start_fails_then_spus_of_the_original_run_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "copy"
    with spu(tmp_path / "original") as theirs, spu(copy) as ours:

        class FailingStartup:
            """Starts an SPU, and fails."""

            def __init__(self, *_: object) -> None:
                self.started: list[ProcessId] = []

            def bring_up(self, _missing: list[Daemon]) -> None:
                write_down(copy, "spu-1", ours)
                raise RunnelError("no SC")

        monkeypatch.setattr(cluster_module, "Startup", FailingStartup)
        write_down(copy, "spu-0", theirs)
        cluster = ClusterDaemons(copy)
        plan = ClusterPlan(copy, base_port=free_base_port(tmp_path, 2), spus=2)
        cluster.directory.save(ClusterState.of(plan, {}))
        with pytest.raises(RunnelError, match="no SC"):
            cluster.start(plan, lambda _: None)
        assert ours.wait(10) == -15
        assert theirs.poll() is None


def test_given_other_ports_than_before_then_the_start_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = free_base_port(tmp_path, 1)
    cluster = ClusterDaemons(tmp_path / "data")
    plan = ClusterPlan(cluster.data_dir, base_port=base, spus=1, with_dashboard=False)
    old = replace(plan, base_port=base + 100)
    monkeypatch.setattr(Startup, "bring_up", lambda *_: None)
    cluster.directory.path.mkdir()
    for before, said in ((plan, None), (old, f"from {base + 100} on, now from {base} on")):
        cluster.directory.save(ClusterState.of(before, {}))
        assert cluster.start(plan, lambda _: None, remember=False)
        if said is None:
            assert cluster.notes == []
        else:
            (note,) = cluster.notes
            assert said in note
            assert note.endswith(f"127.0.0.1:{base + 100}")


@pytest.mark.parametrize("written_down", [True, False])
def test_given_a_link_to_a_directory_then_its_spus_are_found(
    tmp_path: Path, written_down: bool
) -> None:
    real, link = tmp_path / "real", DataDirectory(tmp_path / "link")
    link.path.symlink_to(real)
    with spu(real) as process:
        if written_down:
            write_down(real, "spu-0", process)
        (found,) = link.spus()
        assert (found.name, found.process.pid) == ("spu-0", process.pid)
        assert link.runs(found)
