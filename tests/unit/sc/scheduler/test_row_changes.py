"""Which SPU comes to a row, and which goes from it: tables, and a law against all choices."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sc.scheduler.row_changes import Seat, extended, shrunk


def seats(text: str) -> list[Seat]:
    """``"1a:3 2b"``: SPU 1 in rack a with three replicas, and SPU 2 in rack b with none."""
    found = []
    for word in text.split():
        place, _, replicas = word.partition(":")
        spu_id, rack = place.rstrip("abcdef"), place.lstrip("0123456789")
        found.append(Seat(int(spu_id), rack or None, None, int(replicas or 0)))
    return found


@pytest.mark.parametrize(
    ("row", "candidates", "chosen"),
    [
        pytest.param("1", "1", None, id="given-only-who-is-there-then-nobody"),
        pytest.param("1", "2:3 3:2 4:2", 3, id="given-no-racks-then-the-least-loaded-lowest-id"),
        pytest.param("1a", "2a 3b:9", 3, id="given-another-rack-then-that-whatever-its-load"),
        pytest.param("1a 2b", "3a:1 4b", 4, id="given-all-racks-in-use-then-the-least-loaded"),
        pytest.param("1a 2a 3b", "4a 5b:5", 5, id="given-uneven-racks-then-the-one-used-least"),
    ],
)
def test_extended(row: str, candidates: str, chosen: int | None) -> None:
    found = extended(seats(row), seats(candidates))
    assert (None if found is None else found.spu_id) == chosen


def test_given_racks_are_ignored_then_the_load_decides() -> None:
    found = extended(seats("1a"), seats("2a 3b:9"), ignore_racks=True)
    assert found is not None
    assert found.spu_id == 2


@pytest.mark.parametrize(
    ("row", "count", "keep", "lost", "left"),
    [
        pytest.param("1 2 3", 3, 1, (), (1, 2, 3), id="given-as-many-then-all-stay"),
        pytest.param("1 2 3", 2, 3, (), (1, 3), id="given-equal-ones-then-the-highest-id-goes"),
        pytest.param("1 2 3", 1, 3, (), (3,), id="given-one-is-left-then-it-is-the-leader"),
        pytest.param("1:9 2 3", 2, 3, (2,), (1, 3), id="given-a-lost-one-then-it-goes-first"),
        pytest.param("1a 2b 3a", 2, 2, (), (1, 2), id="given-a-shared-rack-then-one-of-it-goes"),
        pytest.param("1a 2b 3a", 2, 3, (), (2, 3), id="given-the-leader-shares-it-then-the-other"),
        pytest.param("1:5 2:1 3:1", 2, 3, (), (2, 3), id="given-a-loaded-one-then-it-goes"),
    ],
)
def test_shrunk(
    row: str, count: int, keep: int, lost: tuple[int, ...], left: tuple[int, ...]
) -> None:
    assert shrunk(seats(row), count, keep=keep, lost=lost) == left


RACKS = st.lists(st.sampled_from("abc"), min_size=2, max_size=6)


@given(RACKS)
def test_no_other_choice_spreads_a_row_better_over_racks(racks: list[str]) -> None:
    row = [Seat(i, rack) for i, rack in enumerate(racks)]

    def pairs(ids: tuple[int, ...]) -> int:
        return sum(racks[i] == racks[j] for i, j in combinations(ids, 2))

    left = shrunk(row, len(row) - 1, keep=0)
    others = (tuple(i for i in range(len(row)) if i != gone) for gone in range(1, len(row)))
    assert pairs(left) == min(map(pairs, others))
    found = extended(row[:1], row)
    assert found is not None
    assert pairs((0, found.spu_id)) == min(pairs((0, i)) for i in range(1, len(row)))
