"""The private port of one SC among several: SPUs are let in while this SC leads.

A standby opens no session. It tells an SPU which SC leads, as far as it knows, and the SPU goes
there. Neighbours: `connection_manager.manager` serves the sessions of a leader,
`connection_manager.client` is the SPU's side.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final

from aiohttp import hdrs, web

from connection_manager.manager import ConnectionManager
from connection_manager.session import MAX_IDENTITY_BYTES
from schemas.causality import new_cause
from schemas.control.messages import (
    CONTROLLERS_PROTOCOL,
    PROTOCOLS,
    Envelope,
    Reject,
    understands,
)
from schemas.errors import ErrorCode

#: How long an SPU has to say its first word, after which it hears where to go.
FIRST_WORD_S: Final = 5.0


class PrivatePort:
    """``leader`` gives the private address of the SC that leads, if this one knows it."""

    def __init__(self, leader: Callable[[], str | None]) -> None:
        self._leader = leader
        #: Serves the sessions while this SC leads.
        self.manager: ConnectionManager | None = None

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """The aiohttp handler of the private port."""
        if self.manager is not None:
            return await self.manager.serve(request)
        if hdrs.ORIGIN in request.headers:
            raise web.HTTPForbidden(text="this port is for SPUs, not for web pages\n")
        socket = web.WebSocketResponse(max_msg_size=MAX_IDENTITY_BYTES, protocols=PROTOCOLS)
        try:
            await socket.prepare(request)
        except ConnectionError:
            # It has gone: an SC that was stopped finds many of these.
            return web.Response(status=web.HTTPBadRequest.status_code)
        # An answer to somebody who is still sending may be lost with the connection.
        with contextlib.suppress(TimeoutError):
            await socket.receive(FIRST_WORD_S)
        leader = self._leader()
        where = "no SC leads at the moment" if leader is None else f"the SC at {leader} leads"
        knows = understands(socket.ws_protocol, CONTROLLERS_PROTOCOL)
        reject = Reject(
            code=ErrorCode.NOT_LEADER.name,
            message=f"this SC stands by; {where}",
            leader=leader if knows else None,
        )
        with contextlib.suppress(ConnectionError):
            await socket.send_str(Envelope(cause=new_cause("sc"), body=reject).encode())
        await socket.close()
        return socket
