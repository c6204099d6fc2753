"""Threads that wait until another one tells them, and that Ctrl-C may end at any point.

A handler of signals raises between two instructions of Python, so also inside of
`threading.Condition` and of a `Future` of threads: it may leave their lock held, or released once
too often, and then the next one waits for ever. Here each thread waits for a plain lock of its own.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Final

#: A thread never sleeps for longer: CPython looks for signals before it falls asleep, so one that
#: comes between is seen when the thread wakes up.
_LOOK_UP_S: Final = 0.5


class Waiters:
    """The threads that wait for one thing."""

    def __init__(self) -> None:
        # Each is held by a thread that waits. Only calls that the interpreter does not divide
        # change this queue, so it needs no lock.
        self._locks: deque[threading.Lock] = deque()

    def __len__(self) -> int:
        return len(self._locks)

    def wait(self, is_there: Callable[[], bool], most_s: float | None) -> bool:
        """Wait until `tell_all` is called, at most so long, or for ever; not if ``is_there()``.
        False if the time is over. What ``is_there`` reads must change before `tell_all` is called.
        """
        until_s = math.inf if most_s is None else monotonic() + most_s
        lock = threading.Lock()
        lock.acquire()
        self._locks.append(lock)
        try:
            while not is_there():
                left_s = until_s - monotonic()
                if lock.acquire(timeout=max(0.0, min(left_s, _LOOK_UP_S))):
                    return True
                if left_s <= 0:
                    return False
            return True
        finally:
            with suppress(ValueError):
                self._locks.remove(lock)

    def tell_all(self) -> None:
        """End the waits of all who wait now."""
        for _ in range(len(self._locks)):
            # Others may leave meanwhile.
            with suppress(IndexError):
                self._locks.popleft().release()


class Flag:
    """Something that happens once: as `threading.Event`, but Ctrl-C may end a wait at any point."""

    def __init__(self) -> None:
        self._is_set = False
        self._waiters = Waiters()

    def is_set(self) -> bool:
        """Has it happened?"""
        return self._is_set

    def set(self) -> None:
        """It happens now."""
        self._is_set = True
        self._waiters.tell_all()

    def wait(self, most_s: float | None = None) -> bool:
        """Wait until it has happened, at most so long, or for ever; has it?"""
        return self._waiters.wait(self.is_set, most_s)
