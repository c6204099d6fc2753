"""Small slices share a task: which, and how many tasks are left."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_io.plan.sharing import OPENING_BYTES, TASK_BYTES, share
from spark_io.plan.slices import LogSlice

MIB = 1 << 20


def slices(count: int) -> list[LogSlice]:
    return [LogSlice("orders", "uid", index, 0, 1) for index in range(count)]


@pytest.mark.parametrize(
    ("sizes", "least", "most_bytes", "expected"),
    [
        pytest.param([], 1, None, [], id="given-nothing-then-nothing"),
        pytest.param([1, 1], 2, None, [1, 1], id="given-few-then-a-task-each"),
        pytest.param([1, 1], 9, None, [1, 1], id="given-too-few-then-a-task-each"),
        pytest.param([4 * MIB] * 8, 1, None, [4, 4], id="given-many-then-by-bytes"),
        pytest.param([4 * MIB] * 8, 4, None, [2] * 4, id="given-a-least-then-so-many"),
        pytest.param([4 * MIB] * 8, 5, None, [2, 2, 2, 1, 1], id="given-an-odd-least-then-so-many"),
        pytest.param([8 * MIB, 8 * MIB + 1], 1, None, [1, 1], id="given-a-byte-more-then-apart"),
        pytest.param([0] * 20, 1, None, [16, 4], id="given-tiny-ones-then-opening-counts"),
        pytest.param(
            [90 * MIB, 1, 1, 90 * MIB, 1], 1, None, [1, 2, 1, 1], id="given-large-ones-then-alone"
        ),
        pytest.param([90 * MIB, 1, 1], 2, None, [1, 2], id="given-a-large-one-then-small-share"),
        pytest.param([MIB] * 4, 1, 2 * MIB, [2, 2], id="given-a-limit-then-below-it"),
        pytest.param([10] * 4, 1, 10, [1] * 4, id="given-a-small-limit-then-a-task-each"),
        pytest.param([MIB] * 4, 1, 999 * MIB, [4], id="given-a-large-limit-then-ours"),
    ],
)
def test_tasks(sizes: list[int], least: int, most_bytes: int | None, expected: list[int]) -> None:
    found = share(slices(len(sizes)), sizes, least, most_bytes)
    assert [len(task.slices) for task in found] == expected


@given(
    st.lists(st.integers(0, 40 * MIB), max_size=60),
    st.integers(1, 80),
    st.none() | st.integers(1, 40 * MIB),
)
def test_law_all_in_order_and_enough_tasks(
    sizes: list[int], least: int, most_bytes: int | None
) -> None:
    given_slices = slices(len(sizes))
    found = share(given_slices, sizes, least, most_bytes)
    assert [one for task in found for one in task.slices] == given_slices
    assert len(found) >= min(least, len(sizes))
    # As few as these bytes and this number allow, but for what does not fit.
    if sum(max(size, OPENING_BYTES) for size in sizes) <= TASK_BYTES and most_bytes is None:
        assert len(found) == min(least, len(sizes))
    most = min(TASK_BYTES, most_bytes or TASK_BYTES)
    for task in found:
        costs = [max(sizes[one.partition], OPENING_BYTES) for one in task.slices]
        assert len(costs) == 1 or sum(costs) <= most
