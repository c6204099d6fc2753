"""What recovery keeps, cuts, sets aside and refuses."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from schemas.ids import make_term
from spu.replication.history import TermStart
from spu.storage import durable as durable_module
from spu.storage import recovery
from spu.storage.checkpoint import CHECKPOINT_NAME, VERIFY_AGAIN_BYTES, read_checkpoint
from spu.storage.durable import UNFINISHED
from spu.storage.index import read_summary
from spu.storage.truncated_segments import TRUNCATED_SUFFIX
from tests.unit.spu.builders import (
    NOW_US,
    TERM,
    OpenLog,
    batch_of,
    headers,
    new_log_directory,
    open_log,
    recover,
    settings_of,
)

SIZE = 128


def make(path: Path, batches: int, *, durable: int = 0, segment: int = 1 << 20) -> OpenLog:
    """A log of batches of one record and 128 bytes, crashed; ``durable`` of them checkpointed."""
    opened = open_log(new_log_directory(path), settings_of(segment=segment))
    for number in range(batches):
        opened.append(batch_of())
        if number + 1 == durable:
            opened.sync(checkpoint=True)
    opened.crash()
    return opened


def log_file(path: Path, base: int = 0) -> Path:
    return path / f"{base:020d}.log"


@pytest.mark.usefixtures("no_waiting_for_the_disk")
def test_given_a_tail_torn_at_any_byte_then_whole_batches_stay(tmp_path: Path) -> None:
    make(tmp_path / "log", 4, durable=2)
    whole = log_file(tmp_path / "log").read_bytes()
    checkpoint = (tmp_path / "log" / "checkpoint").read_bytes()
    for length in range(2 * SIZE, len(whole) + 1):
        log_file(tmp_path / "log").write_bytes(whole[:length])
        (tmp_path / "log" / "checkpoint").write_bytes(checkpoint)
        found = open_log(tmp_path / "log")
        assert found.found.unfit is None
        assert found.log.leo == length // SIZE
        assert log_file(tmp_path / "log").stat().st_size == length // SIZE * SIZE
        assert not list((tmp_path / "log").glob("cut-*"))
        assert found.append(batch_of()) == length // SIZE
        found.crash()


@pytest.mark.parametrize("length", [0, 1, SIZE - 1, SIZE, 2 * SIZE - 1])
def test_given_less_log_than_was_durable_then_unfit_and_untouched(
    tmp_path: Path, length: int
) -> None:
    make(tmp_path, 3, durable=2)
    data = log_file(tmp_path).read_bytes()[:length]
    log_file(tmp_path).write_bytes(data)
    found = open_log(tmp_path)
    assert found.found.unfit is not None
    assert "offset 1 was durable" in found.found.unfit
    assert log_file(tmp_path).read_bytes() == data
    found.crash()


def test_given_a_bit_flipped_below_the_durable_point_then_unfit(tmp_path: Path) -> None:
    make(tmp_path, 4, durable=3)
    whole = log_file(tmp_path).read_bytes()
    for position in range(0, 3 * SIZE, 7):
        damaged = bytearray(whole)
        damaged[position] ^= 4
        log_file(tmp_path).write_bytes(damaged)
        found = open_log(tmp_path)
        batch = position // SIZE
        assert found.found.unfit is not None
        assert f"{log_file(tmp_path)} at byte {batch * SIZE}" in found.found.unfit
        assert log_file(tmp_path).read_bytes() == damaged
        found.crash()


def test_given_a_torn_tail_then_the_index_speaks_of_what_is_left(tmp_path: Path) -> None:
    opened = make(tmp_path, 3, durable=2)
    log_file(tmp_path).write_bytes(log_file(tmp_path).read_bytes()[:-1])
    open_log(tmp_path).crash()
    summary = read_summary(opened.log.segments[0].index_path)
    assert summary is not None
    assert (summary.end_offset, summary.covered) == (2, 2 * SIZE)


def test_given_a_valid_batch_behind_damage_above_the_durable_point_then_it_is_set_aside(
    tmp_path: Path,
) -> None:
    make(tmp_path, 5, durable=2)
    damaged = bytearray(log_file(tmp_path).read_bytes())
    damaged[2 * SIZE + 100] ^= 1
    log_file(tmp_path).write_bytes(damaged)
    found = open_log(tmp_path)
    assert found.found.unfit is None
    assert found.log.leo == 2
    (aside,) = tmp_path.glob("cut-*")
    assert aside.read_bytes() == damaged[2 * SIZE :]
    assert found.found.set_aside == [aside.name]
    found.crash()


def test_given_damage_before_later_segments_then_they_are_set_aside_with_it(
    tmp_path: Path,
) -> None:
    make(tmp_path, 20, durable=2, segment=1 << 10)
    assert len(list(tmp_path.glob("*.log"))) == 3
    first = log_file(tmp_path)
    first.write_bytes(first.read_bytes()[: 5 * SIZE + 3])
    found = open_log(tmp_path)
    assert found.log.leo == 5
    assert [path.name for path in tmp_path.glob("*.log")] == [first.name]
    (aside,) = tmp_path.glob("cut-*")
    assert aside.stat().st_size == 3 + 12 * SIZE
    assert found.append(batch_of()) == 5
    found.crash()


def test_given_an_empty_segment_behind_a_torn_one_then_both_are_cut(tmp_path: Path) -> None:
    make(tmp_path, 3, durable=1)
    log_file(tmp_path, 3).touch()
    log_file(tmp_path).write_bytes(log_file(tmp_path).read_bytes()[:-1])
    found = open_log(tmp_path)
    assert found.log.leo == 2
    assert [path.name for path in tmp_path.glob("*.log")] == [log_file(tmp_path).name]
    found.crash()


@pytest.mark.parametrize("which", [0, 1, 2])
def test_given_a_missing_segment_then_unfit(tmp_path: Path, which: int) -> None:
    opened = make(tmp_path, 20, durable=20, segment=1 << 10)
    log_file(tmp_path, opened.log.segments[which].base_offset).unlink()
    found = open_log(tmp_path)
    assert found.found.unfit is not None
    assert len(list(tmp_path.glob("*.log"))) == 2
    found.crash()


@pytest.mark.parametrize("index", [True, False])
def test_given_a_completed_segment_cut_short_then_unfit(tmp_path: Path, index: bool) -> None:
    opened = make(tmp_path, 20, durable=20, segment=1 << 10)
    path = log_file(tmp_path, opened.log.segments[1].base_offset)
    path.write_bytes(path.read_bytes()[:-1])
    if not index:
        opened.log.segments[1].index_path.unlink()
    found = open_log(tmp_path)
    assert found.found.unfit is not None
    assert str(path) in found.found.unfit
    found.crash()


@pytest.mark.parametrize("how", ["missing", "damaged"])
def test_given_no_checkpoint_then_only_a_whole_log_is_fit(tmp_path: Path, how: str) -> None:
    make(tmp_path, 3, durable=2)
    checkpoint = tmp_path / "checkpoint"

    def lose() -> None:
        if how == "missing":
            checkpoint.unlink()
        else:
            checkpoint.write_bytes(checkpoint.read_bytes()[:-1] + b"?")

    lose()
    found = open_log(tmp_path)
    assert found.found.unfit is None
    assert found.log.leo == 3
    found.crash()
    lose()
    log_file(tmp_path).write_bytes(log_file(tmp_path).read_bytes()[:-1])
    torn = open_log(tmp_path)
    assert torn.found.unfit is not None
    assert "checkpoint is missing or damaged" in torn.found.unfit
    torn.crash()


def test_given_a_long_recovered_tail_then_it_counts_as_durable_afterwards(tmp_path: Path) -> None:
    count = VERIFY_AGAIN_BYTES // SIZE + 1
    make(tmp_path, count, durable=1)
    found = open_log(tmp_path)
    assert found.log.is_checkpointed
    found.crash()
    checkpoint = read_checkpoint(tmp_path)
    assert checkpoint is not None
    assert checkpoint.durable_leo == count
    assert checkpoint.history == (TermStart(TERM, 0),)


def test_given_a_short_recovered_tail_then_the_next_checkpoint_speaks_of_it(tmp_path: Path) -> None:
    make(tmp_path, 4, durable=1)
    for _restart in range(2):
        found = open_log(tmp_path)
        assert (found.log.leo, found.log.is_checkpointed) == (4, False)
        found.crash()
    found = open_log(tmp_path)
    found.sync(checkpoint=True)
    assert found.log.is_checkpointed
    found.crash()
    checkpoint = read_checkpoint(tmp_path)
    assert checkpoint is not None
    assert checkpoint.durable_leo == 4


@pytest.mark.parametrize(
    ("durable", "behind", "synced"),
    [
        pytest.param(3, None, [], id="given-a-log-that-ends-at-its-checkpoint-then-no-fsync"),
        pytest.param(2, None, ["file", "directory"], id="given-more-records-then-all"),
        pytest.param(3, "torn", ["file", "directory"], id="given-a-torn-tail-then-all"),
        pytest.param(
            3, "begun", ["file", "file", "directory"], id="given-a-segment-begun-then-its-name"
        ),
        pytest.param(3, "lost", ["file", "directory"], id="given-a-lost-checkpoint-then-all"),
    ],
)
def test_given_what_no_checkpoint_speaks_of_then_it_is_made_durable(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    durable: int,
    behind: str | None,
    synced: list[str],
) -> None:
    make(tmp_path, 3, durable=durable)
    match behind:
        case "torn":
            with log_file(tmp_path).open("ab") as file:
                file.write(b"torn")
        case "begun":
            log_file(tmp_path, 3).touch()
        case "lost":
            (tmp_path / CHECKPOINT_NAME).unlink()
    found: list[str] = []
    monkeypatch.setattr(recovery, "sync_log_file", lambda _fd: found.append("file"))
    monkeypatch.setattr(recovery, "sync_log_directory", lambda _path: found.append("directory"))
    log = recover(tmp_path)
    assert (log.unfit, log.leo, found) == (None, 3, synced)


def test_given_an_fsync_that_finds_no_room_then_the_log_is_unfit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, 3, durable=2)
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(durable_module, "sync_file", Mock(side_effect=full))
    assert "No space left" in str(recover(tmp_path).unfit)


def test_given_a_large_segment_then_recovery_scans_only_its_end(tmp_path: Path) -> None:
    opened = open_log(new_log_directory(tmp_path), settings_of(segment=1 << 24))
    for _ in range(40):
        opened.append(batch_of(2, bytes(32 << 10)))
    opened.sync(checkpoint=True)
    opened.crash()
    checkpoint = read_checkpoint(tmp_path)
    assert checkpoint is not None
    size = log_file(tmp_path).stat().st_size
    assert 0 < size - checkpoint.scan_position - VERIFY_AGAIN_BYTES <= 3 * (64 << 10)
    again = open_log(tmp_path)
    assert again.log.leo == 80
    for offset in range(0, 80, 3):
        found = headers(again.log.read(offset, 1, 80, wait=True).data)
        assert found[0].base_offset == offset - offset % 2
    again.crash()
    # Without the index the segment is scanned from its start, to the same end.
    again.log.segments[0].index_path.unlink()
    without = open_log(tmp_path)
    assert without.log.leo == 80
    assert without.log.segments[0].index is not None
    assert list(without.log.segments[0].index.positions) == list(
        again.log.segments[0].index.positions if again.log.segments[0].index else ()
    )
    without.crash()


@pytest.mark.parametrize("synced", [False, True])
@pytest.mark.parametrize("roll", [False, True])
def test_given_a_log_truncated_to_its_end_and_another_segment_since_then_it_is_fit(
    tmp_path: Path, roll: bool, synced: bool
) -> None:
    opened = open_log(new_log_directory(tmp_path))
    opened.append(batch_of(2))
    opened.log.truncate_prefix(2)
    opened.sync()
    if roll:
        opened.log.begin_next(NOW_US)
    else:
        opened.append(batch_of(), term=TERM + 1)
    if synced:
        opened.sync()
        assert [segment.base_offset for segment in opened.log.segments] == [2]
    opened.crash()
    again = open_log(tmp_path)
    assert again.found.unfit is None
    assert (again.log.log_start, again.log.leo) == (2, 2 if roll else 3)
    # What the checkpoint spoke of goes with the next one.
    assert again.log.needs_sync is not synced
    again.sync()
    assert [segment.base_offset for segment in again.log.segments] == [2]
    again.crash()
    assert open_log(tmp_path).found.unfit is None


@pytest.mark.parametrize(
    ("name", "lister"),
    [
        pytest.param(f"{0:020d}-{2:020d}-7{TRUNCATED_SUFFIX}", (Path, "glob"), id="truncated"),
        pytest.param(f"{0:020d}.index.0123abcd{UNFINISHED}", (os, "listdir"), id="unfinished"),
        pytest.param(f"{1:020d}.index", (os, "listdir"), id="without-a-segment"),
    ],
)
def test_given_files_that_go_away_as_the_log_is_opened_then_it_is_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, lister: tuple[object, str]
) -> None:
    """The same log was closed a moment ago, and threads are still at work."""
    make(tmp_path, 3, durable=3)
    (tmp_path / name).touch()
    list_files = getattr(*lister)

    def list_them(*args: Any) -> list[Any]:
        found = list(list_files(*args))
        (tmp_path / name).unlink(missing_ok=True)
        return found

    monkeypatch.setattr(*lister, list_them)
    log = recover(tmp_path)
    assert (log.unfit, log.leo, log.truncated) == (None, 3, ())


def test_given_a_log_truncated_to_its_end_then_a_cut_takes_what_was_left_behind(
    tmp_path: Path,
) -> None:
    opened = open_log(new_log_directory(tmp_path))
    opened.append(batch_of(2))
    opened.log.truncate_prefix(2)
    opened.sync()
    opened.log.begin_next(NOW_US)
    opened.log.truncate_suffix(2)
    assert [segment.path for segment in opened.log.segments] == [str(log_file(tmp_path, 2))]
    assert sorted(tmp_path.glob("*.log")) == [log_file(tmp_path, 2)]
    opened.crash()
    assert open_log(tmp_path).found.unfit is None


def test_given_producers_then_checkpoint_and_scan_together_restore_them(tmp_path: Path) -> None:
    opened = open_log(new_log_directory(tmp_path))
    for sequence in range(8):
        opened.append(batch_of(2, producer_id=7, producer_epoch=1, sequence=sequence))
        if sequence == 4:
            opened.sync(checkpoint=True)
    opened.append(batch_of(producer_id=8, sequence=3))
    opened.crash()
    again = open_log(tmp_path)
    assert again.log.producers.dump() == opened.log.producers.dump()
    assert again.log.producers.dump()[0][2][0] == (3, 6, 8)
    again.crash()


def test_given_durable_batches_that_are_scanned_again_then_producers_count_them_once(
    tmp_path: Path,
) -> None:
    opened = open_log(new_log_directory(tmp_path))
    for sequence in range(3):
        opened.append(batch_of(producer_id=7, sequence=sequence))
    opened.sync(checkpoint=True)
    opened.crash()
    again = open_log(tmp_path)
    assert again.log.producers.dump() == ((7, 0, ((0, 0, 1), (1, 1, 2), (2, 2, 3))),)
    again.crash()


def test_given_a_falling_term_then_it_is_damage(tmp_path: Path) -> None:
    opened = open_log(new_log_directory(tmp_path))
    opened.append(batch_of(), term=make_term(1, 9))
    opened.log.history = ()
    opened.append(batch_of(), term=make_term(1, 8))
    opened.crash()
    again = open_log(tmp_path)
    assert again.log.leo == 1
    again.crash()


def test_given_unfinished_files_then_they_are_removed(tmp_path: Path) -> None:
    make(tmp_path, 1)
    (tmp_path / f"checkpoint{UNFINISHED}").write_bytes(b"half")
    open_log(tmp_path).crash()
    assert not list(tmp_path.glob(f"*{UNFINISHED}"))


def test_given_an_unreadable_directory_then_unfit_not_an_exception(tmp_path: Path) -> None:
    make(tmp_path, 2, durable=2)
    log_file(tmp_path).unlink()
    log_file(tmp_path).mkdir()
    found = open_log(tmp_path)
    assert found.found.unfit is not None
    found.crash()


def test_times_of_the_active_segment_survive(tmp_path: Path) -> None:
    make(tmp_path, 2, durable=2)
    again = open_log(tmp_path)
    assert again.log.segments[0].opened_us == NOW_US
    again.crash()
