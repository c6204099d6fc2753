"""Moving averages, beside what can be worked out by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spu.load.averages import Averages

MINUTE_MS = 60_000
WINDOW_MS = 2 * MINUTE_MS


def test_given_nothing_told_then_the_rates_are_zero() -> None:
    assert Averages(WINDOW_MS, 0, 17).rates() == (0, 0, 0, 0)


@given(
    steps=st.lists(st.integers(5_000, 400_000), min_size=1, max_size=50),
    rate=st.integers(0, 1_000),
    began=st.integers(0, 10**9),
)
def test_given_an_even_load_then_all_averages_are_it_from_the_first_moment_on(
    steps: list[int], rate: int, began: int
) -> None:
    averages = Averages(WINDOW_MS, began, 0)
    now = began
    for step in steps:
        now += step
        assert averages.told(now, rate * (now - began) // 1000)
    assert averages.rates() == pytest.approx((rate,) * 4, abs=0.25)


def test_given_silence_after_an_even_load_then_each_window_takes_a_third_of_what_was() -> None:
    began = 1_000
    for window, index in ((2, 0), (5, 1), (10, 2), (20, 3)):
        silent = Averages(WINDOW_MS, 0, 0)
        for minute in range(1, began + 1):
            silent.told(minute * MINUTE_MS, minute * 6_000)
        silent.told((began + window) * MINUTE_MS, began * 6_000)
        assert silent.rates()[index] == pytest.approx(100 / math.e)


@given(cuts=st.lists(st.integers(1, 119), min_size=1, max_size=20, unique=True))
def test_given_an_even_load_then_how_often_it_is_told_makes_no_difference(cuts: list[int]) -> None:
    """A hundred a second for ten minutes, then a thousand a second for two minutes."""

    def measured(seconds: list[int]) -> tuple[float, ...]:
        averages = Averages(WINDOW_MS, 0, 0)
        averages.told(600_000, 60_000)
        for second in seconds:
            averages.told((600 + second) * 1000, 60_000 + 1_000 * second)
        averages.told(720_000, 180_000)
        return averages.rates()

    apart = [one for one in sorted(cuts) if one % 6 == 0]
    assert measured(apart) == pytest.approx(measured([]))


def test_given_too_little_time_then_nothing_is_counted_yet() -> None:
    averages = Averages(WINDOW_MS, 0, 0)
    assert not averages.told(4_999, 100)
    assert averages.rates() == (0, 0, 0, 0)
    assert averages.told(5_000, 100)
    assert averages.rates()[0] == pytest.approx(20)
