"""A real Prometheus scrapes a real cluster: each alert that is shipped fires when its cause is
made, and stops when the cause is gone.

The rules are those of ``examples/monitoring``, but an alert need not last for minutes, and rates
are of seconds. `tests/integration/monitoring` holds the times as they are shipped.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import yaml

import runnel as library
from sc.kv import open_kv
from sc.kv.interface import Delete, Put
from schemas.errors import RunnelError
from schemas.objects.keys import ClusterKeys
from tests.chaos.replication.spus import SPUS, Fleet
from tests.chaos.replication.test_disks import flip
from tests.contract.kv.etcd_server import Member, require_client, require_etcd, single_member
from tests.e2e.conftest import Command
from tests.integration.monitoring.prometheus_server import Prometheus, prometheus
from tests.integration.monitoring.test_alerts import ALERTS, shipped

require_client()

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(600)]

#: In every SPU: where this file is, an fsync takes long. A disk like that cannot be had otherwise.
SLOW_DISK = """
import os, time
sync = os.fdatasync
def slow(fd):
    if os.path.exists({flag!r}):
        time.sleep(0.7)
    sync(fd)
os.fdatasync = slow
"""
#: One replica on each SPU, all replicas, and all replicas of which none may be missing.
TOPICS = {
    "single": ("--partitions", "3"),
    "replicated": ("--replication-factor", "3"),
    "strict": ("--replication-factor", "3", "--min-in-sync-replicas", "3"),
}


class Scene:
    """The cluster, the etcd below it, and the Prometheus beside it."""

    def __init__(
        self,
        fleet: Fleet,
        etcd: Member,
        server: Prometheus,
        slow_disk: Path,
        dashboard: subprocess.Popen[bytes],
    ) -> None:
        self.dashboard = dashboard
        self.fleet = fleet
        self.etcd = etcd
        self.server = server
        self.slow_disk = slow_disk
        self.fired: set[str] = set()

    def fires(self, *alerts: str, within_s: float = 60.0) -> None:
        """Wait until exactly these alerts fire."""
        deadline = time.monotonic() + within_s
        while (firing := self.server.firing()) != set(alerts):
            assert time.monotonic() < deadline, f"{sorted(alerts)} are due, {sorted(firing)} fire"
            time.sleep(0.2)
        self.fired |= firing

    def is_quiet(self) -> None:
        self.fires(within_s=90.0)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    slow_disk, site = tmp_path / "slow", tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(SLOW_DISK.format(flag=str(slow_disk)))
    monkeypatch.setenv("PYTHONPATH", str(site))
    with single_member(require_etcd(), tmp_path / "etcd") as etcd:
        command = Command(tmp_path / "home", kv=f"etcd://{etcd.endpoint}")
        command.home.mkdir()
        fleet = Fleet(command, settings="storageSize: 24Mi\nscrubPeriod: 5s")
        try:
            fleet.start()
            # Each SPU is to lead a partition that nobody else holds.
            fleet.until(lambda: online(fleet) == SPUS, "all SPUs are online")
            for topic, options in TOPICS.items():
                command("create", "topic", topic, *options)
            fleet.until(lambda: fleet.is_whole("strict"), "the topics are replicated")
            with (
                dashboard(fleet) as (served, port),
                prometheus(configuration(tmp_path / "prometheus", fleet, port)) as server,
            ):
                yield Scene(fleet, etcd, server, slow_disk, served)
        finally:
            etcd.resume()
            fleet.stop()


def online(fleet: Fleet) -> int:
    """How many SPUs are online."""
    spus = fleet.command.json("get", "spus")["items"]
    return sum(spu["status"]["resolution"] == "online" for spu in spus)


@contextmanager
def dashboard(fleet: Fleet) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A dashboard of the cluster, and its port."""
    options = ("--sc", fleet.address, "--port", "0")
    with fleet.command.start("dashboard", *options, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        try:
            url = json.loads(process.stderr.readline())["url"]
            yield process, int(url.rpartition(":")[2])
        finally:
            process.kill()


def configuration(directory: Path, fleet: Fleet, port: int) -> Path:
    """The shipped rules with short times, and a scrape of every daemon twice a second; ``port`` is
    the dashboard's."""
    directory.mkdir()
    rules = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))
    for rule in rules["groups"][0]["rules"]:
        rule["for"] = "1s"
        rule["expr"] = re.sub(r"\[(5|10)m\]", "[10s]", rule["expr"])
    (directory / "alerts.yaml").write_text(yaml.safe_dump(rules))
    spus = [f"127.0.0.1:{fleet.base + 12 + 3 * spu}" for spu in range(SPUS)]
    path = directory / "prometheus.yml"
    content = {
        "global": {
            "scrape_interval": "500ms",
            "scrape_timeout": "500ms",
            "evaluation_interval": "500ms",
        },
        "rule_files": ["alerts.yaml"],
        "scrape_configs": [
            {"job_name": "runnel-sc", "static_configs": [{"targets": [f"127.0.0.1:{fleet.base}"]}]},
            {"job_name": "runnel-spu", "static_configs": [{"targets": spus}]},
            {
                "job_name": "runnel-dashboard",
                # It asks the cluster, and waits a while for one that does not answer.
                "scrape_interval": "3s",
                "scrape_timeout": "3s",
                "static_configs": [{"targets": [f"127.0.0.1:{port}"]}],
            },
        ],
    }
    path.write_text(yaml.safe_dump(content))
    return path


def test_given_each_cause_then_its_alerts_fire_and_stop(scene: Scene) -> None:
    scene.fleet.until(lambda: scene.server.healthy() == SPUS + 2, "all daemons are scraped")
    scene.is_quiet()
    an_spu_is_gone(scene)
    objects_do_not_parse(scene)
    etcd_stands_still(scene)
    sc_and_an_spu_are_gone(scene)
    fsyncs_are_slow(scene)
    disks_are_full(scene)
    a_consumer_is_stuck(scene)
    a_replica_is_damaged(scene)
    the_dashboard_is_gone(scene)
    assert scene.fired == shipped().keys()


def an_spu_is_gone(scene: Scene) -> None:
    """SPU 0, which the others connect to."""
    scene.fleet.kill_spu(0)
    scene.fires(
        *("RunnelSpuDown", "RunnelSpuOffline", "RunnelPeersUnreachable"),
        *("RunnelPartitionsOffline", "RunnelPartitionsUnwritable"),
        "RunnelPartitionsUnderReplicated",
    )
    scene.fleet.start_spu(0)
    scene.is_quiet()


def objects_do_not_parse(scene: Scene) -> None:
    key = ClusterKeys("local").object("topics", "broken")

    async def write(*operations: Put | Delete) -> None:
        kv = await open_kv(scene.fleet.command.kv)
        try:
            await kv.txn([], operations)
        finally:
            await kv.close()

    asyncio.run(write(Put(key, b"{")))
    scene.fires("RunnelObjectsUnreadable")
    asyncio.run(write(Delete(key)))
    scene.is_quiet()


def etcd_stands_still(scene: Scene) -> None:
    """The SC cannot keep its lease: it leads no longer, and its sessions with SPUs end."""
    with ThreadPoolExecutor(1) as thread:
        scene.etcd.pause()
        try:
            # It waits for the KV, and fails or not.
            thread.submit(scene.fleet.command.run, "create", "topic", "late")
            scene.fires("RunnelKvAway", "RunnelKvSlow", "RunnelNoScLeads", "RunnelSpuWithoutSc")
        finally:
            scene.etcd.resume()
    scene.fleet.command.run("delete", "topic", "late")
    scene.is_quiet()


def sc_and_an_spu_are_gone(scene: Scene) -> None:
    """Nobody takes the SPU out of the live replica sets: leaders wait for it."""
    with library.connect(scene.fleet.address) as cluster, cluster.producer("replicated") as writer:
        writer.send(b"before").result(30)
        leader = scene.fleet.leader("replicated-0")
        assert leader is not None
        scene.fleet.kill_sc()
        scene.fires("RunnelScDown", "RunnelSpuWithoutSc")
        gone = max({0, 1, 2} - {leader})
        scene.fleet.kill_spu(gone)
        waiting = writer.send(b"meanwhile")
        expected = {"RunnelScDown", "RunnelSpuWithoutSc", "RunnelSpuDown", "RunnelReplicasStalled"}
        scene.fires(*expected, *({"RunnelPeersUnreachable"} if gone < 2 else ()))
        scene.fleet.start_sc()
        scene.fleet.start_spu(gone)
        waiting.result(60)
    scene.is_quiet()


def fsyncs_are_slow(scene: Scene) -> None:
    scene.slow_disk.touch()
    with written(scene.fleet.address):
        scene.fires("RunnelFsyncSlow")
        scene.slow_disk.unlink()
    scene.is_quiet()


@contextmanager
def written(address: str) -> Iterator[None]:
    """A record every now and then, until the block ends."""
    ended: list[bool] = []

    def write() -> None:
        with library.connect(address) as cluster, cluster.producer("replicated") as writer:
            while not ended:
                writer.send(b"x").result(30)
                time.sleep(0.05)

    with ThreadPoolExecutor(1) as thread:
        writing = thread.submit(write)
        try:
            yield
        finally:
            ended.append(True)
        writing.result()


def disks_are_full(scene: Scene) -> None:
    scene.fleet.command("create", "topic", "full", "--partitions", "3")
    record = os.urandom(500_000)
    with library.connect(scene.fleet.address) as cluster:
        writer = cluster.producer("full")
        for _ in range(200):
            writer.send(record)
        scene.fires("RunnelRecordsRefused", "RunnelDiskAlmostFull", "RunnelPartitionsUnwritable")
        scene.fleet.command("delete", "topic", "full")
        # What waited for room goes nowhere.
        with suppress(RunnelError):
            writer.close()
    scene.is_quiet()


def a_replica_is_damaged(scene: Scene) -> None:
    """The only one of its partition: nothing rebuilds it."""
    with library.connect(scene.fleet.address) as cluster, cluster.producer("single") as writer:
        for number in range(300):
            writer.send(os.urandom(5_000), partition=number % 3)
        writer.flush()
    uid = scene.fleet.command.json("get", "partition", "single-0")["metadata"]["uid"]
    leader = scene.fleet.leader("single-0")
    files = (scene.fleet.home / f"spu-{leader}" / "partitions" / uid).glob("*.log")
    flip(max(files, key=lambda path: path.stat().st_size))
    scene.fires("RunnelDamageFound", "RunnelReplicasUnfit", "RunnelPartitionsOffline")


def a_consumer_is_stuck(scene: Scene) -> None:
    """It has read the first records, and handles the second for ever."""
    with library.connect(scene.fleet.address) as cluster:
        with cluster.producer("replicated") as writer:
            for _ in range(100):
                writer.send(b"x")
        with cluster.consumer("replicated", name="billing") as reader:
            next(iter(reader))
            reader.commit()
            scene.fires("RunnelConsumerStuck")
    # It is closed, and does not count any more.
    scene.is_quiet()


def the_dashboard_is_gone(scene: Scene) -> None:
    """The damage of before goes on, and its alerts with it."""
    scene.dashboard.kill()
    scene.fires(
        *("RunnelDashboardDown", "RunnelDamageFound"),
        *("RunnelReplicasUnfit", "RunnelPartitionsOffline"),
    )
