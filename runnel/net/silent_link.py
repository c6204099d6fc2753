"""Whether the network still carries what a client sends to an SPU. Pure.

Only the kernel's word counts (`schemas.wire.keepalive.unacknowledged`): an SPU that is busy, that
stands still or that waits for other replicas answers nothing either, but its host acknowledges.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from schemas.wire.tcp_info import Unacknowledged

#: Call `SilentLink.look` so often while something is awaited.
LOOK_EVERY_S: Final = 0.5
#: Sent again so many times in a row without an acknowledgement: about 1.4 s where round trips are
#: short, longer where they are long.
LOST_AFTER: Final = 3
#: With nothing unacknowledged, silence for so many looks is a reason to send something.
PROBE_AFTER: Final = 2


class Link(Enum):
    """What to do about a connection."""

    KEEP = auto()
    #: Send something, so that the other host has something to acknowledge.
    PROBE = auto()
    #: Close it, and connect again.
    LOST = auto()


@dataclass(slots=True)
class SilentLink:
    """Counts for how many looks nothing came."""

    silent_looks: int = 0

    def look(self, *, heard: bool, unacknowledged: Unacknowledged | None) -> Link:
        """``heard``: whether anything came since the last look. None: the kernel does not say, and
        requests have only their deadlines."""
        self.silent_looks = 0 if heard else self.silent_looks + 1
        if unacknowledged is None:
            return Link.KEEP
        if unacknowledged.retransmissions >= LOST_AFTER:
            return Link.LOST
        if self.silent_looks >= PROBE_AFTER and unacknowledged.segments == 0:
            return Link.PROBE
        return Link.KEEP
