"""The SPU's side: stay connected to the SC, through restarts and refusals."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Protocol

import aiohttp
from pydantic import ValidationError

from connection_manager.session import MAX_MESSAGE_BYTES, Session
from schemas.backoff import Backoff
from schemas.causality import caused_by, new_cause
from schemas.control.messages import Envelope, Hello, Message, Reject, Welcome, decode_envelope
from schemas.daemon.logs import get_logger
from schemas.errors import RunnelError, UnreachableError, error_from

CONNECT_TIMEOUT_S = 5.0
RETRY_BASE_MS = 50.0
RETRY_CAP_MS = 1_000.0

log = get_logger(__name__)


class LinkHandler(Protocol):
    """What an SPU does with its session."""

    def hello(self) -> Hello:
        """The first message of a new connection: the state as of now."""

    async def welcomed(self, welcome: Welcome, session: Session) -> None:
        """The SC has accepted the SPU; ``session`` can send from now on."""

    async def handle(self, body: Message) -> None:
        """Do what the SC asks."""


class ControllerLink:
    """Connects to the SC's private port again and again until it is cancelled."""

    def __init__(
        self,
        address: str,
        handler: LinkHandler,
        *,
        rng: Callable[[], float] = random.random,
    ) -> None:
        self._address = address
        self._handler = handler
        self._backoff = Backoff(RETRY_BASE_MS, RETRY_CAP_MS, rng)
        #: Why the last attempt failed, None while connected.
        self.trouble: str | None = "not connected yet"

    async def run(self) -> None:
        """Keep a session open. Ends only by cancellation."""
        async with aiohttp.ClientSession() as http:
            while True:
                try:
                    reason = await self._connect_once(http)
                except RunnelError as error:
                    reason = error.message
                except (aiohttp.ClientError, TimeoutError, OSError) as error:
                    reason = f"cannot reach the SC at {self._address}: {str(error) or 'timed out'}"
                if reason != self.trouble:
                    log.warning("not connected to the SC", reason=reason, address=self._address)
                self.trouble = reason
                await asyncio.sleep(self._backoff.next_ms() / 1000)

    async def _connect_once(self, http: aiohttp.ClientSession) -> str:
        hello = self._handler.hello()
        with caused_by(new_cause(f"spu{hello.spu_id}")) as cause:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                socket = await http.ws_connect(
                    f"http://{self._address}/session", max_msg_size=MAX_MESSAGE_BYTES
                )
            try:
                await socket.send_str(Envelope(cause=cause, body=hello).encode())
                welcome = await self._welcome(socket)
                session = Session(
                    socket,
                    self._handler.handle,
                    peer=f"the SC at {self._address}",
                    heartbeat_ms=welcome.heartbeat_ms,
                    misses=welcome.misses,
                )
                await self._handler.welcomed(welcome, session)
                self._backoff.reset()
                self.trouble = None
                log.info("connected to the SC", address=self._address, cluster=welcome.cluster)
                return await session.run()
            finally:
                await socket.close()

    async def _welcome(self, socket: aiohttp.ClientWebSocketResponse) -> Welcome:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            message = await socket.receive()
        if message.type is not aiohttp.WSMsgType.TEXT:
            raise UnreachableError(f"the SC at {self._address} closed the connection")
        try:
            body = decode_envelope(message.data).body
        except ValidationError as error:
            raise UnreachableError(
                f"{self._address} does not answer like an SC: {error}"
            ) from error
        match body:
            case Welcome():
                return body
            case Reject():
                raise error_from(body.code, body.message)
            case _:
                raise UnreachableError(f"{self._address} answered {body.type} to a hello")
