"""What the load of a segment asks for. Pure: time is an argument.

The rules, with a target T and averages r2, r5, r10 and r20 (over 2, 5, 10 and 20 minutes, if the
shortest window is two minutes), are Pravega's:

- *Hot*, to be split: r2 > 5 T, or r5 > 2 T, or r10 > T.
- *Cold*, to be merged with others: r2, r5 and r10 < T, and r20 < T / 2, once it was measured for as
  long as the longest window. A segment that nobody writes to is cold.
- Nothing is said before a segment was measured for five windows (10 minutes). Who has said hot says
  neither again for so long, and who has said cold does not say cold again. What is no longer so is
  taken back at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from schemas.control.messages import LoadReport
from schemas.objects.load import LoadLimits, LoadUnit
from spu.load.averages import WINDOWS, Averages

#: For so many of the shortest windows nothing is said of a segment that is new, and nothing again
#: of one of which something was said.
QUIET: Final = 5
_BYTES: Final = 1_000


def judged(rates: Sequence[float], target: float, age: float) -> LoadReport | None:
    """What rates ask for, of a segment that was measured for ``age`` of the shortest windows."""
    if age < QUIET:
        return None
    r2, r5, r10, r20 = rates
    if r2 > 5 * target or r5 > 2 * target or r10 > target:
        return LoadReport(parts=max(2, int(max(r2, r5, r10) / target)))
    if max(r2, r5, r10) < target and r20 < target / 2 and age >= WINDOWS[-1]:
        return LoadReport(parts=0)
    return None


class SegmentLoad:
    """What the leader of a segment says of its load.

    `took` counts; `tick` lets time pass. A leader that begins, or one whose limits change, knows
    nothing of the load before.
    """

    def __init__(self) -> None:
        self._events = 0
        self._bytes = 0
        self._limits: LoadLimits | None = None
        self._averages: Averages | None = None
        self._said_hot_ms: float | None = None
        self._said_cold_ms: float | None = None
        #: What is said now; None: nothing.
        self.report: LoadReport | None = None

    def took(self, events: int, size: int) -> None:
        """Clients wrote so many events, of so many bytes."""
        self._events += events
        self._bytes += size

    def tick(self, now_ms: int, limits: LoadLimits | None) -> bool:
        """Let time pass; ``limits`` is None where nothing is to be measured. True if something
        else is said than before."""
        before = self.report
        if limits is None or limits != self._limits or self._averages is None:
            self._limits, self._averages, self.report = limits, None, None
            self._said_hot_ms = self._said_cold_ms = None
            if limits is not None:
                self._averages = Averages(limits.window, now_ms, self._count(limits))
            return before is not None
        if not self._averages.told(now_ms, self._count(limits)):
            return False
        target = limits.target_rate * (_BYTES if limits.unit is LoadUnit.KILOBYTES else 1)
        age = self._averages.age_ms / limits.window
        self._say(judged(self._averages.rates(), target, age), now_ms, QUIET * limits.window)
        return self.report != before

    def _count(self, limits: LoadLimits) -> int:
        return self._bytes if limits.unit is LoadUnit.KILOBYTES else self._events

    def _say(self, found: LoadReport | None, now_ms: int, quiet_ms: float) -> None:
        if found is None:
            self.report = None
        elif found.is_hot:
            if self._is_over(self._said_hot_ms, now_ms, quiet_ms):
                self.report, self._said_hot_ms = found, now_ms
            elif self.report is not None and not self.report.is_hot:
                self.report = None
        elif self.report is None or self.report.is_hot:
            quiet = self._said_hot_ms, self._said_cold_ms
            if all(self._is_over(said, now_ms, quiet_ms) for said in quiet):
                self.report, self._said_cold_ms = found, now_ms
            else:
                self.report = None

    @staticmethod
    def _is_over(said_ms: float | None, now_ms: int, quiet_ms: float) -> bool:
        return said_ms is None or now_ms - said_ms >= quiet_ms
