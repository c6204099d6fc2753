"""Batches of rows for Spark: sizes, order, and what is copied."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_io.rows.coalescing import BatchLimits, coalesce


def rows(start: int, count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": pa.array(range(start, start + count), pa.int64())})


def batches(sizes: list[int]) -> list[pa.RecordBatch]:
    found = []
    at = 0
    for size in sizes:
        found.append(rows(at, size))
        at += size
    return found


@pytest.mark.parametrize(
    ("sizes", "limits", "expected"),
    [
        pytest.param([], BatchLimits(3, 5), [], id="given-nothing-then-nothing"),
        pytest.param([0, 0], BatchLimits(3, 5), [], id="given-empty-batches-then-nothing"),
        pytest.param([1] * 7, BatchLimits(3, 5), [3, 3, 1], id="given-small-then-coalesced"),
        pytest.param([4, 3], BatchLimits(3, 5), [4, 3], id="given-enough-then-passed-on"),
        pytest.param([2, 5], BatchLimits(3, 5), [5, 2], id="given-too-many-then-split-at-the-cap"),
        pytest.param([12], BatchLimits(3, 5), [5, 5, 2], id="given-one-large-then-split"),
        pytest.param(
            [10], BatchLimits(100, 100, max_bytes=32), [4, 4, 2], id="given-many-bytes-then-split"
        ),
        pytest.param(
            [1, 1, 1], BatchLimits(9, 9, max_bytes=1), [1, 1, 1], id="given-huge-rows-then-alone"
        ),
    ],
)
def test_sizes(sizes: list[int], limits: BatchLimits, expected: list[int]) -> None:
    assert [b.num_rows for b in coalesce(batches(sizes), limits)] == expected


@given(st.lists(st.integers(0, 40)), st.integers(1, 30), st.integers(0, 30), st.integers(1, 400))
def test_law_same_rows_in_order_within_the_limits(
    sizes: list[int], enough: int, more: int, max_bytes: int
) -> None:
    limits = BatchLimits(enough, enough + more, max_bytes)
    found = list(coalesce(batches(sizes), limits))
    assert [n for b in found for n in b.column("n").to_pylist()] == list(range(sum(sizes)))
    for batch in found:
        assert 1 <= batch.num_rows <= limits.max_rows
        assert batch.num_rows == 1 or batch.nbytes <= max_bytes
    for batch in found[:-1]:
        assert batch.num_rows >= enough or batch.nbytes + 8 > max_bytes


def test_given_a_large_batch_then_it_is_not_copied() -> None:
    whole = rows(0, 100)
    (found,) = coalesce([whole], BatchLimits(10, 1_000))
    assert found.column("n").buffers()[1].address == whole.column("n").buffers()[1].address


def test_law_nothing_is_read_ahead() -> None:
    seen: list[int] = []

    def source() -> object:
        for batch in batches([5, 5, 5]):
            seen.append(batch.num_rows)
            yield batch

    stream = coalesce(source(), BatchLimits(5, 5))  # type: ignore[arg-type]
    next(stream)
    assert seen == [5]


@pytest.mark.parametrize("limits", [(0, 5, 1), (6, 5, 1), (1, 1, 0)])
def test_given_limits_that_cannot_be_kept_then_refused(limits: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="cannot be kept"):
        BatchLimits(*limits)
