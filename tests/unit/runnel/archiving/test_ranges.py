"""Which offsets are due for an archive: a table, and laws."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.archiving.ranges import due_ranges
from schemas.wire.log_requests import SegmentInfo, SegmentState

HOUR = 3_600_000_000
NOW = 100 * HOUR


def segment(base: int, end: int, completed_h: int | None = 90, size: int = 1_000) -> SegmentInfo:
    """A segment that was completed at an hour; None: in progress."""
    if completed_h is None:
        return SegmentInfo(base, end, size, SegmentState.IN_PROGRESS)
    return SegmentInfo(base, end, size, SegmentState.COMPLETED, completed_us=completed_h * HOUR)


THREE = (segment(0, 10), segment(10, 20), segment(20, 35, None))


@pytest.mark.parametrize(
    ("segments", "log_start", "lac", "before", "everything", "due"),
    [
        pytest.param(THREE, 0, 34, None, False, [(0, 20)], id="given-completed-ones-then-those"),
        pytest.param(THREE, 0, 34, 10, False, [(10, 20)], id="given-a-watermark-then-from-there"),
        pytest.param(THREE, 0, 34, 15, False, [(15, 20)], id="given-one-inside-then-from-there"),
        pytest.param(THREE, 0, 34, 20, False, [], id="given-all-archived-then-nothing"),
        pytest.param(THREE, 12, 34, 5, False, [(12, 20)], id="given-a-later-log-then-a-gap"),
        pytest.param(THREE, 0, 14, None, False, [(0, 15)], id="given-less-committed-then-up-to-it"),
        pytest.param(THREE, 0, -1, None, False, [], id="given-nothing-committed-then-nothing"),
        pytest.param(THREE, 0, 34, None, True, [(0, 35)], id="given-everything-then-all-committed"),
        pytest.param(
            THREE, 0, 30, 20, True, [(20, 31)], id="given-everything-then-not-uncommitted"
        ),
        pytest.param(
            (segment(0, 10), segment(10, 20, 99), segment(20, 30)),
            0,
            29,
            None,
            False,
            [(0, 10)],
            id="given-a-young-one-then-nothing-after-it",
        ),
        pytest.param(
            (SegmentInfo(0, 10, 1_000, SegmentState.TRUNCATED), segment(10, 20)),
            10,
            19,
            None,
            False,
            [(10, 20)],
            id="given-a-truncated-one-then-not-that",
        ),
        pytest.param((), 0, -1, None, True, [], id="given-no-segments-then-nothing"),
    ],
)
def test_due(
    segments: tuple[SegmentInfo, ...],
    log_start: int,
    lac: int,
    before: int | None,
    everything: bool,
    due: list[tuple[int, int]],
) -> None:
    older = None if everything else NOW - 5 * HOUR
    found = due_ranges(segments, log_start, lac, before, older)
    assert [(one.base, one.end) for one in found] == due


@pytest.mark.parametrize(
    ("sizes", "most", "due"),
    [
        pytest.param(
            [400, 400, 400], 900, [(0, 20), (20, 30)], id="given-small-ones-then-together"
        ),
        pytest.param([1_000], 500, [(0, 5), (5, 10)], id="given-a-large-one-then-in-pieces"),
        pytest.param([1_000, 100], 500, [(0, 5), (5, 10), (10, 20)], id="given-both"),
        pytest.param([10**9], 1, [(i, i + 1) for i in range(10)], id="given-huge-then-by-offset"),
    ],
)
def test_sizes(sizes: list[int], most: int, due: list[tuple[int, int]]) -> None:
    segments = [segment(10 * i, 10 * i + 10, size=size) for i, size in enumerate(sizes)]
    found = due_ranges(segments, 0, 10 * len(sizes) - 1, None, None, most)
    assert [(one.base, one.end) for one in found] == due


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(1, 5_000)), min_size=1, max_size=8),
    st.integers(0, 100),
    st.integers(0, 400),
    st.integers(100, 3_000),
)
def test_law_ranges_are_disjoint_complete_and_bounded(
    shapes: list[tuple[int, int]], before: int, lac: int, most: int
) -> None:
    segments, at = [], 0
    for offsets, size in shapes:
        segments.append(segment(at, at + offsets, size=size))
        at += offsets
    end = min(at, lac + 1)
    found = due_ranges(segments, 0, lac, before, None, most)
    assert all(one.base < one.end for one in found)
    assert all(one.end == other.base for one, other in pairwise(found))
    if before < end:
        assert (found[0].base, found[-1].end) == (before, end)
    else:
        assert not found
    # Offsets are not divided: a cut lies at most one of them beside its place.
    assert all(one.size_bytes <= 2 * most or one.end - one.base == 1 for one in found)
