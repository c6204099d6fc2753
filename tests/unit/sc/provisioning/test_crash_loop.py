"""When a process that ended is started again: how long each ran → how long to wait each time."""

from __future__ import annotations

import pytest

from sc.provisioning.crash_loop import FIRST_DELAY_S, HEALTHY_S, LONGEST_DELAY_S, CrashLoop

QUICK, ALMOST = 0.0, HEALTHY_S - 0.001


@pytest.mark.parametrize(
    ("ran_s", "delays_s", "ends"),
    [
        pytest.param([QUICK], [0.0], 1, id="given-first-end-then-at-once"),
        pytest.param([QUICK] * 4, [0.0, 0.2, 0.4, 0.8], 4, id="given-quick-ends-then-doubling"),
        pytest.param([ALMOST] * 2, [0.0, 0.2], 2, id="given-not-long-enough-then-quick"),
        pytest.param([HEALTHY_S] * 3, [0.0, 0.0, 0.0], 1, id="given-long-runs-then-always-at-once"),
        pytest.param([10.0] * 3, [0.0, 0.0, 0.0], 1, id="given-ten-seconds-each-then-at-once"),
        pytest.param(
            [QUICK, QUICK, HEALTHY_S, QUICK],
            [0.0, 0.2, 0.0, 0.2],
            2,
            id="given-long-run-between-then-counted-anew",
        ),
        pytest.param(
            [QUICK] * 10,
            [0.0, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0],
            10,
            id="given-many-then-never-longer-than-the-longest",
        ),
    ],
)
def test_delays(ran_s: list[float], delays_s: list[float], ends: int) -> None:
    loop = CrashLoop()
    assert [loop.ended(ran) for ran in ran_s] == delays_s
    assert loop.ends == ends


def test_given_it_goes_on_for_months_then_the_longest_delay() -> None:
    loop = CrashLoop(ends=100_000)
    assert loop.ended(QUICK) == LONGEST_DELAY_S
    assert FIRST_DELAY_S < LONGEST_DELAY_S
