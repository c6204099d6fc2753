"""Balances: tables, and laws against every possible choice."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sc.scheduler import balance
from sc.scheduler.balance import Row, balanced_leaders, balanced_replicas
from sc.scheduler.row_changes import Seat
from sc.scheduler.rows import location


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


def first_move(rows: Sequence[Row], seats: Sequence[Seat]) -> tuple[Row, int, int] | None:
    """The move that comes first, looked for among all: slow and plainly right. ``rows`` are in the
    order of their names."""
    where = {i: location(i, None, None) for row in rows for i in row.replicas}
    where |= {s.spu_id: location(s.spu_id, s.region, s.rack) for s in seats}
    loads = {s.spu_id: sum(s.spu_id in row.replicas for row in rows) for s in seats}
    order = sorted(loads, key=lambda i: (loads[i], i))
    for giver, taker in product(reversed(order), order):
        for row in rows if loads[giver] - loads[taker] >= 2 else ():
            if giver not in row.replicas or row.fixed:
                continue
            after = [taker if i == giver else i for i in row.replicas]
            apart = all(
                len({where[i][level] for i in after})
                >= len({where[i][level] for i in row.replicas})
                for level in (0, 1)
            )
            if taker not in row.replicas and (apart or row.ignore_racks):
                return row, giver, taker
    return None


@pytest.mark.parametrize("chunk", range(10))
def test_law_what_is_remembered_changes_no_move(chunk: int) -> None:
    """The search passes over what it has seen fail: the moves are those of one that does not.
    Most replicas are on SPUs of low ids, so that there is much to move."""
    for seed in range(chunk, 300, 10):
        luck = random.Random(seed)
        ids = range(1, luck.randint(3, 7) + 1)
        places = [
            Seat(i, luck.choice("ab"), luck.choice([None, "x", "y"]))
            for i in ids
            if luck.random() < 0.9
        ]
        before = [
            Row(
                f"p-{i:02}",
                tuple(sorted(ids, key=lambda i: luck.random() * i)[: luck.randint(1, 3)]),
                ignore_racks=luck.random() < 0.1,
                fixed=luck.random() < 0.1,
            )
            for i in range(luck.randint(10, 40))
        ]
        now = {row.name: row for row in before}
        while (move := first_move(list(now.values()), places)) is not None:
            row, giver, taker = move
            after = tuple(taker if i == giver else i for i in row.replicas)
            now[row.name] = replace(row, replicas=after)
        assert balanced_replicas(before, places) == {
            row.name: now[row.name].replicas for row in before if now[row.name] != row
        }, seed


def test_given_racks_that_can_give_nothing_then_their_partitions_are_looked_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two SPUs of rack a hold twice as much as four of rack b, and rack b gets an empty one."""
    before = rows(*((1 + i % 2, 3 + i % 4) for i in range(400)))
    looks = 0

    def counted(*args: Any) -> bool:
        nonlocal looks
        looks += 1
        return keeps_apart(*args)

    keeps_apart = balance._keeps_apart
    monkeypatch.setattr(balance, "_keeps_apart", counted)
    found = balanced_replicas(before, seats(*range(1, 8), racks="aabbbbb"))
    assert len(found) == 80
    # Each replica in rack a, with each SPU in rack b; and a few more after each move.
    assert looks < 400 * 5 + 80 * 20


def most_linked(rows: Sequence[Row], able: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """Balanced preferences along chains that are looked for from row to row: slow and plain."""
    now = {row.name: row for row in sorted(rows, key=lambda row: row.name)}

    def chain() -> list[tuple[str, int]] | None:
        loads = {i: sum(row.replicas[0] == i for row in now.values()) for i in able}
        for giver in sorted(loads, key=lambda i: (-loads[i], i)):
            ways: dict[int, list[tuple[str, int]]] = {giver: []}
            waiting = [giver]
            for spu_id in waiting:
                for row in now.values():
                    for other in row.replicas[1:]:
                        mine = row.replicas[0] == spu_id and not row.fixed
                        if not mine or other in ways or other not in loads:
                            continue
                        ways[other] = [(row.name, other), *ways[spu_id]]
                        if loads[other] < loads[giver] - 1:
                            return ways[other]
                        waiting.append(other)
        return None

    while (found := chain()) is not None:
        for name, leader in found:
            row = now[name]
            after = (leader, *(i for i in row.replicas if i != leader))
            now[name] = replace(row, replicas=after)
    before = {row.name: row.replicas for row in rows}
    return {row.name: row.replicas for row in now.values() if row.replicas != before[row.name]}


@given(ROWS, st.sets(st.integers(0, 4), max_size=2))
def test_law_chains_are_those_of_a_search_of_all_rows(
    drawn: list[tuple[int, ...]], fixed: set[int]
) -> None:
    before = rows(*drawn * 3, fixed=frozenset(fixed))
    assert balanced_leaders(before, (1, 2, 3)) == most_linked(before, (1, 2, 3))


def test_given_leaders_that_cannot_move_then_they_are_looked_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = rows(*[(1, 2), (2, 1)] * 100, *[(3, 4, 5)] * 150)
    looks: Counter[int] = Counter()

    def counted(self: balance._Preferences, giver: int) -> list[tuple[str, int]] | None:
        looks[giver] += 1
        return chain_from(self, giver)

    chain_from = balance._Preferences._chain_from
    monkeypatch.setattr(balance._Preferences, "_chain_from", counted)
    assert len(balanced_leaders(before, range(1, 6))) == 100
    assert looks[1] == looks[2] == 1
