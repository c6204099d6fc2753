"""When to log that somebody was turned away: SPUs try again every second, for as long as it takes.

The first time, then once in `AGAIN_S` with how often it happened meanwhile. Pure. Neighbours:
`connection_manager.manager` logs SPUs, `connection_manager.port_runner` requests that are no HTTP.
"""

from __future__ import annotations

from typing import Final

AGAIN_S: Final = 600.0
#: How many are remembered. A stranger can make up as many reasons as it likes.
REMEMBERED: Final = 1_000


class TurnedAway:
    """Counts by the address of the other end and the reason."""

    def __init__(self) -> None:
        #: When it was last logged, and how often it happened since; the oldest first.
        self._seen: dict[tuple[str, str], tuple[float, int]] = {}

    def due(self, remote: str, reason: str, now_s: float) -> int | None:
        """How often this happened since it was logged last, this time included, if it is to be
        logged now; else None.
        """
        key = (remote, reason)
        logged_at, count = self._seen.get(key, (float("-inf"), 0))
        if now_s - logged_at < AGAIN_S:
            self._seen[key] = (logged_at, count + 1)
            return None
        self._seen.pop(key, None)
        self._seen[key] = (now_s, 0)
        if len(self._seen) > REMEMBERED:
            self._seen.pop(next(iter(self._seen)))
        return count + 1
