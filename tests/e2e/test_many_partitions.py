"""An SPU with far more partitions than it may open files."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.many_partitions import Plan, measure


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_given_four_times_as_many_as_files_then_all_is_read_back_after_every_restart() -> None:
    """Writes to all at once, reads back, stops, kills and restarts: the benchmark, which fails
    where a record is missing, or a daemon ends."""
    plan = Plan(partitions=400, topics=20, files=100, idle_s=0, megabytes=1)
    found = asyncio.run(measure(plan))
    assert found["spu_files"] <= plan.files
