"""When an SC may stand for election. Pure.

An SC whose lease ends twice within a minute reaches its KV badly: it waits before it stands again,
each time twice as long, so that another one leads. One that has stepped down lets others go first.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

#: SCs that see at the same moment that nobody leads stand within this time, at random.
SPREAD_MS: Final = 100
#: Losses within this time count.
WINDOW_MS: Final = 60_000
FIRST_WAIT_MS: Final = 1_000
LONGEST_WAIT_MS: Final = 30_000
#: For so long one that has stepped down does not stand.
STEP_DOWN_MS: Final = 10_000


@dataclass(slots=True)
class Turns:
    """When this SC may stand, in milliseconds of one clock."""

    not_before_ms: int = 0
    _lost_ms: deque[int] = field(default_factory=deque)

    def lost(self, now_ms: int) -> None:
        """Its lease ended although it did not want that."""
        self._lost_ms.append(now_ms)
        while self._lost_ms[0] <= now_ms - WINDOW_MS:
            self._lost_ms.popleft()
        again = len(self._lost_ms) - 2
        if again >= 0:
            wait_ms = min(LONGEST_WAIT_MS, FIRST_WAIT_MS << min(again, 10))
            self.not_before_ms = max(self.not_before_ms, now_ms + wait_ms)

    def stepped_down(self, now_ms: int) -> None:
        """It has let go on purpose."""
        self.not_before_ms = max(self.not_before_ms, now_ms + STEP_DOWN_MS)

    def stands_at(self, now_ms: int, chance: float) -> int:
        """When to stand for an office that is free now; ``chance``: from 0 to below 1."""
        return max(self.not_before_ms, now_ms + int(chance * SPREAD_MS))
