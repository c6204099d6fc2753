"""Requests take turns: one begins in each turn of the event loop, and addresses take turns.

To answer a request takes the event loop some milliseconds. If hundreds came at once and were begun
at once, heartbeats of SPUs, and everybody else, would wait for all of them. What a request waits
for after its beginning (a body, the KV) holds nobody up.

Neighbour: `connection_manager.guarded_site` waits here for each request.
"""

from __future__ import annotations

import asyncio
from collections import deque


class RequestTurns:
    """The requests of one port that have not begun."""

    def __init__(self) -> None:
        #: By address, the address that is next first.
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}
        self._taken = False

    async def wait(self, address: str) -> None:
        """Return when a request of this address may begin."""
        loop = asyncio.get_running_loop()
        if not self._taken:
            self._taken = True
            loop.call_soon(self._next)
            return
        turn: asyncio.Future[None] = loop.create_future()
        self._lines.setdefault(address, deque()).append(turn)
        await turn

    def _next(self) -> None:
        while self._lines:
            address, line = next(iter(self._lines.items()))
            del self._lines[address]
            turn = line.popleft()
            if line:
                self._lines[address] = line
            # One whose client has gone takes no turn.
            if not turn.done():
                turn.set_result(None)
                turn.get_loop().call_soon(self._next)
                return
        self._taken = False
