"""Whether a leader still commits: it is *stalled* when records wait and none is committed for long.

Both the beginning and the end of a stall need time, so that a slow partition does not change back
and forth. The core asks for another leader by itself; this only tells people. Pure. Neighbours:
`spu.replica.replica` observes at each tick, `spu.host.host` tells the SC.
"""

from __future__ import annotations

from typing import Final

#: How long nothing is committed before a leader is stalled.
STALLED_MS: Final = 5_000
#: How long it has to commit, or to have nothing to commit, before it is not stalled any more.
COMMITS_MS: Final = 2_000


class CommitWatch:
    """One leader, from tick to tick."""

    __slots__ = ("_lac", "_since_ms", "_waits", "stalled")

    def __init__(self) -> None:
        self.stalled = False
        self._lac: int | None = None
        self._waits = False
        self._since_ms = 0

    def observe(self, lac: int, leo: int, now_ms: int) -> None:
        """What a leader has now: its last committed offset, and the next offset of its log."""
        waits = lac == self._lac and lac + 1 < leo
        if waits != self._waits or self._lac is None:
            self._waits, self._since_ms = waits, now_ms
        self._lac = lac
        if now_ms - self._since_ms >= (STALLED_MS if waits else COMMITS_MS):
            self.stalled = waits
