"""Balances: tables, and laws against every possible choice."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sc.scheduler.balance import Row, balanced_leaders, balanced_replicas
from sc.scheduler.row_changes import Seat


def rows(*replicas: tuple[int, ...], fixed: frozenset[int] = frozenset()) -> list[Row]:
    return [Row(f"p-{i}", row, fixed=i in fixed) for i, row in enumerate(replicas)]


def seats(*ids: int, racks: str = "") -> list[Seat]:
    named = racks or [None] * len(ids)
    return [Seat(i, rack) for i, rack in zip(ids, named, strict=True)]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(rows((1,), (2,)), {}, id="given-even-ones-then-nothing"),
        pytest.param(rows((1,), (1,), (2,)), {}, id="given-a-difference-of-one-then-nothing"),
        pytest.param(
            rows((1,), (1,), (1,), (1,)),
            {"p-0": (2,), "p-1": (2,)},
            id="given-an-empty-spu-then-it-gets-half",
        ),
        pytest.param(
            rows((1,), (1,), (1,), fixed=frozenset({0, 1})),
            {"p-2": (2,)},
            id="given-fixed-ones-then-another-goes",
        ),
        pytest.param(
            rows((1, 2), (1, 2), (1,), (1,)),
            {"p-2": (2,)},
            id="given-the-emptier-one-holds-it-then-another-goes",
        ),
    ],
)
def test_replicas(before: list[Row], after: dict[str, tuple[int, ...]]) -> None:
    assert balanced_replicas(before, seats(1, 2)) == after


def test_given_racks_then_replicas_stay_apart() -> None:
    found = balanced_replicas(rows((1, 3), (1, 3), (1, 3)), seats(1, 2, 3, 4, racks="aabb"))
    assert found == {"p-0": (2, 4)} or all(
        {1, 2} & set(row) and {3, 4} & set(row) for row in found.values()
    )
    loads = Counter({1: 0, 2: 0, 3: 0, 4: 0})
    for row in rows((1, 3), (1, 3), (1, 3)):
        loads.update(found.get(row.name, row.replicas))
    assert max(loads.values()) - min(loads.values()) <= 1


def test_given_an_spu_without_a_seat_then_what_it_holds_stays() -> None:
    assert balanced_replicas(rows((9,), (9,), (9,)), seats(1, 2)) == {}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(rows((1, 2), (2, 1)), {}, id="given-even-ones-then-nothing"),
        pytest.param(rows((1, 2), (1, 2)), {"p-0": (2, 1)}, id="given-one-leads-all-then-half-go"),
        pytest.param(
            rows((1, 2), (1, 2), (2, 3)),
            {"p-0": (2, 1), "p-2": (3, 2)},
            id="given-no-direct-way-then-along-a-chain",
        ),
        pytest.param(
            rows((1, 2), (1, 2), (1, 2), fixed=frozenset({0})),
            {"p-1": (2, 1)},
            id="given-a-fixed-one-then-another",
        ),
    ],
)
def test_leaders(before: list[Row], after: dict[str, tuple[int, ...]]) -> None:
    assert balanced_leaders(before, (1, 2, 3)) == after


ROWS = st.lists(
    st.lists(st.integers(1, 4), min_size=1, max_size=3, unique=True).map(tuple),
    min_size=1,
    max_size=5,
)


def spread(loads: Counter[int]) -> int:
    return max(loads.values()) - min(loads.values())


@given(ROWS)
def test_law_no_balance_needs_fewer_moves_and_again_is_nothing(
    drawn: list[tuple[int, ...]],
) -> None:
    before = rows(*drawn)
    found = balanced_replicas(before, seats(1, 2, 3, 4))
    after = [Row(row.name, found.get(row.name, row.replicas)) for row in before]
    assert all(len(set(row.replicas)) == len(row.replicas) for row in after)
    loads = Counter({1: 0, 2: 0, 3: 0, 4: 0})
    for row in after:
        loads.update(row.replicas)
    assert spread(loads) <= 1
    assert balanced_replicas(after, seats(1, 2, 3, 4)) == {}
    moved = sum(len(set(a.replicas) - set(b.replicas)) for a, b in zip(after, before, strict=True))
    start = Counter({1: 0, 2: 0, 3: 0, 4: 0})
    for row in before:
        start.update(row.replicas)
    total = sum(start.values())
    few, extra = divmod(total, 4)
    wanted = sorted(start.values(), reverse=True)
    least = sum(max(0, n - (few + (i < extra))) for i, n in enumerate(wanted))
    assert moved == least


@given(ROWS)
def test_law_no_choice_of_leaders_is_more_even(drawn: list[tuple[int, ...]]) -> None:
    before = rows(*drawn)
    found = balanced_leaders(before, (1, 2, 3, 4))
    after = [found.get(row.name, row.replicas) for row in before]
    assert [sorted(row) for row in after] == [sorted(row.replicas) for row in before]

    def most(leaders: tuple[int, ...]) -> list[int]:
        return sorted(Counter(leaders).values(), reverse=True)

    best = min(most(choice) for choice in product(*(row.replicas for row in before)))
    assert most(tuple(row[0] for row in after))[0] == best[0]
    again = [Row(row.name, row_after) for row, row_after in zip(before, after, strict=True)]
    assert balanced_leaders(again, (1, 2, 3, 4)) == {}
