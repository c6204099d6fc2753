"""Several tasks for one partition: how many, and where they begin."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_io.plan.slices import LogSlice
from spark_io.plan.splitting import piece_counts, split


@pytest.mark.parametrize(
    ("sizes", "lengths", "least", "most_bytes", "expected"),
    [
        pytest.param([10, 10], [5, 5], 1, 100, [1, 1], id="given-small-ones-then-one-each"),
        pytest.param([250, 10], [50, 5], 1, 100, [3, 1], id="given-a-large-one-then-by-bytes"),
        pytest.param([250, 10], [50, 5], 1, None, [1, 1], id="given-no-limit-then-never"),
        pytest.param([0, 10], [0, 5], 4, None, [0, 4], id="given-an-empty-one-then-none-of-it"),
        pytest.param([300, 100], [90, 90], 8, None, [6, 2], id="given-a-least-then-by-bytes"),
        pytest.param([300, 100], [2, 90], 8, None, [2, 6], id="given-few-offsets-then-no-more"),
        pytest.param([5, 5], [2, 1], 9, None, [2, 1], id="given-too-few-records-then-one-each"),
        pytest.param([], [], 9, 100, [], id="given-nothing-then-nothing"),
    ],
)
def test_piece_counts(
    sizes: list[int], lengths: list[int], least: int, most_bytes: int | None, expected: list[int]
) -> None:
    assert piece_counts(sizes, lengths, least, most_bytes) == expected


def piece(start: int, end: int) -> LogSlice:
    return LogSlice(
        "orders", "uid", 0, start, end, datetime(2025, 1, 1, tzinfo=UTC), 3, 7, most_term=8
    )


@pytest.mark.parametrize(
    ("bounds", "count", "marks", "cuts"),
    [
        pytest.param((0, 100), 4, (), [25, 50, 75], id="given-no-segments-then-even"),
        pytest.param(
            (0, 100), 2, ((0, 0), (55, 550), (100, 1000)), [55], id="given-a-boundary-near-then-it"
        ),
        pytest.param(
            (0, 100), 2, ((0, 0), (90, 900), (100, 1000)), [50], id="given-it-is-far-then-even"
        ),
        pytest.param(
            (0, 100), 2, ((0, 0), (10, 900), (100, 1000)), [5], id="given-large-records-then-bytes"
        ),
        pytest.param(
            (50, 100),
            2,
            ((0, 0), (50, 5), (100, 1000)),
            [75],
            id="given-a-later-start-then-its-own",
        ),
        pytest.param((7, 10), 3, (), [8, 9], id="given-one-offset-each-then-all-of-them"),
    ],
)
def test_cuts(
    bounds: tuple[int, int], count: int, marks: tuple[tuple[int, int], ...], cuts: list[int]
) -> None:
    found = split(piece(*bounds), count, marks)
    assert [one.start for one in found] == [bounds[0], *cuts]
    assert [one.begins_at is None for one in found] == [False, *(True for _ in cuts)]
    assert [one.start_term for one in found] == [3, *(0 for _ in cuts)]
    assert [one.end_term for one in found] == [*(0 for _ in cuts), 7]
    assert {one.most_term for one in found} == {8}


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 5_000)), max_size=8),
    st.integers(0, 300),
    st.integers(1, 300),
    st.integers(1, 40),
)
def test_law_pieces_are_disjoint_complete_and_never_empty(
    segments: list[tuple[int, int]], start: int, length: int, count: int
) -> None:
    marks = [(0, 0)]
    for offsets, size in segments:
        marks.append((marks[-1][0] + offsets, marks[-1][1] + size))
    count = min(count, length)
    found = split(piece(start, start + length), count, marks)
    assert len(found) == count
    assert (found[0].start, found[-1].end) == (start, start + length)
    assert all(one.start < one.end for one in found)
    assert all(before.end == after.start for before, after in pairwise(found))


@given(
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 50)), max_size=6),
    st.integers(1, 100),
    st.none() | st.integers(1, 2_000),
)
def test_law_there_are_enough_pieces_where_there_are_offsets(
    logs: list[tuple[int, int]], least: int, most_bytes: int | None
) -> None:
    sizes, lengths = [size for size, _ in logs], [length for _, length in logs]
    counts = piece_counts(sizes, lengths, least, most_bytes)
    assert all(count <= length for count, length in zip(counts, lengths, strict=True))
    assert all(bool(count) == bool(length) for count, length in zip(counts, lengths, strict=True))
    assert sum(counts) >= min(least, sum(lengths))
