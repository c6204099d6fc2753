"""Every single damage of a small log: it is served as it was written, or it is unfit and says why.

A log of three segments, with a tail behind its checkpoint, is cut at every byte of every file and
has bits flipped in every byte of every file. A record below the durable point is then read as it
was written, or the replica is unfit with a reason that names the file, or the one who reads finds
the damage. What lies above the durable point may be cut; whole batches behind damage are set
aside. Nothing else is ever read.
"""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from schemas.errors import CorruptBatchError, StorageFailedError
from schemas.ids import PartitionUid
from schemas.wire.batch import HEADER_SIZE, split_batches, verify
from spu.replication.state import HardState
from spu.storage import checkpoint as checkpoint_module
from spu.storage import index as index_module
from spu.storage.checkpoint import CHECKPOINT_NAME
from spu.storage.journal import Journal, JournalChange, JournalEntry
from spu.storage.segment import INDEX_SUFFIX, LOG_SUFFIX, Damage
from tests.laws import sampled
from tests.unit.spu.builders import (
    TERM,
    UID,
    OpenLog,
    batch_of,
    new_log_directory,
    new_uid,
    open_log,
)

#: Indexes and checkpoints of a log of gigabytes, in one of a few batches.
SMALL_SCALE = (
    (checkpoint_module, "VERIFY_AGAIN_BYTES", 300),
    (index_module, "INDEX_INTERVAL_BYTES", 100),
)
DURABLE = 11


@pytest.fixture(autouse=True)
def _small_and_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in SMALL_SCALE:
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    monkeypatch.setattr(os, "fdatasync", lambda fd: None)


@dataclass(frozen=True)
class Written:
    """The files of a log, and the batch that was written at each offset."""

    files: dict[str, bytes]
    batches: dict[int, bytes]
    scan_position: int

    @property
    def leo(self) -> int:
        return max(self.batches) + 1

    def place(self, directory: Path, name: str, content: bytes) -> None:
        """Make ``directory`` hold the log with one file damaged."""
        directory.mkdir(exist_ok=True)
        for path in directory.iterdir():
            if path.name not in self.files:
                path.unlink()
        for other, data in self.files.items():
            wanted, path = content if other == name else data, directory / other
            if not path.exists() or path.read_bytes() != wanted:
                path.write_bytes(wanted)


@pytest.fixture(name="written")
def _written(tmp_path: Path, _small_and_fast: None) -> Written:
    directory = new_log_directory(tmp_path / "whole")
    opened = open_log(directory)
    for number in range(DURABLE + 2):
        if number in (3, 5):
            opened.log.roll(number)
        if number == DURABLE:
            opened.sync(lac=number - 2, checkpoint=True)
        batch = batch_of(1, b"%08d" % number, producer_id=7, sequence=number)
        opened.append(batch, TERM + (number > 4))
    opened.crash()
    files = {path.name: path.read_bytes() for path in directory.iterdir()}
    stored = b"".join(data for name, data in sorted(files.items()) if name.endswith(LOG_SUFFIX))
    checkpoint = json.loads(files[CHECKPOINT_NAME][12:])
    assert checkpoint["durableLeo"] == DURABLE
    assert checkpoint["scanPosition"] > 0
    assert len(files) == 7
    batches = {header.base_offset: bytes(raw) for header, raw in split_batches(memoryview(stored))}
    return Written(files, batches, checkpoint["scanPosition"])


def cuts(files: dict[str, bytes]) -> Iterator[tuple[str, int, bytes]]:
    """Every file cut at every byte."""
    for name, data in sorted(files.items()):
        for at in range(len(data)):
            yield name, at, data[:at]


def flips(files: dict[str, bytes], *, every_bit: bool) -> Iterator[tuple[str, int, bytes]]:
    """Every byte of every file with one bit flipped, or each of its bits."""
    for name, data in sorted(files.items()):
        for at in range(len(data)):
            for bit in range(8) if every_bit else (at % 8,):
                damaged = bytearray(data)
                damaged[at] ^= 1 << bit
                yield name, at, bytes(damaged)


def check(directory: Path, written: Written, name: str, at: int, content: bytes) -> str:
    """Recover a damaged log and read it. What became of it: ``unfit``, ``cut``, ``whole``, or
    ``found`` where only the reader meets the damage."""
    written.place(directory, name, content)
    opened = open_log(directory)
    found, log = opened.found, opened.log
    try:
        if found.unfit is not None:
            assert str(directory / name) in found.unfit
            assert name == CHECKPOINT_NAME or re.search(r"at byte \d+", found.unfit)
            assert (directory / name).read_bytes() == content
            return "unfit"
        assert DURABLE <= log.leo <= written.leo
        assert log.log_start == 0
        if log.leo < written.leo:
            lost = [written.batches[offset] for offset in range(log.leo, written.leo)]
            kept = b"".join((directory / aside).read_bytes() for aside in found.set_aside)
            assert all(batch in kept for batch in lost if batch in content)
        verified_from = written.scan_position if name == f"{5:020d}{LOG_SUFFIX}" else 1 << 30
        outcome = "whole" if log.leo == written.leo else "cut"
        for offset in range(log.leo):
            data = read(opened, offset, name)
            assert data == written.batches.get(offset) or (data is None and at < verified_from)
            outcome = "found" if data is None else outcome
        return outcome
    finally:
        opened.crash()


def read(opened: OpenLog, offset: int, damaged: str) -> bytes | None:
    """The batch at ``offset`` as a reader gets it; None where it finds damage there, said of the
    right file."""
    try:
        data = opened.log.read(offset, HEADER_SIZE, opened.log.leo, wait=True).data
        verify(data)
    except Damage as error:
        found = str(error)
    except CorruptBatchError:
        # Readers do not know of files: they name partition and offset.
        found = damaged
    else:
        return bytes(data)
    assert damaged in found
    assert damaged.endswith(LOG_SUFFIX)
    return None


def check_all(
    directory: Path, written: Written, damages: Iterator[tuple[str, int, bytes]]
) -> set[tuple[str, str]]:
    """Check a sample, or each; what became of damage to files of which kind."""
    outcomes = set()
    # A batch has 96 bytes of header before its 24 to 28 of payload.
    for name, at, content in sampled(damages, every=11):
        try:
            outcomes.add((Path(name).suffix, check(directory, written, name, at, content)))
        except Exception as error:
            error.add_note(f"{name} damaged at byte {at}")
            raise
    return outcomes


@pytest.mark.sampled
def test_given_a_file_cut_at_any_byte_then_nothing_wrong_or_missing(
    tmp_path: Path, written: Written
) -> None:
    assert check_all(tmp_path / "log", written, cuts(written.files)) == {
        (LOG_SUFFIX, "unfit"),
        (LOG_SUFFIX, "cut"),
        (INDEX_SUFFIX, "whole"),
        ("", "whole"),
    }


FLIPPED = {
    (LOG_SUFFIX, "unfit"),
    (LOG_SUFFIX, "cut"),
    (LOG_SUFFIX, "found"),
    (LOG_SUFFIX, "whole"),
    (INDEX_SUFFIX, "whole"),
    ("", "whole"),
}


@pytest.mark.sampled
def test_given_a_bit_flipped_in_any_byte_then_nothing_wrong_or_missing(
    tmp_path: Path, written: Written
) -> None:
    assert check_all(tmp_path / "log", written, flips(written.files, every_bit=False)) <= FLIPPED


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_given_any_bit_flipped_then_nothing_wrong_or_missing(
    tmp_path: Path, written: Written
) -> None:
    assert check_all(tmp_path / "log", written, flips(written.files, every_bit=True)) <= FLIPPED


def test_given_any_file_missing_then_nothing_wrong_or_missing(
    tmp_path: Path, written: Written
) -> None:
    for name in written.files:
        others = {other: data for other, data in written.files.items() if other != name}
        directory = tmp_path / name
        Written(others, {}, 0).place(directory, "", b"")
        opened = open_log(directory)
        if name.endswith(LOG_SUFFIX):
            assert opened.found.unfit is not None
            assert str(directory) in opened.found.unfit
        else:
            assert opened.found.unfit is None
            assert opened.log.leo == written.leo
        opened.crash()


def test_given_a_length_that_leads_to_the_last_bytes_then_the_reader_says_damage(
    tmp_path: Path,
) -> None:
    opened = open_log(new_log_directory(tmp_path))
    for _ in range(2):
        opened.append(batch_of(1, b"12345678"))
    path = Path(opened.log.segments[0].path)
    data = bytearray(path.read_bytes())
    struct.pack_into("<I", data, 24, len(data) - 8)
    path.write_bytes(data)
    try:
        # A reader that goes on behind what it got finds its place remembered.
        opened.log.read(0, len(data), 2, wait=True)
        with pytest.raises(Damage, match="at byte 200"):
            opened.log.read(1, len(data), 2, wait=True)
    finally:
        opened.crash()


def _journal_states(path: Path) -> list[tuple[int, dict[PartitionUid, JournalEntry]]]:
    """A journal of three writes: its length and its entries after each."""
    journal = Journal.open(path)
    states = [(0, dict(journal.entries))]
    for term, uid in ((1, UID), (2, new_uid()), (3, UID)):
        journal.append([JournalChange((JournalEntry(uid, HardState("s", TERM + term)),))])
        states.append((path.stat().st_size, dict(journal.entries)))
    journal.close()
    return states


def test_given_a_journal_cut_at_any_byte_then_whole_writes_are_kept(tmp_path: Path) -> None:
    """How long a journal was is known from nothing else: one that ends early is a torn one."""
    path = tmp_path / "journal"
    states = _journal_states(path)
    whole = path.read_bytes()
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        journal = Journal.open(path)
        journal.close()
        size, entries = max((state for state in states if state[0] <= length), key=lambda s: s[0])
        assert journal.entries == entries
        assert path.stat().st_size == size


def test_given_a_bit_flipped_in_a_journal_then_it_is_refused_but_for_the_last_write(
    tmp_path: Path,
) -> None:
    """The last write may be one that was torn: nothing else tells whether it was durable."""
    path = tmp_path / "journal"
    states = _journal_states(path)
    whole = path.read_bytes()
    for _name, at, damaged in flips({"journal": whole}, every_bit=False):
        path.write_bytes(damaged)
        if at >= states[-2][0]:
            journal = Journal.open(path)
            journal.close()
            assert journal.entries == states[-2][1]
            continue
        begin = max(size for size, _entries in states if size <= at)
        with pytest.raises(StorageFailedError, match=f"{path} is damaged at byte {begin}"):
            Journal.open(path)
        assert path.read_bytes() == damaged
