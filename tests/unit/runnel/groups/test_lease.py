"""Who is alive: no reader is called dead while it hands out records, whatever the clocks."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.groups.lease import Judge, Lease
from runnel.groups.state import Reader

LEASE_S = 15.0
RATE = st.floats(1.0, 1.5)
DELAY_S = st.floats(0.0, 20.0)
OFFSET_S = st.floats(-1e6, 1e6)


Updates = list[tuple[float, float, float]]


@given(
    RATE, RATE, OFFSET_S, st.lists(st.tuples(DELAY_S, DELAY_S, DELAY_S), min_size=1, max_size=12)
)
def test_given_clocks_of_any_rates_then_nobody_is_dead_who_may_hand_out(
    mine: float, others: float, offset_s: float, updates: Updates
) -> None:
    check(Judge(LEASE_S), mine, others, offset_s, updates)


def test_mutant_given_a_judge_by_wall_time_then_seen() -> None:
    """It compares its clock with the time that a reader wrote into its update, and its clock is
    ahead."""

    class ByWallTime(Judge):
        def observe(self, readers: Mapping[str, Reader], now_s: float) -> None:
            self._seen = {
                name: (one.session, one.counter, now_s - one.since_us / 1e6)
                for name, one in readers.items()
            }

    updates = [(0.0, 0.1, 0.1)] * 3
    check(ByWallTime(LEASE_S), 1.0, 1.0, 0.0, updates)
    check(Judge(LEASE_S), 1.0, 1.0, 20.0, updates)
    with pytest.raises(AssertionError):
        check(ByWallTime(LEASE_S), 1.0, 1.0, 20.0, updates)


def check(judge: Judge, mine: float, others: float, offset_s: float, updates: Updates) -> None:
    """Each update: the pause before it is sent, the time until it stands, and until the judge reads
    it; all in seconds of a clock that neither has. Both look at every second of that. The judge's
    clock is ahead by ``offset_s``."""
    lease = Lease(LEASE_S)
    sent: list[float] = []
    stands: list[float] = []
    seen: list[float] = []
    now_s = 0.0
    for pause_s, until_s, read_s in updates:
        sent.append(now_s + pause_s)
        # The next one is sent after this one stands, and read no earlier.
        now_s = sent[-1] + until_s
        stands.append(now_s)
        seen.append(max(now_s + read_s, *seen, 0.0))
    at_s = 0.0
    while at_s < now_s + 60:
        for index, stands_s in enumerate(stands):
            if stands_s <= at_s:
                lease.confirmed(sent[index] * mine)
        counter = sum(seen_s <= at_s for seen_s in seen)
        if counter:
            written_us = round(sent[counter - 1] * mine * 1e6)
            reader = Reader("s", counter, "test", written_us)
            judge.observe({"a": reader}, at_s * others + offset_s)
        # What it appends compares the counter: an update that it has not read keeps that out.
        if list(judge.dead()) and counter == sum(stands_s <= at_s for stands_s in stands):
            assert not lease.may_hand_out(at_s * mine)
        at_s += 1.0


@pytest.mark.parametrize(
    ("passed_s", "hands_out", "due"),
    [
        (0.0, True, False),
        (5.9, True, False),
        (6.0, True, True),
        (9.9, True, True),
        (10.0, False, True),
    ],
)
def test_a_lease(passed_s: float, hands_out: bool, due: bool) -> None:
    lease = Lease(LEASE_S)
    lease.confirmed(100.0)
    # One that was sent before and stands later takes nothing back.
    lease.confirmed(90.0)
    found = (lease.may_hand_out(100.0 + passed_s), lease.is_due(100.0 + passed_s))
    assert found == (hands_out, due)


def test_given_no_update_that_stands_then_nothing_is_handed_out() -> None:
    assert not Lease(LEASE_S).may_hand_out(0.0)


def watched(judge: Judge, readers: dict[str, Reader], begin_s: float, end_s: float) -> None:
    """It looks every second."""
    for second in range(int(begin_s), int(end_s) + 1):
        judge.observe(readers, float(second))


def test_a_judge() -> None:
    judge = Judge(LEASE_S)
    a, b = Reader("s", 0, "test", 0), Reader("t", 0, "test", 0)
    watched(judge, {"a": a, "b": b}, 0, 10)
    b.counter = 1
    watched(judge, {"a": a, "b": b}, 11, 14)
    assert list(judge.dead()) == []
    watched(judge, {"a": a, "b": b}, 15, 15)
    assert list(judge.dead()) == [("a", "s", 0)]
    # Another session under the name begins anew.
    again = Reader("u", 0, "test", 0)
    watched(judge, {"a": again, "b": b}, 16, 25)
    assert list(judge.dead()) == []
    watched(judge, {"a": again, "b": b}, 26, 26)
    assert list(judge.dead()) == [("b", "t", 1)]
    # It could not write meanwhile.
    judge.spare()
    watched(judge, {"a": again, "b": b}, 27, 31)
    assert list(judge.dead()) == []
    watched(judge, {"a": again, "b": b}, 32, 34)
    assert list(judge.dead()) == [("a", "u", 0), ("b", "t", 1)]
    judge.observe({}, 35.0)
    assert list(judge.dead()) == []


@pytest.mark.parametrize(("pause_s", "looks"), [(100.0, 3), (6.0, 3), (4.0, 4)])
def test_a_judge_that_looks_seldom_needs_some_looks(pause_s: float, looks: int) -> None:
    """An outage is no proof, and a slow judge judges in the end."""
    judge = Judge(LEASE_S)
    a = Reader("s", 0, "test", 0)
    judge.observe({"a": a}, 0.0)
    for number in range(1, looks + 1):
        assert list(judge.dead()) == []
        judge.observe({"a": a}, number * pause_s)
    assert list(judge.dead()) == [("a", "s", 0)]
