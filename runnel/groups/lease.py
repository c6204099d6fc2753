"""Who is alive, by clocks that nobody compares. Pure: times are arguments, in seconds of a
monotonic clock of one process.

A reader hands out records for `HANDS_OUT` of a lease after it *sent* its last update that stands.
Others call it dead a whole lease after they *read* that update, which is later. So even if one
clock runs half as fast again as another, a reader has stopped when its segments go to another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from runnel.groups.state import Reader

HANDS_OUT: Final = 2 / 3
"""The part of a lease for which a reader may hand out records."""
RENEWS: Final = 0.4
"""The part of a lease after which a reader without other updates shows that it is alive."""


@dataclass(slots=True)
class Lease:
    """That of this reader. ``sent_s``: when it sent its last update that stands."""

    lease_s: float
    sent_s: float = float("-inf")

    def confirmed(self, sent_s: float) -> None:
        """An update that was sent then stands."""
        self.sent_s = max(self.sent_s, sent_s)

    def may_hand_out(self, now_s: float) -> bool:
        return now_s - self.sent_s < self.lease_s * HANDS_OUT

    def is_due(self, now_s: float) -> bool:
        """Whether it should show that it is alive."""
        return now_s - self.sent_s >= self.lease_s * RENEWS


@dataclass(slots=True)
class Judge:
    """What one reader has seen of the others: their sessions with counters, and since when.

    While it could not read the state, or not write to it itself, it has seen nothing: nobody else
    may have been able to write then. It begins anew after that.
    """

    lease_s: float
    _seen: dict[str, tuple[str, int, float]] = field(default_factory=dict)
    _looked_s: float = float("-inf")

    def observe(self, readers: Mapping[str, Reader], now_s: float) -> None:
        """The state as it was read now."""
        if now_s - self._looked_s > self.lease_s * RENEWS:
            self.begin_anew()
        self._looked_s = now_s
        found = {}
        for name, one in readers.items():
            before = self._seen.get(name)
            same = before is not None and before[:2] == (one.session, one.counter)
            since_s = before[2] if same and before is not None else now_s
            found[name] = (one.session, one.counter, since_s)
        self._seen = found

    def begin_anew(self) -> None:
        """Count from the next look on."""
        self._seen.clear()

    def dead(self, now_s: float) -> Iterable[tuple[str, str, int]]:
        """Readers of whom nothing was seen for a lease: name, session and counter."""
        return [
            (name, session, counter)
            for name, (session, counter, since_s) in self._seen.items()
            if now_s - since_s >= self.lease_s
        ]
