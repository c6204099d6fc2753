"""Directories that no SPU has open: what is said of them, and that a torn tail is no damage."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from spu.storage.checkpoint import read_checkpoint, write_checkpoint
from spu.storage.stopped import describe, is_partition_directory, open_stopped, verify_stopped
from spu.storage.verification import Severity, Verification
from tests.unit.spu.builders import batch_of, new_log_directory, open_log, settings_of
from tests.unit.spu.storage.test_verification import filled, flip

DAMAGE, NOTE = Severity.DAMAGE, Severity.NOTE


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Three segments of four batches with two records each; all is durable."""
    filled(tmp_path / "log").crash()
    return tmp_path / "log"


def verified(directory: Path) -> Verification:
    return verify_stopped(open_stopped(directory), lambda _done, _total: None)


def segment(directory: Path, base: int) -> Path:
    return directory / f"{base:020d}.log"


def test_given_a_whole_log_then_nothing_is_wrong(directory: Path) -> None:
    found = verified(directory)
    assert (found.offset, found.batches, found.segments, found.indexes) == (24, 12, 3, 3)
    assert found.problems == []


def test_given_no_records_then_nothing_is_wrong(tmp_path: Path) -> None:
    found = verified(new_log_directory(tmp_path))
    assert (found.offset, found.segments, found.problems) == (0, 0, [])


def test_progress_reaches_the_end(directory: Path) -> None:
    said: list[tuple[int, int]] = []
    verify_stopped(open_stopped(directory), lambda *now: said.append(now))
    size = sum(path.stat().st_size for path in directory.glob("*.log"))
    assert said[-1] == (size, size)


def _torn(directory: Path) -> None:
    with segment(directory, 16).open("ab") as file:
        file.write(b"half a batch")


def _unchecked_batches(directory: Path) -> None:
    checkpoint = read_checkpoint(directory)
    assert checkpoint is not None
    write_checkpoint(directory, replace(checkpoint, durable_leo=20, lac=19))
    flip(segment(directory, 16), 600)


def _begun_cut(directory: Path) -> None:
    checkpoint = read_checkpoint(directory)
    assert checkpoint is not None
    write_checkpoint(directory, replace(checkpoint, cut_at=512))


def _two_flips(directory: Path) -> None:
    flip(segment(directory, 0), 300)
    flip(segment(directory, 8), 700)


def _lost_tail(directory: Path) -> None:
    os.truncate(segment(directory, 16), 256)


CASES: dict[str, tuple[Callable[[Path], object], list[tuple[str, int, Severity, str]]]] = {
    "given-a-torn-tail-then-a-note": (
        _torn,
        [("00000000000000000016.log", 1024, NOTE, "the next start cuts it")],
    ),
    "given-damage-behind-the-durable-end-then-a-note": (
        _unchecked_batches,
        [("00000000000000000016.log", 512, NOTE, "the next start cuts it")],
    ),
    "given-damage-in-two-segments-then-both-are-found": (
        _two_flips,
        [
            ("00000000000000000000.log", 256, DAMAGE, "client CRC32C"),
            ("00000000000000000008.log", 512, DAMAGE, "client CRC32C"),
        ],
    ),
    "given-a-lost-tail-then-the-checkpoint-knows": (
        _lost_tail,
        [("checkpoint", 0, DAMAGE, "offset 23 was durable, but the files end at 18")],
    ),
    "given-damage-in-the-last-segment-then-it-says-all": (
        lambda path: flip(segment(path, 16), 300),
        [("00000000000000000016.log", 256, DAMAGE, "client CRC32C")],
    ),
    "given-a-missing-segment-in-the-middle-then-the-one-before-ends-early": (
        lambda path: segment(path, 8).unlink(),
        [("00000000000000000000.log", 1024, DAMAGE, "ends at offset 8, not at 16")],
    ),
    "given-a-missing-first-segment-then-the-checkpoint-knows": (
        lambda path: segment(path, 0).unlink(),
        [("checkpoint", 0, DAMAGE, "begins at offset 0, but its files at 8")],
    ),
    "given-bytes-behind-a-completed-segment-then-damage": (
        lambda path: segment(path, 0).write_bytes(segment(path, 0).read_bytes() + bytes(8)),
        [("00000000000000000000.log", 1024, DAMAGE, "8 bytes follow the last batch")],
    ),
    "given-no-checkpoint-then-it-is-named": (
        lambda path: (path / "checkpoint").unlink(),
        [("checkpoint", 0, DAMAGE, "is missing")],
    ),
    "given-a-cut-that-was-begun-then-a-note": (
        _begun_cut,
        [("checkpoint", 0, NOTE, "the next start finishes it")],
    ),
    "given-a-damaged-index-then-it-is-built-again": (
        lambda path: flip(path / "00000000000000000008.index", 20),
        [("00000000000000000008.index", 0, DAMAGE, "built again")],
    ),
}


@pytest.mark.parametrize(("spoil", "expected"), CASES.values(), ids=CASES)
def test_what_is_wrong(
    directory: Path,
    spoil: Callable[[Path], object],
    expected: list[tuple[str, int, Severity, str]],
) -> None:
    spoil(directory)
    found = verified(directory).problems
    assert [(one.file, one.position, one.severity) for one in found] == [
        one[:3] for one in expected
    ]
    for problem, (_file, _position, _severity, reason) in zip(found, expected, strict=True):
        assert reason in problem.reason


def test_given_an_index_that_cannot_be_written_then_it_says_so(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (directory / "00000000000000000008.index").unlink()

    def refused(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("spu.storage.verification.write_index", refused)
    (problem,) = verified(directory).problems
    assert problem.reason == "is missing; it cannot be built again: Permission denied"
    assert not problem.rebuilt


def test_a_directory_is_described(directory: Path) -> None:
    (directory / "cut-00000000000000000020-1").write_bytes(b"x")
    (directory / "00000000000000000008.index").write_bytes(b"x")
    (directory / "00000000000000000000.index").unlink()
    found = describe(open_stopped(directory))
    assert found["otherFiles"] == ["cut-00000000000000000020-1"]
    assert found["meta"] is None
    assert (found["checkpoint"]["durableEnd"], found["checkpoint"]["lac"]) == (24, 23)
    assert [one["start"] for one in found["checkpoint"]["history"]] == [0]
    assert [(one["baseOffset"], one["bytes"]) for one in found["segments"]] == [
        (0, 1024),
        (8, 1024),
        (16, 1024),
    ]
    assert [one["index"] for one in found["segments"]] == [
        None,
        {"damaged": True},
        {"entries": 1, "covered": 1024, "endOffset": 24, "lastTransactionId": None},
    ]
    assert found["checkpoint"]["lastTransactionIdBeforeStart"] is None


def test_transaction_ids_and_indexes_of_an_earlier_version_are_described(tmp_path: Path) -> None:
    opened = open_log(new_log_directory(tmp_path), settings_of(segment=1 << 10))
    for number in range(8):
        opened.append(batch_of(2, b"x" * 160, ids=(number, 10 * number)))
    opened.log.truncate_prefix(4)
    opened.sync(checkpoint=True)
    opened.crash()
    (tmp_path / "00000000000000000000.index").write_bytes(b"RNLI and what followed")
    found = describe(open_stopped(tmp_path))
    assert found["checkpoint"]["lastTransactionIdBeforeStart"] == 10
    assert found["segments"][0]["index"] == {"ofEarlierVersion": True}
    assert found["segments"][1]["index"]["lastTransactionId"] == 70


def test_what_is_a_directory_of_a_partition(directory: Path, tmp_path: Path) -> None:
    assert is_partition_directory(directory)
    assert not is_partition_directory(tmp_path)
    assert not is_partition_directory(tmp_path / "nothing")
    shutil.copy(segment(directory, 0), tmp_path)
    assert is_partition_directory(tmp_path)
    assert len(batch_of(2, b"x" * 160)) == 256
