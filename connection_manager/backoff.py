"""Exponential backoff with full jitter. Randomness is an argument."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Backoff:
    """Delays that double from ``base_ms`` up to ``cap_ms``, each drawn from its upper half.

    ``random`` gives numbers in [0, 1).
    """

    base_ms: float
    cap_ms: float
    random: Callable[[], float]
    attempts: int = field(default=0, init=False)

    def next_ms(self) -> float:
        """The delay before the next attempt, in milliseconds."""
        ceiling: float = min(self.cap_ms, self.base_ms * 2.0 ** min(self.attempts, 32))
        self.attempts += 1
        return ceiling * (0.5 + 0.5 * self.random())

    def reset(self) -> None:
        """Start over after a success."""
        self.attempts = 0
