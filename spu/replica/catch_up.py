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
#: Seconds after which a follower that lacks more records than before is said to fall behind.
_LOOK_S: Final = 60.0


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
    def bytes_per_second(self) -> int | None:
        return self._rate

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

    def now_s(self) -> float:
        """The time by the clock of the rate, in seconds."""
        return self._now_s()


class FallingBehind:
    """Notices followers of one log that come no nearer to its end, because the rate is less than
    what is written. Pure."""

    def __init__(self) -> None:
        #: By follower: since when it is looked at, and how many records it lacked then.
        self._since: dict[int, tuple[float, int]] = {}
        #: When it was looked at last.
        self._seen_s: dict[int, float] = {}

    def lacks(self, follower: int, records: int, now_s: float) -> bool:
        """A follower lacks so many records now. Whether it lacked fewer a minute ago; after a
        longer time in which nothing was sent to it, it is looked at anew."""
        if now_s - self._seen_s.get(follower, now_s) > _LOOK_S:
            self.forget(follower)
        self._seen_s[follower] = now_s
        began_s, before = self._since.setdefault(follower, (now_s, records))
        if now_s - began_s < _LOOK_S:
            return False
        self._since[follower] = now_s, records
        return records > before

    def forget(self, follower: int) -> None:
        """It waits for no rate any more."""
        self._since.pop(follower, None)
        self._seen_s.pop(follower, None)
