"""Moving averages of the load of one segment. Pure: time is an argument.

An average over a window gives what happened long ago less weight than what happened just now: after
one window, a little more than a third. In the first moments it is the mean of what was seen, and
not of zeros before that. How often it is told makes no difference where the load is even.
"""

from __future__ import annotations

import math
from typing import Final

#: How many times the shortest window each of them is: 2, 5, 10 and 20 minutes, if that is two.
WINDOWS: Final = (1.0, 2.5, 5.0, 10.0)
#: So often within the shortest window a new value counts: every five seconds, if that is two
#: minutes.
TICKS: Final = 24


class Averages:
    """Rates per second since ``now_ms``, when the count was ``count``."""

    def __init__(self, window_ms: int, now_ms: int, count: int) -> None:
        self._windows_ms = tuple(window_ms * times for times in WINDOWS)
        self._tick_ms = window_ms / TICKS
        self._began_ms = now_ms
        self._told_ms = now_ms
        self._count = count
        self._sums = [0.0] * len(WINDOWS)

    def told(self, now_ms: int, count: int) -> bool:
        """The count is ``count`` now; it never falls. False if that was too soon to say more."""
        passed_ms = now_ms - self._told_ms
        if passed_ms < self._tick_ms:
            return False
        rate = (count - self._count) * 1000 / passed_ms
        for index, window_ms in enumerate(self._windows_ms):
            weight = 1 - math.exp(-passed_ms / window_ms)
            self._sums[index] += (rate - self._sums[index]) * weight
        self._told_ms, self._count = now_ms, count
        return True

    @property
    def age_ms(self) -> int:
        """For how long it has measured."""
        return self._told_ms - self._began_ms

    def rates(self) -> tuple[float, float, float, float]:
        """The averages per second, the one over the shortest window first; zeros before anything
        was told."""
        if not self.age_ms:
            return 0.0, 0.0, 0.0, 0.0
        first, second, third, fourth = (
            total / (1 - math.exp(-self.age_ms / window_ms))
            for total, window_ms in zip(self._sums, self._windows_ms, strict=True)
        )
        return first, second, third, fourth
