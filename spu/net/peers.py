"""The other SPUs that this one shares partitions with: one connection to each.

The SPU with the higher id dials, and the other listens at its private endpoint. So each pair of
SPUs has one connection, whichever of them leads a partition. The SC tells an SPU where a peer
listens (`FindPeers`), and the SPU asks again when it cannot reach the peer there. The replica host
keeps the answers across restarts, so that SPUs find each other without the SC.

A connection that says hello replaces the one before: a peer dials again only after it has given up
the connection it had. After a cut, what it said on one that it gave up may arrive when the next one
is up. That ends the next one, and the peer dials again. No record is at risk: replicas expect
messages that come late.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final, Protocol

from connection_manager.turned_away import TurnedAway
from schemas.backoff import Backoff
from schemas.control.messages import (
    MAX_HOST,
    MAX_REASON,
    MAX_UNREACHABLE,
    Peer,
    UnreachablePeer,
)
from schemas.daemon.logs import get_logger
from schemas.errors import ProtocolError, RunnelError, UnauthorizedError, UnreachableError
from schemas.ids import PartitionUid
from schemas.objects.quantities import shortened
from schemas.wire.dialling import CONNECT_S, dial
from spu.net.admission import Admission
from spu.net.peer_connection import PeerConnection
from spu.replication.messages import Message
from spu.replication.wire import Damaged, Greeting

_log = get_logger(__name__)

RETRY_BASE_MS: Final = 50.0
RETRY_CAP_MS: Final = 500.0
#: A connection that is lost sooner would be lost as soon again. The end of one that lasted longer
#: is always logged, as its beginning is; others once, then counted.
LASTING_S: Final = 1.0
#: For how long a peer cannot be reached before that counts: it may only be starting.
UNREACHABLE_S: Final = 3.0
#: How long the reason stays before another one takes its place.
REASON_STAYS_S: Final = 10.0
#: How long to wait for the SC's answer before asking again.
FIND_AGAIN_S: Final = 2.0
_BACKLOG: Final = 128
#: Connections of peers: each has one, and two while a newer one replaces it.
_MAX_GREETED: Final = 2_000
#: Connections that nobody has sent a greeting over yet.
_MAX_UNPROVEN: Final = 32


@dataclass(frozen=True, slots=True)
class _Failure:
    """Attempts to reach a peer at one address that failed since ``since_s``, and the reason, which
    is that of ``told_s``."""

    since_s: float
    told_s: float
    peer: UnreachablePeer


class PeerHandler(Protocol):
    """Handles connections and messages."""

    @property
    def cluster_uid(self) -> str | None: ...

    def peer_up(self, peer: int) -> None:
        """There is a connection to this SPU; an older one, if any, is gone."""

    def peer_down(self, peer: int) -> None: ...

    def peer_said(self, peer: int, uid: PartitionUid, message: Message | Damaged) -> None: ...

    def find_peers(self, spu_ids: Iterable[int]) -> None:
        """Ask the SC where these SPUs listen; its answer goes to `Peers.found`."""


class Peers:
    """Connections of SPU ``spu_id`` to other SPUs. `keep` says which ones."""

    def __init__(self, spu_id: int, handler: PeerHandler) -> None:
        self.spu_id = spu_id
        self._handler = handler
        self._connections: dict[int, PeerConnection] = {}
        # All open connections, greeted or not: `close` closes them.
        self._open: set[PeerConnection] = set()
        self._addresses: dict[int, Peer] = {}
        self.wanted: frozenset[int] = frozenset()
        self._dialling: dict[int, asyncio.Task[None]] = {}
        self._backoffs: dict[int, Backoff] = {}
        self._since: dict[int, float] = {}
        self._found: dict[int, asyncio.Event] = {}
        self._failures: dict[int, _Failure] = {}
        self._server: asyncio.Server | None = None
        self._closed = False
        # Peers of one host may be many: their number is bounded by the cluster's.
        self._failed = TurnedAway()
        self._admission = Admission(
            f"the private port of SPU {spu_id}", _MAX_GREETED, _MAX_UNPROVEN, _MAX_GREETED
        )

    async def listen(self, host: str, port: int) -> int:
        """Accept peers; returns the bound port. Raises OSError."""
        self._server = await asyncio.get_running_loop().create_server(
            self._accept, host, port, backlog=_BACKLOG
        )
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def close(self) -> None:
        """Close all connections, and open no more."""
        self._closed = True
        if self._server is not None:
            self._server.close()
        for task in self._dialling.values():
            task.cancel()
        await asyncio.gather(*self._dialling.values(), return_exceptions=True)
        for connection in tuple(self._open):
            connection.abort("the SPU is stopping")

    @property
    def connected(self) -> frozenset[int]:
        return frozenset(self._connections)

    @property
    def unreachable(self) -> tuple[UnreachablePeer, ...]:
        """The first SPUs that this one has to connect to, and has not reached for a while."""
        now_s = asyncio.get_running_loop().time()
        found = (
            failure.peer
            for spu_id, failure in sorted(self._failures.items())
            if spu_id in self.wanted and now_s - failure.since_s >= UNREACHABLE_S
        )
        return tuple(islice(found, MAX_UNREACHABLE))

    def keep(self, spu_ids: Iterable[int]) -> None:
        """Stay connected to these SPUs. Existing connections to other SPUs stay open."""
        before, self.wanted = self.wanted, frozenset(spu_ids) - {self.spu_id}
        # Those that dial this SPU: it must know their keys.
        if diallers := [peer for peer in sorted(self.wanted - before) if peer > self.spu_id]:
            self._handler.find_peers(diallers)
        for peer in self.wanted:
            self._dial_soon(peer)

    def found(self, peers: Iterable[Peer]) -> None:
        """Take note of where peers listen now, and of the keys shared with them."""
        for peer in peers:
            self._addresses[peer.spu_id] = peer
            if (event := self._found.get(peer.spu_id)) is not None:
                event.set()

    def connection(self, peer: int) -> PeerConnection | None:
        """The connection to an SPU, if there is one."""
        return self._connections.get(peer)

    # PeerEvents

    def opened(self, connection: PeerConnection) -> None:
        self._open.add(connection)

    def arrived(self, connection: PeerConnection, address: str) -> None:
        """Count a connection. Raises OverloadedError if there are too many."""
        self._admission.arrived(connection, address, asyncio.get_running_loop().time())

    def greet(self, greeting: Greeting) -> None:
        """Refuse an SPU of another cluster, or one that wanted to reach another SPU."""
        if greeting.to != self.spu_id:
            raise ProtocolError(
                f"this is SPU {self.spu_id}, not {greeting.to}; check the privateEndpoint of both"
            )
        ours = self._handler.cluster_uid
        if ours is None or greeting.cluster_uid != ours:
            raise UnauthorizedError(
                f"SPU {greeting.spu} belongs to cluster {greeting.cluster_uid or 'none'}, SPU"
                f" {self.spu_id} to {ours or 'none'}"
            )
        if greeting.spu == self.spu_id:
            raise ProtocolError(f"two processes run as SPU {self.spu_id}")

    def key(self, peer: int) -> bytes | None:
        known = self._addresses.get(peer)
        return bytes.fromhex(known.key) if known is not None and known.key is not None else None

    def proof_unchecked(self, peer: int) -> None:
        self._handler.find_peers((peer,))

    def greeted(self, connection: PeerConnection, peer: int) -> None:
        if connection.accepted:
            self._admission.proven(connection)
        before = self._connections.pop(peer, None)
        if before is not None:
            self._handler.peer_down(peer)
            before.abort("a newer connection replaces it")
        self._connections[peer] = connection
        self._failures.pop(peer, None)
        self._since[peer] = asyncio.get_running_loop().time()
        _log.info("connected to a peer", peer=peer)
        self._handler.peer_up(peer)

    def received(self, peer: int, uid: PartitionUid, message: Message | Damaged) -> None:
        self._handler.peer_said(peer, uid, message)

    def lost(self, connection: PeerConnection, reason: str) -> None:
        self._open.discard(connection)
        self._admission.gone(connection)
        peer = connection.peer
        if peer is None:
            if not self._closed:
                now_s = asyncio.get_running_loop().time()
                if (times := self._failed.due("", reason, now_s)) is not None:
                    _log.warning("a peer's connection failed", reason=reason, times=times)
            return
        if self._connections.get(peer) is not connection:
            return
        del self._connections[peer]
        if self._closed:
            return
        now_s = asyncio.get_running_loop().time()
        lasted_s = now_s - self._since[peer]
        times = self._failed.due(f"SPU {peer}", reason, now_s)
        if times is not None or lasted_s >= LASTING_S:
            _log.warning("lost a peer", peer=peer, reason=reason, times=times or 1)
        backoff = self._backoff(peer)
        if lasted_s < LASTING_S:
            backoff.attempts += 1
        else:
            backoff.reset()
        self._handler.peer_down(peer)
        self._dial_soon(peer)

    # Connecting

    def _accept(self) -> PeerConnection:
        return self._new_connection(None)

    def _new_connection(self, dialled: int | None) -> PeerConnection:
        return PeerConnection(self, self._greeting, dialled)

    def _greeting(self, to: int) -> Greeting:
        return Greeting(self.spu_id, to, self._handler.cluster_uid or "")

    def _dial_soon(self, peer: int) -> None:
        """Start a task that dials a peer, if it is this SPU that has to dial."""
        ours = peer < self.spu_id and peer in self.wanted
        if not ours or self._closed or peer in self._connections or peer in self._dialling:
            return
        task = asyncio.get_running_loop().create_task(self._dial(peer), name=f"dial SPU {peer}")
        self._dialling[peer] = task
        task.add_done_callback(partial(self._dialled, peer))

    def _dialled(self, peer: int, task: asyncio.Task[None]) -> None:
        self._dialling.pop(peer, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("dialling failed", peer=peer, exc_info=error)
        # The connection may have been lost while the task was ending.
        self._dial_soon(peer)

    async def _dial(self, peer: int) -> None:
        """Try to connect to a peer until there is a connection, or none is needed any more."""
        backoff = self._backoff(peer)
        if backoff.attempts:
            await asyncio.sleep(backoff.next_ms() / 1000)
        while peer in self.wanted and peer not in self._connections:
            address = self._addresses.get(peer)
            if address is None:
                await self._ask(peer)
                continue
            try:
                await self._connect(peer, address)
            # ValueError: the SC named something that is not a host name or not a port.
            except (OSError, ValueError, OverflowError, RunnelError) as error:
                reason = _in_words(error)
                self._note_failure(address, reason)
                place = f"{address.host}:{address.port}"
                now_s = asyncio.get_running_loop().time()
                if (times := self._failed.due(f"SPU {peer} at {place}", reason, now_s)) is not None:
                    _log.warning(
                        "cannot reach a peer", peer=peer, address=place, reason=reason, times=times
                    )
                self._handler.find_peers((peer,))
                await asyncio.sleep(backoff.next_ms() / 1000)

    def _note_failure(self, address: Peer, reason: str) -> None:
        """Remember that a peer was not reached. The reason of one address rarely changes: whoever
        is told of it writes it down."""
        now_s, before = asyncio.get_running_loop().time(), self._failures.get(address.spu_id)
        peer = UnreachablePeer(
            spu_id=address.spu_id,
            host=shortened(address.host, MAX_HOST - 1),
            port=address.port,
            reason=shortened(reason, MAX_REASON - 1),
        )
        since_s = now_s if before is None else before.since_s
        if before is not None and peer == before.peer:
            return
        same = before is not None and (before.peer.host, before.peer.port) == (peer.host, peer.port)
        if before is not None and same and now_s - before.told_s < REASON_STAYS_S:
            return
        self._failures[address.spu_id] = _Failure(since_s, now_s, peer)

    def _backoff(self, peer: int) -> Backoff:
        return self._backoffs.setdefault(peer, Backoff(RETRY_BASE_MS, RETRY_CAP_MS, random.random))

    async def _ask(self, peer: int) -> None:
        event = self._found.setdefault(peer, asyncio.Event())
        event.clear()
        self._handler.find_peers((peer,))
        try:
            async with asyncio.timeout(FIND_AGAIN_S):
                await event.wait()
        except TimeoutError:
            return

    async def _connect(self, peer: int, address: Peer) -> None:
        """Make one attempt, up to the greetings. Raises OSError, UnreachableError."""
        connection = await dial(
            partial(self._new_connection, peer), address.host, address.port, CONNECT_S
        )
        # If no greeting comes, the connection's own timer ends it.
        await connection.settled.wait()
        if connection.peer is None:
            raise UnreachableError(connection.reason)


def _in_words(error: Exception) -> str:
    """Why an attempt to connect failed: without numbers of errors and repeated addresses."""
    if isinstance(error, socket.gaierror) and error.strerror is not None:
        return f"its host is not found: {error.strerror.lower()}"
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno).lower()
    return str(error) or "no answer"
