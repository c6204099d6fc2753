"""One Spark session whose tasks are tried up to three times, and one cluster of three SPUs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import runnel
import runnel.spark


@pytest.fixture(scope="module")
def cluster() -> Iterator[runnel.Cluster]:
    with runnel.LocalCluster(spus=3) as running:
        yield running


@pytest.fixture(scope="module")
def spark(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """The master is the module's ``MASTER``."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        session = runnel.spark.session(
            "faults",
            **{
                "spark.master": request.module.MASTER,
                "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
                "spark.driver.memory": "512m",
                "spark.executor.memory": "512m",
                **getattr(request.module, "SETTINGS", {}),
            },
        )
        yield session
        session.stop()
