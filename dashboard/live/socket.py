"""The stream to one browser: a WebSocket on which it says which tables it shows.

The browser sends ``{"tables": ["health", "spus"]}`` whenever it shows something else. It gets
``{"tables": {NAME: changes}, "trouble": null}``: everything of a table first, then what changed.
Nothing is queued for it: what it has not read yet holds up only itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any, Final

from aiohttp import WSMsgType, web

from dashboard.live.hub import Hub, check_table
from dashboard.live.tables import NOTHING
from dashboard.open_sockets import OpenSockets
from schemas.errors import InvalidRequestError

#: A request names tables.
MAX_REQUEST: Final = 16 * 1024
MAX_TABLES: Final = 16
HEARTBEAT_S: Final = 15.0
#: A browser hears something at least so often.
BEAT_S: Final = 2.0
#: Most bytes of the reason in a close frame are 123.
_MAX_REASON: Final = 120


async def serve_live(hub: Hub, request: web.Request, sockets: OpenSockets) -> web.WebSocketResponse:
    """Serve one browser until it goes."""
    socket = web.WebSocketResponse(heartbeat=HEARTBEAT_S, max_msg_size=MAX_REQUEST)
    await socket.prepare(request)
    with hub.browser(), sockets.serving(socket):
        stream = _Stream(hub, socket)
        sending = asyncio.create_task(stream.send(), name="live tables")
        try:
            async for message in socket:
                if message.type is not WSMsgType.TEXT:
                    break
                try:
                    stream.show(read_tables(message.data))
                except InvalidRequestError as error:
                    await socket.close(code=1003, message=close_reason(error.message))
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            # Here, because a task that is cancelled before it begins runs nothing.
            stream.close()
    return socket


def read_tables(text: str) -> frozenset[str]:
    """The tables that a browser asks for. Raises InvalidRequestError."""
    try:
        data: Any = json.loads(text)
        names = data["tables"]
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise TypeError
    except (ValueError, TypeError, KeyError, RecursionError):
        raise InvalidRequestError('a request is {"tables": [NAME, …]}') from None
    if len(names) > MAX_TABLES:
        raise InvalidRequestError(f"{len(names)} tables; at most {MAX_TABLES} at once")
    return frozenset(map(check_table, names))


def close_reason(text: str) -> bytes:
    """A text as the reason of a close frame: its beginning, in whole characters of UTF-8, or a
    browser takes the frame for a failure."""
    return text.encode(errors="replace")[:_MAX_REASON].decode(errors="ignore").encode()


class _Stream:
    def __init__(self, hub: Hub, socket: web.WebSocketResponse) -> None:
        self._hub = hub
        self._socket = socket
        self._seen: dict[str, int] = {}
        self._asked = asyncio.Event()
        self._reading = contextlib.ExitStack()

    def show(self, names: frozenset[str]) -> None:
        """The browser shows these tables from now on."""
        before, self._reading = self._reading, contextlib.ExitStack()
        # The new ones first: a table that is shown on is not made anew.
        self._reading.enter_context(self._hub.reading(names))
        before.close()
        self._seen = {name: self._seen.get(name, NOTHING) for name in names}
        self._asked.set()

    def close(self) -> None:
        """Nothing is shown any more."""
        self._reading.close()

    async def send(self) -> None:
        """Send what is new until the browser goes, and at least every `BEAT_S` that nothing is: so
        the page knows a dashboard that stands still from a cluster in which nothing happens."""
        trouble: str | None = None
        beat_at = 0.0
        # When the browser goes, reading from it ends, too.
        with contextlib.suppress(ConnectionError):
            while True:
                waiting = asyncio.create_task(self._hub.wait())
                asked = asyncio.create_task(self._asked.wait())
                try:
                    self._asked.clear()
                    changes = self._hub.changes(self._seen)
                    now = asyncio.get_running_loop().time()
                    if changes or trouble != self._hub.trouble or now >= beat_at:
                        beat_at = now + BEAT_S
                        trouble = self._hub.trouble
                        for name, found in changes.items():
                            self._seen[name] = found.version
                        tables = {name: found.to_json() for name, found in changes.items()}
                        text = json.dumps(
                            {"tables": tables, "trouble": trouble}, separators=(",", ":")
                        )
                        await self._socket.send_str(text)
                        continue
                    await asyncio.wait(
                        [waiting, asked], timeout=BEAT_S, return_when=asyncio.FIRST_COMPLETED
                    )
                finally:
                    waiting.cancel()
                    asked.cancel()
