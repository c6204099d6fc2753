"""The life of a local cluster, as its user sees it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.e2e.conftest import SQLITE_ALONE, Command
from tests.ports import free_base_port

TOPIC = """
apiVersion: runnel/v1
kind: Topic
metadata: {name: orders}
spec: {partitions: 3}
"""


def base_port_of(cluster: Command) -> int:
    """The base port of a running cluster: where its SC listens."""
    assert cluster.sc is not None
    return int(cluster.sc.rpartition(":")[2])


def test_records_survive_a_stop_and_a_start(runnel: Command, tmp_path: Path) -> None:
    base = free_base_port(runnel.home / "local", 2)
    ready = runnel("cluster", "start", "--base-port", str(base), "--spus", "2")
    assert f"SC at 127.0.0.1:{base}, 2 SPUs" in ready
    logged = [json.loads(line) for line in runnel("cluster", "logs", "sc-0").splitlines()]
    assert {"serving", "SPU connected"} <= {line["event"] for line in logged}
    (tmp_path / "orders.yaml").write_text(TOPIC)
    assert runnel("apply", "-f", str(tmp_path / "orders.yaml")) == "topic/orders created\n"
    assert runnel("apply", "-f", str(tmp_path / "orders.yaml")) == "topic/orders unchanged\n"
    runnel("wait", "topic", "orders", "--for", "provisioned")
    lines = [f"{i % 7}:record {i}" for i in range(1_000)]
    (tmp_path / "lines.txt").write_text("\n".join(lines) + "\n")
    runnel("produce", "orders", "--file", str(tmp_path / "lines.txt"), "--key-separator", ":")
    consume = ("consume", "orders", "--from-beginning", "--no-follow", "--key-separator", ":")
    assert sorted(runnel(*consume).splitlines()) == sorted(lines)
    (topic,) = runnel.json("get", "topics")["items"]
    assert topic["status"]["resolution"] == "provisioned"

    own = "etcd-0, " if runnel.kv == "etcd" else ""
    assert f"stopped {own}sc-0, spu-0, spu-1" in runnel("cluster", "stop")
    assert "no SC answers" in runnel.fails("get", "topics", code=5)
    runnel("cluster", "start")
    after = runnel(*consume).splitlines()
    assert sorted(after) == sorted(lines)
    for key in range(7):
        mine = [line for line in after if line.startswith(f"{key}:")]
        assert mine == [line for line in lines if line.startswith(f"{key}:")]


def test_start_again_changes_nothing_and_status_lists_every_daemon(cluster: Command) -> None:
    before = cluster.json("cluster", "status")
    assert "is already running" in cluster("cluster", "start")
    status = cluster.json("cluster", "status")
    assert status == before
    (sc,) = status["sc"]
    spus = [spu for spu in status["spus"] if spu["pid"] is not None]
    assert (sc["id"], sc["state"]) == (0, "running")
    assert [(spu["id"], spu["state"]) for spu in spus] == [(0, "online"), (1, "online")]
    base = base_port_of(cluster)
    assert sc["ports"] == {"public": base, "private": base + 1}
    assert spus[0]["ports"] == {"public": base + 10, "private": base + 11, "http": base + 12}
    assert all(psutil.pid_exists(row["pid"]) for row in (sc, *spus))
    logged = [json.loads(line) for line in cluster("cluster", "logs", "sc-0").splitlines()]
    assert logged
    assert all({"timestamp", "level", "process", "cause"} <= line.keys() for line in logged)
    assert "sc-0, spu-0" in cluster.fails("cluster", "logs", "spu-9", code=3)


def test_lines_of_all_daemons_are_gathered_by_time(cluster: Command) -> None:
    gathered = cluster("cluster", "logs", "--since", "1h", "-o", "json").splitlines()
    lines = [json.loads(line) for line in gathered]
    assert {"sc", "spu-0", "spu-1"} <= {line["process"] for line in lines}
    times = [line["timestamp"] for line in lines]
    assert times == sorted(times)
    (connected, *_) = [line["cause"] for line in lines if line["event"] == "SPU connected"]
    assert connected in cluster("cluster", "logs", "--cause", connected)


def test_a_request_is_traced_through_all_daemons(cluster: Command) -> None:
    cluster("create", "topic", "traced", "--partitions", "1")
    cluster("wait", "topic", "traced", "--for", "provisioned")
    events = cluster.json("get", "events", "--for", "topic/traced")["items"]
    assert (events[0]["change"], events[-1]["resolution"]) == ("created", "provisioned")
    traced = cluster("trace", events[0]["cause"], "-o", "json").splitlines()
    steps = [json.loads(line) for line in traced]
    assert {"topic/traced", "partition/traced-0"} <= {step["object"] for step in steps}
    assert any(step["process"].startswith("spu-") for step in steps)
    cluster("delete", "topic", "traced")


def test_a_killed_spu_is_started_again_and_survives_its_sc(runnel: Command) -> None:
    base = free_base_port(runnel.home / "local", 2)
    runnel("cluster", "start", "--base-port", str(base), "--spus", "2")
    before = {row["name"]: row["pid"] for row in runnel.json("cluster", "status")["spus"]}
    os.kill(before["spu-0"], signal.SIGKILL)
    after = before
    deadline = time.monotonic() + 20
    while after["spu-0"] in (None, before["spu-0"]):
        assert time.monotonic() < deadline
        after = {row["name"]: row["pid"] for row in runnel.json("cluster", "status")["spus"]}
    runnel("wait", "spu", "spu-0", "--for", "online")

    sc = runnel.json("cluster", "status")["sc"][0]["pid"]
    os.kill(sc, signal.SIGKILL)
    runnel("cluster", "start")
    status = runnel.json("cluster", "status")
    assert {row["name"]: row["pid"] for row in status["spus"]} == after, "adopted, not started"
    assert status["sc"][0]["pid"] != sc


def test_an_sc_that_nobody_wrote_down_is_found(runnel: Command) -> None:
    base = free_base_port(runnel.home / "local", 1)
    runnel("cluster", "start", "--base-port", str(base))
    state = runnel.home / "local" / "cluster.json"
    data = json.loads(state.read_text())
    pid = data["processes"].pop("sc-0")["pid"]
    state.write_text(json.dumps(data))
    assert "is already running" in runnel("cluster", "start")
    assert "sc-0" in runnel("cluster", "stop")
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == "zombie"


@pytest.mark.long
def test_a_start_waits_for_an_sc_that_another_command_has_just_started(
    runnel: Command, tmp_path: Path
) -> None:
    base = free_base_port(runnel.home / "local", 1)
    runnel("cluster", "start", "--base-port", str(base))
    (sc,) = runnel.json("cluster", "status")["sc"]
    command = psutil.Process(sc["pid"]).cmdline()
    os.kill(sc["pid"], signal.SIGKILL)
    goes = tmp_path / "goes"
    # As one whose imports take long: its process is there, and it does not listen yet.
    slow = f"import os, sys, time\nwhile not os.path.exists({str(goes)!r}): time.sleep(0.01)\n"
    slow += f"os.execv({command[0]!r}, {command!r})"
    config = str(runnel.home / "local" / "sc-0.yaml")
    with (
        (tmp_path / "sc.log").open("wb") as log,
        subprocess.Popen([sys.executable, "-c", slow, "sc", config], stdout=log, stderr=log),
        runnel.start("cluster", "start", stdout=subprocess.PIPE) as starting,
    ):
        assert starting.stdout is not None
        with pytest.raises(subprocess.TimeoutExpired):
            starting.wait(2)
        goes.touch()
        assert b"cluster is ready" in starting.stdout.read()
        assert starting.wait() == 0
        assert runnel.json("get", "topics")["items"] == []
        runnel("cluster", "stop")


@pytest.mark.long
def test_a_smaller_group_ends_empty_spus_only(runnel: Command) -> None:
    base = free_base_port(runnel.home / "local", 3)
    runnel("cluster", "start", "--base-port", str(base), "--spus", "3")
    runnel("apply", "-f", "-", stdin=(
        "{apiVersion: runnel/v1, kind: Topic, metadata: {name: here},"
        " spec: {assignment: [{id: 0, replicas: [1]}]}}"
    ))  # fmt: skip
    runnel("wait", "partition", "here-0", "--for", "online")
    group = runnel("get", "spugroup", "spu", "-o", "yaml")
    group = "\n".join(line for line in group.splitlines() if "resourceVersion" not in line)
    runnel("apply", "-f", "-", stdin=group.replace("replicas: 3", "replicas: 1"))
    runnel("wait", "spu", "spu-2", "--for", "deleted")
    runnel("wait", "spu", "spu-1", "--for", "draining")
    assert "spu-1 is removed once its replicas have moved: here-0" in runnel(
        "get", "spugroup", "spu", "-o", "yaml"
    )
    runnel("create", "topic", "elsewhere", "--partitions", "4")
    partitions = runnel.json("get", "partitions")["items"]
    assert {p["spec"]["replicas"][0] for p in partitions} == {0, 1}
    assert [p["metadata"]["name"] for p in partitions if p["spec"]["replicas"] == [1]] == ["here-0"]
    runnel("delete", "topic", "here")
    runnel("wait", "spu", "spu-1", "--for", "deleted")
    assert [row["name"] for row in runnel.json("cluster", "status")["spus"]] == ["spu-0"]
    assert "belongs to SpuGroup spu" in runnel.fails("delete", "spu", "spu-0", code=4)


def test_more_spus_join_a_running_cluster_and_fewer_are_refused(runnel: Command) -> None:
    base = free_base_port(runnel.home / "local", 2)
    runnel("cluster", "start", "--base-port", str(base))
    runnel("cluster", "start", "--spus", "2")
    assert [s["state"] for s in runnel.json("cluster", "status")["spus"]] == ["online", "online"]
    refused = runnel.fails("cluster", "start", "--spus", "1", code=4)
    assert "runnel scale spugroup spu --replicas 1" in refused


def test_port_in_use_is_named_and_nothing_is_left_running(runnel: Command) -> None:
    base = free_base_port(runnel.home / "local", 1)
    script = (
        "import socket, sys; s = socket.socket(); s.bind(('127.0.0.1', int(sys.argv[1])));"
        "s.listen(); print('bound', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(base + 11)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as squatter:
        assert squatter.stdout is not None
        squatter.stdout.readline()
        refused = runnel.fails("cluster", "start", "--base-port", str(base), code=4)
        squatter.communicate()
    assert f"port {base + 11} (spu-0, private) is in use" in refused
    assert "--base-port" in refused
    assert not (runnel.home / "local").exists()


@SQLITE_ALONE
def test_a_first_start_that_fails_leaves_only_the_log_that_it_names(runnel: Command) -> None:
    local = runnel.home / "local"
    base = free_base_port(local, 1)
    # Its SC cannot start, because its store is no database.
    local.mkdir(parents=True)
    (local / "sc-0").mkdir()
    (local / "sc-0" / "kv.db").write_text("no database " * 1000)
    said = runnel.fails("cluster", "start", "--base-port", str(base), code=1)
    log = local / "logs" / "sc-0.log"
    assert f"Its log is {log}" in said
    assert sorted(str(file.relative_to(local)) for file in local.rglob("*") if file.is_file()) == [
        "lock",
        "logs/sc-0.log",
        "sc-0/kv.db",
        "sc-0/kv.db.lock",
    ]
    runnel("cluster", "delete", "--yes")
    assert not local.exists()


@pytest.mark.long
def test_delete_asks_and_removes_everything(runnel: Command) -> None:
    base = free_base_port(runnel.home / "local", 1)
    runnel("cluster", "start", "--base-port", str(base))
    pids = [row["pid"] for part in ("sc", "spus") for row in runnel.json("cluster", "status")[part]]
    assert "--yes" in runnel.fails("cluster", "delete", code=2)
    runnel("cluster", "delete", "--yes")
    assert not (runnel.home / "local").exists()
    for pid in pids:
        assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == "zombie"
    assert "there is no cluster" in runnel.fails("cluster", "status", code=3)


def test_files_of_somebody_else_are_never_touched(runnel: Command, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "thesis.txt").write_text("mine")
    refused = runnel.fails("cluster", "start", "--data-dir", str(project), code=4)
    assert "'thesis.txt'" in refused
    (project / "thesis.txt").unlink()
    base = free_base_port(project, 1)
    runnel("cluster", "start", "--data-dir", str(project), "--base-port", str(base))
    (project / "thesis.txt").write_text("mine")
    runnel("cluster", "delete", "--yes", "--data-dir", str(project))
    assert [f.name for f in project.iterdir()] == ["thesis.txt"]


@pytest.mark.long
def test_a_restart_keeps_what_users_wrote_and_waits_for_nobody_else(runnel: Command) -> None:
    base = free_base_port(runnel.home / "local", 1)
    runnel("cluster", "start", "--base-port", str(base))
    text = runnel("get", "spugroup", "spu", "-o", "yaml")
    text = "\n".join(line for line in text.splitlines() if "resourceVersion" not in line)
    runnel("apply", "-f", "-", stdin=text.replace("template:", "template:\n    rack: plant-a"))
    elsewhere = "{apiVersion: runnel/v1, kind: Spu, metadata: {name: edge-7}, spec: {spuId: 7}}"
    runnel("apply", "-f", "-", stdin=elsewhere)
    away = (
        "{apiVersion: runnel/v1, kind: Topic, metadata: {name: away},"
        " spec: {assignment: [{id: 0, replicas: [7]}]}}"
    )
    runnel("apply", "-f", "-", stdin=away)
    runnel("wait", "topic", "away", "--for", "provisioned")
    runnel("cluster", "stop")
    runnel("cluster", "start")
    (spu,) = (s for s in runnel.json("get", "spus")["items"] if s["metadata"]["name"] == "spu-0")
    assert spu["spec"]["rack"] == "plant-a"
    runnel("create", "topic", "here")


@pytest.mark.long
def test_a_daemon_that_cannot_start_says_why(runnel: Command) -> None:
    base = free_base_port(runnel.home / "local", 1)
    runnel("cluster", "start", "--base-port", str(base))
    runnel("cluster", "stop")
    (runnel.home / "local" / "spus" / "spu-0" / "identity.json").write_text("{")
    said = runnel.fails("cluster", "start", code=1)
    assert "spu-0: its process ended" in said
    assert "the SPU cannot run" in said
    assert "identity.json" in said
    assert len(said.splitlines()) <= 4
    assert all(row["state"] == "stopped" for row in runnel.json("cluster", "status")["spus"])


@pytest.mark.long
def test_one_damaged_spu_does_not_take_the_others_away(runnel: Command) -> None:
    base = free_base_port(runnel.home / "local", 3)
    runnel("cluster", "start", "--base-port", str(base), "--spus", "3")
    runnel("create", "topic", "r3", "--replication-factor", "3")
    runnel("produce", "r3", stdin="before\n")
    runnel("cluster", "stop")
    spus = runnel.home / "local" / "spus"
    (spus / "spu-2" / "identity.json").write_text("")
    for _ in range(2):
        said = runnel.fails("cluster", "start", code=1)
        assert "1 of 3 SPUs did not come online" in said
        assert "spu-2: its process ended" in said
        assert "identity.json" in said
        assert "logs/spu-2.log" in said.replace("\n", "")
    states = {row["name"]: row["state"] for row in runnel.json("cluster", "status")["spus"]}
    assert (states["spu-0"], states["spu-1"]) == ("online", "online")
    runnel("produce", "r3", stdin="meanwhile\n")
    runnel("cluster", "stop")
    (spus / "spu-2").rename(runnel.home / "lost")
    assert "3 SPUs" in runnel("cluster", "start")
    read = runnel("consume", "r3", "--from-beginning", "--no-follow")
    assert read.split() == ["before", "meanwhile"]
    assert "is already running" in runnel("cluster", "start")


@pytest.mark.parametrize("daemon", ["sc-0", "spu-0"])
def test_second_process_on_the_same_data_says_who_has_it(
    cluster: Command, tmp_path: Path, daemon: str
) -> None:
    base = base_port_of(cluster)
    if (cluster.kv, daemon) == ("etcd", "sc-0"):
        # Several SCs may share an etcd: only the ports are one process's own.
        same = str(cluster.home / "local" / "sc-0.yaml")
        refused = cluster.fails("sc", "run", "-c", same, code=1)
        assert f"127.0.0.1:{base}: Address already in use" in refused
        assert cluster("create", "topic", "still-in-office")
        return
    status = cluster.json("cluster", "status")
    pid = {row["name"]: row["pid"] for part in ("sc", "spus") for row in status[part]}[daemon]
    folder = cluster.home / "local"
    config = next(
        f for f in (folder / f"{daemon}.yaml", folder / "spus" / f"{daemon}.yaml") if f.exists()
    )
    text = config.read_text()
    for port in (base, base + 1, base + 12):
        text = text.replace(f"port: {port}\n", "port: 0\n")
    copy = tmp_path / "copy.yaml"
    copy.write_text(text)
    refused = cluster.fails(daemon.split("-")[0], "run", "-c", str(copy), code=1)
    assert "in use by" in refused
    assert str(pid) in refused


def test_spu_that_is_not_registered_is_told_how_to_register(
    cluster: Command, tmp_path: Path
) -> None:
    config = {
        "spuId": 77,
        "logDir": str(tmp_path / "spu-77"),
        "controller": f"127.0.0.1:{base_port_of(cluster) + 1}",
        "public": {"port": 0},
        "private": {"port": 0},
        "http": {"port": 0},
    }
    (tmp_path / "spu.yaml").write_text(json.dumps(config))
    spu = cluster.start("spu", "run", "-c", str(tmp_path / "spu.yaml"), stderr=subprocess.PIPE)
    try:
        assert spu.stderr is not None
        for line in spu.stderr:
            if b"not registered" in line:
                assert b"spuId: 77" in line
                break
        else:
            pytest.fail("the SPU did not say that it is not registered")
        manifest = "{apiVersion: runnel/v1, kind: Spu, metadata: {name: late}, spec: {spuId: 77}}"
        cluster("apply", "-f", "-", stdin=manifest)
        cluster("wait", "spu", "late", "--for", "online", "--timeout", "20s")
    finally:
        spu.terminate()
        spu.communicate()
    assert spu.returncode == 0
    cluster("delete", "spu", "late")
