"""When an SC may stand for election."""

from __future__ import annotations

import pytest

from sc.election.turns import Turns


@pytest.mark.parametrize(
    ("lost_ms", "now_ms", "stands_at_ms"),
    [
        pytest.param([], 1_000, 1_050, id="given-no-loss-then-at-once-within-the-spread"),
        pytest.param([1_000], 1_000, 1_050, id="given-one-loss-then-at-once"),
        pytest.param([0, 1_000], 1_000, 2_000, id="given-two-in-a-minute-then-a-second-later"),
        pytest.param([0, 500, 1_000], 1_000, 3_000, id="given-three-then-twice-as-long"),
        pytest.param([0] * 6, 0, 16_000, id="given-six-then-sixteen-seconds"),
        pytest.param([0] * 40, 0, 30_000, id="given-very-many-then-half-a-minute"),
        pytest.param([0, 60_000], 60_000, 60_050, id="given-a-minute-between-then-at-once"),
        pytest.param([0, 1_000], 9_000, 9_050, id="given-the-wait-is-over-then-at-once"),
    ],
)
def test_losses(lost_ms: list[int], now_ms: int, stands_at_ms: int) -> None:
    turns = Turns()
    for at_ms in lost_ms:
        turns.lost(at_ms)
    assert turns.stands_at(now_ms, chance=0.5) == stands_at_ms


def test_given_one_that_stepped_down_then_others_have_ten_seconds() -> None:
    turns = Turns()
    turns.stepped_down(1_000)
    assert turns.stands_at(1_000, chance=0.5) == 11_000
    assert turns.stands_at(12_000, chance=0.0) == 12_000
