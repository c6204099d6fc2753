"""One Spark session and one cluster for all tests of the data source."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from spark_io.session.builder import spark_session
from tests.integration.spark.cluster import RunningCluster, run_cluster


def end_jvm() -> None:
    """End the JVM of earlier sessions: the next one gets the environment of today."""
    gateway = SparkContext._gateway
    if gateway is None:
        return
    gateway.shutdown()
    # It runs until this is closed, and a session that asks for it would wait for it.
    gateway.proc.stdin.close()
    gateway.proc.wait()
    SparkContext._gateway = SparkContext._jvm = None


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with run_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="package")
def spark(
    cluster: RunningCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """Two threads; the SC of the cluster is the default one of its planners."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("RUNNEL_SC", cluster.sc)
        environment.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        end_jvm()
        session = spark_session(
            "tests",
            **{
                "spark.master": "local[2]",
                "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
                "spark.driver.memory": "512m",
                # Code that runs a few times is not worth the second compiler, and a small heap not
                # worth collectors with threads: a third of the processor time.
                "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            },
        )
        yield session
        session.stop()
