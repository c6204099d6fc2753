"""Archiving whose processes and SPUs are killed at random moments, while records come and retention
removes: at the end every acknowledged record is read once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import psutil
import pytest

import runnel
from tests.chaos.spark.scans import address
from tests.cold_topics import shrink

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(400)]

ROUNDS: Final = 25
#: More than these are to be there in the end; on a loaded machine that takes more rounds.
FILES: Final = 4
SPUS: Final = 3
RUNNEL: Final = str(Path(sys.executable).with_name("runnel"))


@contextmanager
def producing(cluster: runnel.Cluster, topic: str) -> Iterator[list[int]]:
    """A thread that sends numbers; gives those that were acknowledged."""
    acknowledged: list[int] = []
    ending = threading.Event()
    failures: list[BaseException] = []

    def work() -> None:
        number = 0
        try:
            with cluster.producer(topic) as producer:
                while not ending.is_set():
                    sent = [
                        (one, producer.send(b"%d" % one, key=b"%d" % (one % 64)))
                        for one in range(number, number + 100)
                    ]
                    for one, delivery in sent:
                        delivery.result(timeout=120)
                        acknowledged.append(one)
                    number += 100
                    time.sleep(0.01)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield acknowledged
    finally:
        ending.set()
        thread.join()
    assert not failures


def spu_processes() -> list[psutil.Process]:
    """The SPUs of the cluster that this process has started, whose supervisor starts them again."""
    found = []
    for one in psutil.Process().children(recursive=True):
        # A process may end in between.
        with suppress(psutil.NoSuchProcess):
            command = " ".join(one.cmdline())
            if "spu-" in command and ".yaml" in command:
                found.append(one)
    return found


def files_of(cluster: runnel.Cluster) -> int:
    """How many files the archive has."""
    return sum(len(one.files) for one in cluster.archived("cold").listed.partitions.values())


def test_given_kills_at_any_moment_then_every_record_is_read_once(tmp_path: Path) -> None:
    rng = random.Random(11)
    with runnel.LocalCluster(spus=SPUS) as cluster:
        topic = runnel.Topic("cold", partitions=2, replication_factor=SPUS)
        data = topic.model_dump(mode="json", by_alias=True, exclude_none=True)
        data["spec"] |= {
            "segment": {"size": "32Ki"},
            "retention": {"size": "64Ki", "grace": "0s"},
            "archive": {"path": str(tmp_path), "after": "0s"},
        }
        cluster.apply(data)
        cluster.wait("topic", "cold", "provisioned")
        environment = {**os.environ, "RUNNEL_SC": address(cluster)}
        killed = Counter[str]()
        with producing(cluster, "cold") as acknowledged:
            for number in range(3 * ROUNDS):
                if number >= ROUNDS and files_of(cluster) > FILES:
                    break
                runs = [
                    subprocess.Popen(
                        [RUNNEL, "archive", "run", "cold", "--every", "1s", *more],
                        env=environment,
                        stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL,
                    )
                    for more in ((), ("--all",))
                ]
                try:
                    time.sleep(rng.uniform(0.5, 2.5) * (1 if number < ROUNDS else 2))
                    if number % 5 == 4:
                        victim = rng.choice(spu_processes())
                        victim.send_signal(signal.SIGKILL)
                        killed["SPU"] += 1
                        time.sleep(rng.uniform(0, 1))
                finally:
                    for run in runs:
                        run.kill()
                        run.wait()
                        killed["run"] += 1
        last = subprocess.run(
            [RUNNEL, "archive", "run", "cold"], env=environment, capture_output=True, timeout=120
        )
        assert last.returncode == 0, last.stderr
        shrink(cluster, "cold")
        files = files_of(cluster)
        print(f"\n{len(acknowledged):,} records in {files} files; killed: {dict(killed)}")
        assert files > FILES
        assert not cluster.verify_archive("cold")
        found = Counter(map(int, cluster.read("cold", ["value"])["value"].to_pylist()))
        assert set(found.values()) == {1}
        assert set(acknowledged) <= found.keys()
