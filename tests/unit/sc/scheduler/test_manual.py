"""Manual assignments: what is wrong with them is said, with the row."""

from __future__ import annotations

from typing import Any

import pytest

from sc.scheduler.manual import invalid_assignment
from schemas.objects.topic import TopicSpec

SPUS = frozenset({1, 2, 3, 4})
GAP = "assignment rows must be numbered from 0 without gaps:"


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        pytest.param([{0: [1, 2]}, {1: [2, 3]}], None, id="given-good-rows-then-none"),
        pytest.param([{1: [2]}, {0: [4]}], None, id="given-any-order-then-none"),
        pytest.param([{0: [1]}, {2: [1]}], f"{GAP} 1 is missing", id="given-gap"),
        pytest.param([{1: [1]}, {2: [1]}], f"{GAP} 0 is missing", id="given-start-at-1"),
        pytest.param(
            [{0: [1]}, {1: [1]}, {4: [1]}, {0: [2]}, {1: [2]}],
            "assignment has row 0 more than once",
            id="given-row-twice-then-that-and-not-the-gap",
        ),
        pytest.param(
            [{0: [1, 2, 3]}, {1: [3, 1, 2]}, {2: [1, 2]}],
            "assignment row 2 has 2 replicas, row 0 has 3",
            id="given-shorter-row",
        ),
        pytest.param(
            [{1: [3]}, {0: [1, 2]}],
            "assignment row 1 has 1 replica, row 0 has 2",
            id="given-shorter-row-first-then-row-0-is-still-the-measure",
        ),
        pytest.param(
            [{0: [1, 2]}, {1: [4, 4]}], "assignment row 1 names SPU 4 twice", id="given-spu-twice"
        ),
        pytest.param(
            [{0: [3, 1, 3, 3]}], "assignment row 0 names SPU 3 3 times", id="given-spu-thrice"
        ),
        pytest.param(
            [{0: [1, 2]}, {1: [2, 3]}, {2: [1, 7]}],
            "assignment row 2: SPU 7 is not registered",
            id="given-unknown-spu",
        ),
        pytest.param(
            [{1: [8]}, {0: [9]}],
            "assignment row 0: SPU 9 is not registered",
            id="given-several-then-the-lowest-row",
        ),
    ],
)
def test_invalid_assignment(rows: Any, reason: str | None) -> None:
    given = TopicSpec(assignment=rows).assignment
    assert given is not None
    assert invalid_assignment(given, SPUS) == reason
