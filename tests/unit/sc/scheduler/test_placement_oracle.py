"""The greedy placement beside every placement that there is.

What is guaranteed (docstring of `sc.scheduler.placement`): it finds a placement exactly where
there is one; while storage limits nothing, nothing is better in regions, racks and leaders;
replicas are within two of the best on empty clusters of up to five SPUs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sc.scheduler.placement import Candidate, Load, Placement, Request, place
from tests.unit.sc.scheduler.oracle import best_score, score

EMPTY = Load()
#: What greed may cost in max-min replicas.
REPLICA_COST = 2


def layouts(count: int) -> Iterator[tuple[str, ...]]:
    """Every way in which so many SPUs lie in up to three racks, names of racks aside."""
    for racks in itertools.product("abc", repeat=count):
        if "abc".startswith("".join(dict.fromkeys(racks))):
            yield racks


def test_layouts_are_the_ways_to_part_a_set_into_three_at_most() -> None:
    assert [len(list(layouts(n))) for n in range(1, 6)] == [1, 2, 5, 14, 41]


@pytest.mark.parametrize("count", [*range(1, 5), pytest.param(5, marks=pytest.mark.slow)])
def test_given_any_racks_of_an_empty_cluster_then_best_but_for_replicas_within_two(
    count: int,
) -> None:
    costs = set()
    for racks in layouts(count):
        candidates = [Candidate(i, rack) for i, rack in enumerate(racks)]
        for factor, partitions in itertools.product(range(1, min(count, 3) + 1), range(1, 5)):
            request = Request(partitions, factor)
            got, best = both(candidates, request, EMPTY)
            assert got[:4] == best[:4], (racks, request)
            costs.add(got[4] - best[4])
    assert max(costs) <= REPLICA_COST


def both(
    candidates: Sequence[Candidate], request: Request, load: Load
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The greedy score and the best."""
    found = place(candidates, request, load)
    assert isinstance(found, Placement)
    best = best_score(candidates, request, load)
    assert best is not None
    return score(candidates, found.rows, load), best


@st.composite
def cases(draw: st.DrawFn, *, storage: bool = False) -> tuple[list[Candidate], Request, Load]:
    count = draw(st.integers(1, 5))
    free = st.one_of(st.none(), st.integers(-1, 5)) if storage else st.none()
    racks, regions = st.sampled_from([None, "a", "b", "c"]), st.sampled_from([None, "x", "y"])
    candidates = [Candidate(i, draw(racks), draw(regions), draw(free)) for i in range(count)]
    request = Request(
        partitions=draw(st.integers(1, 4 if count < 5 else 3)),
        replication_factor=draw(st.integers(1, min(count, 3))),
        replica_bytes=draw(st.integers(0, 2)) if storage else 0,
    )
    leaders = {i: draw(st.integers(0, 3)) for i in range(count)}
    return (
        candidates,
        request,
        Load(leaders, {i: n + draw(st.integers(0, 3)) for i, n in leaders.items()}),
    )


@given(cases())
def test_given_regions_and_load_then_nothing_is_better_in_regions_racks_and_leaders(
    case: tuple[list[Candidate], Request, Load],
) -> None:
    got, best = both(*case)
    assert got[:4] == best[:4]


@given(cases(storage=True))
def test_given_limited_storage_then_placed_exactly_where_a_placement_exists(
    case: tuple[list[Candidate], Request, Load],
) -> None:
    candidates, request, load = case
    exists = best_score(candidates, request, load) is not None
    assert isinstance(place(candidates, request, load), Placement) is exists
