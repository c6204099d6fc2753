"""Scans during which tasks fail, SPUs are killed, and topics change: every row once, or an error
that says why."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psutil
import pytest
from pyspark.sql import DataFrame, SparkSession

import runnel
import runnel.spark
from tests.chaos.spark.scans import ROWS, Scan, address, fill, wait_until
from tests.ports import free_base_port

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.spark, pytest.mark.timeout(300)]

MASTER: Final = "local[2,3]"


def frame_of(spark: SparkSession, cluster: runnel.Cluster, topic: str, **options: Any) -> DataFrame:
    return runnel.spark.read(spark, topic, sc=address(cluster), **options)


def leader_pid(cluster: runnel.Cluster, topic: str, partition: int) -> int:
    """The process of the SPU that leads a partition, of the cluster that this process started."""
    leader = cluster.topic(topic).partitions[partition].leader
    for process in psutil.Process().children(recursive=True):
        # A process may end in between.
        with suppress(psutil.NoSuchProcess):
            command = process.cmdline()
            if f"spu-{leader}.yaml" in " ".join(command) and "spu" in command:
                return int(process.pid)
    raise AssertionError(f"no process of SPU {leader}")


def test_a_task_that_fails_is_run_again(
    spark: SparkSession, cluster: runnel.Cluster, tmp_path: Path
) -> None:
    keys = fill(cluster, "retried")
    marker = str(tmp_path / "failed")

    def fail_once(batches: Iterator[Any]) -> Iterator[Any]:
        for number, batch in enumerate(batches):
            if number == 1 and not Path(marker).exists():
                Path(marker).touch()
                raise RuntimeError("this task fails once")
            yield batch

    frame = frame_of(spark, cluster, "retried").select("key")
    found = frame.mapInArrow(fail_once, "key binary").collect()
    assert Path(marker).exists()
    assert sorted(bytes(row[0]) for row in found) == sorted(keys)


@pytest.mark.parametrize("replicas", [3, 1])
def test_given_the_leader_is_killed_in_the_middle_then_every_row_once(
    spark: SparkSession, cluster: runnel.Cluster, tmp_path: Path, replicas: int
) -> None:
    topic = f"killed-{replicas}"
    keys = fill(cluster, topic, replicas=replicas)
    scan = Scan(frame_of(spark, cluster, topic), tmp_path / "begun")
    scan.in_the_middle()
    os.kill(leader_pid(cluster, topic, 0), signal.SIGKILL)
    assert sorted(scan.done()) == sorted(keys)


def test_given_the_topic_is_another_one_in_the_middle_then_it_says_so(
    spark: SparkSession, cluster: runnel.Cluster, tmp_path: Path
) -> None:
    fill(cluster, "replaced", partitions=4)
    # The second half of the tasks begins when the topic is another one.
    scan = Scan(frame_of(spark, cluster, "replaced"), tmp_path / "begun", seconds=10.0)
    scan.in_the_middle()
    cluster.delete("topic", "replaced")
    cluster.wait("topic", "replaced", "deleted")
    fill(cluster, "replaced", partitions=4)
    with pytest.raises(Exception, match=r"deleted and created again,? since"):
        scan.done()


def test_given_partitions_are_added_in_the_middle_then_the_plan_stays(
    spark: SparkSession, cluster: runnel.Cluster, tmp_path: Path
) -> None:
    keys = fill(cluster, "grown")
    frame = frame_of(spark, cluster, "grown")
    scan = Scan(frame, tmp_path / "begun")
    scan.in_the_middle()
    cluster.apply(runnel.Topic("grown", partitions=3))
    cluster.offsets("grown", [2])
    with cluster.producer("grown") as producer:
        producer.send(b"late", partition=2)
    assert sorted(scan.done()) == sorted(keys)
    assert frame_of(spark, cluster, "grown").count() == ROWS + 1


def test_given_a_stream_and_its_leader_is_killed_then_every_row_once(
    spark: SparkSession, cluster: runnel.Cluster, tmp_path: Path
) -> None:
    keys = fill(cluster, "flowing", replicas=3)
    found: list[bytes] = []
    lock = threading.Lock()

    def take(frame: DataFrame, _number: int) -> None:
        rows = [bytes(row[0]) for row in frame.select("key").collect()]
        with lock:
            found.extend(rows)

    query = (
        spark.readStream.format("runnel")
        .option("sc", address(cluster))
        .option("topic", "flowing")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 4_000)
        .load()
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    try:
        wait_until(lambda: len(found) > 0, 60)
        os.kill(leader_pid(cluster, "flowing", 0), signal.SIGKILL)
        wait_until(lambda: len(found) >= ROWS or not query.isActive, 120)
    finally:
        query.stop()
    assert sorted(found) == sorted(keys)


def test_given_the_cluster_is_stopped_and_started_in_the_middle_then_every_row_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    home = {**os.environ, "RUNNEL_HOME": str(tmp_path / "home")}
    command = str(Path(sys.executable).with_name("runnel"))

    def run(*words: str) -> None:
        done = subprocess.run([command, *words], env=home, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    port = free_base_port(tmp_path / "home", 2)
    start = ("cluster", "start", "--spus", "2", "--base-port", str(port), "--no-dashboard")
    run(*start)
    try:
        with runnel.connect(f"127.0.0.1:{port}") as own:
            keys = fill(own, "restarted", replicas=2)
            scan = Scan(frame_of(spark, own, "restarted"), tmp_path / "begun")
            scan.in_the_middle()
            run("cluster", "stop")
            run(*start)
            assert sorted(scan.done()) == sorted(keys)
    finally:
        run("cluster", "stop")
