"""The SC's side: accepts registered SPUs and keeps one session for each.

Sessions have generations, counted per SPU. When an older connection ends late, it names its own
generation, and so changes nothing about the newer one. The instance in a hello distinguishes two
processes that claim the same SPU id: the second is refused while the first is connected.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

import aiohttp
from aiohttp import hdrs, web
from pydantic import ValidationError

from connection_manager.guarded_site import (
    ConnectionGuard,
    ConnectionLimits,
    GuardedSite,
    connection_of,
)
from connection_manager.session import MAX_MESSAGE_BYTES, Session
from schemas.causality import caused_by, new_cause
from schemas.control.messages import (
    MIN_SESSION_VERSION,
    SESSION_VERSION,
    Envelope,
    FindPeers,
    Hello,
    Message,
    Reject,
    Report,
    SpuRequest,
    Stamp,
    Welcome,
    decode_envelope,
)
from schemas.control.session_end import SessionEnd
from schemas.daemon.logs import get_logger
from schemas.errors import RunnelError, UnauthorizedError, UnreachableError, UnsupportedError

HELLO_TIMEOUT_S = 5.0
#: Strangers wait until a hello was accepted, all together; the sessions of registered SPUs are
#: bounded by their number. A provisioner's SPUs come from one address.
LIMITS: Final = ConnectionLimits(
    connections=100_000, waiting=32, waiting_per_address=32, spare_descriptors=16
)

log = get_logger(__name__)


class SessionEvents(Protocol):
    """Receives what happens to sessions. All calls come from the event loop, in order per SPU."""

    async def check(self, hello: Hello) -> None:
        """Raise a RunnelError to refuse a registered SPU."""

    def opened(self, generation: int, hello: Hello) -> None: ...

    def closed(
        self, spu_id: int, generation: int, reason: str, end: SessionEnd, quiet: int
    ) -> None:
        """``quiet``: how many of the other SPUs have not been heard for a while."""

    def reported(self, spu_id: int, generation: int, report: Report) -> None: ...

    def asked(self, spu_id: int, generation: int, ask: SpuRequest) -> None: ...

    def asked_peers(self, spu_id: int, generation: int, asked: FindPeers) -> None: ...


@dataclass(frozen=True, slots=True)
class ClusterIdentity:
    """What a welcome says about the cluster and the SC that sends it."""

    cluster: str
    cluster_uid: str
    stamp: Stamp


@dataclass(slots=True)
class _Connected:
    session: Session
    generation: int
    instance: str


class ConnectionManager:
    """Registered SPUs and their sessions."""

    def __init__(
        self, events: SessionEvents, identity: ClusterIdentity, *, heartbeat_ms: int, misses: int
    ) -> None:
        self._events = events
        self._identity = identity
        self._heartbeat_ms = heartbeat_ms
        self._misses = misses
        self._registered: dict[str, int] = {}
        self._connected: dict[int, _Connected] = {}
        self._generations: dict[int, int] = {}
        self._closing = False

    @property
    def registered(self) -> dict[str, int]:
        """Ids of the SPUs that may connect, by the name of their object."""
        return self._registered

    def register(self, name: str, spu_id: int) -> None:
        self._registered[name] = spu_id

    def unregister(self, name: str) -> None:
        """Stop accepting an SPU, and end its session."""
        spu_id = self._registered.pop(name, None)
        if spu_id is not None and (found := self._connected.get(spu_id)) is not None:
            found.session.close("the SPU was deleted")

    async def request(self, spu_id: int, body: Message) -> None:
        """Send an SPU a request and await its reply. Raises UnreachableError without a session."""
        found = self._connected.get(spu_id)
        if found is None:
            raise UnreachableError(f"SPU {spu_id} is not connected")
        await found.session.request(body)

    def become(self, identity: ClusterIdentity, why: str) -> None:
        """Send another identity in welcomes from now on. All sessions end; SPUs connect again."""
        self._identity = identity
        for found in tuple(self._connected.values()):
            found.session.close(why)

    def close(self) -> None:
        """End every session, and accept no more."""
        self._closing = True
        for found in tuple(self._connected.values()):
            found.session.close("the SC is stopping")

    async def serve(self, request: web.Request) -> web.WebSocketResponse:
        """The aiohttp handler of the private port.

        Raises HTTPForbidden for a request with an ``Origin``: a web page made it, not an SPU.
        """
        if hdrs.ORIGIN in request.headers:
            log.warning("a web page was turned away", remote=request.remote)
            raise web.HTTPForbidden(text="this port is for SPUs, not for web pages\n")
        socket = web.WebSocketResponse(max_msg_size=MAX_MESSAGE_BYTES, autoping=True)
        await socket.prepare(request)
        try:
            hello = await self._hello(socket)
            connected, welcome = await self._admit(socket, hello)
        except RunnelError as error:
            log.warning("SPU turned away", reason=error.message, remote=request.remote)
            reject = Reject(code=error.code.name, message=error.message)
            with contextlib.suppress(ConnectionError):
                await socket.send_str(Envelope(cause=new_cause("sc"), body=reject).encode())
            await socket.close()
            return socket
        if (connection := connection_of(request)) is not None:
            connection.serve()
        with caused_by(new_cause(f"spu{hello.spu_id}")):
            await self._serve_session(socket, hello, connected, welcome)
        return socket

    async def _serve_session(
        self, socket: web.WebSocketResponse, hello: Hello, mine: _Connected, welcome: Welcome
    ) -> None:
        reason = "the welcome could not be sent"
        try:
            await socket.send_str(Envelope(cause=new_cause("sc"), body=welcome).encode())
            if not mine.session.closed:
                self._events.opened(mine.generation, hello)
                log.info("SPU connected", spu=hello.spu_id, generation=mine.generation)
                # Reported at once, not only when the socket of a dead peer has been closed.
                mine.session.on_close = partial(self._ended, hello.spu_id, mine)
                reason = await mine.session.run()
        except ConnectionError as error:
            reason = str(error)
        finally:
            mine.session.close(reason)
            self._forget(hello.spu_id, mine)

    def _ended(self, spu_id: int, mine: _Connected, reason: str) -> None:
        self._forget(spu_id, mine)
        end = mine.session.end
        quiet = sum(other.session.quiet for other in self._connected.values())
        self._events.closed(spu_id, mine.generation, reason, end, quiet)
        log.info(
            "SPU disconnected", spu=spu_id, generation=mine.generation, reason=reason, how=end.value
        )

    def _forget(self, spu_id: int, mine: _Connected) -> None:
        if self._connected.get(spu_id) is mine:
            del self._connected[spu_id]

    async def _hello(self, socket: web.WebSocketResponse) -> Hello:
        try:
            message = await socket.receive(HELLO_TIMEOUT_S)
        except TimeoutError:
            raise UnsupportedError(f"no hello within {HELLO_TIMEOUT_S:g} s") from None
        if message.type is not aiohttp.WSMsgType.TEXT:
            raise UnsupportedError("the first message must be a hello")
        try:
            body = decode_envelope(message.data).body
        except ValidationError as error:
            raise UnsupportedError(f"the hello does not parse: {error}") from error
        if not isinstance(body, Hello):
            raise UnsupportedError(f"the first message must be a hello, not {body.type}")
        return body

    def _refuse(self, hello: Hello) -> None:
        """Raise the error that refuses this SPU, if there is a reason to refuse it."""
        if self._closing:
            raise UnreachableError("the SC is stopping")
        if hello.min_version > SESSION_VERSION or hello.max_version < MIN_SESSION_VERSION:
            raise UnsupportedError(
                f"SPU {hello.spu_id} speaks session versions {hello.min_version} to"
                f" {hello.max_version}, this SC {MIN_SESSION_VERSION} to {SESSION_VERSION};"
                " run the same release on both"
            )
        if hello.spu_id not in self._registered.values():
            raise UnauthorizedError(
                f"SPU {hello.spu_id} is not registered; register it first:"
                f" apply a kind: Spu with spuId: {hello.spu_id}"
            )
        ours = self._identity.cluster_uid
        if hello.cluster_uid is not None and hello.cluster_uid != ours:
            raise UnauthorizedError(
                f"SPU {hello.spu_id} holds data of cluster {hello.cluster_uid};"
                f" this is cluster {ours}"
            )
        before = self._connected.get(hello.spu_id)
        if before is None or before.session.closed:
            return
        if before.instance != hello.instance:
            raise UnauthorizedError(f"another process is connected as SPU {hello.spu_id}")

    async def _admit(
        self, socket: web.WebSocketResponse, hello: Hello
    ) -> tuple[_Connected, Welcome]:
        # What a second process says about an SPU that is connected is not even looked at.
        self._refuse(hello)
        await self._events.check(hello)
        # The check took a while: the SPU may have been deleted, another process may have connected
        # as this SPU, or the SC may be stopping.
        self._refuse(hello)
        before = self._connected.get(hello.spu_id)
        if before is not None:
            before.session.close("replaced by a newer connection")
        generation = self._generations.get(hello.spu_id, 0) + 1
        self._generations[hello.spu_id] = generation

        async def handle(body: Message) -> None:
            match body:
                case Report():
                    self._events.reported(hello.spu_id, generation, body)
                case SpuRequest():
                    self._events.asked(hello.spu_id, generation, body)
                case FindPeers():
                    self._events.asked_peers(hello.spu_id, generation, body)
                case _:
                    raise UnsupportedError(f"an SC does not serve {body.type}")

        session = Session(
            socket,
            handle,
            peer=f"SPU {hello.spu_id}",
            heartbeat_ms=self._heartbeat_ms,
            misses=self._misses,
        )
        mine = _Connected(session, generation, hello.instance)
        self._connected[hello.spu_id] = mine
        welcome = Welcome(
            version=min(SESSION_VERSION, hello.max_version),
            cluster=self._identity.cluster,
            cluster_uid=self._identity.cluster_uid,
            generation=generation,
            heartbeat_ms=self._heartbeat_ms,
            misses=self._misses,
            stamp=self._identity.stamp,
        )
        return mine, welcome


async def start_private_server(
    manager: ConnectionManager, host: str, port: int
) -> tuple[web.AppRunner, int]:
    """Listen for SPUs. Gives the runner, to clean up, and the bound port."""
    app = web.Application()
    app.router.add_get("/session", manager.serve)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    site = GuardedSite(runner, host, port, ConnectionGuard(LIMITS))
    try:
        await site.start()
    except BaseException:
        await runner.cleanup()
        raise
    bound: int = runner.addresses[0][1]
    return runner, bound
