"""Spark Connect as its page says: the format is told to the session, and then all of it works."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import runnel
from tests.chaos.spark.scans import address

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(300)]

#: A process holds sessions of one kind only.
SCRIPT = """
import sys
from pyspark.sql import SparkSession
import runnel.spark

sc, directory = sys.argv[1:]
spark = SparkSession.builder.remote("local[2]").getOrCreate()
frame = runnel.spark.read(spark, "orders", columns=["key", "value"], sc=sc)
print("read", frame.count())
runnel.spark.write(frame, "copies", sc=sc)
stream = spark.readStream.format("runnel").option("sc", sc).option("topic", "orders")
query = (
    stream.option("startingOffsets", "earliest").load().select("key", "value")
    .writeStream.format("runnel").option("sc", sc).option("topic", "copies")
    .option("checkpointLocation", directory).trigger(availableNow=True).start()
)
query.awaitTermination()
try:
    runnel.spark.archive(spark, "orders", sc=sc)
except runnel.UnsupportedError as error:
    print("refused", error)
spark.stop()
"""


def test_a_batch_a_write_and_a_stream(tmp_path: Path) -> None:
    with runnel.LocalCluster(spus=1) as cluster:
        for name in ("orders", "copies"):
            cluster.apply(runnel.Topic(name, partitions=2))
        with cluster.producer("orders") as producer:
            for number in range(1_000):
                producer.send(b"%d" % number, key=b"%d" % (number % 7))
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, address(cluster), str(tmp_path)],
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert "read 1000" in done.stdout
        assert "refused Spark Connect gives no tasks of this kind to executors" in done.stdout
        values = cluster.read("copies", ["value"])["value"].to_pylist()
        assert sorted(values) == sorted([b"%d" % number for number in range(1_000)] * 2)
