"""Numbers of the last quarter of an hour."""

from __future__ import annotations

import pytest

from sc.statistics.series import LENGTH_S, Series


def series(*values: tuple[int, float]) -> Series:
    found = Series()
    for second, value in values:
        found.set(second, value)
    return found


@pytest.mark.parametrize(
    ("values", "second", "expected"),
    [
        pytest.param((), 10, [0, 0, 0], id="given-nothing-then-0"),
        pytest.param(((10, 1),), 10, [0, 0, 1], id="given-the-first-value"),
        pytest.param(((8, 1), (9, 2), (10, 3)), 10, [1, 2, 3], id="given-one-a-second"),
        pytest.param(((8, 1), (10, 3)), 10, [1, 0, 3], id="given-a-gap-then-0"),
        pytest.param(((8, 1), (9, 2)), 11, [2, 0, 0], id="given-nothing-since-then-0"),
        pytest.param(((10, 1), (10, 3)), 10, [0, 0, 3], id="given-one-second-twice-then-the-later"),
        pytest.param(
            ((10, 1), (10 + LENGTH_S, 2)), 10 + LENGTH_S, [0, 0, 2], id="given-a-whole-turn"
        ),
        pytest.param(
            ((9, 1), (10, 5), (10 + 5 * LENGTH_S, 2)),
            10 + 5 * LENGTH_S,
            [0, 0, 2],
            id="given-several-turns-then-nothing-old-comes-back",
        ),
    ],
)
def test_the_last_values(
    values: tuple[tuple[int, float], ...], second: int, expected: list[float]
) -> None:
    assert series(*values).last(second, 3) == expected


def test_it_keeps_what_it_promises_and_no_more() -> None:
    found = series(*((second, second) for second in range(1, 2 * LENGTH_S + 1)))
    now = 2 * LENGTH_S
    assert found.last(now, 10 * LENGTH_S) == list(range(LENGTH_S + 1, now + 1))
    assert found.at(LENGTH_S + 1) == LENGTH_S + 1
    assert found.at(LENGTH_S) == 0
