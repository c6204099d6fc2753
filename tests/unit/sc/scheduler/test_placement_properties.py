"""Placement: what holds of every cluster, load and request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sc.scheduler.placement import Candidate, Load, Placement, Request, Shortage, place

Rows = list[tuple[int, ...]]

RACKS = st.sampled_from([None, "a", "b", "c"])
REGIONS = st.sampled_from([None, "x", "y"])
FREE = st.one_of(st.none(), st.integers(-1, 12))


def gap(counts: Mapping[int, int], ids: Iterable[int]) -> int:
    """The difference between the SPU that has most and the one that has least."""
    held = [counts.get(i, 0) for i in ids]
    return max(held) - min(held)


def load_of(rows: Rows) -> Load:
    return Load.of((row[0], row) for row in rows)


def plus(one: Load, other: Load) -> Load:
    return Load(
        Counter(one.leaders) + Counter(other.leaders),
        Counter(one.replicas) + Counter(other.replicas),
    )


def placed(candidates: Iterable[Candidate], request: Request, load: Load | None = None) -> Rows:
    found = place(candidates, request, load)
    assert isinstance(found, Placement)
    return found.rows


@st.composite
def clusters(
    draw: st.DrawFn,
    *,
    most: int = 8,
    racks: st.SearchStrategy[str | None] = RACKS,
    regions: st.SearchStrategy[str | None] = REGIONS,
    free: st.SearchStrategy[int | None] | None = None,
) -> list[Candidate]:
    free = st.none() if free is None else free
    ids = draw(st.lists(st.integers(0, 50), min_size=1, max_size=most, unique=True))
    return [Candidate(i, draw(racks), draw(regions), draw(free)) for i in ids]


@st.composite
def loads(draw: st.DrawFn) -> Load:
    """Also of SPUs that are no candidates."""
    leaders = draw(st.dictionaries(st.integers(0, 50), st.integers(0, 5), max_size=12))
    followers = draw(st.dictionaries(st.integers(0, 50), st.integers(0, 5), max_size=12))
    return Load(leaders, Counter(leaders) + Counter(followers))


def requests(*, most: int = 20, least: int = 0) -> st.SearchStrategy[Request]:
    return st.builds(
        Request,
        partitions=st.integers(least, most),
        replication_factor=st.integers(1, 5),
        ignore_racks=st.booleans(),
        replica_bytes=st.integers(0, 3),
    )


@given(clusters(free=FREE), loads(), requests())
def test_rows_name_known_spus_once_and_there_are_all_or_none(
    candidates: list[Candidate], load: Load, request: Request
) -> None:
    found = place(candidates, request, load)
    if isinstance(found, Shortage):
        assert found.available < found.needed
        return
    assert len(found.rows) == request.partitions
    for row in found.rows:
        assert len(row) == len(set(row)) == request.replication_factor
        assert set(row) <= {c.spu_id for c in candidates}


@given(clusters(free=FREE), loads(), requests())
def test_storage_is_never_exceeded(
    candidates: list[Candidate], load: Load, request: Request
) -> None:
    found = place(candidates, request, load)
    if isinstance(found, Shortage):
        return
    taken = load_of(found.rows).replicas
    for candidate in candidates:
        count, free = taken.get(candidate.spu_id, 0), candidate.free_bytes
        if count and free is not None:
            assert free > 0
            assert count * request.replica_bytes <= free


@given(clusters(), loads(), requests())
def test_while_storage_is_not_known_only_the_number_of_spus_counts(
    candidates: list[Candidate], load: Load, request: Request
) -> None:
    found = place(candidates, request, load)
    enough = len(candidates) >= request.replication_factor or not request.partitions
    assert isinstance(found, Placement) is enough


@pytest.mark.parametrize("count", [*range(1, 17), 30])
def test_on_an_empty_cluster_without_racks_leaders_and_replicas_differ_by_one_at_most(
    count: int,
) -> None:
    # After one row for each SPU all have the same again: from there on the rows repeat.
    ids = range(count)
    for factor in range(1, count + 1):
        rows = placed(map(Candidate, ids), Request(count, factor))
        for n in range(1, count + 1):
            so_far = load_of(rows[:n])
            assert gap(so_far.leaders, ids) <= 1
            assert gap(so_far.replicas, ids) <= 1


@given(clusters(), loads(), requests(least=1))
def test_leaders_never_get_more_uneven_than_they_were(
    candidates: list[Candidate], before: Load, request: Request
) -> None:
    assume(request.replication_factor <= len(candidates))
    ids = [c.spu_id for c in candidates]
    after = plus(before, load_of(placed(candidates, request, before)))
    assert gap(after.leaders, ids) <= max(1, gap(before.leaders, ids))


@given(
    clusters(racks=st.sampled_from("abcd"), free=st.sampled_from([None, 0, 1])),
    loads(),
    st.integers(1, 8),
    st.integers(1, 4),
)
def test_racks_differ_while_racks_with_usable_spus_suffice(
    candidates: list[Candidate], load: Load, partitions: int, factor: int
) -> None:
    racks = {c.spu_id: (c.region, c.rack) for c in candidates if c.free_bytes != 0}
    assume(len(set(racks.values())) >= factor)
    for row in placed(candidates, Request(partitions, factor), load):
        assert len({racks[i] for i in row}) == factor


@given(
    clusters(regions=st.sampled_from("xyz"), free=st.sampled_from([None, 0, 1])),
    loads(),
    st.integers(1, 8),
    st.integers(1, 4),
)
def test_regions_differ_while_they_suffice_and_all_are_used_where_not(
    candidates: list[Candidate], load: Load, partitions: int, factor: int
) -> None:
    regions = {c.spu_id: c.region for c in candidates if c.free_bytes != 0}
    assume(len(regions) >= factor)
    for row in placed(candidates, Request(partitions, factor), load):
        assert len({regions[i] for i in row}) == min(factor, len(set(regions.values())))


@given(clusters(free=FREE), loads(), requests())
def test_ignored_racks_change_nothing(
    candidates: list[Candidate], load: Load, request: Request
) -> None:
    ignoring = Request(request.partitions, request.replication_factor, True, request.replica_bytes)
    bare = [Candidate(c.spu_id, free_bytes=c.free_bytes) for c in candidates]
    assert place(candidates, ignoring, load) == place(bare, ignoring, load)


@given(clusters(free=FREE), loads(), requests(), st.data())
def test_the_order_of_candidates_does_not_matter_nor_does_asking_again(
    candidates: list[Candidate], load: Load, request: Request, data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(candidates))
    assert place(shuffled, request, load) == place(candidates, request, load)


@given(clusters(), loads(), requests(most=10, least=2))
def test_placing_one_by_one_is_placing_all_at_once(
    candidates: list[Candidate], load: Load, request: Request
) -> None:
    assume(request.replication_factor <= len(candidates))
    one = Request(1, request.replication_factor, request.ignore_racks)
    rows: Rows = []
    for _ in range(request.partitions):
        rows += placed(candidates, one, plus(load, load_of(rows)))
    assert rows == placed(candidates, request, load)


@given(clusters(), loads(), requests(least=1), st.data())
def test_more_leaders_on_an_spu_never_bring_it_more(
    candidates: list[Candidate], load: Load, request: Request, data: st.DataObject
) -> None:
    assume(request.replication_factor <= len(candidates))
    spu_id = data.draw(st.sampled_from([c.spu_id for c in candidates]))
    more = plus(load, Load({spu_id: 1}, {spu_id: 1}))
    led = load_of(placed(candidates, request, load)).leaders.get(spu_id, 0)
    assert load_of(placed(candidates, request, more)).leaders.get(spu_id, 0) <= led


@given(clusters(most=6), st.integers(1, 4), st.data())
def test_what_holds_more_than_the_others_can_get_takes_no_replica_unless_it_must(
    candidates: list[Candidate], factor: int, data: st.DataObject
) -> None:
    assume(factor < len(candidates))
    spu_id = data.draw(st.sampled_from([c.spu_id for c in candidates]))
    full = Load({spu_id: 99}, {spu_id: 99})
    request = Request(10, factor, ignore_racks=True)
    assert spu_id not in load_of(placed(candidates, request, full)).replicas
