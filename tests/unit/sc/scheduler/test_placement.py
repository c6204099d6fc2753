"""Placement: its goals as properties, its worked example, and a brute force beside it."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sc.scheduler.placement import Candidate, place

Rows = list[tuple[int, ...]]


def spread(counts: Counter[int], ids: list[int]) -> int:
    """The difference between the SPU that has most and the one that has least."""
    held = [counts[i] for i in ids]
    return max(held) - min(held)


def leaders_of(rows: Rows) -> Counter[int]:
    return Counter(row[0] for row in rows)


def replicas_of(rows: Rows) -> Counter[int]:
    return Counter(i for row in rows for i in row)


def fresh(*ids: int, racks: dict[int, str] | None = None) -> list[Candidate]:
    return [Candidate(i, (racks or {}).get(i)) for i in ids]


@st.composite
def clusters(draw: st.DrawFn, *, loaded: bool = True) -> list[Candidate]:
    ids = draw(st.lists(st.integers(0, 50), min_size=1, max_size=7, unique=True))
    found = []
    for i in ids:
        leaders = draw(st.integers(0, 5)) if loaded else 0
        replicas = leaders + draw(st.integers(0, 5)) if loaded else 0
        found.append(Candidate(i, draw(st.sampled_from([None, "a", "b", "c"])), leaders, replicas))
    return found


def test_worked_example_of_the_docstring() -> None:
    assert place(fresh(0, 1, 2), 3, 2) == [(0, 1), (2, 0), (1, 2)]


@pytest.mark.parametrize(
    ("candidates", "factor", "rows"),
    [
        pytest.param([], 1, None, id="given-no-spus-then-none"),
        pytest.param(fresh(1, 2), 3, None, id="given-fewer-spus-than-replicas-then-none"),
        pytest.param(fresh(7), 1, [(7,)], id="given-one-spu-then-it-leads"),
        pytest.param(
            [Candidate(1, leaders=2, replicas=2), Candidate(2, replicas=9)],
            1,
            [(2,)],
            id="given-existing-leaders-then-they-count-before-replicas",
        ),
        pytest.param(
            [Candidate(1, leaders=1, replicas=4), Candidate(2, leaders=1, replicas=3)],
            1,
            [(2,)],
            id="given-equal-leaders-then-fewest-replicas",
        ),
        pytest.param(fresh(2, 1), 1, [(1,)], id="given-equal-load-then-lowest-id"),
        pytest.param(
            fresh(1, 2, 3, racks={1: "a", 2: "a", 3: "b"}),
            2,
            [(1, 3)],
            id="given-racks-then-the-follower-lies-on-another-one",
        ),
        pytest.param(
            [Candidate(1, "a"), Candidate(2, "a"), Candidate(3, "b", replicas=9)],
            2,
            [(1, 3)],
            id="given-racks-then-they-come-before-even-replicas",
        ),
        pytest.param(
            fresh(1, 2, 3, racks={1: "a", 2: "a", 3: "a"}),
            3,
            [(1, 2, 3)],
            id="given-too-few-racks-then-placed-all-the-same",
        ),
    ],
)
def test_one_partition(candidates: list[Candidate], factor: int, rows: Rows | None) -> None:
    assert place(candidates, 1, factor) == rows


def test_given_no_partitions_then_no_rows() -> None:
    assert place(fresh(1), 0, 1) == []


@given(clusters(), st.integers(1, 12), st.integers(1, 4), st.booleans())
def test_rows_name_distinct_known_spus_or_there_are_none(
    candidates: list[Candidate], partitions: int, factor: int, ignore: bool
) -> None:
    rows = place(candidates, partitions, factor, ignore_racks=ignore)
    if factor > len(candidates):
        assert rows is None
        return
    assert rows is not None
    assert len(rows) == partitions
    for row in rows:
        assert len(row) == len(set(row)) == factor
        assert set(row) <= {c.spu_id for c in candidates}


@given(clusters(loaded=False), st.integers(1, 20), st.integers(1, 4))
def test_leaders_differ_by_at_most_one_from_a_balanced_start(
    candidates: list[Candidate], partitions: int, factor: int
) -> None:
    rows = place(candidates, partitions, factor)
    if rows is not None:
        assert spread(leaders_of(rows), [c.spu_id for c in candidates]) <= 1


@given(clusters(), st.integers(1, 20), st.integers(1, 4))
def test_leaders_never_get_more_uneven(
    candidates: list[Candidate], partitions: int, factor: int
) -> None:
    rows = place(candidates, partitions, factor)
    if rows is not None:
        ids = [c.spu_id for c in candidates]
        before = Counter({c.spu_id: c.leaders for c in candidates})
        assert spread(before + leaders_of(rows), ids) <= max(1, spread(before, ids))


@given(st.integers(1, 8), st.integers(1, 30), st.integers(1, 4))
def test_replicas_differ_by_little_without_racks(count: int, partitions: int, factor: int) -> None:
    rows = place(fresh(*range(count)), partitions, factor)
    if rows is not None:
        assert spread(replicas_of(rows), list(range(count))) <= 2


@given(clusters(), st.integers(1, 8), st.integers(1, 4))
def test_racks_differ_while_racks_suffice(
    candidates: list[Candidate], partitions: int, factor: int
) -> None:
    racks = {c.spu_id: c.rack for c in candidates}
    rows = place(candidates, partitions, factor)
    if rows is None or None in racks.values() or len(set(racks.values())) < factor:
        return
    for row in rows:
        assert len({racks[i] for i in row}) == factor


@given(clusters(), st.integers(1, 8), st.integers(1, 4))
def test_ignored_racks_change_nothing(
    candidates: list[Candidate], partitions: int, factor: int
) -> None:
    bare = [Candidate(c.spu_id, None, c.leaders, c.replicas) for c in candidates]
    ignored = place(candidates, partitions, factor, ignore_racks=True)
    assert ignored == place(bare, partitions, factor)


@given(clusters(), st.data(), st.integers(1, 8), st.integers(1, 4))
def test_the_order_of_candidates_does_not_matter(
    candidates: list[Candidate], data: st.DataObject, partitions: int, factor: int
) -> None:
    shuffled = data.draw(st.permutations(candidates))
    assert place(shuffled, partitions, factor) == place(candidates, partitions, factor)


@given(clusters(), st.integers(2, 10), st.integers(1, 3))
def test_placing_one_by_one_is_placing_all_at_once(
    candidates: list[Candidate], partitions: int, factor: int
) -> None:
    at_once = place(candidates, partitions, factor)
    if at_once is None:
        return
    load = {c.spu_id: (c.leaders, c.replicas) for c in candidates}
    one_by_one: Rows = []
    for _ in range(partitions):
        now = [Candidate(c.spu_id, c.rack, *load[c.spu_id]) for c in candidates]
        rows = place(now, 1, factor)
        assert rows is not None
        one_by_one += rows
        for position, spu_id in enumerate(rows[0]):
            leaders, replicas = load[spu_id]
            load[spu_id] = (leaders + (position == 0), replicas + 1)
    assert one_by_one == at_once


def best_spread(candidates: list[Candidate], partitions: int, factor: int) -> int:
    """The most even number of leaders that any placement at all could give."""
    ids = [c.spu_id for c in candidates]
    before = Counter({c.spu_id: c.leaders for c in candidates})
    choices = itertools.combinations_with_replacement(ids, partitions)
    return min(spread(before + Counter(leaders), ids) for leaders in choices)


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=4),
    st.integers(1, 5),
    st.integers(1, 3),
)
def test_no_other_placement_has_more_even_leaders(
    load: list[int], partitions: int, factor: int
) -> None:
    candidates = [Candidate(i, None, leaders, leaders) for i, leaders in enumerate(load)]
    rows = place(candidates, partitions, factor)
    if rows is None:
        return
    before = Counter(dict(enumerate(load)))
    got = spread(before + leaders_of(rows), list(range(len(load))))
    assert got == best_spread(candidates, partitions, factor)
