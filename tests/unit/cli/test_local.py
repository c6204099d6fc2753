"""The plan of a local cluster, the profile, and processes recognised by pid and start time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from runnel.local.cluster import LocalCluster
from runnel.local.plan import ClusterPlan
from runnel.local.processes import ProcessId, is_alive, started_at, stop
from runnel.profile import Profile, forget_profile, load_profile, save_profile
from schemas.errors import ConflictError, InvalidRequestError, NotFoundError


def test_ports_follow_the_rule() -> None:
    plan = ClusterPlan(Path("/d"), base_port=19_000, spus=2)
    assert [d.ports for d in plan.daemons] == [
        {"public": 19_000, "private": 19_001},
        {"public": 19_010, "private": 19_011, "http": 19_012},
        {"public": 19_013, "private": 19_014, "http": 19_015},
    ]
    assert plan.spu_object(1).spec.public_endpoint.port == 19_013


@pytest.mark.parametrize(
    ("base_port", "spus", "kv"),
    [(80, 1, "sqlite"), (65_530, 1, "sqlite"), (9_003, 0, "sqlite"), (9_003, 1, "etcd")],
)
def test_impossible_plans_are_refused(base_port: int, spus: int, kv: str) -> None:
    with pytest.raises(InvalidRequestError, match="--"):
        ClusterPlan(Path("/d"), base_port=base_port, spus=spus, kv=kv)


def test_profile_is_kept_and_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNNEL_HOME", str(tmp_path / "home"))
    assert load_profile() == Profile()
    save_profile(Profile("host:1", str(tmp_path / "a")))
    assert load_profile() == Profile("host:1", str(tmp_path / "a"))
    forget_profile(tmp_path / "b")
    assert load_profile().sc == "host:1"
    forget_profile(tmp_path / "a")
    assert load_profile() == Profile()
    (tmp_path / "home" / "profile.json").write_text("{")
    with pytest.raises(InvalidRequestError, match="delete it"):
        load_profile()


def test_plan_remembers_what_was_started(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path)
    assert cluster.plan(None, None, None).spus == 1
    (tmp_path / "cluster.json").write_text(
        '{"base_port": 19000, "spus": 3, "kv": "sqlite", "processes": {}}'
    )
    again = cluster.plan(None, None, None)
    assert (again.base_port, again.spus) == (19_000, 3)
    assert cluster.plan(4, None, None).spus == 4
    with pytest.raises(ConflictError, match="has 3 SPUs with data"):
        cluster.plan(2, None, None)
    (tmp_path / "cluster.json").write_text("{}")
    with pytest.raises(InvalidRequestError, match="is damaged"):
        cluster.load()


def test_nothing_to_stop_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no cluster"):
        LocalCluster(tmp_path).stop()


def test_a_pid_of_somebody_else_is_never_signalled() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
    ) as process:
        started = started_at(process.pid)
        assert is_alive(ProcessId(process.pid, started))
        stranger = ProcessId(process.pid, started + "0")
        assert not is_alive(stranger)
        assert stop([stranger]) == []
        assert process.poll() is None
        assert stop([ProcessId(process.pid, started)]) == []
        assert process.wait(10) != 0
    assert not is_alive(ProcessId(process.pid, started))
