"""The queue of chunks from the client's loop to the reader, in the loop or in another thread.

The loop puts. A reader in the loop awaits `ChunkQueue.get`; one in another thread takes chunks and
sleeps while there are none, without a call to the loop for each chunk: switching between two
threads costs more than most of the reading. Only a reader that sleeps is woken. Anything else than
a chunk (an error, or None, which only wakes) stays in the queue until a reader in the loop gets it,
which decides what it means.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from runnel.waiters import Waiters

T = TypeVar("T")

Other = BaseException | None


class ChunkQueue(Generic[T]):
    """See the module's text. Chunks are taken in the order in which they were put."""

    def __init__(self) -> None:
        # Held for every look at the items and the getters: a thread takes while the loop puts.
        self._lock = threading.Lock()
        self._items: deque[tuple[T] | Other] = deque()
        self._sleepers = Waiters()
        self._getters: list[asyncio.Future[None]] = []

    @property
    def empty(self) -> bool:
        """Is it empty?"""
        return not self._items

    def put(self, chunk: T) -> None:
        """Add a chunk; in the loop."""
        self._put((chunk,))

    def put_other(self, other: Other) -> None:
        """Add something that is not a chunk; in the loop."""
        self._put(other)

    def withdraw(self, other: BaseException) -> None:
        """Remove this error, if it is in the queue."""
        with self._lock:
            kept = [item for item in self._items if item is not other]
            self._items.clear()
            self._items.extend(kept)

    def extract(self, wanted: Callable[[T], bool]) -> list[T]:
        """Remove the chunks for which ``wanted`` is true, and give them in their order."""
        with self._lock:
            found = [item[0] for item in self._items if isinstance(item, tuple) and wanted(item[0])]
            kept = [
                item for item in self._items if not (isinstance(item, tuple) and wanted(item[0]))
            ]
            self._items.clear()
            self._items.extend(kept)
            return found

    def clear(self) -> None:
        """Drop everything in it."""
        self._items.clear()

    async def get(self) -> tuple[T] | Other:
        """The first item, once there is one: a chunk in a tuple, or something else."""
        while True:
            with self._lock:
                if self._items:
                    return self._items.popleft()
                getter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._getters.append(getter)
            try:
                await getter
            finally:
                # A wait that was given up leaves nothing behind.
                with self._lock:
                    if getter in self._getters:
                        self._getters.remove(getter)

    def take(self) -> T | None:
        """The first chunk, in any thread; None if there is none, or another item comes first."""
        with self._lock:
            if self._items and isinstance(first := self._items[0], tuple):
                self._items.popleft()
                return first[0]
            return None

    def sleep(self, most_s: float) -> None:
        """Sleep until there is an item, at most so long. Not in the loop."""
        self._sleepers.wait(lambda: not self.empty, most_s)

    def _put(self, item: tuple[T] | Other) -> None:
        with self._lock:
            self._items.append(item)
            getters, self._getters = self._getters, []
        for getter in getters:
            if not getter.done():
                getter.set_result(None)
        self._sleepers.tell_all()
