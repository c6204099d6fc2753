"""What Spark does not need any more is no error, and nothing appears among the user's output."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import runnel
from tests.chaos.spark.scans import address, fill

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(300)]

SCRIPT: Final = """
import sys
import runnel.spark
spark = runnel.spark.session("quiet")
frame = runnel.spark.read(spark, "many", sc=sys.argv[1])
for _ in range(3):
    frame.show(3)
    frame.take(5)
    frame.limit(7).collect()
spark.stop()
"""


def test_show_take_and_limit_print_no_traceback(tmp_path: Path) -> None:
    with runnel.LocalCluster() as cluster:
        fill(cluster, "many")
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, address(cluster)],
            env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=200,
        )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout.count("only showing top 3 rows") == 3
