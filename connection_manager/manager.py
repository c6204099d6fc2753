"""The SC's side: accepts registered SPUs and keeps one session for each.

Sessions have generations, counted per SPU. When an older connection ends late, it names its own
generation, and so changes nothing about the newer one. The instance in a hello distinguishes two
processes that claim the same SPU id: the second is refused while the first is connected.

A hello may come late, when its SPU has given that connection up and is let in on another one: on
its way, or while the SC checked it. What it says is older than what the SC knows by then. An SPU
tries one connection after the other, and says nothing on any before the SC has answered its
request. So of those on which a hello comes, what arrived later was begun later: one that arrived
before one that was let in is refused.

Why a registered SPU that is away was turned away last is kept until it connects, so that its status
can say so (`refusals`). Anybody may claim its id: the reason changes rarely, whatever they send.

Neighbours: `connection_manager.introduction` is what is said before an SPU is let in.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from aiohttp import hdrs, web

from connection_manager.guarded_site import (
    ConnectionGuard,
    ConnectionLimits,
    GuardedSite,
    connection_of,
    serving,
)
from connection_manager.heartbeat import Lateness
from connection_manager.introduction import Checks, Claim, Introduction, max_message_bytes
from connection_manager.port_runner import port_runner
from connection_manager.session import Session
from connection_manager.turned_away import TurnedAway
from schemas.causality import caused_by, new_cause
from schemas.control.messages import (
    CONTROLLERS_PROTOCOL,
    MIN_SESSION_VERSION,
    NEWCOMERS_PROTOCOL,
    PROTOCOLS,
    SESSION_VERSION,
    Controllers,
    Envelope,
    FindPeers,
    Hello,
    Identify,
    Message,
    Reject,
    Report,
    SpuRequest,
    Stamp,
    Welcome,
    understands,
)
from schemas.control.older_spus import for_protocol
from schemas.control.proof import Exchange
from schemas.control.session_end import SessionEnd
from schemas.control.statistics import Statistics
from schemas.daemon.logs import get_logger
from schemas.errors import (
    RetryableError,
    RunnelError,
    UnauthorizedError,
    UnreachableError,
    UnsupportedError,
)

#: How long the reason of a refusal stays before another one takes its place.
REFUSAL_STAYS_S: Final = 10.0

log = get_logger(__name__)


class SessionEvents(Protocol):
    """Receives what happens to sessions. All calls come from the event loop, in order per SPU."""

    async def authenticate(
        self, spu_id: int, exchange: Exchange | None, proof: str | None
    ) -> str | None:
        """The SC's proof for a registered SPU that has proven itself; None for one that need not.
        Both arguments are None for one that cannot. Raises a RunnelError to refuse it."""

    async def check(self, hello: Hello, *, proven: bool) -> None:
        """Raise a RunnelError to refuse a registered SPU."""

    def refused(self, spu_id: int) -> None:
        """There is another reason in `ConnectionManager.refusals` for a registered SPU."""

    def opened(self, generation: int, hello: Hello) -> None: ...

    def closed(
        self, spu_id: int, generation: int, reason: str, end: SessionEnd, quiet: int
    ) -> None:
        """``quiet``: how many of the other SPUs have not been heard for a while."""

    def reported(self, spu_id: int, generation: int, report: Report) -> None: ...

    def asked(self, spu_id: int, generation: int, ask: SpuRequest) -> None: ...

    def told(self, spu_id: int, statistics: Statistics) -> None: ...

    async def asked_peers(
        self, spu_id: int, generation: int, asked: FindPeers, *, proven: bool
    ) -> None:
        """``proven``: the SPU has proven who it is. Raises a RunnelError, which is answered."""


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
    proven: bool
    #: The SCs that it has been told of; None if it is told of none while the session lasts.
    named: tuple[str, ...] | None = None


class ConnectionManager:
    """Registered SPUs and their sessions. ``controllers`` gives the private addresses of all SCs
    that run."""

    def __init__(
        self,
        events: SessionEvents,
        identity: ClusterIdentity,
        *,
        heartbeat_ms: int,
        misses: int,
        controllers: Callable[[], tuple[str, ...]] = tuple,
    ) -> None:
        self._events = events
        self._controllers = controllers
        self._identity = identity
        self._heartbeat_ms = heartbeat_ms
        self._misses = misses
        #: How late SPUs were lately. Those that were given up do not count: they may be gone.
        self._lateness = Lateness()
        self._registered: dict[str, int] = {}
        self._connected: dict[int, _Connected] = {}
        self._generations: dict[int, int] = {}
        self._arrivals = itertools.count(1)
        #: Of each SPU, when its newest connection of those that were let in arrived.
        self._newest: dict[int, int] = {}
        self._refusals: dict[int, str] = {}
        self._refused_at_s: dict[int, float] = {}
        self._closing = False
        self._checks = Checks(self._check_registered, self._refuse, events.authenticate)
        self._turned_away = TurnedAway()
        self._naming: set[asyncio.Task[None]] = set()

    @property
    def registered(self) -> dict[str, int]:
        """Ids of the SPUs that may connect, by the name of their object."""
        return self._registered

    @property
    def refusals(self) -> Mapping[int, str]:
        """Why registered SPUs that are away were turned away last, by their ids."""
        return self._refusals

    @property
    def unproven(self) -> tuple[int, ...]:
        """SPUs that are connected and have not proven who they are."""
        return tuple(sorted(spu for spu, found in self._connected.items() if not found.proven))

    def register(self, name: str, spu_id: int) -> None:
        self._registered[name] = spu_id

    def unregister(self, name: str) -> None:
        """Stop accepting an SPU, and end its session."""
        spu_id = self._registered.pop(name, None)
        if spu_id is not None:
            self._forget_refusal(spu_id)
        if spu_id is not None and (found := self._connected.get(spu_id)) is not None:
            found.session.close("the SPU was deleted")

    async def request(self, spu_id: int, body: Message) -> None:
        """Send an SPU a request and await its reply. Raises UnreachableError without a session."""
        found = self._connected.get(spu_id)
        if found is None:
            raise UnreachableError(f"SPU {spu_id} is not connected")
        await found.session.request(for_protocol(body, found.session.protocol))

    def controllers_changed(self) -> None:
        """Other SCs run than before: name them to each SPU that has not been told of them all. Of
        those that are gone nothing is said: they may be back sooner than this one lasts."""
        running = self._controllers()
        for found in self._connected.values():
            if found.named is None or {*running} <= {*found.named}:
                continue
            found.named = running
            task = asyncio.create_task(self._name(found.session, Controllers(addresses=running)))
            self._naming.add(task)
            task.add_done_callback(self._naming.discard)

    async def _name(self, session: Session, news: Controllers) -> None:
        # The welcome of the next session names them, too.
        with contextlib.suppress(UnreachableError), caused_by(new_cause("sc")):
            await session.notify(news)

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

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """The aiohttp handler of the private port.

        Raises HTTPForbidden for a request with an ``Origin``: a web page made it, not an SPU.
        """
        if hdrs.ORIGIN in request.headers:
            remote, event = request.remote or "", "a web page was turned away"
            if (times := self._turned_away.due(remote, event, time.monotonic())) is not None:
                log.warning(event, remote=remote, times=times)
            raise web.HTTPForbidden(text="this port is for SPUs, not for web pages\n")
        claim = Claim(connection_of(request), next(self._arrivals))
        socket = web.WebSocketResponse(
            max_msg_size=max_message_bytes(request),
            autoping=True,
            protocols=PROTOCOLS,
        )
        try:
            await socket.prepare(request)
        except ConnectionError:
            # It has gone: an SC that was stopped finds many of these.
            return web.Response(status=web.HTTPBadRequest.status_code)
        try:
            introduction = Introduction(socket, claim, self._checks, self._cluster_uid)
            hello, proof = await introduction.hello()
            connected, welcome = await self._admit(socket, claim, hello, proof)
        except RunnelError as error:
            self._note_refusal(claim, error, request.remote or "")
            reject = Reject(code=error.code.name, message=error.message)
            with contextlib.suppress(ConnectionError):
                await socket.send_str(Envelope(cause=new_cause("sc"), body=reject).encode())
            await socket.close()
            return socket
        claim.let_in()
        with caused_by(new_cause(f"spu{hello.spu_id}")):
            await self._serve_session(socket, hello, connected, welcome)
        return socket

    def _note_refusal(self, claim: Claim, error: RunnelError, remote: str) -> None:
        """Log that somebody was turned away, and keep the reason for the status of that SPU."""
        reason, spu_id, now_s = error.message, claim.spu_id, time.monotonic()
        if str(claim) not in reason:
            reason = f"{claim}: {reason}"
        if (times := self._turned_away.due(remote, reason, now_s)) is not None:
            log.warning("SPU turned away", reason=reason, spu=spu_id, remote=remote, times=times)
        if spu_id is None or isinstance(error, RetryableError):
            # The SC itself is in trouble, or stopping.
            return
        if spu_id in self._connected or spu_id not in self._registered.values():
            return
        if self._refusals.get(spu_id) == reason:
            return
        if now_s - self._refused_at_s.get(spu_id, float("-inf")) < REFUSAL_STAYS_S:
            return
        self._refusals[spu_id] = reason
        self._refused_at_s[spu_id] = now_s
        self._events.refused(spu_id)

    def _forget_refusal(self, spu_id: int) -> None:
        self._refusals.pop(spu_id, None)
        self._refused_at_s.pop(spu_id, None)

    async def _serve_session(
        self, socket: web.WebSocketResponse, hello: Hello, mine: _Connected, welcome: Welcome
    ) -> None:
        reason = "the welcome could not be sent"
        try:
            await socket.send_str(Envelope(cause=new_cause("sc"), body=welcome).encode())
            if not mine.session.closed:
                if understands(socket.ws_protocol, NEWCOMERS_PROTOCOL):
                    mine.named = welcome.controllers
                    # Some may have started since the welcome was written.
                    self.controllers_changed()
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

    def _check_registered(self, spu_id: int) -> None:
        if spu_id not in self._registered.values():
            raise UnauthorizedError(
                f"SPU {spu_id} is not registered; register it first:"
                f" apply a kind: Spu with spuId: {spu_id}"
            )

    def _cluster_uid(self) -> str:
        return self._identity.cluster_uid

    def _refuse(self, hello: Hello | Identify, arrival: int) -> None:
        """Raise the error that refuses this SPU, if there is a reason to refuse it."""
        if self._closing:
            raise UnreachableError("the SC is stopping")
        if hello.min_version > SESSION_VERSION or hello.max_version < MIN_SESSION_VERSION:
            raise UnsupportedError(
                f"SPU {hello.spu_id} speaks session versions {hello.min_version} to"
                f" {hello.max_version}, this SC {MIN_SESSION_VERSION} to {SESSION_VERSION};"
                " run the same release on both"
            )
        self._check_registered(hello.spu_id)
        ours = self._identity.cluster_uid
        if hello.cluster_uid is not None and hello.cluster_uid != ours:
            raise UnauthorizedError(
                f"SPU {hello.spu_id} holds data of cluster {hello.cluster_uid};"
                f" this is cluster {ours}"
            )
        before = self._connected.get(hello.spu_id)
        if before is not None and not before.session.closed and before.instance != hello.instance:
            raise UnauthorizedError(f"another process is connected as SPU {hello.spu_id}")
        if arrival < self._newest.get(hello.spu_id, 0):
            raise UnreachableError(f"SPU {hello.spu_id} was let in on a newer connection")

    async def _admit(
        self, socket: web.WebSocketResponse, claim: Claim, hello: Hello, proof: str | None
    ) -> tuple[_Connected, Welcome]:
        # What a second process says about an SPU that is connected is not even looked at.
        self._refuse(hello, claim.arrival)
        await self._events.check(hello, proven=proof is not None)
        # The check took a while: the SPU may have been deleted or have connected again, another
        # process may have connected as this SPU, or the SC may be stopping.
        self._refuse(hello, claim.arrival)
        self._newest[hello.spu_id] = claim.arrival
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
                case Statistics():
                    self._events.told(hello.spu_id, body)
                case FindPeers():
                    await self._events.asked_peers(
                        hello.spu_id, generation, body, proven=proof is not None
                    )
                case _:
                    raise UnsupportedError(f"an SC does not serve {body.type}")

        session = Session(
            socket,
            handle,
            peer=f"SPU {hello.spu_id}",
            heartbeat_ms=self._heartbeat_ms,
            misses=self._misses,
            protocol=socket.ws_protocol,
            lateness=self._lateness,
        )
        mine = _Connected(session, generation, hello.instance, proven=proof is not None)
        self._connected[hello.spu_id] = mine
        self._forget_refusal(hello.spu_id)
        welcome = Welcome(
            version=min(SESSION_VERSION, hello.max_version),
            cluster=self._identity.cluster,
            cluster_uid=self._identity.cluster_uid,
            generation=generation,
            heartbeat_ms=self._heartbeat_ms,
            misses=self._misses,
            stamp=self._identity.stamp,
            proof=proof,
            controllers=(
                self._controllers()
                if understands(socket.ws_protocol, CONTROLLERS_PROTOCOL)
                else None
            ),
        )
        return mine, welcome


async def start_private_server(
    serve: Callable[[web.Request], Awaitable[web.StreamResponse]],
    host: str,
    port: int,
    limits: ConnectionLimits,
    more: Mapping[str, Callable[[web.Request], Awaitable[web.StreamResponse]]] | None = None,
) -> tuple[web.AppRunner, int]:
    """Listen for SPUs, whose sessions ``serve`` serves; ``more``: what else is served, by path.
    Gives the runner, to clean up, and the bound port. Connections wait until a hello was
    accepted."""
    app = web.Application()
    app.router.add_get("/session", serve)
    for path, handler in (more or {}).items():
        # Its connection waits no longer than an answer takes to begin.
        app.router.add_get(path, partial(serving, handler=handler))
    runner = port_runner(app)
    await runner.setup()
    site = GuardedSite(runner, host, port, ConnectionGuard(limits))
    try:
        await site.start()
    except BaseException:
        await runner.cleanup()
        raise
    bound: int = runner.addresses[0][1]
    return runner, bound
