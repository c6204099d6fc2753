"""How long to wait before trying again: exponential backoff with equal jitter. Pure.

The ceiling of attempt ``n``, counted from 0, is ``min(cap, base * 2**n)``. A delay is drawn from
the upper half of its ceiling ("equal jitter"), so that clients which failed together do not come
back together, and none of them comes back at once. ``base_ms`` and ``cap_ms`` are milliseconds.
Randomness is an argument: a number in [0, 1), where 0 is the shortest delay.

Source: Marc Brooker, "Exponential Backoff and Jitter", AWS Architecture Blog, 2015.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

#: No cap in use is further from its base than this many doublings; more would overflow a float.
_MAX_DOUBLINGS: Final = 32


@dataclass(slots=True)
class Backoff:
    """Counts the attempts of one caller. ``random`` gives numbers in [0, 1)."""

    base_ms: float
    cap_ms: float
    random: Callable[[], float]
    attempts: int = field(default=0, init=False)

    def next_ms(self) -> float:
        """The delay before the next attempt, in milliseconds."""
        delay_ms = backoff_ms(self.attempts, self.base_ms, self.cap_ms, self.random())
        self.attempts += 1
        return delay_ms

    def reset(self) -> None:
        """Start over after a success."""
        self.attempts = 0


def ceiling_ms(attempt: int, base_ms: float, cap_ms: float) -> float:
    """The longest delay before retry number ``attempt`` (from 0), in milliseconds."""
    return min(cap_ms, base_ms * 2.0 ** min(attempt, _MAX_DOUBLINGS))


def backoff_ms(attempt: int, base_ms: float, cap_ms: float, random: float) -> float:
    """The delay before retry number ``attempt`` (from 0), in milliseconds."""
    return ceiling_ms(attempt, base_ms, cap_ms) * (0.5 + 0.5 * random)


def backoff_s(attempt: int, base_ms: float, cap_ms: float, random: float) -> float:
    """The same in seconds, as `asyncio.sleep` takes it."""
    return backoff_ms(attempt, base_ms, cap_ms, random) / 1000
