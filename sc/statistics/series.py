"""The last quarter of an hour of a number, a value a second, in memory of a fixed size. Pure."""

from __future__ import annotations

from array import array
from typing import Final

#: Seconds that a series keeps.
LENGTH_S: Final = 900


class Series:
    """Values by second. One that was not set is 0, as a rate is where nothing happens."""

    def __init__(self) -> None:
        self._values = array("f", bytes(4 * LENGTH_S))
        self._last_s: int | None = None

    def set(self, second: int, value: float) -> None:
        """Set the value of a second, which is not before the last one that was set."""
        self._move_to(second)
        self._values[second % LENGTH_S] = value

    def last(self, second: int, count: int) -> list[float]:
        """The values of ``count`` seconds up to this one, the oldest first."""
        return [self.at(at) for at in range(second - min(count, LENGTH_S) + 1, second + 1)]

    def at(self, second: int) -> float:
        """The value of one second."""
        last = self._last_s
        if last is None or not last - LENGTH_S < second <= last:
            return 0.0
        return self._values[second % LENGTH_S]

    def _move_to(self, second: int) -> None:
        if self._last_s is not None:
            for passed in range(max(self._last_s, second - LENGTH_S) + 1, second):
                self._values[passed % LENGTH_S] = 0.0
        self._last_s = second
