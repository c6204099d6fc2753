"""How far a batch of a stream goes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_io.options.read import TriggerLimits
from spark_io.stream.admission import Backlog, admit, waits


@pytest.mark.parametrize(
    ("backlogs", "limits", "ends"),
    [
        pytest.param([(0, 10), (5, 5)], TriggerLimits(), [10, 5], id="given-no-limit-then-all"),
        pytest.param(
            [(0, 10), (0, 30)], TriggerLimits(20), [5, 15], id="given-a-limit-then-shares"
        ),
        pytest.param([(0, 10), (0, 10)], TriggerLimits(100), [10, 10], id="given-enough-then-all"),
        pytest.param(
            [(0, 1000), (0, 1)], TriggerLimits(10), [9, 1], id="given-a-small-one-then-it-moves"
        ),
        pytest.param(
            [(0, 5), (0, 9), (0, 7)],
            TriggerLimits(2),
            [0, 1, 1],
            id="given-fewer-than-partitions-then-the-largest-move",
        ),
        pytest.param([(9, 4)], TriggerLimits(5), [9], id="given-an-end-before-the-start-then-none"),
    ],
)
def test_ends(backlogs: list[tuple[int, int]], limits: TriggerLimits, ends: list[int]) -> None:
    found = admit({i: Backlog(*one) for i, one in enumerate(backlogs)}, limits)
    assert list(found.values()) == ends


def test_given_a_limit_of_bytes_then_by_the_size_of_records() -> None:
    backlogs = {"large": Backlog(0, 100, 1_000.0), "small": Backlog(0, 100, 10.0)}
    assert admit(backlogs, TriggerLimits(max_bytes=50_500)) == {"large": 50, "small": 50}
    assert admit(backlogs, TriggerLimits(max_bytes=1)) == {"large": 1, "small": 1}


@given(
    st.dictionaries(
        st.integers(0, 5), st.tuples(st.integers(0, 100), st.integers(0, 200)), max_size=6
    ),
    st.integers(1, 300),
)
def test_law_a_limit_holds_and_the_end_is_reached(
    logs: dict[int, tuple[int, int]], most: int
) -> None:
    backlogs = {key: Backlog(start, start + length) for key, (start, length) in logs.items()}
    limits = TriggerLimits(max_offsets=most)
    for _ in range(10_000):
        left = sum(one.length for one in backlogs.values())
        if not left:
            break
        found = admit(backlogs, limits)
        taken = {key: found[key] - one.start for key, one in backlogs.items()}
        assert all(0 <= taken[key] <= one.length for key, one in backlogs.items())
        assert 1 <= sum(taken.values()) <= most
        backlogs = {key: Backlog(found[key], one.end) for key, one in backlogs.items()}
    assert not sum(one.length for one in backlogs.values())


@pytest.mark.parametrize(
    ("limits", "since_ms", "expected"),
    [
        (TriggerLimits(), 0, False),
        (TriggerLimits(min_offsets=10, max_delay_ms=1_000), 0, False),
        (TriggerLimits(min_offsets=11, max_delay_ms=1_000), 999, True),
        (TriggerLimits(min_offsets=11, max_delay_ms=1_000), 1_000, False),
    ],
)
def test_a_batch_waits_for_enough_records_but_not_for_ever(
    limits: TriggerLimits, since_ms: float, expected: bool
) -> None:
    assert waits({0: Backlog(0, 7), 1: Backlog(2, 5)}, limits, since_ms) is expected
