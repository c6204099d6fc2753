"""When a second replica is asked, and how often."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.consume.speculation import Speculation, SpeculationPolicy, percentile


@pytest.mark.parametrize(
    ("latencies_ms", "random", "expected_ms"),
    [
        pytest.param([], 0.0, 250, id="given-no-reads-then-the-first-delay"),
        pytest.param([], 1.0, 312.5, id="given-the-largest-random-then-the-whole-jitter"),
        pytest.param([900.0] * 15, 0.0, 250, id="given-too-few-reads-then-they-do-not-count"),
        pytest.param([40.0] * 16, 0.0, 80, id="given-enough-reads-then-twice-the-99th-percentile"),
        pytest.param([1.0] * 100, 0.0, 20, id="given-fast-reads-then-not-below-the-least"),
        pytest.param([5_000.0] * 100, 0.0, 1_000, id="given-slow-reads-then-not-above-the-most"),
        pytest.param([5_000.0] * 100, 1.0, 1_250, id="given-the-most-then-jittered-all-the-same"),
        pytest.param(
            [30.0] * 99 + [800.0], 0.0, 60, id="given-one-slow-of-100-then-it-is-left-out"
        ),
        pytest.param(
            [30.0] * 98 + [400.0] * 2, 0.0, 800, id="given-two-slow-of-100-then-slow-is-usual"
        ),
        pytest.param(
            [900.0] * 256 + [50.0] * 256, 0.0, 100, id="given-reads-of-long-ago-then-forgotten"
        ),
    ],
)
def test_delay(latencies_ms: list[float], random: float, expected_ms: float) -> None:
    speculation = Speculation()
    for latency_ms in latencies_ms:
        speculation.answered(latency_ms)
    assert speculation.delay_ms(random) == expected_ms


@pytest.mark.parametrize(
    ("events", "granted"),
    [
        pytest.param("t" * 4, "yyyn", id="given-a-burst-of-3-then-the-4th-is-refused"),
        pytest.param("ttt" + "a" * 9 + "t", "yyyn", id="given-9-reads-since-then-still-refused"),
        pytest.param("ttt" + "a" * 10 + "tt", "yyyyn", id="given-10-reads-since-then-one-more"),
        pytest.param("a" * 500 + "tttt", "yyyn", id="given-many-reads-then-no-more-than-the-burst"),
    ],
)
def test_budget(events: str, granted: str) -> None:
    speculation = Speculation(SpeculationPolicy(percent=10, burst=3))
    got = ""
    for event in events:
        if event == "a":
            speculation.asked()
        else:
            got += "y" if speculation.take() else "n"
    assert got == granted


@given(
    st.floats(0, 100),
    st.integers(0, 20),
    st.lists(st.booleans(), max_size=300),
)
def test_law_second_requests_are_a_fraction_of_the_reads(
    percent: float, burst: int, asks: list[bool]
) -> None:
    speculation = Speculation(SpeculationPolicy(percent=percent, burst=burst))
    reads = seconds = 0
    for ask in asks:
        if ask:
            speculation.asked()
            reads += 1
        else:
            seconds += speculation.take()
        assert seconds <= burst + reads * percent / 100 + 1e-6


@given(st.lists(st.floats(0, 10_000), max_size=300), st.floats(0, 1, exclude_max=True))
def test_law_the_delay_stays_within_its_bounds(latencies_ms: list[float], random: float) -> None:
    speculation = Speculation()
    for latency_ms in latencies_ms:
        speculation.answered(latency_ms)
    assert 20 <= speculation.delay_ms(random) <= 1_250


@given(st.lists(st.floats(0, 1_000), min_size=1), st.integers(1, 100))
def test_law_a_percentile_is_a_value_that_so_many_do_not_exceed(
    values: list[float], percent: int
) -> None:
    found = percentile(deque(values), percent)
    assert found in values
    assert sum(value <= found for value in values) * 100 >= percent * len(values)
    assert sum(value < found for value in values) * 100 < percent * len(values)
