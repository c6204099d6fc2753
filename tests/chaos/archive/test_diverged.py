"""An unclean election after archiving: readers get what the log holds, and files keep the rest."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import psutil
import pyarrow.parquet as pq
import pytest

import runnel
from schemas.objects.partition import Partition

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(240)]

DEADLINE_S: Final = 60.0
NAME: Final = "torn-0"


def process(spu: int) -> psutil.Process:
    """An SPU of the cluster that this process has started."""
    for one in psutil.Process().children(recursive=True):
        if f"spu-{spu}.yaml" in " ".join(one.cmdline()):
            return one
    raise AssertionError(f"no process of SPU {spu}")


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.1)


def partition(cluster: runnel.Cluster) -> Partition:
    found = cluster.get("partition", NAME)
    assert isinstance(found, Partition)
    return found


def send(cluster: runnel.Cluster, word: str, count: int) -> None:
    with cluster.producer("torn") as producer:
        for number in range(count):
            producer.send(f"{word} {number}")


def values(cluster: runnel.Cluster) -> list[str]:
    return [value.decode() for value in cluster.read("torn", ["value"])["value"].to_pylist()]


def test_given_an_unclean_election_then_the_archive_follows_the_log(tmp_path: Path) -> None:
    with runnel.LocalCluster(spus=3) as cluster:
        # The list of files has a replica on the third SPU, too.
        replicas = [{"id": 0, "replicas": [0, 1]}]
        archive: dict[str, Any] = {"path": str(tmp_path)}
        spec = {"assignment": replicas, "minInSyncReplicas": 1, "archive": archive}
        meta = {"apiVersion": "runnel/v1", "kind": "Topic", "metadata": {"name": "torn"}}
        cluster.apply({**meta, "spec": spec})
        cluster.wait("topic", "torn", "provisioned")
        send(cluster, "both", 10)
        leader = partition(cluster).status.leader
        assert leader is not None
        other = 1 - leader
        stopped = [process(other)]
        stopped[0].send_signal(signal.SIGSTOP)
        try:
            until(lambda: len(partition(cluster).status.lrs) == 1)
            send(cluster, "one", 10)
            assert cluster.archive("torn", everything=True).rows == 20
            stopped.append(process(leader))
            stopped[1].send_signal(signal.SIGSTOP)
            stopped[0].send_signal(signal.SIGCONT)
            until(lambda: "offline" in str(partition(cluster).status.resolution))
            until(lambda: elected(cluster, other))
            send(cluster, "other", 3)
            done = cluster.archive("torn", everything=True)
            assert not done.failures
            (at,) = done.diverged.values()
            expected = [*(f"both {n}" for n in range(10)), *(f"other {n}" for n in range(3))]
            assert values(cluster) == expected
            # Once the log has let go of them, too.
            cluster.truncate("torn", before=1)
            assert cluster.offsets("torn")[0].first == 1
            found = cluster.archived("torn")
            listed = found.listed.partition(0)
            first, second = listed.files
            assert (first.until, second.base, listed.diverged_at) == (at, at, at)
            assert not cluster.verify_archive("torn")
            # The records that the election lost are still in the first file.
            kept = pq.read_table(found.place.file(0, first.name))["value"].to_pylist()
            assert kept[-10:] == [f"one {n}".encode() for n in range(10)]
        finally:
            for one in stopped:
                one.send_signal(signal.SIGCONT)


def elected(cluster: runnel.Cluster, spu: int) -> bool:
    try:
        cluster.elect(NAME, partition(cluster).status.term, leader=spu)
    except (runnel.ConflictError, runnel.NotReadyError):
        return False
    return True
