"""The way of chunks from the client's loop to whoever reads them, there or in another thread.

The loop puts. A reader in the loop awaits `ChunkQueue.get`; one in another thread takes what is
there and sleeps while nothing is, without asking the loop for each chunk: two threads that answer
each other cost more than most of what is read. Nobody is woken who does not sleep.

What is no chunk (an error, or None, which only wakes) stays in the queue until a reader in the loop
gets it: what it means is decided there.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")

Other = BaseException | None


class ChunkQueue(Generic[T]):
    """See the module's text. Chunks are taken in the order in which they were put."""

    def __init__(self) -> None:
        # Held for every look at the two lists: a thread takes and sleeps while the loop puts.
        self._lock = threading.Lock()
        self._items: deque[tuple[T] | Other] = deque()
        self._sleepers: list[threading.Lock] = []
        self._getters: list[asyncio.Future[None]] = []

    @property
    def empty(self) -> bool:
        """Is nothing in it?"""
        return not self._items

    def put(self, chunk: T) -> None:
        """Add a chunk; in the loop."""
        self._put((chunk,))

    def put_other(self, other: Other) -> None:
        """Add what is no chunk; in the loop."""
        self._put(other)

    def clear(self) -> None:
        """Drop all that is in it."""
        self._items.clear()

    async def get(self) -> tuple[T] | Other:
        """What was put first, once there is something: a chunk in a tuple, or something else."""
        while True:
            with self._lock:
                if self._items:
                    return self._items.popleft()
                getter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._getters.append(getter)
            await getter

    def take(self) -> T | None:
        """The chunk that was put first, in any thread; None where there is none, or something else
        comes before."""
        with self._lock:
            if self._items and isinstance(first := self._items[0], tuple):
                self._items.popleft()
                return first[0]
            return None

    def sleep(self, most_s: float) -> None:
        """Until there is something, or so long. Not in the loop."""
        sleeper = threading.Lock()
        sleeper.acquire()
        with self._lock:
            if self._items:
                return
            self._sleepers.append(sleeper)
        try:
            sleeper.acquire(timeout=most_s)
        finally:
            with self._lock:
                if sleeper in self._sleepers:
                    self._sleepers.remove(sleeper)

    def _put(self, item: tuple[T] | Other) -> None:
        with self._lock:
            self._items.append(item)
            getters, self._getters = self._getters, []
            sleepers, self._sleepers = self._sleepers, []
        for getter in getters:
            if not getter.done():
                getter.set_result(None)
        for sleeper in sleepers:
            sleeper.release()
