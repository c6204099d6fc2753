"""Backoff: bounds and jitter."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.backoff import Backoff, backoff_s, ceiling_ms


@pytest.mark.parametrize(
    ("draw", "delays"),
    [
        pytest.param(0.0, [50, 100, 200, 400, 500, 500], id="given-least-luck-then-half-of-each"),
        pytest.param(0.5, [75, 150, 300, 600, 750, 750], id="given-middle-then-three-quarters"),
    ],
)
def test_delays_double_up_to_the_cap(draw: float, delays: list[float]) -> None:
    backoff = Backoff(100, 1_000, lambda: draw)
    assert [backoff.next_ms() for _ in delays] == delays


def test_given_reset_then_it_starts_over() -> None:
    backoff = Backoff(100, 1_000, lambda: 0.0)
    first = backoff.next_ms()
    backoff.next_ms()
    backoff.reset()
    assert backoff.next_ms() == first


@given(
    base=st.floats(0.1, 1_000),
    cap=st.floats(0.1, 100_000),
    draws=st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=60),
)
def test_every_delay_lies_in_the_upper_half_of_its_ceiling(
    base: float, cap: float, draws: list[float]
) -> None:
    rest = iter(draws)
    backoff = Backoff(base, cap, lambda: next(rest))
    for attempt in range(len(draws)):
        ceiling = min(cap, base * 2.0**attempt)
        assert ceiling * 0.5 <= backoff.next_ms() <= ceiling


def test_given_a_million_attempts_then_the_delay_is_still_a_number() -> None:
    backoff = Backoff(50, 1_000, lambda: 0.0)
    backoff.attempts = 1_000_000
    assert backoff.next_ms() == 500


def test_backoff_doubles_to_its_cap_with_jitter_in_the_upper_half() -> None:
    assert [backoff_s(n, 10, 50, 0.999_999) for n in range(4)] == pytest.approx(
        [0.01, 0.02, 0.04, 0.05], rel=1e-3
    )
    assert backoff_s(9, 10, 50, 0.0) == pytest.approx(0.025)


def test_the_ceiling_has_no_jitter() -> None:
    assert [ceiling_ms(n, 20, 500) for n in range(7)] == [20, 40, 80, 160, 320, 500, 500]
