"""A log that cannot be written loses lines, never the process that writes them."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TextIO

import pytest

from schemas.daemon.log_lines import LogLines, write_last_words


class File:
    """A file with a number of free bytes, behind `os.write`."""

    def __init__(self, free: int) -> None:
        self.data = b""
        self.free = free
        self.error = errno.ENOSPC

    def write(self, _descriptor: int, data: memoryview) -> int:
        if not self.free:
            raise OSError(self.error, os.strerror(self.error))
        written = bytes(data[: self.free])
        self.data += written
        self.free -= len(written)
        return len(written)


Make = Callable[[int], tuple[LogLines, File]]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Make]:
    with (tmp_path / "log").open("w") as stream:

        def make(free: int) -> tuple[LogLines, File]:
            file = File(free)
            monkeypatch.setattr(os, "write", file.write)
            return LogLines(stream, lambda lost, why: f"lost {lost}: {why}"), file

        yield make
        monkeypatch.undo()


FULL = "[Errno 28] No space left on device"


def test_given_room_then_lines(make: Make) -> None:
    lines, file = make(100)
    lines.info("one")
    lines.critical("two")
    assert file.data == b"one\ntwo\n"


def test_given_no_room_then_lines_are_dropped_and_the_next_says_how_many(make: Make) -> None:
    lines, file = make(0)
    lines.error("one")
    lines.error("two")
    file.free = 100
    lines.info("three")
    lines.info("four")
    assert file.data == f"lost 2: {FULL}\nthree\nfour\n".encode()


@pytest.mark.parametrize("free", range(1, 4))
def test_given_room_for_a_part_of_a_line_then_the_next_begins_on_its_own(
    free: int, make: Make
) -> None:
    lines, file = make(free)
    lines.info("one")
    for _ in range(2):
        # Room for the end of the torn line, or for a part of what was lost.
        file.free = free
        lines.info("two")
    file.free = 100
    lines.info("three")
    assert file.data.endswith(f"\nlost 3: {FULL}\nthree\n".encode())
    assert b"onelost" not in file.data


def test_given_a_line_that_lacks_only_its_end_then_the_next_ends_it(make: Make) -> None:
    lines, file = make(3)
    lines.info("one")
    file.free = 100
    lines.info("two")
    assert file.data == f"one\nlost 1: {FULL}\ntwo\n".encode()


def test_given_the_number_lost_cannot_be_written_then_it_is_kept(make: Make) -> None:
    lines, file = make(0)
    lines.info("one")
    file.free = 2
    lines.info("two")
    file.free = 100
    lines.info("three")
    assert file.data == f"lo\nlost 2: {FULL}\nthree\n".encode()


@pytest.mark.parametrize("number", [errno.EIO, errno.EPIPE, errno.EAGAIN, errno.EBADF])
def test_given_any_error_of_the_system_then_it_is_the_reason(number: int, make: Make) -> None:
    lines, file = make(0)
    file.error = number
    lines.info("one")
    file.free = 100
    lines.info("two")
    assert os.strerror(number).encode() in file.data


def test_given_a_stream_without_a_descriptor_then_lines() -> None:
    stream = io.StringIO()
    LogLines(stream, lambda lost, why: "").info("naïve")
    assert stream.getvalue() == "naïve\n"


def test_given_a_closed_stream_then_lines_are_dropped() -> None:
    stream = io.StringIO()
    lines = LogLines(stream, lambda lost, why: "")
    stream.close()
    lines.info("one")


def closed_pipe() -> TextIO:
    reading, writing = os.pipe()
    os.close(reading)
    return os.fdopen(writing, "w")


def pipe_that_nobody_reads() -> TextIO:
    _reading, writing = os.pipe()
    os.set_blocking(writing, False)
    stream = os.fdopen(writing, "w")
    with suppress(BlockingIOError):
        while True:
            os.write(writing, bytes(1 << 16))
    return stream


def full_disk() -> TextIO:
    return Path("/dev/full").open("w")


@pytest.mark.parametrize(
    "stream",
    [
        pytest.param(full_disk, id="given-a-full-disk"),
        pytest.param(closed_pipe, id="given-a-closed-pipe"),
        pytest.param(pipe_that_nobody_reads, id="given-a-full-pipe-that-does-not-block"),
        pytest.param(lambda: None, id="given-no-stream"),
    ],
)
def test_last_words(stream: Callable[[], TextIO | None]) -> None:
    opened = stream()
    write_last_words(opened, "the SC cannot run")
    if opened is not None:
        opened.close()
