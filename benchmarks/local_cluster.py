"""A cluster of real processes for one benchmark, which is removed afterwards."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runnel.local.cluster import ClusterDaemons
from runnel.local.processes import free_base_port


@contextmanager
def local_cluster(spus: int = 1) -> Iterator[str]:
    """Address of the SC of a fresh cluster in a temporary directory."""
    directory = Path(tempfile.mkdtemp(prefix="runnel-bench-"))
    os.environ["RUNNEL_HOME"] = str(directory)
    cluster = ClusterDaemons(directory / "cluster")
    plan = cluster.plan(spus, free_base_port(cluster.data_dir, spus), None)
    try:
        cluster.start(plan, lambda _step: None)
        try:
            yield plan.sc_address
        finally:
            cluster.stop()
    finally:
        shutil.rmtree(directory)
