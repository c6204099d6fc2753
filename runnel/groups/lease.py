"""Who is alive, by clocks that nobody compares. Pure: times are arguments, in seconds of a
clock of one process that goes on while the host is suspended.

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
LOOKED: Final = 1 / 3
"""The part of a lease that counts as watched between two looks, at most."""


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
    """What one reader has seen of the others: their sessions with counters, and for how long it has
    watched these without a change.

    Time in which it did not look counts for little: nobody may have been able to write then, and a
    judge that is slow should judge all the same.
    """

    lease_s: float
    _seen: dict[str, tuple[str, int, float]] = field(default_factory=dict)
    _looked_s: float | None = None

    def observe(self, readers: Mapping[str, Reader], now_s: float) -> None:
        """The state as it was read now."""
        passed_s = 0.0 if self._looked_s is None else now_s - self._looked_s
        counted_s = min(passed_s, self.lease_s * LOOKED)
        self._looked_s = now_s
        found = {}
        for name, one in readers.items():
            before = self._seen.get(name)
            same = before is not None and before[:2] == (one.session, one.counter)
            watched_s = before[2] + counted_s if same and before is not None else 0.0
            found[name] = (one.session, one.counter, watched_s)
        self._seen = found

    def spare(self) -> None:
        """This reader could not write for a while: others may have had the same trouble, and get
        half a lease to say that they are alive."""
        most_s = self.lease_s / 2
        self._seen = {
            name: (session, counter, min(watched_s, most_s))
            for name, (session, counter, watched_s) in self._seen.items()
        }

    def dead(self) -> Iterable[tuple[str, str, int]]:
        """Readers that were watched for a lease without a sign of life: name, session and
        counter."""
        return [
            (name, session, counter)
            for name, (session, counter, watched_s) in self._seen.items()
            if watched_s >= self.lease_s
        ]
