"""An unclean election after archiving: readers get what the log holds, and files keep the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
import pytest

import runnel
from schemas.objects.partition import Partition
from schemas.objects.system_topics import ARCHIVE
from tests.chaos.replication.spus import Fleet

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(240)]

TOPIC: Final = "torn"
PARTITION: Final = f"{TOPIC}-0"
#: The SPUs of the topic. The third one holds only the list of files.
LEADER, OTHER = 0, 1


def partition(cluster: runnel.Cluster) -> Partition:
    found = cluster.get("partition", PARTITION)
    assert isinstance(found, Partition)
    return found


def make_topic(cluster: runnel.Cluster, archive: Path) -> None:
    spec: dict[str, Any] = {
        "assignment": [{"id": 0, "replicas": [LEADER, OTHER]}],
        "minInSyncReplicas": 1,
        "archive": {"path": str(archive)},
    }
    meta = {"apiVersion": "runnel/v1", "kind": "Topic", "metadata": {"name": TOPIC}}
    cluster.apply({**meta, "spec": spec})
    cluster.wait("topic", TOPIC, "provisioned")


def send(cluster: runnel.Cluster, word: str, count: int) -> None:
    with cluster.producer(TOPIC) as producer:
        for number in range(count):
            producer.send(f"{word} {number}")


def values(cluster: runnel.Cluster) -> list[str]:
    return [value.decode() for value in cluster.read(TOPIC, ["value"])["value"].to_pylist()]


def elected(cluster: runnel.Cluster, spu: int) -> bool:
    try:
        cluster.elect(PARTITION, partition(cluster).status.term, leader=spu)
    except (runnel.ConflictError, runnel.NotReadyError):
        return False
    return True


def test_given_an_unclean_election_then_the_archive_follows_the_log(
    fleet: Fleet, tmp_path: Path
) -> None:
    fleet.start()
    with runnel.connect(fleet.address) as cluster:

        def live() -> list[int]:
            return [one.spu_id for one in partition(cluster).status.lrs]

        archive = tmp_path / "archive"
        archive.mkdir()
        make_topic(cluster, archive)
        fleet.until(lambda: live() == [LEADER, OTHER], "both replicas are live")
        send(cluster, "both", 10)
        assert cluster.archive(TOPIC, everything=True).rows == 10
        fleet.until(lambda: fleet.is_whole(ARCHIVE), "the list of files has all its replicas")
        fleet.kill_spu(OTHER)
        fleet.until(lambda: live() == [LEADER], "the leader is alone")
        send(cluster, "one", 10)
        assert cluster.archive(TOPIC, everything=True).rows == 10
        fleet.kill_spu(LEADER)
        fleet.start_spu(OTHER)
        fleet.until(lambda: elected(cluster, OTHER), "the other one may be elected")
        send(cluster, "other", 3)
        done = cluster.archive(TOPIC, everything=True)
        assert not done.failures
        (at,) = done.diverged.values()
        both = [f"both {n}" for n in range(10)]
        others = [f"other {n}" for n in range(3)]
        assert values(cluster) == both + others
        # Once the log has let go of them, too.
        cluster.truncate(TOPIC, before=1)
        assert cluster.offsets(TOPIC)[0].first == 1
        assert values(cluster) == both + others
        found = cluster.archived(TOPIC)
        listed = found.listed.partition(0)
        first, lost, last = listed.files
        assert (first.until, lost.until, last.base, listed.diverged_at) == (at, at, at, at)
        assert not cluster.verify_archive(TOPIC)
        # The records that the election lost are still in their file.
        kept = pq.read_table(found.place.file(0, lost.name))["value"].to_pylist()
        assert kept == [f"one {n}".encode() for n in range(10)]
