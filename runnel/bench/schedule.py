"""How much to send, and when. Pure: the time is an argument.

The schedule of an end-to-end measurement is open-loop: record ``i`` is due ``i / rate`` seconds
after the start, whatever happened to those before it. Its latency counts from then, so that a stall
counts for every record that had to wait, not only for the one in flight (this avoids coordinated
omission: G. Tene, "How NOT to measure latency").
"""

from __future__ import annotations

from dataclasses import dataclass

#: What a goal in seconds allows: more records than any run sends.
_UNBOUNDED = 1 << 62


@dataclass(frozen=True, slots=True)
class Goal:
    """The end of the work: after so many records, or so many seconds. Exactly one is given."""

    records: int | None = None
    seconds: float | None = None

    def left(self, done: int, elapsed_s: float) -> int:
        """How many records may still follow ``done`` of them after ``elapsed_s``; 0 at the end."""
        if self.records is not None:
            return max(0, self.records - done)
        if self.seconds is not None and elapsed_s < self.seconds:
            return _UNBOUNDED
        return 0

    def share(self, done: int, elapsed_s: float) -> float:
        """The progress, from 0 to 1."""
        if self.records is not None:
            return min(1.0, done / self.records)
        return min(1.0, elapsed_s / self.seconds) if self.seconds else 1.0


@dataclass(frozen=True, slots=True)
class Schedule:
    """``records`` records, ``rate`` of them a second, the first at once."""

    rate: float
    records: int

    def due(self, elapsed_s: float) -> int:
        """How many records are due by now."""
        if elapsed_s < 0:
            return 0
        count = min(self.records, int(elapsed_s * self.rate) + 1)
        # Rounding may put the last one a moment late or early: `at_s` is what counts.
        while count < self.records and self.at_s(count) <= elapsed_s:
            count += 1
        while count > 0 and self.at_s(count - 1) > elapsed_s:
            count -= 1
        return count

    def at_s(self, index: int) -> float:
        """When record ``index`` (from 0) is due, in seconds after the start."""
        return index / self.rate
