"""Missed heartbeats, counted in ticks of the process that waits for them, not in time.

A process that was itself stopped for a while (a stalled event loop, a suspended host) sees one
long tick, not many misses: it must not blame its peer for its own absence.

What a long or lossy line does is no silence of the peer: what was lost is sent again, which takes
round trips, and a long message takes a while to arrive. The kernel knows of both, where it says so.
What is missing was sent when the line was as slow as at any moment of the silence: acknowledgements
that come faster by now do not bring it sooner.

A busy peer says something late. One that was late lately is given longer: otherwise the sessions of
a process that has too much to do would end, and beginning them again would give it more to do. An
SC gives all SPUs as long as the latest of them: whether they fell silent together can only be seen
where all have the same time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from schemas.wire.tcp_info import Pace

#: For so long, at least, it is remembered how late a peer was; for twice as long at most.
LATELY_S: Final = 30.0
#: A peer that was late may miss this many times as many heartbeats as another one, at most.
_MOST_PATIENCE: Final = 5


class Lateness:
    """The longest silences, in ticks, of one peer over several sessions, or of several peers, in
    this period and in the one before. ``clock`` gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since_s = clock()
        self._now = self._before = 0

    def heard_after(self, silent_ticks: int) -> None:
        """The peer spoke after so many silent ticks, or is known to be that late."""
        self._turn()
        self._now = max(self._now, silent_ticks)

    @property
    def allowed(self) -> int:
        """How many silent ticks a peer like this is allowed."""
        self._turn()
        # The first of the silent ticks may have come right after a message.
        return 2 * max(self._now, self._before) - 1

    def _turn(self) -> None:
        periods = int((self._clock() - self._since_s) / LATELY_S)
        if periods:
            self._before = self._now if periods == 1 else 0
            self._now = 0
            self._since_s += periods * LATELY_S


@dataclass(slots=True)
class HeartbeatMonitor:
    """Declares the peer dead once ``misses`` whole intervals have passed without a word; more on a
    long line and, if its ``lateness`` counts, twice as long as it was silent lately.

    The first silent tick may come right after a message, so this takes one tick more.
    """

    misses: int
    interval_ms: float
    lateness: Lateness | None = None
    silent_ticks: int = field(default=0, init=False)
    #: How many silent ticks were allowed at the last tick.
    allowed: int = field(init=False)
    #: How many of them for the line, as it was when it was slowest since the peer spoke.
    _more: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.allowed = self.misses

    @property
    def quiet(self) -> bool:
        """Whether the peer has missed almost as many heartbeats as it may."""
        return self.silent_ticks >= max(2, self.allowed - 1)

    def heard(self) -> None:
        """Any message of the peer counts as a sign of life."""
        if self.lateness is not None and not self._more:
            # Not what a long line does: that is told apart by each line.
            self.lateness.heard_after(self.silent_ticks)
        self.silent_ticks = 0

    def tick(self, pace: Pace | None = None) -> bool:
        """Call it once per heartbeat interval; gives whether the peer still counts as alive.
        ``pace`` is that of the connection as of now, None if the kernel does not say."""
        if pace is not None and pace.silent_ms < self.interval_ms:
            # A part of a message came.
            self.heard()
        more = 0 if pace is None else pace.more_intervals(self.interval_ms)
        self._more = max(more, self._more) if self.silent_ticks else more
        self.silent_ticks += 1
        self.allowed = self.misses + self._more
        if self.lateness is not None:
            most = _MOST_PATIENCE * self.misses
            self.allowed = max(self.allowed, min(self.lateness.allowed, most))
        return self.silent_ticks <= self.allowed
