"""How often an eager producer sends what it has.

A batch has its price on the whole way: a frame, a commit, a push, a wake-up of each thread. Where
batches are acknowledged within a fraction of a millisecond nothing is busy, and one may go every
`LEAST_S`; where it takes longer something is, and fewer ones that are larger cost less. Pure.
"""

from __future__ import annotations

import math
from typing import Final

LEAST_S: Final = 0.002
MOST_S: Final = 0.004
#: So many times as long as batches mostly take, they are apart.
_TIMES: Final = 2
#: How much the last one counts beside all before: as in TCP's estimate of its round trips.
_WEIGHT: Final = 1 / 8


class LingerPacer:
    """Told when batches leave together, and when all of them are acknowledged; in seconds."""

    def __init__(self) -> None:
        #: Before this no more are to leave.
        self.next_at = -math.inf
        self._began_at: float | None = None
        self._mostly_s = 0.0

    @property
    def interval_s(self) -> float:
        """How far apart they leave now."""
        return min(max(_TIMES * self._mostly_s, LEAST_S), MOST_S)

    def began(self, now: float) -> None:
        """Some left."""
        self._began_at = now
        self.next_at = now + self.interval_s

    def ended(self, now: float) -> None:
        """Nothing is under way any more."""
        if self._began_at is not None:
            self._mostly_s += _WEIGHT * (now - self._began_at - self._mostly_s)
            self._began_at = None
