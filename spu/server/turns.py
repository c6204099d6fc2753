"""Clients take turns, so that requests never hold the event loop for long, however many come. Pure.

What a connection has received may be thousands of requests, and there may be a thousand such
connections. The heartbeats of the SPU and its replication must not wait for all of them. So in one
turn of the event loop all connections together serve requests for `ROUND_S`, and each for `SLICE_S`
at a time; who has more waits in line, and is not read meanwhile.

Neighbour: `spu.server.connection` asks for its slice, and waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

ROUND_S: Final = 0.005
SLICE_S: Final = 0.001


class Turns:
    """``call_soon`` calls a function in the next turn of the event loop; ``now_s`` is a clock."""

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        now_s: Callable[[], float],
    ) -> None:
        self.now_s = now_s
        self._call_soon = call_soon
        #: Who waits, the one that is next first; called with the end of its slice.
        self._line: deque[Callable[[float], None]] = deque()
        self._round_ends_s = 0.0
        self._next_is_scheduled = False

    def slice_ends_s(self) -> float | None:
        """Until when the caller may serve requests now; None if it has to `wait`."""
        if not self._next_is_scheduled:
            self._begin()
        now_s = self.now_s()
        if self._line or now_s >= self._round_ends_s:
            return None
        return min(now_s + SLICE_S, self._round_ends_s)

    def wait(self, serve: Callable[[float], None]) -> None:
        """Have ``serve`` called once, with the end of its slice."""
        self._line.append(serve)
        if not self._next_is_scheduled:
            self._begin()

    def _begin(self) -> None:
        self._round_ends_s = self.now_s() + ROUND_S
        self._next_is_scheduled = True
        self._call_soon(self._next)

    def _next(self) -> None:
        self._next_is_scheduled = False
        if not self._line:
            return
        self._begin()
        # At least one, however late it is.
        while True:
            self._line.popleft()(min(self.now_s() + SLICE_S, self._round_ends_s))
            if not self._line or self.now_s() >= self._round_ends_s:
                return
