"""An HTTP port that strangers can reach: who waits there is bounded, in number and in time.

A connection *waits* until it has sent a whole request head, and again between two requests. A
connection that waits costs its peer nothing, so there are bounds: of all that wait, of those of one
address, of the time for a head (`HEADER_TIMEOUT_S`) and between requests (`IDLE_TIMEOUT_S`). Where
there is no room, one that waits makes room for the newest: a peer that is in earnest sends its
request at once. It is the one that has waited longest of the address of which most wait, so that a
flood from one address ends itself. Connections that are being served are never ended to make room.

Hosts that vanish close nothing: TCP's keepalive ends their connections within about a minute, those
that are being served, too.

Descriptors are not used up: for a connection whose descriptor is among the last
``spare_descriptors`` that the process may open, others make room in the same way; if it is among
the last half of these, and none waits, it is refused. The system gives the lowest free number, so a
high one says that all below it are taken.

Used by the ports 9003 and 9004 of the SC and 9007 of an SPU; ``spu/net`` bounds the binary ports.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, cast

from aiohttp import web

from connection_manager.request_turns import RequestTurns
from schemas.wire.keepalive import keep_alive

HEADER_TIMEOUT_S: Final = 10.0
IDLE_TIMEOUT_S: Final = 75.0

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Bounds of one port: of all its connections, of those that wait, of those of them that come
    from one address, and how many descriptors of the process it leaves to others."""

    connections: int
    waiting: int
    waiting_per_address: int
    spare_descriptors: int


class GuardedConnection(asyncio.Protocol):
    """One connection, between its transport and the protocol that serves it."""

    def __init__(self, guard: ConnectionGuard, inner: asyncio.Protocol) -> None:
        self.address = ""
        self._guard = guard
        self._inner: asyncio.Protocol | None = inner
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._idle = False
        self._unsent = 0

    def serve(self) -> None:
        """A request is being served: the connection no longer waits."""
        self._stop_timer()
        self._guard.served(self)

    def expect(self, seconds: float) -> None:
        """What was sent so far is accepted, and what comes next may take so long. The connection
        goes on waiting, if it did."""
        if self._timer is not None:
            self._start_timer(seconds)

    async def turn(self) -> None:
        """Return when it is the turn of a request of this connection."""
        await self._guard.turns.wait(self.address)

    def wait(self) -> None:
        """The request is over: the connection waits for the next one."""
        if self._transport is not None:
            self._idle = True
            self._start_timer(IDLE_TIMEOUT_S)
            self._guard.waits(self)

    def end(self) -> None:
        """Close the connection without a word."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """As of `asyncio.Protocol`; a connection for which there is no room ends at once."""
        self._transport = transport = cast(asyncio.Transport, transport)
        self.address = str((transport.get_extra_info("peername") or ("",))[0])
        if not self._guard.admits(self, transport.get_extra_info("socket").fileno()):
            self._inner = None
            transport.abort()
            return
        self._start_timer(HEADER_TIMEOUT_S)
        if self._inner is not None:
            self._inner.connection_made(transport)
            # aiohttp, too, turns keepalive on, but asks after two hours only.
            keep_alive(transport)

    def data_received(self, data: bytes) -> None:
        """As of `asyncio.Protocol`; the next head has begun, and has to end in time."""
        if self._idle:
            self._idle = False
            self._start_timer(HEADER_TIMEOUT_S)
        if self._inner is not None:
            self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        """As of `asyncio.Protocol`."""
        return self._inner.eof_received() if self._inner is not None else None

    def connection_lost(self, exc: Exception | None) -> None:
        """As of `asyncio.Protocol`."""
        self._stop_timer()
        self._transport = None
        self._guard.closed(self)
        if self._inner is not None:
            self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        """As of `asyncio.Protocol`."""
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        """As of `asyncio.Protocol`."""
        if self._inner is not None:
            self._inner.resume_writing()

    def _start_timer(self, seconds: float) -> None:
        self._stop_timer()
        self._unsent = 0 if self._transport is None else self._transport.get_write_buffer_size()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._overdue)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _overdue(self) -> None:
        if self._transport is None:
            return
        unsent = self._transport.get_write_buffer_size()
        if 0 < unsent < self._unsent:
            # The peer is still reading the answer to its last request.
            self._start_timer(IDLE_TIMEOUT_S)
        else:
            self.end()


class ConnectionGuard:
    """The connections of one port."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self.turns = RequestTurns()
        self._open: set[GuardedConnection] = set()
        #: Those that wait, by address; of each the one that has waited longest first.
        self._waiting: dict[str, dict[GuardedConnection, None]] = {}
        #: Connections since the start, those that were refused included.
        self.opened = 0

    def __len__(self) -> int:
        return len(self._open)

    @property
    def waiting(self) -> int:
        """How many connections wait."""
        return sum(map(len, self._waiting.values()))

    def protocols(self, make: Callable[[], asyncio.Protocol]) -> Callable[[], GuardedConnection]:
        """A factory of guarded connections over a factory of what serves them."""
        return lambda: GuardedConnection(self, make())

    def admits(self, connection: GuardedConnection, descriptor: int) -> bool:
        """Whether there is room for a new connection; others may have to go for it."""
        limits = self._limits
        self.opened += 1
        while len(self._waiting.get(connection.address, ())) >= limits.waiting_per_address:
            self._end(next(iter(self._waiting[connection.address])))
        while self.waiting >= limits.waiting:
            self._make_room(connection)
        if len(self._open) >= limits.connections and not self._make_room(connection):
            return False
        allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        left = 1 << 30 if allowed == resource.RLIM_INFINITY else allowed - descriptor
        if left <= limits.spare_descriptors:
            # Two go for one that comes: this one may stay with its high number, and lower ones have
            # to become free again. A connection that is alone from its address may stay for now.
            for _ in range(2):
                self._make_room(connection, alone=False)
            if left <= limits.spare_descriptors // 2 and not self._make_room(connection):
                return False
        self._open.add(connection)
        self.waits(connection)
        return True

    def waits(self, connection: GuardedConnection) -> None:
        """A connection waits from now on."""
        if connection in self._open:
            self._waiting.setdefault(connection.address, {}).setdefault(connection)

    def served(self, connection: GuardedConnection) -> None:
        """A connection waits no longer."""
        waiting = self._waiting.get(connection.address, {})
        waiting.pop(connection, None)
        if not waiting:
            self._waiting.pop(connection.address, None)

    def closed(self, connection: GuardedConnection) -> None:
        """A connection is gone."""
        self.served(connection)
        self._open.discard(connection)

    def _make_room(self, newcomer: GuardedConnection, *, alone: bool = True) -> bool:
        """End one that waits, if there is one: of the address of which most wait, the newcomer
        included, so that a flood ends itself. ``alone``: even if it is alone from its address."""
        waiting, own = self._waiting, newcomer.address
        if not waiting:
            return False
        most = max(waiting, key=lambda address: len(waiting[address]) + (address == own))
        if not alone and len(waiting[most]) + (most == own) < 2:
            return False
        self._end(next(iter(waiting[most])))
        return True

    def _end(self, connection: GuardedConnection) -> None:
        self.closed(connection)
        connection.end()


class GuardedSite(web.BaseSite):
    """One address on which a runner listens behind a guard."""

    def __init__(
        self, runner: web.BaseRunner, host: str, port: int, guard: ConnectionGuard
    ) -> None:
        super().__init__(runner)
        self._host = host
        self._port = port
        self._guard = guard

    @property
    def name(self) -> str:
        """The address as a URL."""
        return f"http://{self._host}:{self._port}"

    async def start(self) -> None:
        """Listen. Raises OSError."""
        await super().start()
        server = self._runner.server
        if server is None:
            raise RuntimeError("set the runner up first")
        self._server = await asyncio.get_running_loop().create_server(
            self._guard.protocols(server), self._host, self._port, backlog=self._backlog
        )


def connection_of(request: web.Request) -> GuardedConnection | None:
    """The guarded connection that a request came on; None if it is gone."""
    found = request.transport.get_protocol() if request.transport is not None else None
    return found if isinstance(found, GuardedConnection) else None


@web.middleware
async def serving(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Middleware: a connection is served while its request is, and waits again after that. Requests
    begin one after the other."""
    connection = connection_of(request)
    if connection is None:
        return await handler(request)
    connection.serve()
    try:
        await connection.turn()
        return await handler(request)
    finally:
        connection.wait()
