"""Missed heartbeats, counted in ticks of the process that waits for them, not in time.

A process that was itself stopped for a while (a stalled event loop, a suspended host) sees one
long tick, not many misses: it must not blame its peer for its own absence.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class HeartbeatMonitor:
    """Declares the peer dead once ``misses`` whole intervals have passed without a message.

    The first silent tick may come right after a message, so this takes one tick more.
    """

    misses: int
    silent_ticks: int = field(default=0, init=False)

    def heard(self) -> None:
        """Any message of the peer counts as a sign of life."""
        self.silent_ticks = 0

    def tick(self) -> bool:
        """Call it once per heartbeat interval; gives whether the peer still counts as alive."""
        self.silent_ticks += 1
        return self.silent_ticks <= self.misses
