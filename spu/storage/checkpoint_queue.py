"""Checkpoints of idle logs, so that the next start need not sync and verify what is in them.

They are written one at a time, whatever number of logs became idle at once: a record that is
produced meanwhile shares the disk and the storage threads with one of them, not with thousands.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable


class IdleCheckpoints:
    """All that are wanted on one SPU, in order."""

    def __init__(self) -> None:
        self._wanted: deque[Callable[[], Awaitable[None]]] = deque()
        self._writing: asyncio.Task[None] | None = None

    def want(self, write: Callable[[], Awaitable[None]]) -> None:
        """Have ``write`` called, after those that were wanted before; it must not raise."""
        self._wanted.append(write)
        if self._writing is None:
            loop = asyncio.get_running_loop()
            self._writing = loop.create_task(self._write_all(), name="idle checkpoints")

    async def close(self) -> None:
        """Begin no more of them, and wait for the one that is being written."""
        self._wanted.clear()
        if self._writing is not None:
            await asyncio.wait([self._writing])

    async def _write_all(self) -> None:
        try:
            while self._wanted:
                await self._wanted.popleft()()
        finally:
            self._writing = None
