"""What of a read Spark's Parquet reader takes, and what is left to the logs."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel import ArchivedTopic, TopicArchive, TransactionId
from runnel.archive.manifest import Removed, Update
from runnel.archive.places import ArchivePlace
from spark_io.archive.dividing import divide, last_files, rest_options, spark_path
from spark_io.plan.slices import LogSlice
from tests.unit.runnel.archive.builders import UID, added, archive_of

THREE = (added(None, 0, 10), added(10, 10, 30), added(30, 30, 40))
PLACE = ArchivePlace("/a", "orders", UID)


def archive(*updates: Update) -> ArchivedTopic:
    return ArchivedTopic(PLACE, TopicArchive("orders", {0: archive_of(*updates)}))


def piece(start: int, end: int, **more: object) -> LogSlice:
    return LogSlice("orders", UID, 0, start, end, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("updates", "wanted", "parts", "rest"),
    [
        pytest.param(
            THREE,
            piece(0, 50),
            [(0, 10, True), (10, 30, True), (30, 40, True)],
            (40, 50),
            id="given-more-than-is-archived-then-the-rest-from-the-log",
        ),
        pytest.param(
            THREE,
            piece(5, 35),
            [(5, 10, False), (10, 30, True), (30, 35, False)],
            (35, 35),
            id="given-a-part-then-parts-of-files-and-no-rest",
        ),
        pytest.param(THREE, piece(40, 50), [], (40, 50), id="given-nothing-archived-then-the-log"),
        pytest.param(
            (added(None, 0, 10), added(10, 20, 30)),
            piece(0, 30),
            [(0, 10, True)],
            (10, 30),
            id="given-a-gap-then-the-log-says-what-it-means",
        ),
        pytest.param(
            (*THREE, Removed(UID, 0, 5)), piece(0, 50), [], (0, 50), id="given-removed-then-the-log"
        ),
        pytest.param(
            (*THREE, Removed(UID, 0, 5)),
            piece(5, 12),
            [(5, 10, False), (10, 12, False)],
            (12, 12),
            id="given-a-start-after-what-was-removed",
        ),
        pytest.param(THREE, piece(7, 7), [], (7, 7), id="given-an-empty-one-then-nothing"),
    ],
)
def test_divide(
    updates: tuple[Update, ...],
    wanted: LogSlice,
    parts: list[tuple[int, int, bool]],
    rest: tuple[int, int],
) -> None:
    files, left = divide([wanted], {"orders": archive(*updates)})
    assert [(file.start, file.stop, file.whole) for file in files] == parts
    assert [(one.start, one.end) for one in left] == [rest]


@given(st.integers(0, 60), st.integers(0, 60))
def test_law_files_and_the_rest_are_all_of_it_and_nothing_twice(start: int, length: int) -> None:
    wanted = piece(start, start + length)
    files, (rest,) = divide([wanted], {"orders": archive(*THREE)})
    at = start
    for file in files:
        assert file.start == at < file.stop
        at = file.stop
    assert (rest.start, rest.end) == (at, start + length)


#: The second file was cut at 15, where an election lost records; the third one goes on there.
CUT = (
    added(None, 0, 10),
    replace(added(10, 10, 30), file=replace(added(10, 10, 30).file, until=15)),
    added(15, 15, 40),
)


@pytest.mark.parametrize(
    ("updates", "diverged", "parts", "rest"),
    [
        pytest.param(
            CUT,
            {},
            [(0, 10, False), (10, 15, True), (15, 40, False)],
            (40, 50),
            id="given-a-file-that-is-cut-then-it-is-read-apart",
        ),
        pytest.param(
            THREE,
            {("orders", 0): 15},
            [(0, 10, False), (10, 15, True)],
            (15, 50),
            id="given-a-log-that-holds-others-then-it-counts-from-there",
        ),
        pytest.param(
            THREE,
            {("orders", 0): 10},
            [(0, 10, False)],
            (10, 50),
            id="given-others-from-the-end-of-a-file-on",
        ),
        pytest.param(
            THREE,
            {("orders", 1): 5, ("sales", 0): 5},
            [(0, 10, False), (10, 30, False), (30, 40, False)],
            (40, 50),
            id="given-others-elsewhere-then-all-the-same",
        ),
    ],
)
def test_given_lost_records_in_files_then_they_are_not_read(
    updates: tuple[Update, ...],
    diverged: dict[tuple[str, int], int],
    parts: list[tuple[int, int, bool]],
    rest: tuple[int, int],
) -> None:
    files, (left,) = divide([piece(0, 50)], {"orders": archive(*updates)}, diverged)
    assert [(file.start, file.stop, file.cut) for file in files] == parts
    assert (left.start, left.end) == rest


def test_what_the_log_must_hold_as_well() -> None:
    archives = {"orders": archive(*THREE)}
    assert last_files([piece(0, 50)], archives) == {"orders": {0: (40, 1)}}
    assert last_files([piece(0, 25)], archives) == {"orders": {0: (30, 1)}}
    for none in (piece(40, 50), piece(7, 7), LogSlice("orders", "another", 0, 0, 50)):
        assert last_files([none], archives) == {}
    assert last_files([piece(0, 12)], {"orders": archive(*CUT)}) == {}, "it is cut already"


def test_given_a_topic_that_was_made_again_then_its_former_files_are_not_read() -> None:
    wanted = LogSlice("orders", "another", 0, 0, 50)
    assert divide([wanted], {"orders": archive(*THREE)}) == ([], [wanted])


def test_given_a_place_to_begin_then_only_the_log_needs_it() -> None:
    begins = TransactionId(5)
    for start, kept in ((5, None), (45, begins)):
        _, (rest,) = divide([piece(start, 50, begins_at=begins)], {"orders": archive(*THREE)})
        assert rest.begins_at == kept


@pytest.mark.parametrize(
    ("start", "end", "term"),
    [
        pytest.param(0, 50, 7, id="given-whole-files-then-that-of-the-last-one"),
        pytest.param(45, 50, 3, id="given-none-then-as-it-was"),
        pytest.param(5, 35, 0, id="given-a-part-of-the-last-one-then-not-known"),
    ],
)
def test_the_log_goes_on_after_the_last_batch_of_a_file(start: int, end: int, term: int) -> None:
    *first, last = THREE
    files = archive(*first, replace(last, file=replace(last.file, term=7)))
    _, (rest,) = divide([piece(start, end, start_term=3)], {"orders": files})
    assert rest.start_term == term


def test_the_options_of_what_is_left_name_each_partition() -> None:
    pieces = [
        piece(3, 9, start_term=4, end_term=6),
        LogSlice("orders", UID, 1, 0, 0),
        LogSlice("sales", "77", 0, 1, 2, end_term=8),
    ]
    found = {name: json.loads(text) for name, text in rest_options(pieces).items()}
    assert found == {
        "assign": {"orders": [0, 1], "sales": [0]},
        "startingOffsets": {
            "orders": {"0": 3, "1": 0},
            "sales": {"0": 1},
            "_terms": {"orders": {"0": 4}},
            "_uids": {"orders": UID, "sales": "77"},
        },
        "endingOffsets": {
            "orders": {"0": 9, "1": 0},
            "sales": {"0": 2},
            "_terms": {"orders": {"0": 6}, "sales": {"0": 8}},
            "_uids": {"orders": UID, "sales": "77"},
        },
    }


def test_given_a_path_with_what_spark_takes_for_a_pattern_then_escaped() -> None:
    assert spark_path("/a {x}/b*[1]?\\") == "file:/a \\{x\\}/b\\*\\[1\\]\\?\\\\"
