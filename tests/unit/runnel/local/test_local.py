"""The plan of a local cluster, what it remembers, and the profile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from runnel.local.cluster import ClusterDaemons
from runnel.local.etcd import find_etcd, warning_about
from runnel.local.plan import ClusterPlan
from runnel.local.state import ClusterState, DataDirectory
from schemas.errors import ConflictError, InvalidRequestError, NotFoundError


def test_ports_follow_the_rule() -> None:
    plan = ClusterPlan(Path("/d"), base_port=19_000, spus=2, kv="etcd")
    assert {d.name: d.ports for d in plan.daemons} == {
        "etcd-0": {"client": 19_008, "peer": 19_009},
        "sc-0": {"public": 19_000, "private": 19_001},
    }
    assert plan.spu_ports(1) == {"public": 19_013, "private": 19_014, "http": 19_015}
    # The SC counts the ports of a group's SPUs in the same way.
    group = plan.spu_group.with_metadata(uid="u")
    assert group.spec.replicas == 2
    assert group.spec.template.public_endpoint.port == 19_010
    assert group.spec.template.private_endpoint.port == 19_011


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ({"base_port": 80}, "--base-port"),
        ({"base_port": 65_530}, "--base-port"),
        ({"spus": -1}, "--spus"),
        ({"kv": "consul"}, "--kv"),
        ({"kv": "sqlite:elsewhere.db"}, "--kv"),
        ({"cluster": "a/b"}, "--name"),
    ],
)
def test_impossible_plans_are_refused(wish: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequestError, match=said):
        ClusterPlan(Path("/d"), **wish)


@pytest.mark.parametrize(
    ("kv", "url", "first"),
    [
        ("sqlite", "sqlite:/d/sc-0/kv.db", "sc-0"),
        ("etcd", "etcd://127.0.0.1:19008", "etcd-0"),
        ("etcd://u:p@h1,h2:1?ca=/c", "etcd://u:p@h1,h2:1?ca=/c", "sc-0"),
    ],
)
def test_kv_decides_the_url_and_what_starts_first(kv: str, url: str, first: str) -> None:
    plan = ClusterPlan(Path("/d"), base_port=19_000, kv=kv)
    assert plan.kv_url == url == plan.sc.config["kv"]
    assert plan.daemons[0].name == first
    ports = [port for daemon in plan.daemons for port in daemon.ports.values()]
    assert len(set(ports)) == len(ports)


def test_plan_remembers_what_was_started(tmp_path: Path) -> None:
    cluster = ClusterDaemons(tmp_path)
    assert cluster.plan().spus == 1
    (tmp_path / "cluster.json").write_text(
        '{"base_port": 19000, "spus": 3, "kv": "sqlite", "processes": {}}'
    )
    again = cluster.plan()
    assert (again.base_port, again.spus) == (19_000, 3)
    assert cluster.plan(4).spus == 4
    for wish, said in (
        ({"spus": 2}, "had 3 SPUs when it was started last"),
        ({"kv": "etcd"}, "runnel cluster migrate --kv etcd"),
        ({"name": "two"}, "is called 'local'"),
    ):
        with pytest.raises(ConflictError, match=said):
            cluster.plan(**wish)
    (tmp_path / "cluster.json").write_text("{}")
    with pytest.raises(InvalidRequestError, match="is damaged"):
        cluster.load()


def test_a_password_is_for_this_user_only(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    directory.save(ClusterState(kv="etcd://u:secret@host"))
    assert (tmp_path / "cluster.json").stat().st_mode & 0o077 == 0
    assert directory.load() == ClusterState(kv="etcd://u:secret@host")


def test_no_etcd_to_start_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "etcd").write_text("#!/bin/sh\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(NotFoundError, match=r"RUNNEL_ETCD.*--kv etcd://HOST:PORT"):
        find_etcd()
    monkeypatch.setenv("RUNNEL_ETCD", str(tmp_path / "etcd"))
    with pytest.raises(NotFoundError, match="is not an etcd program"):
        find_etcd()


@pytest.mark.parametrize(
    ("version", "warned"),
    [("3.4.23", True), ("3.5.1", True), ("3.5.6", True), ("3.5.16", False), ("3.6.0", False)],
)
def test_versions_with_known_faults_are_warned_of(
    tmp_path: Path, version: str, warned: bool
) -> None:
    program = tmp_path / "etcd"
    program.write_text(f"#!/bin/sh\necho 'etcd Version: {version}'\n")
    program.chmod(0o755)
    assert (warning_about(program) is not None) == warned


def test_nothing_to_stop_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no cluster"):
        ClusterDaemons(tmp_path).stop()
