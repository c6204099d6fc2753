"""Says why the calls of a topic wait: whoever looks at a program that stands still learns it.

`runnel.net.routing` is told of each attempt that failed and will be repeated.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import Final

#: An election, or a restart of a leader, is over by then.
PATIENCE_S: Final = 5.0
#: Between two warnings about one topic.
AGAIN_S: Final = 60.0

_log = logging.getLogger("runnel")


@dataclass(slots=True)
class Waits:
    """Of one topic: its partitions mostly wait for the same thing."""

    _told_s: float = -math.inf

    def due(self, began_s: float, now_s: float) -> bool:
        """Whether to `tell` now of what has waited since ``began_s``; it counts as done. Both are
        of the monotonic clock."""
        due = now_s - began_s >= PATIENCE_S and now_s - self._told_s >= AGAIN_S
        if due:
            self._told_s = now_s
        return due

    def tell(self, what: str, why: str) -> None:
        """Log that something has to wait."""
        _log.warning("still trying to %s: %s", what, why)
