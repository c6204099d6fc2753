"""Topics come and go while SPUs are killed: in the end KV, SC and disks agree exactly."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
import time
from collections import defaultdict
from pathlib import Path

import pytest

import runnel as library
from runnel.local.state import DataDirectory
from sc.kv import open_kv
from sc.kv.interface import range_all
from schemas.daemon.process import is_alive
from schemas.objects.keys import ClusterKeys
from schemas.objects.partition import Partition
from tests.e2e.conftest import Command
from tests.ports import free_base_port

SPUS = 6
TOPICS = 200
LEFT = 20
KILLS = 30
SEED = 7


def on_disk(home: Path) -> dict[int, set[str]]:
    """Uids of the replicas in the directories of each SPU."""
    found = {}
    for spu in (home / "local" / "spus").glob("spu-*/partitions"):
        found[int(spu.parent.name.removeprefix("spu-"))] = {p.name for p in spu.iterdir()}
    return found


def wanted(partitions: list[Partition]) -> dict[int, set[str]]:
    """The same by the objects."""
    found: dict[int, set[str]] = {i: set() for i in range(SPUS)}
    for partition in partitions:
        for spu_id in partition.spec.replicas:
            found[spu_id].add(partition.uid)
    return found


async def stored(kv_url: str) -> dict[str, list[str]]:
    """Names of the objects, and tombstones, in the KV."""
    kv = await open_kv(kv_url)
    keys = ClusterKeys("local")
    found: dict[str, list[str]] = defaultdict(list)
    try:
        async for page in range_all(kv, keys.root):
            for item in page.items:
                if (where := keys.parse_object(item.key)) is not None:
                    found[where[0]].append(where[1])
                elif keys.parse_tombstone(item.key) is not None:
                    found["tombstones"].append(item.key)
    finally:
        await kv.close()
    return {kind: sorted(names) for kind, names in found.items()}


def read_kv(runnel: Command, base: int) -> dict[str, list[str]]:
    """What the cluster's KV holds."""
    if runnel.kv == "etcd":
        return asyncio.run(stored(f"etcd://127.0.0.1:{base + 8}"))
    # Its file is the SC's own while that runs.
    runnel("cluster", "stop")
    found = asyncio.run(stored(f"sqlite:{runnel.home / 'local' / 'sc-0' / 'kv.db'}"))
    runnel("cluster", "start")
    return found


#: An etcd is what a cluster of six SPUs has.
@pytest.mark.parametrize("kv", ["etcd"], indirect=True)
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_hundred_topics_while_spus_die(runnel: Command) -> None:
    base = free_base_port(runnel.home / "local", SPUS)
    runnel("cluster", "start", "--base-port", str(base), "--spus", str(SPUS))
    rng = random.Random(SEED)
    directory = DataDirectory(runnel.home / "local")
    finished = threading.Event()
    kills = 0

    def kill_on() -> None:
        nonlocal kills
        while not finished.wait(rng.uniform(0.3, 1.0)):
            alive = [s for s in directory.spus() if is_alive(s.process)]
            if alive:
                os.kill(rng.choice(alive).process.pid, signal.SIGKILL)
                kills += 1

    killer = threading.Thread(target=kill_on)
    killer.start()
    try:
        with library.connect(f"localhost:{base}") as cluster:
            alive: list[str] = []
            number = 0
            while number < TOPICS or kills < KILLS:
                number += 1
                name = f"t{number:04}"
                spec = {"partitions": rng.randint(1, 6)}
                manifest = {"apiVersion": "runnel/v1", "kind": "Topic"}
                cluster.apply({**manifest, "metadata": {"name": name}, "spec": spec})
                alive.append(name)
                while len(alive) > LEFT:
                    cluster.delete("topic", alive.pop(rng.randrange(len(alive))))
    finally:
        finished.set()
        killer.join()

    with library.connect(f"localhost:{base}") as cluster:

        def settled() -> bool:
            topics = cluster.list("topics", show_system=True)
            spus = cluster.list("spus")
            partitions = cluster.list("partitions", show_system=True)
            return (
                sorted(t.name for t in topics) == sorted(alive)
                and all(t.status.resolution.value == "provisioned" for t in topics)
                and all(p.status.resolution.value == "online" for p in partitions)
                and all(s.status.resolution.value == "online" for s in spus)
                and on_disk(runnel.home)
                == wanted([p for p in partitions if isinstance(p, Partition)])
            )

        deadline = time.monotonic() + 120
        while not settled():
            assert time.monotonic() < deadline, (on_disk(runnel.home), cluster.list("topics"))
            time.sleep(0.2)
        in_sc = {
            kind: sorted(obj.name for obj in cluster.list(kind, show_system=True))
            for kind in ("topics", "partitions", "spus", "spugroups")
        }
    # The SC forgets tombstones a moment after the SPUs deleted, one write each.
    deadline = time.monotonic() + 60
    while (kv := read_kv(runnel, base)) != in_sc and time.monotonic() < deadline:
        time.sleep(0.2)
    assert kv == in_sc, "the KV holds what the SC shows, and no tombstone"
