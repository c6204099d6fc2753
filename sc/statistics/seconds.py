"""The seconds by which statistics are kept, and a way to wait for the end of the present one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from schemas.errors import FencedError


class Seconds:
    """Calls ``close`` at the end of each second with its number, by a clock in milliseconds that
    grows, and then wakes those that wait."""

    def __init__(self, clock_ms: Callable[[], int], close: Callable[[int], None]) -> None:
        self._clock_ms = clock_ms
        self._close = close
        self._ended = asyncio.Event()
        self._over = ""

    async def run(self) -> None:
        """Count until cancelled."""
        while True:
            await asyncio.sleep(1 - self._clock_ms() % 1000 / 1000)
            self._close(self._clock_ms() // 1000)
            ended, self._ended = self._ended, asyncio.Event()
            ended.set()

    def stop(self, why: str) -> None:
        """Count no further second: wakes those that wait."""
        self._over = why
        self._ended.set()

    async def end(self) -> None:
        """Wait until a second has ended. Raises FencedError when no further one is counted."""
        if not self._over:
            await self._ended.wait()
        if self._over:
            raise FencedError(self._over)
