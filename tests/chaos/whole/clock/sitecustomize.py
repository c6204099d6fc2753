"""A wall clock that jumps. Python imports this as it starts, from a directory of ``PYTHONPATH``.

``CHAOS_CLOCK`` names a file with the seconds by which this process's clock is wrong; while there is
none, it is right. `time.time`, `time.time_ns` and what `datetime` says the time is follow it; the
monotonic clock does not, nor do the times of files.
"""

from __future__ import annotations

import ctypes
import gc
import os
import time
from datetime import UTC, datetime, tzinfo
from typing import Final

LOOK_S: Final = 0.05
"""The file is read at most so often."""
_SECOND_NS: Final = 1_000_000_000


class _Clock:
    def __init__(self, path: str) -> None:
        self._path = path
        self._right_ns = time.time_ns
        self._wrong_ns = 0
        self._look_s = 0.0

    def time_ns(self) -> int:
        if (now_s := time.monotonic()) >= self._look_s:
            self._look_s = now_s + LOOK_S
            self._wrong_ns = self._read()
        return self._right_ns() + self._wrong_ns

    def time(self) -> float:
        return self.time_ns() / _SECOND_NS

    def _read(self) -> int:
        try:
            with open(self._path) as file:
                return int(file.read()) * _SECOND_NS
        except FileNotFoundError:
            return 0


def _set(clock: _Clock) -> None:
    def now(kind: type[datetime], tz: tzinfo | None = None) -> datetime:
        return kind.fromtimestamp(clock.time(), tz)

    def utcnow(kind: type[datetime]) -> datetime:
        return now(kind, UTC).replace(tzinfo=None)

    time.time, time.time_ns = clock.time, clock.time_ns
    # It asks the system in C, and takes no attributes: its own table takes them.
    (attributes,) = gc.get_referents(datetime.__dict__)
    attributes.update(now=classmethod(now), utcnow=classmethod(utcnow))
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(datetime))


if path := os.environ.get("CHAOS_CLOCK"):
    _set(_Clock(path))
