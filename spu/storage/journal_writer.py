"""Group commit for the journal: changes that arrive together share one write and one fsync.

An SPU that takes over a thousand partitions records a thousand terms at once. Each leadership
waits for its own entry, and a few frames hold all of them. A frame holds a bounded number of
entries, because all that waited for it go on in one turn of the event loop, and heartbeats must be
sent in between. Changes are written in the order of the calls.
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import Executor
from typing import Final

from spu.storage.journal import Journal, JournalChange

#: At most this many changes share a write.
MAX_SHARED: Final = 64


class JournalWriter:
    """Writes a journal from the event loop, its disk work in ``executor``."""

    def __init__(self, journal: Journal, executor: Executor) -> None:
        self._journal = journal
        self._executor = executor
        # Changes that share a write, and the futures that wait for it, in order.
        self._pending: deque[tuple[list[JournalChange], asyncio.Future[None]]] = deque()
        self._task: asyncio.Task[None] | None = None

    def submit(self, change: JournalChange) -> asyncio.Future[None]:
        """A future that is done once ``change`` is durable, or fails with StorageFailedError."""
        loop = asyncio.get_running_loop()
        if not self._pending or len(self._pending[-1][0]) >= MAX_SHARED:
            self._pending.append(([], loop.create_future()))
        changes, written = self._pending[-1]
        changes.append(change)
        if self._task is None:
            self._task = loop.create_task(self._write())
        return written

    async def record(self, change: JournalChange) -> None:
        """Return once ``change`` is durable. Raises StorageFailedError."""
        # A caller that is cancelled must not cancel the write, which others share.
        await asyncio.shield(self.submit(change))

    async def close(self) -> None:
        """Wait for what is being written, and until all have heard of it; then close the
        journal."""
        # The loop may not have called those yet that wait for a write that has just ended.
        await asyncio.sleep(0)
        while self._task is not None:
            await self._task
        self._journal.close()

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        while self._pending:
            changes, written = self._pending.popleft()
            try:
                await loop.run_in_executor(self._executor, self._journal.append, changes)
            except Exception as error:
                written.set_exception(error)
                # There may be no caller left to retrieve the error.
                written.exception()
            else:
                written.set_result(None)
        self._task = None
