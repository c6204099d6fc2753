"""Who is alive: no reader is called dead while it hands out records, whatever the clocks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.groups.lease import Judge, Lease
from runnel.groups.state import Reader

LEASE_S = 15.0
RATE = st.floats(1.0, 1.5)
DELAY_S = st.floats(0.0, 20.0)


@given(RATE, RATE, st.lists(st.tuples(DELAY_S, DELAY_S, DELAY_S), min_size=1, max_size=12))
def test_given_clocks_of_any_rates_then_nobody_is_dead_who_may_hand_out(
    mine: float, others: float, updates: list[tuple[float, float, float]]
) -> None:
    """Each update: the pause before it is sent, the time until it stands, and until the judge reads
    it; all in seconds of a clock that neither has."""
    lease, judge = Lease(LEASE_S), Judge(LEASE_S)
    reader = Reader("s", 0, "test", 0)
    now_s = 0.0
    for pause, stands, read in updates:
        now_s += pause
        sent_s = now_s
        reader.counter += 1
        confirmed_s, observed_s = sent_s + stands, sent_s + stands + read
        # It is read before the next one stands.
        lease.confirmed(sent_s * mine)
        judge.observe({"a": reader}, observed_s * others)
        now_s = confirmed_s
        for look in range(60):
            at_s = observed_s + look
            if list(judge.dead(at_s * others)):
                assert not lease.may_hand_out(at_s * mine)


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


def test_a_judge() -> None:
    judge = Judge(LEASE_S)
    a, b = Reader("s", 0, "test", 0), Reader("t", 0, "test", 0)
    judge.observe({"a": a, "b": b}, 0.0)
    b.counter = 1
    judge.observe({"a": a, "b": b}, 5.0)
    judge.observe({"a": a, "b": b}, 10.0)
    assert list(judge.dead(14.9)) == []
    assert list(judge.dead(15.0)) == [("a", "s", 0)]
    # Another session under the name begins anew.
    again = Reader("u", 0, "test", 0)
    judge.observe({"a": again, "b": b}, 15.0)
    assert list(judge.dead(19.9)) == []
    assert list(judge.dead(20.0)) == [("b", "t", 1)]
    # It could not look for a while, or not write.
    judge.observe({"a": again, "b": b}, 25.0)
    assert list(judge.dead(39.9)) == []
    judge.begin_anew()
    judge.observe({"a": again, "b": b}, 29.0)
    assert list(judge.dead(43.9)) == []
    assert len(list(judge.dead(44.0))) == 2
    judge.observe({}, 33.0)
    assert list(judge.dead(99.0)) == []
