"""Placement as tables: single rows, added partitions, short storage, and the words of shortages."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sc.scheduler.placement import (
    Candidate,
    Constraint,
    Load,
    Placement,
    Request,
    Shortage,
    place,
)

MIB = 1 << 20
GIB = 1 << 30


def bare(*ids: int) -> list[Candidate]:
    return [Candidate(i) for i in ids]


def racked(*racks: str | None, region: str | None = None) -> list[Candidate]:
    """SPUs 1, 2, … in these racks."""
    return [Candidate(i, rack, region) for i, rack in enumerate(racks, 1)]


def holding(*free: int | None) -> list[Candidate]:
    """SPUs 1, 2, … with so much free storage."""
    return [Candidate(i, free_bytes=f) for i, f in enumerate(free, 1)]


def test_worked_example_of_the_docstring() -> None:
    spus = [Candidate(0, "a"), Candidate(1, "a"), Candidate(2, "b")]
    assert place(spus, Request(3, 2)) == Placement([(0, 2), (1, 2), (2, 0)])


@pytest.mark.parametrize(
    ("candidates", "load", "factor", "row"),
    [
        pytest.param(bare(7), Load(), 1, (7,), id="given-one-spu-then-it-leads"),
        pytest.param(
            bare(1, 2),
            Load({1: 2}, {1: 2, 2: 9}),
            1,
            (2,),
            id="given-existing-leaders-then-they-count-before-replicas",
        ),
        pytest.param(
            bare(1, 2),
            Load({1: 1, 2: 1}, {1: 4, 2: 3}),
            1,
            (2,),
            id="given-equal-leaders-then-fewest-replicas",
        ),
        pytest.param(bare(2, 1), Load(), 1, (1,), id="given-equal-load-then-lowest-id"),
        pytest.param(
            bare(1, 2, 3, 4),
            Load({}, {2: 1, 3: 5}),
            3,
            (1, 4, 2),
            id="given-existing-replicas-then-followers-where-fewest-are",
        ),
        pytest.param(
            bare(1, 2),
            Load({9: 5}, {9: 5}),
            2,
            (1, 2),
            id="given-load-of-an-spu-that-is-no-candidate-then-ignored",
        ),
        pytest.param(
            racked("a", "a", "b"), Load(), 2, (1, 3), id="given-racks-then-the-follower-on-another"
        ),
        pytest.param(
            racked("a", "a", "b"),
            Load({}, {3: 9}),
            2,
            (1, 3),
            id="given-racks-then-they-come-before-even-replicas",
        ),
        pytest.param(
            racked("a", "a", "a"),
            Load(),
            3,
            (1, 2, 3),
            id="given-too-few-racks-then-placed-all-the-same",
        ),
        pytest.param(
            racked("a", "a", "a", "b", "b"),
            Load(),
            4,
            (1, 4, 2, 5),
            id="given-too-few-racks-then-evenly-over-them",
        ),
        pytest.param(
            racked("a", "b", "b", "b", "b"),
            Load(),
            4,
            (1, 2, 3, 4),
            id="given-a-rack-that-is-used-up-then-the-others-go-on",
        ),
        pytest.param(
            racked(None, None, "b"),
            Load(),
            2,
            (1, 2),
            id="given-spus-without-a-rack-then-each-is-a-rack-of-its-own",
        ),
        pytest.param(
            [Candidate(1, "a", "x"), Candidate(2, "b", "x"), Candidate(3, "c", "y")],
            Load({}, {3: 9}),
            2,
            (1, 3),
            id="given-regions-then-they-come-before-racks-and-load",
        ),
        pytest.param(
            [
                Candidate(1, "a", "x"),
                Candidate(2, "a", "x"),
                Candidate(3, "b", "x"),
                Candidate(4, "a", "y"),
            ],
            Load(),
            3,
            (1, 4, 3),
            id="given-too-few-regions-then-racks-inside-them",
        ),
        pytest.param(
            [
                Candidate(1, "a", "x"),
                Candidate(2, "a", "x"),
                Candidate(3, "b", "y"),
                Candidate(4, "c", "y"),
                Candidate(5, "d", "y"),
            ],
            Load(),
            4,
            (1, 3, 4, 5),
            id="given-all-regions-used-then-distinct-racks-before-even-regions",
        ),
        pytest.param(
            [
                Candidate(1, "a", "x"),
                Candidate(2, "b", "x"),
                Candidate(3, "c", "x"),
                Candidate(4, "d", "y"),
                Candidate(5, "e", "y"),
            ],
            Load({}, {5: 9}),
            4,
            (1, 4, 2, 5),
            id="given-all-regions-used-and-racks-enough-then-evenly-over-regions",
        ),
        pytest.param(
            [Candidate(1, "a", "x"), Candidate(2, "a", "x"), Candidate(3, "a", "y")],
            Load(),
            3,
            (1, 3, 2),
            id="given-the-same-rack-name-in-two-regions-then-two-racks",
        ),
        pytest.param(
            [Candidate(1, "a"), Candidate(2, "a"), Candidate(3, "b", "x")],
            Load(),
            2,
            (1, 3),
            id="given-spus-without-a-region-then-their-rack-stands-for-it",
        ),
        pytest.param(
            [Candidate(1), Candidate(2), Candidate(3, "b", "x")],
            Load({}, {3: 1}),
            2,
            (1, 2),
            id="given-spus-without-any-place-then-each-stands-for-its-own",
        ),
        pytest.param(
            [Candidate(1, region="x"), Candidate(2, region="x"), Candidate(3, region="y")],
            Load({}, {3: 1}),
            2,
            (1, 3),
            id="given-a-region-without-racks-then-it-counts",
        ),
        pytest.param(
            holding(0, 5, None, -1), Load(), 2, (2, 3), id="given-exhausted-storage-then-none-there"
        ),
        pytest.param(
            [Candidate(1, "a"), Candidate(2, "a"), Candidate(3, "b", free_bytes=0)],
            Load(),
            2,
            (1, 2),
            id="given-the-other-rack-without-storage-then-the-same-rack",
        ),
    ],
)
def test_one_partition(
    candidates: Sequence[Candidate], load: Load, factor: int, row: tuple[int, ...]
) -> None:
    assert place(candidates, Request(1, factor), load) == Placement([row])


@pytest.mark.parametrize(
    ("candidates", "ignored", "rows"),
    [
        pytest.param(racked("a", "a", "b"), False, [(1, 3), (2, 3)], id="given-racks-then-apart"),
        pytest.param(racked("a", "a", "b"), True, [(1, 2), (3, 1)], id="given-ignored-then-not"),
        pytest.param(
            [Candidate(1, region="x"), Candidate(2, region="x"), Candidate(3, region="y")],
            True,
            [(1, 2), (3, 1)],
            id="given-ignored-then-regions-neither",
        ),
    ],
)
def test_ignore_racks(
    candidates: Sequence[Candidate], ignored: bool, rows: list[tuple[int, ...]]
) -> None:
    assert place(candidates, Request(2, 2, ignore_racks=ignored)) == Placement(rows)


def test_given_partitions_added_to_a_topic_then_new_rows_fill_up_what_is_uneven() -> None:
    existing = [(1, 2), (2, 1), (1, 2)]
    load = Load.of((row[0], row) for row in existing)
    assert load == Load({1: 2, 2: 1}, {1: 3, 2: 3})
    added = place(bare(1, 2, 3), Request(3, 2), load)
    assert added == Placement([(3, 1), (3, 2), (2, 3)])


def test_given_a_leader_that_is_not_first_then_load_counts_what_is_preferred() -> None:
    assert Load.of([(2, (1, 2)), (2, (2, 3))]) == Load({2: 2}, {1: 1, 2: 2, 3: 1})


STORAGE = [
    pytest.param(
        [Candidate(1, "d", free_bytes=1), Candidate(2, "a"), Candidate(3, "a"), Candidate(4, "b")],
        Request(2, 3, replica_bytes=1),
        [(1, 2, 4), (3, 4, 2)],
        id="given-a-choice-of-those-with-most-room-then-by-racks",
    ),
    pytest.param(
        holding(-3, 1, 1),
        Request(1, 2, replica_bytes=1),
        [(2, 3)],
        id="given-more-used-than-there-is-then-none-there",
    ),
    pytest.param(
        holding(2, 2, 2),
        Request(3, 2, replica_bytes=1),
        [(1, 2), (3, 1), (2, 3)],
        id="given-exactly-enough-room-then-all-of-it-is-used",
    ),
    pytest.param(
        holding(1, 1, 2),
        Request(2, 2, replica_bytes=1),
        [(1, 3), (2, 3)],
        id="given-one-with-most-room-then-in-each-row-although-others-come-first",
    ),
    pytest.param(
        holding(2, 2, 3, 3, 3, 2),
        Request(3, 5, replica_bytes=1),
        [(1, 2, 3, 4, 5), (6, 1, 3, 4, 5), (2, 6, 3, 4, 5)],
        id="given-several-with-most-room-then-all-of-them-in-each-row",
    ),
]


@pytest.mark.parametrize(("candidates", "request_", "rows"), STORAGE)
def test_storage(
    candidates: Sequence[Candidate], request_: Request, rows: list[tuple[int, ...]]
) -> None:
    assert place(candidates, request_) == Placement(rows)


SHORTAGES = [
    pytest.param(
        [],
        Request(1, registered=0),
        Shortage(
            Constraint.ONLINE_SPUS,
            1,
            0,
            "replicationFactor 1 needs 1 online SPUs; 0 of 0 registered are online",
        ),
        id="given-no-spus",
    ),
    pytest.param(
        holding(None, 0),
        Request(4, 3, registered=5),
        Shortage(
            Constraint.ONLINE_SPUS,
            3,
            2,
            "replicationFactor 3 needs 3 online SPUs; 2 of 5 registered are online",
        ),
        id="given-fewer-spus-than-replicas-then-that-before-storage",
    ),
    pytest.param(
        bare(1, 2),
        Request(1, 3),
        Shortage(
            Constraint.ONLINE_SPUS,
            3,
            2,
            "replicationFactor 3 needs 3 online SPUs; 2 of 2 registered are online",
        ),
        id="given-registered-not-said-then-candidates-are-all",
    ),
    pytest.param(
        holding(0, 5, 0, -7),
        Request(1, 3),
        Shortage(
            Constraint.FREE_STORAGE,
            3,
            1,
            "replicationFactor 3 needs 3 SPUs with free storage; 1 of 4 online has some",
        ),
        id="given-exhausted-storage",
    ),
    pytest.param(
        holding(GIB - 1, GIB, None, 0),
        Request(1, 3, replica_bytes=GIB),
        Shortage(
            Constraint.FREE_STORAGE,
            3,
            2,
            "replicationFactor 3 needs 3 SPUs with 1Gi of free storage each;"
            " 2 of 4 online have that",
        ),
        id="given-too-little-storage-for-a-replica",
    ),
    pytest.param(
        holding(GIB, GIB, 3 * GIB),
        Request(2, 3, replica_bytes=512 * MIB),
        None,
        id="given-room-for-all-then-no-shortage",
    ),
    pytest.param(
        holding(GIB, GIB, 99 * GIB),
        Request(3, 2, replica_bytes=512 * MIB),
        None,
        id="given-room-for-exactly-all-then-no-shortage",
    ),
    pytest.param(
        holding(GIB, GIB, 99 * GIB),
        Request(5, 2, replica_bytes=512 * MIB),
        Shortage(
            Constraint.ROOM,
            10,
            9,
            "5 new partitions with replicationFactor 2 need storage for 10 replicas of 512Mi;"
            " the 3 online SPUs have room for 9",
        ),
        id="given-room-for-some-rows-then-one-spu-counts-once-for-each",
    ),
]


@pytest.mark.parametrize(("candidates", "request_", "shortage"), SHORTAGES)
def test_shortage(
    candidates: Sequence[Candidate], request_: Request, shortage: Shortage | None
) -> None:
    found = place(candidates, request_)
    assert (found if isinstance(found, Shortage) else None) == shortage


def test_given_a_choice_of_those_with_most_room_then_by_regions_and_load_too() -> None:
    candidates = [
        Candidate(1, "a", "x", free_bytes=1),
        Candidate(2, "b", "x"),
        Candidate(3, "c", "y"),
        Candidate(4, "d", "y"),
    ]
    rows = place(candidates, Request(2, 3, replica_bytes=1), Load({}, {3: 5}))
    assert rows == Placement([(1, 4, 2), (2, 4, 3)])


def test_given_no_partitions_then_no_rows_and_no_shortage() -> None:
    assert place([], Request(0, 3)) == Placement([])


def test_given_an_id_twice_then_error() -> None:
    with pytest.raises(ValueError, match="SPU 4 is a candidate twice"):
        place([*bare(4, 1), Candidate(4, "a")], Request(1))


@pytest.mark.parametrize(
    ("partitions", "factor", "replica_bytes"), [(-1, 1, 0), (1, 0, 0), (1, 1, -1)]
)
def test_given_counts_that_cannot_be_then_error(
    partitions: int, factor: int, replica_bytes: int
) -> None:
    with pytest.raises(ValueError, match="not a valid request"):
        Request(partitions, factor, replica_bytes=replica_bytes)
