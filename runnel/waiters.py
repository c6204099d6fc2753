"""Threads that wait until another one tells them, and that Ctrl-C may end at any point.

A handler of signals raises between two instructions of Python, so also inside of
`threading.Condition` and of a `Future` of threads: it may leave their lock held, or released once
too often, and then the next one waits for ever. Here each thread waits for a plain lock of its own.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress


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
        lock = threading.Lock()
        lock.acquire()
        self._locks.append(lock)
        try:
            if is_there():
                return True
            least_s = -1.0 if most_s is None else max(0.0, min(most_s, threading.TIMEOUT_MAX))
            return lock.acquire(timeout=least_s)
        finally:
            with suppress(ValueError):
                self._locks.remove(lock)

    def tell_all(self) -> None:
        """End the waits of all who wait now."""
        while self._locks:
            with suppress(IndexError):
                self._locks.popleft().release()
