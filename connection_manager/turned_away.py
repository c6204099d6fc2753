"""When to log that somebody was turned away: SPUs try again every second, for as long as it takes.

The first time, then once in `AGAIN_S` with how often it happened meanwhile. A stranger can make up
as many reasons as it likes, so there are at most `LINES` in that time. Pure. Neighbours:
`connection_manager.manager` logs SPUs, `connection_manager.port_runner` requests that are no HTTP,
`spu.net.peers` connections that never were one of a peer.
"""

from __future__ import annotations

from typing import Final

AGAIN_S: Final = 600.0
#: Most lines in that time.
LINES: Final = 200
#: How many are remembered: those of a few such times.
REMEMBERED: Final = 1_000


class TurnedAway:
    """Counts by the address of the other end and the reason."""

    def __init__(self) -> None:
        #: When it was last logged, and how often it happened since; the oldest first.
        self._seen: dict[tuple[str, str], tuple[float, int]] = {}
        #: When the first of the `LINES` was logged, and how many there were since.
        self._began_s = float("-inf")
        self._lines = 0

    def due(self, remote: str, reason: str, now_s: float) -> int | None:
        """How often this happened since it was logged last, this time included, if it is to be
        logged now; else None.
        """
        key = (remote, reason)
        logged_at, count = self._seen.get(key, (float("-inf"), 0))
        if now_s - logged_at < AGAIN_S:
            self._seen[key] = (logged_at, count + 1)
            return None
        if now_s - self._began_s >= AGAIN_S:
            self._began_s, self._lines = now_s, 0
        if self._lines == LINES:
            return None
        self._lines += 1
        self._seen.pop(key, None)
        self._seen[key] = (now_s, 0)
        if len(self._seen) > REMEMBERED:
            self._seen.pop(next(iter(self._seen)))
        return count + 1
