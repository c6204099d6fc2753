"""How often an eager producer sends its open batches. Pure.

A batch costs something at each step: a frame, a commit, a push, a wake-up of each thread. If
batches are acknowledged within a fraction of a millisecond, nothing is busy, and one may leave
every `LEAST_S`. If it takes longer, something is busy, and fewer, larger batches cost less.
"""

from __future__ import annotations

import math
from typing import Final

LEAST_S: Final = 0.002
MOST_S: Final = 0.004
#: Batches leave this many typical round trips apart.
_TIMES: Final = 2
#: The weight of the last sample: as in TCP's estimate of its round-trip time.
_WEIGHT: Final = 1 / 8


class LingerPacer:
    """Call it when batches leave together, and when all of them are acknowledged; in seconds."""

    def __init__(self) -> None:
        #: No more batches may leave before this time.
        self.next_at = -math.inf
        self._began_at: float | None = None
        self._mostly_s = 0.0

    @property
    def interval_s(self) -> float:
        """The current time between batches."""
        return min(max(_TIMES * self._mostly_s, LEAST_S), MOST_S)

    def began(self, now: float) -> None:
        """Some batches left."""
        self._began_at = now
        self.next_at = now + self.interval_s

    def ended(self, now: float) -> None:
        """No batch is in flight any more."""
        if self._began_at is not None:
            self._mostly_s += _WEIGHT * (now - self._began_at - self._mostly_s)
            self._began_at = None
