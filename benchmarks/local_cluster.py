"""A cluster of real processes for one benchmark, gone afterwards."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runnel.local.cluster import LocalCluster
from runnel.local.plan import ClusterPlan
from runnel.local.processes import port_is_free


@contextmanager
def local_cluster(spus: int = 1) -> Iterator[str]:
    """Address of the SC of a fresh cluster in a temporary directory."""
    directory = Path(tempfile.mkdtemp(prefix="runnel-bench-"))
    os.environ["RUNNEL_HOME"] = str(directory)
    cluster = LocalCluster(directory / "cluster")
    plan = cluster.plan(spus, _free_base_port(cluster.data_dir, spus), None)
    try:
        cluster.start(plan, lambda _step: None)
        yield plan.sc_address
    finally:
        cluster.stop()
        shutil.rmtree(directory)


def _free_base_port(data_dir: Path, spus: int) -> int:
    for base in range(41_003, 60_000, 100):
        plan = ClusterPlan(data_dir, base_port=base, spus=spus)
        if all(port_is_free(p) for daemon in plan.daemons for p in daemon.ports.values()):
            return base
    raise OSError("no free ports")
