"""Missed heartbeats, counted in ticks of the process that waits for them, not in time.

A process that was itself stopped for a while (a stalled event loop, a suspended host) sees one
long tick, not many misses: it must not blame its peer for its own absence.

What a long or lossy line does is no silence of the peer: what was lost is sent again, which takes
round trips, and a long message takes a while to arrive. The kernel knows of both, where it says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from schemas.wire.tcp_info import Pace


@dataclass(slots=True)
class HeartbeatMonitor:
    """Declares the peer dead once ``misses`` whole intervals, more on a long line, have passed
    without a word.

    The first silent tick may come right after a message, so this takes one tick more.
    """

    misses: int
    interval_ms: float
    silent_ticks: int = field(default=0, init=False)
    #: How many silent ticks the line of the last tick allowed.
    allowed: int = field(init=False)

    def __post_init__(self) -> None:
        self.allowed = self.misses

    @property
    def quiet(self) -> bool:
        """Whether the peer has missed almost as many heartbeats as it may."""
        return self.silent_ticks >= max(2, self.allowed - 1)

    def heard(self) -> None:
        """Any message of the peer counts as a sign of life."""
        self.silent_ticks = 0

    def tick(self, pace: Pace | None = None) -> bool:
        """Call it once per heartbeat interval; gives whether the peer still counts as alive.
        ``pace`` is that of the connection as of now, None if the kernel does not say."""
        self.silent_ticks += 1
        if pace is not None:
            self.allowed = self.misses + pace.more_intervals(self.interval_ms)
            if pace.silent_ms < self.interval_ms:
                # A part of a message came.
                self.silent_ticks = 1
        return self.silent_ticks <= self.allowed
