"""How far apart batches leave, by how long the ones before were under way."""

from __future__ import annotations

import pytest

from runnel.produce.linger import LEAST_S, MOST_S, LingerPacer

MS = 0.001


@pytest.mark.parametrize(
    ("took_ms", "expected_ms"),
    [
        pytest.param([], 2.0, id="given-nothing-yet-then-the-least"),
        pytest.param([0.5] * 50, 2.0, id="given-an-idle-cluster-then-the-least"),
        pytest.param([1.5] * 50, 3.0, id="given-more-then-twice-that"),
        pytest.param([5.0] * 50, 4.0, id="given-a-busy-cluster-then-the-most"),
        pytest.param([0.5] * 50 + [16.0], 4.0, id="given-a-stall-then-the-most-at-first"),
        pytest.param([0.5] * 50 + [16.0] + [0.5] * 20, 2.0, id="given-a-stall-long-ago-then-none"),
        pytest.param([1.2] * 50 + [2.0], 2.6, id="given-one-that-is-late-then-an-eighth-of-it"),
    ],
)
def test_interval(took_ms: list[float], expected_ms: float) -> None:
    pacer, now = LingerPacer(), 0.0
    for took in took_ms:
        pacer.began(now)
        assert pacer.next_at - now == pytest.approx(pacer.interval_s)
        assert LEAST_S <= pacer.interval_s <= MOST_S
        now += took * MS
        pacer.ended(now)
        # Nothing of it was under way: it says nothing.
        pacer.ended(now + 1)
        now = max(now, pacer.next_at)
    assert pacer.interval_s == pytest.approx(expected_ms * MS, rel=0.02)
