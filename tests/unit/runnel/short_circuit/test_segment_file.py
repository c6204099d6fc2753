"""Batches from a file that the SPU named: what is read, and what is not taken for it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from runnel.short_circuit import segment_file
from runnel.short_circuit.segment_file import NotThereError, SegmentFile
from schemas.daemon import page_cache
from schemas.daemon.boot import boot_id
from schemas.wire.batch import read_header, set_offset_and_term, split_batches
from schemas.wire.located_batches import LocatedBatches, Place
from tests.unit.runnel.records.test_cursor import batch

TERM = 1 << 16
BEFORE = b"what is not asked for"


def written(path: Path, *counts: int, base: int = 40, padding: int = 0) -> Place:
    """A file of batches of so many records, and where they lie in it."""
    data = bytearray()
    for count in counts:
        data += batch(base, count, padding=padding)
        base += count
    path.write_bytes(BEFORE + data + b"what was appended since")
    return place_of(path, len(BEFORE), len(data))


def place_of(path: Path, position: int, length: int) -> Place:
    found = path.stat()
    host = boot_id()
    assert host is not None
    where = LocatedBatches(host, found.st_dev, found.st_ino, position, length, TERM)
    return Place(where, str(path))


def opened(place: Place, offset: int = 40, most: int = 1 << 20) -> SegmentFile:
    return SegmentFile.open(place, offset, most)


def bases(data: memoryview) -> list[int]:
    return [header.base_offset for header, _ in split_batches(data)]


@pytest.mark.parametrize(
    ("most", "reads"),
    [
        pytest.param(1 << 20, [[40, 43, 44]], id="given-room-then-all"),
        pytest.param(1, [[40], [43], [44]], id="given-none-then-a-whole-batch-each"),
        pytest.param(1_800, [[40, 43], [44]], id="given-room-for-two-then-no-part-of-the-third"),
    ],
)
def test_whole_batches_in_order(tmp_path: Path, most: int, reads: list[list[int]]) -> None:
    place = written(tmp_path / "log", 3, 1, 2, padding=100)
    found, ends = [], []
    with opened(place, most=most) as file:
        while not file.exhausted:
            found.append(bases(file.read(wait=True)))
            ends.append(file.next_offset)
    assert found == reads
    assert ends[-1] == 46


def test_given_an_offset_in_a_batch_then_that_batch_is_first(tmp_path: Path) -> None:
    with opened(written(tmp_path / "log", 3, 1), 42) as file:
        assert bases(file.read(wait=True)) == [40, 43]


def test_given_a_deleted_file_then_it_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with opened(written(path, 1, 1), most=1) as file:
        file.read(wait=True)
        path.unlink()
        assert bases(file.read(wait=True)) == [41]


def at_once(place: Place) -> Place:
    return place


def other_boot(place: Place) -> Place:
    return replace(place, batches=replace(place.batches, boot_id=bytes(16)))


def other_inode(place: Place) -> Place:
    path = Path(place.path)
    data = path.read_bytes()
    kept = path.rename(path.with_suffix(".old"))
    path.write_bytes(data)
    assert kept.stat().st_ino != path.stat().st_ino
    return place


def gone(place: Place) -> Place:
    Path(place.path).unlink()
    return place


def a_pipe(place: Place) -> Place:
    path = Path(place.path)
    path.unlink()
    os.mkfifo(path)
    return place_of(path, 0, 1_000)


def no_path(place: Place) -> Place:
    return replace(place, path="/with\0nothing")


def cut(place: Place) -> Place:
    os.truncate(place.path, place.batches.position + place.batches.length - 1)
    return place


def other_term(place: Place) -> Place:
    return rewritten(place, lambda data: set_offset_and_term(data, 40, 2 * TERM))


def other_offsets(place: Place) -> Place:
    return rewritten(place, lambda data: set_offset_and_term(data, 41, TERM))


def zeros(place: Place) -> Place:
    def clear(data: bytearray) -> None:
        data[:] = bytes(len(data))

    return rewritten(place, clear)


def too_long(place: Place) -> Place:
    return replace(place, batches=replace(place.batches, length=100))


def rewritten(place: Place, change: Callable[[bytearray], None]) -> Place:
    """The same file, other bytes in it."""
    with Path(place.path).open("r+b") as file:
        file.seek(place.batches.position)
        data = bytearray(file.read(place.batches.length))
        change(data)
        file.seek(place.batches.position)
        file.write(data)
    return place


@pytest.mark.parametrize(
    ("trouble", "message"),
    [
        (other_boot, "is on another host"),
        (other_inode, "is another file here"),
        (gone, "cannot be opened: .*No such file"),
        (a_pipe, "is another file here"),
        (no_path, "cannot be opened: embedded null"),
        (cut, "was cut"),
        (other_term, "has batches of another term"),
        (other_offsets, "has other offsets than was said"),
        (zeros, "batch magic is 0x0000"),
        (too_long, "has no whole batch where it was said"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_given_anything_else_then_it_is_not_read(
    tmp_path: Path, trouble: Callable[[Place], Place], message: str
) -> None:
    place = trouble(written(tmp_path / "log", 3, padding=100))
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(NotThereError, match=message), opened(place) as file:
        file.read(wait=True)
    assert len(os.listdir("/proc/self/fd")) == before


def test_given_many_open_files_then_no_more_until_one_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_file, "MOST_OPEN", 2)
    place = written(tmp_path / "log", 1)
    gone = Place(place.batches, str(tmp_path / "gone"))
    first, second = opened(place), opened(place)
    with pytest.raises(NotThereError, match="2 other files are open"):
        opened(place)
    first.close()
    second.close()
    with opened(place):
        with pytest.raises(NotThereError, match="cannot be opened"):
            opened(gone)
        opened(place).close()
        opened(place).close()


def test_given_a_cut_between_two_reads_then_said(tmp_path: Path) -> None:
    place = written(tmp_path / "log", 1, 1, padding=100)
    with opened(place, most=1) as file:
        first = file.read(wait=True)
        os.truncate(place.path, place.batches.position + len(first))
        with pytest.raises(NotThereError, match="was cut"):
            file.read(wait=True)


def test_given_the_disk_is_needed_then_the_same_is_read_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_at = page_cache.read_at

    def from_disk(fd: int, view: memoryview, position: int, *, wait: bool) -> int:
        if not wait:
            raise BlockingIOError
        return read_at(fd, view, position, wait=True)

    monkeypatch.setattr(segment_file, "read_at", from_disk)
    with opened(written(tmp_path / "log", 2, 1)) as file:
        with pytest.raises(BlockingIOError):
            file.read(wait=False)
        assert bases(file.read(wait=True)) == [40, 42]


def test_given_it_is_closed_while_a_thread_reads_then_the_thread_ends_its_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, closed = threading.Event(), threading.Event()
    read_at = page_cache.read_at

    def slow(fd: int, view: memoryview, position: int, *, wait: bool) -> int:
        reading.set()
        assert closed.wait(10)
        return read_at(fd, view, position, wait=wait)

    monkeypatch.setattr(segment_file, "read_at", slow)
    before = len(os.listdir("/proc/self/fd"))
    file = opened(written(tmp_path / "log", 2))
    found: list[memoryview] = []
    thread = threading.Thread(target=lambda: found.append(file.read(wait=True)))
    thread.start()
    assert reading.wait(10)
    file.close()
    closed.set()
    thread.join(10)
    assert bases(found[0]) == [40]
    with pytest.raises(NotThereError, match="was closed"):
        file.read(wait=True)
    assert len(os.listdir("/proc/self/fd")) == before


def test_given_batches_that_are_kept_then_later_reads_leave_them_alone(tmp_path: Path) -> None:
    counts = [1] * 20
    kept = []
    with opened(written(tmp_path / "log", *counts, padding=20_000), most=1) as file:
        while not file.exhausted:
            kept.append(file.read(wait=True))
    assert [read_header(data).base_offset for data in kept] == list(range(40, 60))
