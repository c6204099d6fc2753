"""A cluster that outgrows SQLite: its objects move to etcd while its SPUs serve."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import runnel as library
from tests.contract.kv.etcd_server import (
    Member,
    require_client,
    require_etcd,
    single_member,
)
from tests.e2e.conftest import Command
from tests.ports import free_base_port

require_client()


@pytest.fixture
def runnel(tmp_path: Path) -> Iterator[Command]:
    """On SQLite, with an etcd program to move to."""
    command = Command(tmp_path / "home", "sqlite", etcd=require_etcd())
    base = free_base_port(command.home / "local", 2)
    command("cluster", "start", "--spus", "2", "--base-port", str(base))
    command("create", "topic", "orders", "--partitions", "4")
    command.sc = f"127.0.0.1:{base}"
    yield command
    command.run("cluster", "stop")


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Member]:
    with single_member(require_etcd(), tmp_path / "etcd") as member:
        yield member


@pytest.mark.slow
def test_producers_go_on_while_the_objects_move(runnel: Command) -> None:
    enough, stop = threading.Event(), threading.Event()
    sent: list[library.Delivery] = []

    def produce() -> None:
        with library.connect(str(runnel.sc)) as cluster, cluster.producer("orders") as producer:
            while not stop.is_set():
                sent.append(producer.send(str(len(sent)).encode()))
                if len(sent) % 500 == 0:
                    producer.flush()
                    enough.set()

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        assert enough.wait(30)
        pids = {row["name"]: row["pid"] for row in runnel.json("cluster", "status")["spus"]}
        before = runnel.json("get", "topics")["items"]
        assert "read back and equal" in runnel("cluster", "migrate", "--kv", "etcd")
        status = runnel.json("cluster", "status")
        assert {row["name"]: row["pid"] for row in status["spus"]} == pids
        assert status["kv"] == "etcd"
        assert [row["state"] for row in status["etcd"]] == ["running"]
        enough.clear()
        assert enough.wait(30)
    finally:
        stop.set()
        thread.join()
    (was,), (now,) = before, runnel.json("get", "topics")["items"]
    assert {**now["metadata"], "resourceVersion": ""} == {**was["metadata"], "resourceVersion": ""}
    assert (now["spec"], now["status"]) == (was["spec"], was["status"])
    assert int(now["metadata"]["resourceVersion"]) > int(was["metadata"]["resourceVersion"])
    everything = runnel("consume", "orders", "--from-beginning", "--no-follow").split()
    assert sorted(map(int, everything)) == list(range(len(sent)))
    refused = runnel.fails("cluster", "start", "--kv", "sqlite", code=4)
    assert "are in etcd; move them first: runnel cluster migrate --kv sqlite" in refused
    runnel("cluster", "stop")
    runnel("cluster", "start")
    runnel("create", "topic", "after")
    runnel("cluster", "delete", "--yes")
    assert not (runnel.home / "local").exists()


@pytest.mark.slow
def test_old_store_is_not_started_again(runnel: Command) -> None:
    runnel("cluster", "stop")
    old = (runnel.home / "local" / "sc-0.yaml").read_text()
    runnel("cluster", "migrate", "--kv", "etcd")
    stale = runnel.home / "stale.yaml"
    stale.write_text(old)
    said = runnel.fails("sc", "run", "-c", str(stale), code=1)
    assert "was moved to etcd://127.0.0.1:" in said
    runnel("cluster", "start")
    assert [t["metadata"]["name"] for t in runnel.json("get", "topics")["items"]] == ["orders"]
    runnel("cluster", "migrate", "--kv", "sqlite")
    assert runnel.json("cluster", "status")["etcd"] == []
    runnel("wait", "topic", "orders", "--for", "provisioned")


@pytest.mark.slow
def test_an_etcd_of_ones_own_is_shared_by_name_and_left_clean(
    runnel: Command, etcd: Member, tmp_path: Path
) -> None:
    url = f"etcd://{etcd.endpoint}"
    runnel("cluster", "migrate", "--kv", url)
    assert runnel.json("cluster", "status")["kv"] == url
    second = Command(tmp_path / "second", url)
    base = str(free_base_port(second.home / "local", 1))
    refused = second.fails("cluster", "start", "--base-port", base, code=4)
    assert "holds a cluster 'local' already" in refused
    assert "--name" in refused
    try:
        second("cluster", "start", "--base-port", base, "--name", "second")
        assert second.json("get", "topics")["items"] == []
        assert len(runnel.json("get", "topics")["items"]) == 1
        runnel("cluster", "delete", "--yes")
        assert [s["metadata"]["name"] for s in second.json("get", "spus")["items"]] == ["spu-0"]
        etcd.kill()
        said = second.fails("cluster", "delete", "--yes", code=5)
        assert "--keep-objects" in said
        second("cluster", "delete", "--yes", "--keep-objects")
    finally:
        second.run("cluster", "stop")
    etcd.start()
    etcd.wait_healthy()
    third = Command(tmp_path / "third", url)
    base = str(free_base_port(third.home / "local", 1))
    assert "'second' already" in third.fails(
        "cluster", "start", "--base-port", base, "--name", "second", code=4
    )
    third("cluster", "start", "--base-port", base)
    third("cluster", "delete", "--yes")


@pytest.mark.slow
def test_a_move_that_cannot_be_leaves_the_cluster_running(runnel: Command, etcd: Member) -> None:
    (elsewhere, copy) = (f"sqlite:{runnel.home / name}.db" for name in ("elsewhere", "copy"))
    said = runnel.fails(
        "cluster", "migrate", "--from", elsewhere, "--kv", copy, "--name", "x", code=3
    )
    assert f"{elsewhere} holds no cluster 'x'" in said
    etcd.kill()
    said = runnel.fails("cluster", "migrate", "--kv", f"etcd://{etcd.endpoint}", code=5)
    assert etcd.endpoint in said
    status = runnel.json("cluster", "status")
    assert (status["kv"], status["sc"][0]["state"]) == ("sqlite", "running")
    runnel("create", "topic", "still-here")
    assert "sqlite already" in runnel.fails("cluster", "migrate", "--kv", "sqlite", code=2)


@pytest.mark.slow
@pytest.mark.parametrize("delay_s", [0.7, 1.5])
def test_a_move_killed_at_any_time_is_ended_by_repeating_it(
    runnel: Command, delay_s: float
) -> None:
    for i in range(20):
        runnel("create", "topic", f"t{i:02}", "--partitions", "8")
    with runnel.start("cluster", "migrate", "--kv", "etcd", start_new_session=True) as moving:
        time.sleep(delay_s)
        # The process that moves dies as well; an etcd that was started lives on.
        os.killpg(moving.pid, signal.SIGKILL)
    again = runnel.run("cluster", "migrate", "--kv", "etcd")
    assert again.returncode == 0 or b"are in etcd already" in again.stderr
    runnel("cluster", "start")
    assert len(runnel.json("get", "topics")["items"]) == 21
    runnel("wait", "topic", "t00", "--for", "provisioned")
    status = runnel.json("cluster", "status")
    assert status["kv"] == "etcd"
    assert [row["state"] for part in ("etcd", "sc") for row in status[part]] == ["running"] * 2
