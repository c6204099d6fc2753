"""When records are due, and when it is enough."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.bench.schedule import Goal, Schedule

DUE = {
    "given-the-start-then-the-first-is-due": (Schedule(10, 5), 0.0, 1),
    "given-less-than-an-interval-then-no-other": (Schedule(10, 5), 0.099, 1),
    "given-one-interval-then-two": (Schedule(10, 5), 0.1, 2),
    "given-a-stall-then-all-that-it-held-up": (Schedule(10, 50), 1.05, 11),
    "given-the-end-then-no-more-than-there-are": (Schedule(10, 5), 100.0, 5),
    "given-a-rate-that-is-no-whole-number": (Schedule(0.5, 5), 4.0, 3),
    "given-a-clock-before-the-start-then-none": (Schedule(10, 5), -0.001, 0),
}


@pytest.mark.parametrize(("schedule", "elapsed_s", "count"), DUE.values(), ids=DUE)
def test_due(schedule: Schedule, elapsed_s: float, count: int) -> None:
    assert schedule.due(elapsed_s) == count


@given(st.floats(0.1, 1e7), st.integers(1, 10**7), st.floats(0, 1e4))
def test_what_is_due_was_to_be_sent_by_now_and_nothing_else(
    rate: float, records: int, elapsed_s: float
) -> None:
    schedule = Schedule(rate, records)
    count = schedule.due(elapsed_s)
    assert count == 0 or schedule.at_s(count - 1) <= elapsed_s
    assert count == records or schedule.at_s(count) > elapsed_s


LEFT = {
    "given-records-then-what-is-missing": (Goal(records=10), 4, 99.0, 6),
    "given-all-records-then-none": (Goal(records=10), 10, 0.0, 0),
    "given-more-than-all-then-none": (Goal(records=10), 12, 0.0, 0),
    "given-all-the-time-then-none": (Goal(seconds=2.0), 0, 2.0, 0),
}


@pytest.mark.parametrize(("goal", "done", "elapsed_s", "left"), LEFT.values(), ids=LEFT)
def test_left(goal: Goal, done: int, elapsed_s: float, left: int) -> None:
    assert goal.left(done, elapsed_s) == left


def test_given_time_then_any_number_may_follow() -> None:
    assert Goal(seconds=2.0).left(10**9, 1.999) > 10**9


SHARE = {
    "given-half-of-the-records": (Goal(records=10), 5, 0.0, 0.5),
    "given-half-of-the-time": (Goal(seconds=4.0), 5, 2.0, 0.5),
    "given-too-many-records-then-all": (Goal(records=10), 15, 0.0, 1.0),
    "given-too-much-time-then-all": (Goal(seconds=4.0), 5, 9.0, 1.0),
}


@pytest.mark.parametrize(("goal", "done", "elapsed_s", "share"), SHARE.values(), ids=SHARE)
def test_share(goal: Goal, done: int, elapsed_s: float, share: float) -> None:
    assert goal.share(done, elapsed_s) == share
