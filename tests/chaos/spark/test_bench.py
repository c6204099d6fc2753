"""``runnel bench spark`` on a running cluster: it measures, says so, and leaves nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import runnel
from tests.chaos.spark.scans import address

#: Two minutes that no fault disturbs: by hand, with `make chaos`.
pytestmark = [pytest.mark.chaos, pytest.mark.spark, pytest.mark.timeout(300)]


def test_every_query_on_every_source(tmp_path: Path) -> None:
    command = [str(Path(sys.executable).with_name("runnel")), "bench", "spark"]
    with runnel.LocalCluster(spus=1) as cluster:
        options = ["--mb", "2", "--rounds", "1", "--row-size", "1Ki", "--directory", str(tmp_path)]
        done = subprocess.run(
            [*command, *options, "--json"],
            env={**os.environ, "RUNNEL_SC": address(cluster)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        seen = {(one["query"], one["source"]) for one in found["queries"]}
        assert seen == {
            (query, source)
            for query in ("sum", "noop", "count", "filter", "write", "2 of 20", "sum, 100 parts")
            for source in ("runnel live", "runnel archived", "parquet")
        }
        assert all(one["seconds"] > 0 for one in (*found["queries"], *found["fixed"]))
        assert [one.name for one in cluster.list("topic")] == []
        assert list(tmp_path.iterdir()) == []
