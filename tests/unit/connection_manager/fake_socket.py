"""A WebSocket in memory: what a session needs of one, and a test's hand on the other end."""

from __future__ import annotations

import asyncio
import socket

import aiohttp

from schemas.control.messages import Envelope, Heartbeat, Message, decode_envelope
from schemas.control.session_end import CloseCode


class FakeSocket:
    """One end. ``peer`` is the other end when two sessions talk to each other."""

    def __init__(self) -> None:
        self.peer: FakeSocket | None = None
        self.sent: list[Envelope] = []
        self.closed = False
        self.code: int | None = None
        self.stuck = False
        self.broken = False
        #: The socket below, if there is one.
        self.under: socket.socket | None = None
        self.refused = 0
        self._inbox: asyncio.Queue[aiohttp.WSMessage] = asyncio.Queue()

    # -- what the session calls -------------------------------------------------------------

    async def send_str(self, data: str) -> None:
        if self.broken:
            self.refused += 1
            raise ConnectionResetError("Cannot write to closing transport")
        if self.stuck:
            await asyncio.Event().wait()
        self.sent.append(decode_envelope(data))
        if self.peer is not None:
            self.peer.receives(data)
        await asyncio.sleep(0)

    async def receive(self) -> aiohttp.WSMessage:
        return await self._inbox.get()

    async def close(self, *, code: int = CloseCode.NORMAL) -> None:
        self.closed, self.code = True, code
        if self.peer is not None:
            self.peer.closes(code)

    def get_extra_info(self, name: str, default: object = None) -> object:
        return self.under or default

    # -- what the test does -----------------------------------------------------------------

    def receives(self, data: str) -> None:
        self._inbox.put_nowait(aiohttp.WSMessage(aiohttp.WSMsgType.TEXT, data, None))

    def receives_message(
        self, body: Message, *, request_id: int | None = None, reply_to: int | None = None
    ) -> None:
        envelope = Envelope(id=request_id, reply_to=reply_to, cause="test", body=body)
        self.receives(envelope.encode())

    def closes(self, code: int) -> None:
        self._inbox.put_nowait(aiohttp.WSMessage(aiohttp.WSMsgType.CLOSE, code, None))

    def hangs_up(self) -> None:
        self._inbox.put_nowait(aiohttp.WSMessage(aiohttp.WSMsgType.CLOSED, None, None))

    def requests(self) -> list[Envelope]:
        """What was sent besides heartbeats."""
        return [e for e in self.sent if not isinstance(e.body, Heartbeat)]

    def heartbeats(self) -> int:
        return len(self.sent) - len(self.requests())


def pair() -> tuple[FakeSocket, FakeSocket]:
    """Two ends that hear each other."""
    one, two = FakeSocket(), FakeSocket()
    one.peer, two.peer = two, one
    return one, two
