"""A connection manager behind a real port, and the other end of its connections by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp

from connection_manager.guarded_site import ConnectionLimits
from connection_manager.manager import ClusterIdentity, ConnectionManager, start_private_server
from schemas.control.messages import (
    IDENTIFY_PROTOCOL,
    PARTS_PROTOCOL,
    Challenge,
    Envelope,
    FindPeers,
    Heartbeat,
    Hello,
    Identify,
    Message,
    Reject,
    Report,
    SpuRequest,
    Stamp,
    Welcome,
    decode_envelope,
)
from schemas.control.proof import Exchange, Verifier
from schemas.control.session_end import SessionEnd
from schemas.control.statistics import Statistics
from schemas.errors import RunnelError, UnauthorizedError

STAMP = Stamp(revision=2, office="office")
PRIVATE_LIMITS = ConnectionLimits(1_000, 100, 100, 0)
IDENTITY = ClusterIdentity("test", "uid-of-this-cluster", STAMP)


@dataclass
class Events:
    """Writes down what the connection manager says."""

    log: list[tuple[str, int, int]] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    ends: list[SessionEnd] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)
    asks: list[SpuRequest] = field(default_factory=list)
    peers: list[FindPeers] = field(default_factory=list)
    refusal: RunnelError | None = None
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    checking: asyncio.Event = field(default_factory=asyncio.Event)
    hellos: list[Hello] = field(default_factory=list)
    checks: int = 0
    proven: list[bool] = field(default_factory=list)
    authenticated: list[tuple[int, bool]] = field(default_factory=list)
    verifiers: dict[int, Verifier] = field(default_factory=dict)
    sc_proof: str | None = None
    refused_ids: list[int] = field(default_factory=list)

    async def authenticate(
        self, spu_id: int, exchange: Exchange | None, proof: str | None
    ) -> str | None:
        self.authenticated.append((spu_id, exchange is not None))
        verifier = self.verifiers.get(spu_id)
        if verifier is None:
            return None
        if exchange is None or proof is None or not verifier.accepts(exchange, proof):
            raise UnauthorizedError(f"SPU {spu_id} has not proven itself")
        return self.sc_proof or verifier.proof(exchange)

    async def check(self, hello: Hello, *, proven: bool) -> None:
        self.proven.append(proven)
        self.checks += 1
        self.checking.set()
        await self.gate.wait()
        if self.refusal is not None:
            raise self.refusal

    def refused(self, spu_id: int) -> None:
        self.refused_ids.append(spu_id)

    def opened(self, generation: int, hello: Hello) -> None:
        self.log.append(("opened", hello.spu_id, generation))
        self.hellos.append(hello)

    def closed(
        self, spu_id: int, generation: int, reason: str, end: SessionEnd, quiet: int
    ) -> None:
        self.log.append(("closed", spu_id, generation))
        self.reasons.append(reason)
        self.ends.append(end)

    def reported(self, spu_id: int, generation: int, report: Report) -> None:
        self.log.append(("reported", spu_id, generation))
        self.reports.append(report)

    def asked(self, spu_id: int, generation: int, ask: SpuRequest) -> None:
        self.log.append(("asked", spu_id, generation))
        self.asks.append(ask)

    def told(self, spu_id: int, statistics: Statistics) -> None:
        self.log.append(("told", spu_id, statistics.spu.requests))

    async def asked_peers(
        self, spu_id: int, generation: int, asked: FindPeers, *, proven: bool
    ) -> None:
        self.log.append(("asked peers", spu_id, generation))
        self.peers.append(asked)


class Peer:
    """The other end of one connection, by hand: says nothing that the test does not say."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket

    async def say(self, body: Message, *, request_id: int | None = None) -> None:
        await self.socket.send_str(Envelope(id=request_id, cause="test", body=body).encode())

    async def hear(self) -> Message | None:
        """The next message that is not a heartbeat; None once the connection is closed."""
        async with asyncio.timeout(15):
            while True:
                message = await self.socket.receive()
                if message.type is not aiohttp.WSMsgType.TEXT:
                    return None
                body = decode_envelope(message.data).body
                if not isinstance(body, Heartbeat):
                    return body

    async def challenged(self) -> Exchange:
        """What is to be proven, after an identity of SPU 1."""
        challenge = await self.hear()
        assert isinstance(challenge, Challenge), challenge
        return Exchange(challenge.cluster_uid, 1, "one", "n", challenge.nonce)

    async def rejected(self) -> Reject:
        body = await self.hear()
        assert isinstance(body, Reject), body
        assert await self.hear() is None
        return body

    async def welcomed(self) -> Welcome:
        body = await self.hear()
        assert isinstance(body, Welcome), body
        return body


@dataclass
class Bench:
    """A connection manager behind a real port."""

    manager: ConnectionManager
    events: Events
    address: str
    http: aiohttp.ClientSession
    #: The private addresses of the SCs that run.
    controllers: list[str] = field(default_factory=list)

    @asynccontextmanager
    async def peer(
        self, hello: Message | None = None, *, identifies: bool = False, in_parts: bool = False
    ) -> AsyncIterator[Peer]:
        """A connection that begins with this message. It is that of an older SPU, unless it
        ``identifies`` itself; ``in_parts``: as SPUs of this version do."""
        newest = (PARTS_PROTOCOL, IDENTIFY_PROTOCOL)
        protocols = newest if in_parts else newest[1:] if identifies else ()
        url = f"http://{self.address}/session"
        async with self.http.ws_connect(url, protocols=protocols) as socket:
            peer = Peer(socket)
            if hello is not None:
                await peer.say(hello)
            yield peer


@asynccontextmanager
async def bench_of(heartbeat_ms: int = 60_000) -> AsyncIterator[Bench]:
    events = Events()
    events.gate.set()
    running: list[str] = []
    manager = ConnectionManager(
        events,
        IDENTITY,
        heartbeat_ms=heartbeat_ms,
        misses=3,
        controllers=lambda: tuple(running),
    )
    manager.register("spu-1", 1)
    runner, port = await start_private_server(manager.serve, "127.0.0.1", 0, PRIVATE_LIMITS)
    async with aiohttp.ClientSession() as http:
        try:
            yield Bench(manager, events, f"127.0.0.1:{port}", http, running)
        finally:
            manager.close()
            await runner.cleanup()


def hello_of(spu_id: int = 1, **fields: object) -> Hello:
    known = {"software": "test", "spu_id": spu_id, "instance": "one"}
    return Hello.model_validate(known | fields)


def identity_of(spu_id: int = 1, **fields: object) -> Identify:
    known = {"software": "test", "spu_id": spu_id, "instance": "one", "nonce": "n"}
    return Identify.model_validate(known | fields)
