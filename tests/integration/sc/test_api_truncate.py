"""Truncation by the API: noted in the partition, told to every replica, never taken back."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.sc.calls import call
from tests.integration.sc.test_elect import Bench, bench
from tests.polling import eventually
from tests.simulated_spu import SimulatedSpu

__all__ = ["bench"]

TRUNCATE = "/v1/partitions/t-0/truncate"


def told(spu: SimulatedSpu, uid: str) -> int | None:
    assignment = spu.assignments.get(uid)
    return None if assignment is None else assignment.truncate_before


async def test_given_an_offset_then_every_replica_is_told_and_it_never_falls(bench: Bench) -> None:
    before = bench.partition
    status, body = await call(bench.sc, "POST", TRUNCATE, {"before": 7})
    assert (status, body["spec"]["truncateBefore"]) == (200, 7)
    assert body["metadata"]["generation"] == before.generation + 1
    for spu in (bench.one, bench.two):
        await eventually(lambda spu=spu: told(spu, before.uid) == 7)
    again = bench.partition
    for offset in (7, 3, 0):
        status, body = await call(bench.sc, "POST", TRUNCATE, {"before": offset})
        assert (status, body["spec"]["truncateBefore"]) == (200, 7)
    assert bench.partition.spec == again.spec
    assert bench.partition.status.leader == before.status.leader


async def test_given_an_spu_that_was_away_then_it_is_told_when_it_returns(bench: Bench) -> None:
    await bench.first.aclose()
    await bench.sc.until("spus", "spu-1", "offline")
    assert (await call(bench.sc, "POST", TRUNCATE, {"before": 7}))[0] == 200
    again = SimulatedSpu(1, bench.sc.private)
    again.cluster_uid, again.replicas = bench.one.cluster_uid, bench.one.replicas
    async with again:
        await eventually(lambda: told(again, bench.partition.uid) == 7)


async def test_given_other_changes_of_the_topic_then_a_truncation_stays(bench: Bench) -> None:
    await call(bench.sc, "POST", TRUNCATE, {"before": 7})
    patch = {"spec": {"retention": {"time": "1h"}}}
    assert (await call(bench.sc, "PATCH", "/v1/topics/t", patch))[0] == 200
    hour_ms = 3_600_000
    await eventually(lambda: bench.partition.spec.log.retention.time == hour_ms)
    assert bench.partition.spec.truncate_before == 7


async def test_given_dry_run_then_nothing_is_noted(bench: Bench) -> None:
    before = bench.partition
    status, body = await call(bench.sc, "POST", f"{TRUNCATE}?dryRun=true", {"before": 7})
    assert (status, body["spec"]["truncateBefore"]) == (200, 7)
    assert bench.partition == before


@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        pytest.param(TRUNCATE, {}, 400, "before: is required", id="given-no-offset"),
        pytest.param(TRUNCATE, {"before": -1}, 400, "before: ", id="given-a-negative-offset"),
        pytest.param(TRUNCATE, {"before": 1, "at": 2}, 400, "at: ", id="given-an-unknown-field"),
        pytest.param(
            "/v1/partitions/t-9/truncate",
            {"before": 0},
            404,
            "does not exist",
            id="given-no-partition",
        ),
    ],
)
async def test_refused(bench: Bench, path: str, body: Any, status: int, says: str) -> None:
    found, answer = await call(bench.sc, "POST", path, body)
    assert found == status, answer
    assert says in answer["message"]
