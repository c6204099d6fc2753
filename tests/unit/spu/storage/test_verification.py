"""A log is verified in pieces of any size: what is whole is found whole, and every flipped bit."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.errors import NotReadyError
from spu.storage.index import read_index, write_index
from spu.storage.log import PartitionLog
from spu.storage.segment import Damage, Segment
from spu.storage.verification import MAX_PROBLEMS, Problem, Severity, Verification
from tests.laws import examples
from tests.unit.spu.builders import (
    NOW_US,
    TERM,
    OpenLog,
    batch_of,
    new_log_directory,
    open_log,
    settings_of,
)

PIECE = 1 << 12


def filled(path: Path, batches: int = 12, segment: int = 1024) -> OpenLog:
    """A log of several completed segments and one in progress, all durable."""
    opened = open_log(new_log_directory(path), settings_of(segment=segment))
    for number in range(batches):
        opened.append(batch_of(2, b"x" * 160, time_us=1_000 + number))
    opened.sync(checkpoint=True)
    return opened


def verified(
    log: PartitionLog, piece: int = PIECE, *, compare_from: int = 0, compare_upto: int = 0
) -> Verification:
    verification = Verification(log.durable_leo, compare_from, compare_upto)
    while not verification.finished:
        verification.advance(log, piece)
    verification.close()
    return verification


def flip(path: Path | str, position: int, bit: int = 0) -> None:
    with open(path, "r+b") as file:
        file.seek(position)
        (old,) = file.read(1)
        file.seek(position)
        file.write(bytes([old ^ (1 << bit)]))


def test_given_a_whole_log_then_all_of_it_is_counted(tmp_path: Path) -> None:
    opened = filled(tmp_path)
    found = verified(opened.log)
    assert len(opened.log.segments) > 2
    assert (found.offset, found.end) == (24, 24)
    assert (found.batches, found.records) == (12, 24)
    assert found.segments == found.indexes == len(opened.log.segments)
    assert found.checked_bytes == opened.log.size_bytes
    assert found.problems == []
    opened.crash()


def test_given_an_empty_log_then_it_is_finished_at_once(tmp_path: Path) -> None:
    opened = open_log(new_log_directory(tmp_path))
    assert verified(opened.log).checked_bytes == 0
    opened.crash()


def test_given_a_control_batch_then_it_holds_no_records(tmp_path: Path) -> None:
    opened = open_log(new_log_directory(tmp_path))
    opened.append(batch_of(1, flags=1))
    opened.append(batch_of(3))
    opened.sync()
    found = verified(opened.log)
    assert (found.batches, found.records) == (2, 3)
    opened.crash()


@given(piece=st.integers(1, 3_000))
@settings(max_examples=examples(8))
def test_pieces_of_any_size_find_the_same(
    tmp_path_factory: pytest.TempPathFactory, piece: int
) -> None:
    opened = filled(tmp_path_factory.mktemp("log"))
    one, other = (
        verified(opened.log, size, compare_from=3, compare_upto=19) for size in (piece, 1 << 20)
    )
    assert (one.digest, one.compared_from) == (other.digest, other.compared_from)
    assert (one.batches, one.segments, one.indexes) == (
        other.batches,
        other.segments,
        other.indexes,
    )
    opened.crash()


@given(data=st.data(), piece=st.sampled_from([1, 500, PIECE]), bit=st.integers(0, 7))
@settings(max_examples=examples(8))
def test_every_flipped_bit_of_a_record_is_found(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, piece: int, bit: int
) -> None:
    opened = filled(tmp_path_factory.mktemp("log"), batches=6)
    segment = data.draw(st.sampled_from(opened.log.segments))
    flip(segment.path, data.draw(st.integers(0, segment.size - 1)), bit)
    verification = Verification(opened.log.durable_leo)
    with pytest.raises(Damage) as met:
        go_on(verification, opened.log, piece)
    verification.fail(met.value)
    (problem,) = verification.problems
    assert problem.file == Path(segment.path).name
    assert problem.severity is Severity.DAMAGE
    assert str(tmp_path_factory.getbasetemp()) not in problem.reason
    assert verification.finished
    opened.crash()


@given(data=st.data(), bit=st.integers(0, 7))
@settings(max_examples=examples(8))
def test_every_flipped_bit_of_an_index_is_found_and_mended(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, bit: int
) -> None:
    opened = filled(tmp_path_factory.mktemp("log"), batches=6)
    segment = data.draw(st.sampled_from(opened.log.segments[:-1]))
    path = segment.index_path
    whole = path.read_bytes()
    flip(path, data.draw(st.integers(0, len(whole) - 1)), bit)
    (problem,) = verified(opened.log).problems
    assert (problem.file, problem.severity, problem.rebuilt) == (path.name, Severity.DAMAGE, True)
    assert path.read_bytes() == whole
    assert verified(opened.log).problems == []
    opened.crash()


def test_given_an_index_with_wrong_entries_then_it_is_mended(tmp_path: Path) -> None:
    opened = filled(tmp_path)
    first, second = opened.log.segments[:2]
    wrong = Segment(first.directory, first.base_offset, first.end_offset, first.size)
    assert wrong.index is not None
    wrong.index.note(first.base_offset + 1, 0, 7, 7)
    write_index(first.index_path, first.summary(), wrong.index.to_bytes())
    (problem,) = verified(opened.log).problems
    assert problem.reason == "its entries are not those of the log; built again"
    assert read_index(second.index_path) is not None
    opened.crash()


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        pytest.param(lambda path: path.unlink(), "is missing; built again", id="given-none"),
        pytest.param(
            lambda path: path.write_bytes(path.with_name("other").read_bytes()),
            "it covers 152 bytes of a log of 608; built again",
            id="given-one-of-less-log",
        ),
    ],
)
def test_what_a_crash_leaves_is_no_damage(tmp_path: Path, spoil: object, said: str) -> None:
    opened = filled(tmp_path / "log")
    segment = opened.log.segments[0]
    short = filled(tmp_path / "short", batches=1)
    short_index = short.log.segments[0].index_path.read_bytes()
    segment.index_path.with_name("other").write_bytes(short_index)
    assert segment.size == 4 * short.log.segments[0].size
    said = said.replace("152", str(short.log.segments[0].size)).replace("608", str(segment.size))
    spoil(segment.index_path)  # type: ignore[operator]
    (problem,) = verified(opened.log).problems
    assert problem == Problem(segment.index_path.name, 0, said, Severity.NOTE, rebuilt=True)
    short.crash()
    opened.crash()


def test_given_a_damaged_index_of_the_segment_in_progress_then_it_is_left(tmp_path: Path) -> None:
    opened = filled(tmp_path)
    path = opened.log.segments[-1].index_path
    path.write_bytes(b"nothing")
    (problem,) = verified(opened.log).problems
    assert not problem.rebuilt
    assert "is replaced when the next checkpoint is written" in problem.reason
    assert path.read_bytes() == b"nothing"
    opened.crash()


def test_given_no_checkpoint_then_it_is_named(tmp_path: Path) -> None:
    opened = filled(tmp_path)
    flip(tmp_path / "checkpoint", 30)
    (problem,) = verified(opened.log).problems
    assert (problem.file, problem.severity) == ("checkpoint", Severity.DAMAGE)
    opened.crash()


def test_given_a_file_that_is_too_short_then_damage(tmp_path: Path) -> None:
    opened = filled(tmp_path)
    last = opened.log.segments[-1]
    os.truncate(last.path, 0)
    with pytest.raises(Damage, match=f"the file ends at offset {last.base_offset}, not at 24"):
        verified(opened.log)
    opened.crash()


def test_given_a_file_that_is_gone_then_an_error_of_the_disk(tmp_path: Path) -> None:
    opened = filled(tmp_path)
    os.unlink(opened.log.segments[1].path)
    with pytest.raises(FileNotFoundError):
        verified(opened.log)
    opened.crash()


def test_given_bytes_behind_a_completed_segment_then_damage(tmp_path: Path) -> None:
    opened = filled(tmp_path)
    opened.log.segments[0].size += 5
    with pytest.raises(Damage, match="5 bytes follow the last batch"):
        verified(opened.log)
    opened.crash()


# A log that is used meanwhile


def begun(log: PartitionLog) -> Verification:
    """A verification in the middle of the first segment."""
    verification = Verification(log.durable_leo)
    verification.advance(log, 1)
    assert verification.offset == 2
    return verification


def go_on(verification: Verification, log: PartitionLog, piece: int = 1) -> None:
    while not verification.finished:
        verification.advance(log, piece)


def test_given_appends_then_the_end_stays(tmp_path: Path) -> None:
    opened = filled(tmp_path)
    verification = begun(opened.log)
    for _ in range(5):
        opened.append(batch_of(1))
    go_on(verification, opened.log)
    assert (verification.offset, verification.batches) == (24, 12)
    assert verification.problems == []
    opened.crash()


def test_given_what_is_not_durable_then_it_is_not_judged(tmp_path: Path) -> None:
    opened = filled(tmp_path)
    opened.append(batch_of(1))
    active = opened.log.segments[-1]
    flip(active.path, active.size - 1)
    assert verified(opened.log).offset == 24
    opened.crash()


def test_given_retention_then_it_goes_on_at_the_log_start(tmp_path: Path) -> None:
    opened = filled(tmp_path)
    verification = begun(opened.log)
    opened.log.truncate_prefix(opened.log.segments[2].base_offset)
    opened.sync()
    go_on(verification, opened.log)
    assert verification.offset == 24
    assert verification.problems == []
    assert verification.batches < 12
    opened.crash()


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(2, id="given-a-cut-in-its-segment"),
        pytest.param(16, id="given-a-cut-before-it-comes-there"),
    ],
)
def test_a_cut_ends_it(tmp_path: Path, end: int) -> None:
    opened = filled(tmp_path)
    verification = begun(opened.log)
    opened.log.truncate_suffix(end)
    with pytest.raises(NotReadyError, match="try again"):
        go_on(verification, opened.log)
    verification.close()
    opened.crash()


def test_given_a_rebuilt_log_then_it_goes_on_there(tmp_path: Path) -> None:
    opened = filled(tmp_path)
    verification = begun(opened.log)
    opened.log.rebuild(100, TERM)
    go_on(verification, opened.log)
    assert verification.finished
    opened.crash()


def test_given_damage_of_what_was_cut_meanwhile_then_it_is_none(tmp_path: Path) -> None:
    opened = filled(tmp_path)
    flip(opened.log.segments[0].path, opened.log.segments[0].size - 1)
    verification = begun(opened.log)

    @dataclass
    class Cutting:
        """The log, which is cut between the look at a file and the look at its segment."""

        looks: int = 0
        directory: Path = tmp_path

        @property
        def segments(self) -> tuple[Segment, ...]:
            self.looks += 1
            if self.looks == 2:
                opened.log.truncate_suffix(2)
            return opened.log.segments

    with pytest.raises(NotReadyError):
        verification.advance(Cutting(), 1 << 20)
    verification.close()
    opened.crash()


# Digests


def digest(log: PartitionLog, start: int = 0, upto: int = 24) -> tuple[bytes, int]:
    found = verified(log, compare_from=start, compare_upto=upto)
    return found.digest, found.compared_from


def test_equal_records_give_equal_digests_however_they_lie(tmp_path: Path) -> None:
    one = filled(tmp_path / "one")
    other = filled(tmp_path / "other", segment=1 << 20)
    assert len(one.log.segments) != len(other.log.segments)
    assert digest(one.log) == digest(other.log)
    one.crash()
    other.crash()


def test_other_records_give_another_digest_where_they_are_compared(tmp_path: Path) -> None:
    one, other = filled(tmp_path / "one", batches=4), filled(tmp_path / "other", batches=4)
    one.append(batch_of(2, b"one"))
    other.append(batch_of(2, b"two"))
    one.sync()
    other.sync()
    assert digest(one.log, upto=10) != digest(other.log, upto=10)
    assert digest(one.log, upto=8) == digest(other.log, upto=8)
    one.crash()
    other.crash()


def test_another_term_gives_another_digest(tmp_path: Path) -> None:
    digests = []
    for term in (TERM, TERM + 1):
        opened = open_log(new_log_directory(tmp_path / str(term)))
        opened.append(batch_of(2), term=term, now_us=NOW_US)
        opened.sync()
        digests.append(digest(opened.log, upto=2))
        opened.crash()
    assert digests[0] != digests[1]


@pytest.mark.parametrize(
    ("start", "upto", "first"),
    [
        pytest.param(0, 24, 0, id="given-all-then-from-the-first"),
        pytest.param(3, 24, 4, id="given-the-middle-of-a-batch-then-from-the-next"),
        pytest.param(4, 5, -1, id="given-less-than-a-batch-then-nothing"),
        pytest.param(0, 0, -1, id="given-nothing-then-nothing"),
    ],
)
def test_what_is_compared(tmp_path: Path, start: int, upto: int, first: int) -> None:
    opened = filled(tmp_path)
    assert digest(opened.log, start, upto)[1] == first
    opened.crash()


def test_more_problems_than_are_worth_showing_are_not_kept() -> None:
    verification = Verification(0)
    for number in range(MAX_PROBLEMS + 5):
        verification.note(Problem("f", number, "r"))
    assert len(verification.problems) == MAX_PROBLEMS
