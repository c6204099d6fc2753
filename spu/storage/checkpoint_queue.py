"""Checkpoints of idle logs, so that the next start need not sync and verify their last records.

They are written one at a time, however many logs became idle at once: a record that is produced
meanwhile shares the disk and the storage threads with one checkpoint, not with thousands.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable


class IdleCheckpoints:
    """The checkpoints to be written on one SPU, in order."""

    def __init__(self) -> None:
        self._wanted: deque[Callable[[], Awaitable[None]]] = deque()
        self._writing: asyncio.Task[None] | None = None

    def want(self, write: Callable[[], Awaitable[None]]) -> None:
        """Queue ``write``, which must not raise; it is called after those queued before."""
        self._wanted.append(write)
        if self._writing is None:
            loop = asyncio.get_running_loop()
            self._writing = loop.create_task(self._write_all(), name="idle checkpoints")

    async def close(self) -> None:
        """Begin no more checkpoints, and wait for the one that is being written."""
        self._wanted.clear()
        if self._writing is not None:
            await asyncio.wait([self._writing])

    async def _write_all(self) -> None:
        try:
            while self._wanted:
                await self._wanted.popleft()()
        finally:
            self._writing = None
