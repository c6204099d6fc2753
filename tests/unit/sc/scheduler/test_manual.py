"""Manual assignments: what is wrong with them is said, with the row."""

from __future__ import annotations

from typing import Any

import pytest

from sc.scheduler.manual import WrongRow, invalid_assignment, unregistered, wrong_row
from schemas.objects.topic import TopicSpec

SPUS = frozenset({1, 2, 3, 4})
GAP = "is missing: rows are numbered from 0 without gaps"


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        pytest.param([{0: [1, 2]}, {1: [2, 3]}], None, id="given-good-rows-then-none"),
        pytest.param([{1: [2]}, {0: [4]}], None, id="given-any-order-then-none"),
        pytest.param([{0: [1]}, {2: [1]}], f"assignment row 1 {GAP}", id="given-gap"),
        pytest.param([{1: [1]}, {2: [1]}], f"assignment row 0 {GAP}", id="given-start-at-1"),
        pytest.param(
            [{0: [1]}, {1: [1]}, {4: [1]}, {0: [2]}, {1: [2]}],
            "assignment row 0 is there more than once",
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


@pytest.mark.parametrize(
    ("rows", "path", "why"),
    [
        pytest.param([{1: [9]}, {0: [8]}], None, None, id="given-spus-nobody-knows-then-not-wrong"),
        pytest.param(
            [{0: [1]}, {1: [1]}, {1: [2]}],
            "[2].id",
            "row 1 is there more than once",
            id="given-twice",
        ),
        pytest.param([{1: [1]}], "", f"row 0 {GAP}", id="given-gap"),
        pytest.param(
            [{1: [3]}, {0: [1, 2]}],
            "[0].replicas",
            "row 1 has 1 replica, row 0 has 2",
            id="given-shorter-row-then-its-place-in-the-list",
        ),
        pytest.param(
            [{0: [1]}, {1: [-1]}],
            "[1].replicas",
            "row 1 names SPU -1; ids of SPUs go from 0 to 2147483647",
            id="given-an-id-below-all",
        ),
        pytest.param(
            [{0: [2**31]}],
            "[0].replicas",
            "row 0 names SPU 2147483648; ids of SPUs go from 0 to 2147483647",
            id="given-an-id-above-all",
        ),
    ],
)
def test_wrong_row(rows: Any, path: str | None, why: str | None) -> None:
    given = TopicSpec(assignment=rows).assignment
    assert given is not None
    expected = None if path is None or why is None else WrongRow(path, why)
    assert wrong_row(given) == expected


def test_unregistered_names_one_spu_of_each_row() -> None:
    given = TopicSpec(assignment=[{1: [7, 8]}, {0: [1, 9]}, {2: [1, 2]}]).assignment
    assert given is not None
    assert list(unregistered(given, SPUS)) == [
        WrongRow("[1].replicas", "row 0: SPU 9 is not registered"),
        WrongRow("[0].replicas", "row 1: SPU 7 is not registered"),
    ]
