"""Writes log lines to a stream that may fail, such as a file on a full disk or a closed pipe.

A line that cannot be written is dropped and counted: a log must never end what it reports on. The
first line that can be written again follows one that says how many were lost. Lines stay whole: a
line that was written in part is ended before the next.

Descriptors are written without a buffer, because a buffer keeps what it could not write and fails
again with it, even at the end of the process. A pipe that nobody reads still stops its writer.
Neighbour: `schemas.daemon.logs` makes the lines.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Final, TextIO

_NEWLINE: Final = b"\n"


class LogLines:
    """Lines to a stream; None drops them all. ``lost_line`` makes the line that says how many lines
    were lost, of their number and the last reason."""

    def __init__(self, stream: TextIO | None, lost_line: Callable[[int, str], str]) -> None:
        self._write = _writer(stream)
        self._lost_line = lost_line
        #: A thread and the event loop may log at the same time.
        self._lock = threading.Lock()
        #: Lines that were dropped since the last one that was written, and why.
        self._lost = 0
        self._why = ""
        self._torn = False

    def msg(self, line: str) -> None:
        """Write a line, or drop it. Raises nothing for a stream that fails."""
        with self._lock:
            try:
                if self._lost:
                    self._put(self._lost_line(self._lost, self._why))
                    self._lost = 0
                self._put(line)
            # A stream of Python that was closed raises ValueError.
            except (OSError, ValueError) as error:
                self._lost += 1
                self._why = str(error)

    # structlog calls the method that is named like the level.
    debug = info = warning = error = critical = msg

    def _put(self, line: str) -> None:
        data = line.encode(errors="backslashreplace") + _NEWLINE
        if self._torn:
            self._put_all(_NEWLINE)
        self._put_all(data)

    def _put_all(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest:
                written = self._write(rest)
                if not written:
                    raise OSError("nothing can be written")
                rest = rest[written:]
        finally:
            # After a part of a line the next one begins on a line of its own.
            self._torn = bool(rest) and (self._torn or len(rest) < len(data))


def write_last_words(stream: TextIO | None, words: str) -> None:
    """Write a line that a process says before it ends; one that cannot be written is dropped."""
    LogLines(stream, lambda lost, why: f"{lost} lines lost: {why}").msg(words)


def _writer(stream: TextIO | None) -> Callable[[memoryview], int]:
    """What writes bytes to a stream, and gives how many it wrote."""
    if stream is None:
        return len
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):
        # No file of the system, such as a test's capture.
        pass
    else:
        return lambda data: os.write(descriptor, data)

    def write(data: memoryview) -> int:
        stream.write(bytes(data).decode())
        stream.flush()
        return len(data)

    return write
