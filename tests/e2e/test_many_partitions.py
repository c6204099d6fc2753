"""An SPU with far more partitions than it may open files."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.many_partitions import Plan, measure


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(
            Plan(partitions=400, topics=1, files=100, idle_s=0, megabytes=1),
            id="given-one-topic-then-all-is-read-back-after-every-restart",
        ),
        pytest.param(
            Plan(partitions=200, topics=20, files=100, idle_s=0, megabytes=1),
            id="given-many-topics-then-all-is-read-back-after-every-restart",
        ),
    ],
)
def test_four_times_as_many_as_files(plan: Plan) -> None:
    """Writes to all at once, reads back, stops, kills and restarts: the benchmark, which fails
    where a record is missing, or a daemon ends."""
    found = asyncio.run(measure(plan))
    assert found["spu_files"] <= plan.files
