"""How fast an SPU sends records to replicas that are not live: new ones, and those that were away.

All of its leaderships share one rate. A turn is for one push, and the next one begins when the rate
allows what has been sent. Live replicas do not wait for turns: producers wait for them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

#: Pushes are so small that about so many of them are sent in a second, within these sizes in bytes.
_PUSHES_PER_S: Final = 4
_SMALLEST: Final = 16 << 10
_LARGEST: Final = 1 << 20


class CatchUpRate:
    """At most ``bytes_per_second``; None for no limit."""

    def __init__(
        self,
        bytes_per_second: int | None = None,
        *,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._rate = bytes_per_second
        self._now_s = now_s
        self._sleep = sleep
        self._turn = asyncio.Lock()
        self._free_s = 0.0

    @property
    def is_limited(self) -> bool:
        return self._rate is not None

    @property
    def push_bytes(self) -> int:
        """How much one push should carry."""
        if self._rate is None:
            return _LARGEST
        return min(_LARGEST, max(_SMALLEST, self._rate // _PUSHES_PER_S))

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait until something may be sent. First come, first served; `sent` belongs inside."""
        async with self._turn:
            while (wait_s := self._free_s - self._now_s()) > 0:
                await self._sleep(wait_s)
            yield

    def sent(self, count: int) -> None:
        """So many bytes were sent."""
        if self._rate is not None:
            self._free_s = max(self._free_s, self._now_s()) + count / self._rate
