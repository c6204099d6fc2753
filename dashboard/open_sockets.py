"""The WebSockets of all browsers, so that the process can end while they are open.

A handler of a WebSocket runs as long as its browser looks, and aiohttp waits for handlers.
Neighbours: `dashboard.live.socket` and `dashboard.answers.records` serve them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from aiohttp import WSCloseCode, web

#: A browser that has not answered by then is left alone.
CLOSE_S: Final = 0.3


class OpenSockets:
    """The WebSockets that are served now."""

    def __init__(self) -> None:
        self._open: set[web.WebSocketResponse] = set()

    @contextmanager
    def serving(self, socket: web.WebSocketResponse) -> Iterator[None]:
        """While it is open, `close` closes this socket, too."""
        self._open.add(socket)
        try:
            yield
        finally:
            self._open.discard(socket)

    async def close(self) -> None:
        """Tell all browsers that the dashboard ends; they try again until it is back."""
        closing = (socket.close(code=WSCloseCode.GOING_AWAY) for socket in [*self._open])
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await asyncio.gather(*closing, return_exceptions=True)
