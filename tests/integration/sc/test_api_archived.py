"""How far a partition is archived: noted by the API, told to replicas, and it bounds truncation."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.sc.calls import call
from tests.integration.sc.test_elect import Bench, bench
from tests.polling import eventually
from tests.simulated_spu import SimulatedSpu

__all__ = ["bench"]

ARCHIVED = "/v1/partitions/t-0/archived"
TRUNCATE = "/v1/partitions/t-0/truncate"


def told(spu: SimulatedSpu, uid: str) -> int | None:
    assignment = spu.assignments.get(uid)
    return None if assignment is None else assignment.archived_before


async def with_archive(bench: Bench) -> None:
    patch = {"spec": {"archive": {"path": "/mnt/archive"}}}
    assert (await call(bench.sc, "PATCH", "/v1/topics/t", patch))[0] == 200
    await eventually(lambda: bench.partition.spec.archived_before == 0)


async def test_given_an_archive_then_replicas_are_told_how_far_it_is(bench: Bench) -> None:
    status, body = await call(bench.sc, "POST", ARCHIVED, {"before": 7, "was": 0})
    assert (status, body["code"]) == (409, "CONFLICT"), body
    assert "topic t has no archive" in body["message"]
    await with_archive(bench)
    for spu in (bench.one, bench.two):
        await eventually(lambda spu=spu: told(spu, bench.partition.uid) == 0)
    for was, before, expected in ((0, 7, 200), (0, 7, 200), (0, 9, 409), (7, 9, 200), (9, 5, 200)):
        status, body = await call(bench.sc, "POST", ARCHIVED, {"before": before, "was": was})
        assert status == expected, body
    for spu in (bench.one, bench.two):
        await eventually(lambda spu=spu: told(spu, bench.partition.uid) == 5)


async def test_given_records_in_no_archive_then_only_force_truncates_them(bench: Bench) -> None:
    await with_archive(bench)
    await call(bench.sc, "POST", ARCHIVED, {"before": 7, "was": 0})
    assert (await call(bench.sc, "POST", TRUNCATE, {"before": 7}))[0] == 200
    status, body = await call(bench.sc, "POST", TRUNCATE, {"before": 8})
    assert status == 409
    assert "from offset 7 on are in no archive yet" in body["message"]
    status, body = await call(bench.sc, "POST", TRUNCATE, {"before": 8, "force": True})
    assert (status, body["spec"]["truncateBefore"]) == (200, 8)


async def test_given_an_unclean_election_then_nothing_counts_as_archived(bench: Bench) -> None:
    await with_archive(bench)
    assert (await call(bench.sc, "POST", ARCHIVED, {"before": 7, "was": 0}))[0] == 200
    await bench.lose_the_leader()
    status, body = await bench.elect(term=bench.partition.status.term)
    assert status == 202, body
    await eventually(lambda: bench.partition.status.unclean_term is not None)
    assert bench.partition.spec.archived_before == 0
    await eventually(lambda: told(bench.two, bench.partition.uid) == 0)
    status, body = await call(bench.sc, "POST", TRUNCATE, {"before": 7})
    assert status == 409
    assert "are in no archive yet since an unclean election" in body["message"]
    # A run that compared log and archive before the election must not tell what it found.
    status, body = await call(bench.sc, "POST", ARCHIVED, {"before": 7, "was": 0})
    assert (status, "came since this run compared" in body["message"]) == (409, True)
    seen = {"before": 5, "was": 0, "uncleanTerm": bench.partition.status.unclean_term}
    assert (await call(bench.sc, "POST", ARCHIVED, seen))[0] == 200


@pytest.mark.parametrize(
    ("body", "says"),
    [
        pytest.param({"before": 1}, "was: is required", id="given-no-former-offset"),
        pytest.param({"before": -1, "was": 0}, "before: ", id="given-a-negative-offset"),
    ],
)
async def test_refused(bench: Bench, body: Any, says: str) -> None:
    found, answer = await call(bench.sc, "POST", ARCHIVED, body)
    assert (found, says in answer["message"]) == (400, True), answer
