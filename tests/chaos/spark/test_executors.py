"""Executors of their own processes, some tasks of which run twice."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession
from pyspark.taskcontext import TaskContext

import runnel
import runnel.spark
from tests.chaos.spark.scans import address, fill
from tests.chaos.spark.test_scans import frame_of

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.spark, pytest.mark.timeout(300)]

MASTER: Final = "local-cluster[2,1,1024]"
SETTINGS: Final = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "100ms",
}


def test_a_task_that_runs_twice_gives_its_rows_once(
    spark: SparkSession, cluster: runnel.Cluster
) -> None:
    keys = fill(cluster, "speculated", partitions=2)

    def first_attempt_is_slow(batches: Iterator[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        slow = context is not None and context.partitionId() == 0 and context.attemptNumber() == 0
        for batch in batches:
            if slow:
                time.sleep(5)
            yield batch

    frame = frame_of(spark, cluster, "speculated").select("key")
    found = frame.mapInArrow(first_attempt_is_slow, "key binary").collect()
    assert sorted(bytes(row[0]) for row in found) == sorted(keys)


def test_executors_write(spark: SparkSession, cluster: runnel.Cluster) -> None:
    cluster.apply(runnel.Topic("executed", partitions=2))
    cluster.wait("topic", "executed", "provisioned")
    frame = spark.range(10_000, numPartitions=4).selectExpr("CAST(id AS string) AS value")
    runnel.spark.write(frame, "executed", sc=address(cluster))
    found = [int(value) for value in cluster.read("executed", ["value"])["value"].to_pylist()]
    assert set(found) == set(range(10_000))
