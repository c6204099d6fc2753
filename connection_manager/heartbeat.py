"""Missed heartbeats, counted in ticks of the process that waits for them, not in time.

A process that was itself stopped for a while (a stalled event loop, a suspended host) sees one
long tick, not many misses: it must not blame its peer for its own absence.

What a long or lossy line does is no silence of the peer: what was lost is sent again, which takes
round trips, and a long message takes a while to arrive. The kernel knows of both, where it says so.

A busy peer says something late. An SPU gives an SC that was late lately longer: otherwise the
sessions of an SC that has too much to do would end, and beginning them again would give it more to
do. Leaving an SC decides nothing. An SC gives SPUs no longer: clients wait until it elects others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from schemas.wire.tcp_info import Pace

#: For how many ticks, at least, it is remembered how late a peer was.
_LATELY: Final = 120
#: A peer that was late may miss this many times as many heartbeats as another one, at most.
_MOST_PATIENCE: Final = 5


@dataclass(slots=True)
class Lateness:
    """The longest silences of a peer, in ticks, in this period and in the one before; also of
    sessions that ended for it."""

    now: int = 0
    before: int = 0
    ticks: int = 0

    def heard_after(self, silent_ticks: int) -> None:
        """The peer spoke, or was given up, after so many silent ticks."""
        self.now = max(self.now, silent_ticks)

    def tick(self) -> int:
        """Call it once per interval; gives how many silent ticks a peer like this is allowed."""
        self.ticks += 1
        if self.ticks > _LATELY:
            self.before, self.now, self.ticks = self.now, 0, 0
        # The first of the silent ticks may have come right after a message.
        return 2 * max(self.now, self.before) - 1


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
        if self.lateness is not None:
            self.lateness.heard_after(self.silent_ticks)
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
        self.allowed = self.misses + more
        if self.lateness is not None:
            busy = self.lateness.tick()
            self.allowed = max(self.allowed, min(busy, _MOST_PATIENCE * self.misses))
        alive = self.silent_ticks <= self.allowed
        if not alive and self.lateness is not None:
            self.lateness.heard_after(self.silent_ticks)
        return alive
