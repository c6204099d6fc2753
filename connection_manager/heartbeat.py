"""Missed heartbeats, counted in ticks of the process that waits for them, not in time.

A process that was itself stopped for a while (a stalled event loop, a suspended host) sees one
long tick, not many misses: it must not blame its peer for its own absence.

What a long or lossy line does is no silence of the peer: what was lost is sent again, which takes
round trips, and a long message takes a while to arrive. The kernel knows of both, where it says so.

A busy peer says something late. One that was late lately may be late again, so it is given longer;
otherwise the sessions of a process that has too much to do would end, and beginning them again
would give it more to do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from schemas.wire.tcp_info import Pace

#: For how many ticks, at least, it is remembered how late the peer was.
_LATELY: Final = 120
#: A busy peer may miss this many times as many heartbeats as another one, at most.
_MOST_PATIENCE: Final = 5


@dataclass(slots=True)
class HeartbeatMonitor:
    """Declares the peer dead once ``misses`` whole intervals have passed without a word; more on a
    long line, and twice the longest silence of a peer that spoke again lately.

    The first silent tick may come right after a message, so this takes one tick more.
    """

    misses: int
    interval_ms: float
    silent_ticks: int = field(default=0, init=False)
    #: How many silent ticks the line of the last tick allowed.
    allowed: int = field(init=False)
    #: The longest silences that ended with a word, in ticks: in this period, and in the one before.
    _late: int = field(default=0, init=False)
    _late_before: int = field(default=0, init=False)
    _period_ticks: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.allowed = self.misses

    @property
    def quiet(self) -> bool:
        """Whether the peer has missed almost as many heartbeats as it may."""
        return self.silent_ticks >= max(2, self.allowed - 1)

    def heard(self) -> None:
        """Any message of the peer counts as a sign of life."""
        self._late = max(self._late, self.silent_ticks)
        self.silent_ticks = 0

    def tick(self, pace: Pace | None = None) -> bool:
        """Call it once per heartbeat interval; gives whether the peer still counts as alive.
        ``pace`` is that of the connection as of now, None if the kernel does not say."""
        more = 0
        if pace is not None:
            more = pace.more_intervals(self.interval_ms)
            if pace.silent_ms < self.interval_ms:
                # A part of a message came.
                self.heard()
        self.silent_ticks += 1
        self._period_ticks += 1
        if self._period_ticks > _LATELY:
            self._late_before, self._late, self._period_ticks = self._late, 0, 0
        # The first of the silent ticks may have come right after a message.
        busy = 2 * max(self._late, self._late_before) - 1
        self.allowed = max(self.misses + more, min(busy, _MOST_PATIENCE * self.misses))
        return self.silent_ticks <= self.allowed
