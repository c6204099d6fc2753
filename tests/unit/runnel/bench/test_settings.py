"""What may be asked for, and what is done where nothing was."""

from __future__ import annotations

from typing import Any

import pytest

from runnel.bench.schedule import Goal
from runnel.bench.settings import Mode, Settings
from schemas.errors import InvalidRequestError

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "given-both-ends-then-both-are-named": (
        {"records": 5, "seconds": 1.0},
        "give --records or --seconds, not both",
    ),
    "given-no-records": ({"records": 0}, "--records is 0; 1 to"),
    "given-no-time": ({"seconds": 0.0}, "--seconds is 0.0"),
    "given-a-time-that-is-no-number": ({"seconds": float("nan")}, "--seconds is nan"),
    "given-empty-records": ({"record_size": 0}, "--record-size is 0"),
    "given-records-that-no-hop-takes": ({"record_size": 33 << 20}, "--record-size is 34603008"),
    "given-no-partition": ({"partitions": 0}, "--partitions is 0"),
    "given-too-many-replicas": ({"replication_factor": 33}, "--replication-factor is 33"),
    "given-no-batch": ({"batch_bytes": 0}, "--batch-bytes is 0"),
    "given-a-batch-that-no-hop-takes": ({"batch_bytes": 33 << 20}, "--batch-bytes is 34603008"),
    "given-a-negative-linger": ({"linger_ms": -1.0}, "--linger-ms is -1.0"),
    "given-no-rate": ({"rate": 0}, "--rate is 0"),
}


@pytest.mark.parametrize(("wrong", "said"), REFUSED.values(), ids=REFUSED)
def test_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        Settings(mode=Mode.E2E, **wrong)
    assert said in caught.value.message


OWN: dict[str, dict[str, Any]] = {
    "--partitions": {"partitions": 1},
    "--replication-factor": {"replication_factor": 1},
    "--durability": {"durability": "fsync"},
}


@pytest.mark.parametrize(("option", "given"), OWN.items(), ids=OWN)
def test_given_a_topic_that_exists_then_it_is_not_described(
    option: str, given: dict[str, Any]
) -> None:
    with pytest.raises(InvalidRequestError, match=f"{option}: topic 'mine' has its own"):
        Settings(mode=Mode.PRODUCE, topic="mine", **given).require_own_topic()
    Settings(mode=Mode.PRODUCE, **given).require_own_topic()
    Settings(mode=Mode.PRODUCE, topic="mine").require_own_topic()


GOALS: dict[str, tuple[dict[str, Any], Goal]] = {
    "given-nothing-then-256-MiB": ({}, Goal(records=262_144)),
    "given-small-records-then-a-bounded-number": ({"record_size": 10}, Goal(records=2_000_000)),
    "given-single-records-then-fewer": (
        {"record_size": 10, "columnar": False},
        Goal(records=500_000),
    ),
    "given-the-largest-records-then-some": ({"record_size": 32 << 20}, Goal(records=8)),
    "given-records-then-those": ({"records": 7}, Goal(records=7)),
    "given-seconds-then-those": ({"seconds": 2.5}, Goal(seconds=2.5)),
    "given-a-rate-then-ten-seconds-of-it": ({"rate": 300}, Goal(records=3_000)),
    "given-a-rate-and-seconds-then-so-many": ({"rate": 300, "seconds": 2.5}, Goal(records=750)),
    "given-a-rate-and-no-time-to-speak-of-then-one": (
        {"rate": 1, "seconds": 0.01},
        Goal(records=1),
    ),
}


@pytest.mark.parametrize(("given", "goal"), GOALS.values(), ids=GOALS)
def test_goal(given: dict[str, Any], goal: Goal) -> None:
    assert Settings(mode=Mode.PRODUCE, **given).goal == goal


def test_json_says_what_was_settled_on() -> None:
    found = Settings(mode=Mode.PRODUCE).to_json()
    assert (found["mode"], found["records"], found["seconds"]) == ("produce", 262_144, None)
    found = Settings(mode=Mode.PRODUCE, seconds=3.0).to_json()
    assert (found["records"], found["seconds"]) == (None, 3.0)
