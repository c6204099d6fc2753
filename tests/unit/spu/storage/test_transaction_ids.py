"""Transaction ids of a log: its last one, positions by them, and what earlier versions left."""

from __future__ import annotations

import json
import struct
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest

from schemas.wire.batch import NO_TRANSACTION, crc32c
from spu.replication.producer_state import with_last_id
from spu.storage.checkpoint import Checkpoint, read_checkpoint
from spu.storage.durable import write_document
from spu.storage.index import read_index
from spu.storage.verification import TO_THE_END, Severity, Verification
from tests.unit.spu.builders import OpenLog, batch_of, new_log_directory, open_log, settings_of

SMALL = settings_of(segment=1 << 10)


def filled(path: Path) -> OpenLog:
    """Batches of two records; every third one has ids: 0 and 5, 30 and 35, 60 and 65, …"""
    opened = open_log(new_log_directory(path), SMALL)
    for number in range(12):
        ids = None if number % 3 else (10 * number, 10 * number + 5)
        opened.append(batch_of(2, bytes(300), ids=ids))
    opened.sync(checkpoint=True)
    assert len(opened.log.segments) == 6
    return opened


@pytest.mark.parametrize(
    ("asked", "offset"),
    [
        pytest.param(0, 0, id="given-before-all-then-the-first"),
        pytest.param(3, 0, id="given-inside-of-a-batch-then-that-batch"),
        pytest.param(6, 6, id="given-between-batches-then-the-next-with-ids"),
        pytest.param(35, 6, id="given-the-last-of-a-batch-then-that-batch"),
        pytest.param(90, 18, id="given-the-first-of-a-batch-then-that-batch"),
        pytest.param(96, 24, id="given-after-all-then-the-end"),
    ],
)
@pytest.mark.parametrize("restart", [False, True])
def test_positions(tmp_path: Path, asked: int, offset: int, restart: bool) -> None:
    opened = filled(tmp_path)
    if restart:
        opened.crash()
        opened = open_log(tmp_path, SMALL)
    assert opened.log.last_id == 95
    assert opened.log.offset_for_transaction_id(asked, 24) == offset
    opened.log.truncate_prefix(8)
    opened.sync()
    assert opened.log.offset_for_transaction_id(asked, 24) == max(offset, 12)
    opened.crash()


def test_given_only_uncommitted_records_of_an_id_then_the_end_of_what_is_committed(
    tmp_path: Path,
) -> None:
    opened = filled(tmp_path)
    assert opened.log.offset_for_transaction_id(60, 8) == 8
    opened.crash()


def test_given_all_ids_below_the_log_start_then_the_last_one_is_known_to_whom_begins_there(
    tmp_path: Path,
) -> None:
    opened = filled(tmp_path / "one")
    opened.log.truncate_prefix(22)
    opened.sync()
    known = opened.log.snapshot_before(22)
    opened.crash()
    other = open_log(new_log_directory(tmp_path / "other"))
    other.log.rebuild(22, 1, known)
    assert other.log.last_id == other.log.id_before_start == 95
    assert other.log.producers.dump() == ()
    other.crash()
    assert open_log(tmp_path / "other").log.last_id == 95


def test_given_truncation_inside_of_a_segment_then_only_what_is_before_counts(
    tmp_path: Path,
) -> None:
    opened = filled(tmp_path)
    # Segments hold two batches: the first of this one goes, the second has the ids 30 to 35.
    assert opened.log.segments[1].base_offset == 4
    opened.log.truncate_prefix(6)
    opened.sync()
    assert opened.log.log_start == 6
    assert (opened.log.id_before_start, opened.log.segments[0].base_offset) == (5, 4)
    opened.crash()


def as_before(path: Path) -> None:
    """What an earlier version would have written: indexes without ids, a checkpoint that names no
    last id."""
    for index in path.glob("*.index"):
        found = read_index(index)
        assert found is not None
        summary, entries = found
        columns = entries.to_bytes()[: 24 * len(entries.positions)]
        numbers = astuple(summary)[:-1]
        head = struct.pack("<4sIqqqqqqI", b"RNLI", len(columns), *numbers, crc32c(columns))
        index.write_bytes(head + struct.pack("<I", crc32c(head)) + columns)
    body_of(path, idBeforeStart=None)


def body_of(path: Path, **changes: Any) -> None:
    """Change fields of a checkpoint; None removes one."""
    body = json.loads((path / "checkpoint").read_bytes()[12:]) | changes
    write_document(
        path / "checkpoint",
        {k: v for k, v in body.items() if v is not None or k in ("cutAt", "settled")},
    )


def test_given_files_of_an_earlier_version_then_ids_are_found_in_the_records(
    tmp_path: Path,
) -> None:
    opened = filled(tmp_path)
    opened.crash()
    as_before(tmp_path)
    assert read_index(opened.log.segments[0].index_path) is None
    again = open_log(tmp_path, SMALL)
    assert again.found.unfit is None
    assert again.log.last_id == 95
    assert [again.log.offset_for_transaction_id(asked, 24) for asked in (4, 36)] == [0, 12]
    for one, other in zip(opened.log.segments[:-1], again.log.segments, strict=False):
        assert read_index(one.index_path) is not None
        assert one.max_transaction_id == other.max_transaction_id
    again.crash()


def test_given_indexes_of_an_earlier_version_then_verification_notes_it_and_builds_them_again(
    tmp_path: Path,
) -> None:
    opened = filled(tmp_path)
    as_before(tmp_path)
    verification = Verification(TO_THE_END)
    while not verification.finished:
        verification.advance(opened.log, 1 << 20)
    verification.close()
    said = {(problem.severity, problem.reason) for problem in verification.problems}
    earlier = "is of an earlier version"
    replaced = f"{earlier}; it is replaced when the next checkpoint is written"
    assert said == {(Severity.NOTE, f"{earlier}; built again"), (Severity.NOTE, replaced)}
    assert read_index(opened.log.segments[0].index_path) is not None
    opened.crash()


def test_given_a_last_id_that_an_earlier_version_kept_as_a_producer_then_it_counts(
    tmp_path: Path,
) -> None:
    opened = filled(tmp_path)
    opened.crash()
    told = with_last_id(((7, 0, ((0, 0, 2),)),), 400)
    body_of(tmp_path, idBeforeStart=None, producers=told, settled=[24, told])
    found = read_checkpoint(tmp_path)
    assert found is not None
    assert found.id_before_start == 400
    assert found.producers == found.settled.dump == ((7, 0, ((0, 0, 2),)),)
    again = open_log(tmp_path, SMALL)
    assert again.log.last_id == 400
    again.crash()


@pytest.mark.parametrize("last_id", [-2, 1 << 63, "5", 1.5, True, [1]], ids=repr)
def test_given_a_last_id_that_none_can_be_then_the_checkpoint_is_not_believed(
    tmp_path: Path, last_id: Any
) -> None:
    opened = filled(tmp_path)
    opened.crash()
    assert read_checkpoint(tmp_path) is not None
    body_of(tmp_path, idBeforeStart=last_id)
    assert read_checkpoint(tmp_path) is None


def test_a_log_that_begins_has_no_ids() -> None:
    assert Checkpoint().id_before_start == NO_TRANSACTION
