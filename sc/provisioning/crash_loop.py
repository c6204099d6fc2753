"""When to restart a process that ended. Pure."""

from __future__ import annotations

from dataclasses import dataclass

FIRST_DELAY_S = 0.2
LONGEST_DELAY_S = 30.0
#: A process that ran this long has started well: its next end counts as the first again.
HEALTHY_S = 10.0


@dataclass(slots=True)
class CrashLoop:
    """Counts quick ends of one process."""

    ends: int = 0

    def ended(self, ran_s: float) -> float:
        """Seconds to wait before the next start: the first at once, then doubling."""
        self.ends = 1 if ran_s >= HEALTHY_S else self.ends + 1
        if self.ends == 1:
            return 0.0
        return min(LONGEST_DELAY_S, FIRST_DELAY_S * 2.0 ** min(self.ends - 2, 16))
