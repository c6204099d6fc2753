"""Peers of an SPU without the SPU, and raw ends of connections to them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from schemas.control.messages import Peer
from schemas.errors import ErrorCode
from schemas.ids import PartitionUid
from schemas.wire.protocol import PREFIX, unpack_frame
from spu.net.peers import Peers
from spu.replication.messages import Message
from spu.replication.wire import Damaged, Greeting, Kind
from tests.unit.spu.builders import CLUSTER, DEADLINE_S

HOST = "127.0.0.1"


@dataclass
class Handler:
    """Keeps what it is told."""

    cluster_uid: str | None = CLUSTER
    news: list[tuple[str, int]] = field(default_factory=list)
    said: list[tuple[int, PartitionUid, Message | Damaged]] = field(default_factory=list)
    sought: list[int] = field(default_factory=list)

    def peer_up(self, peer: int) -> None:
        self.news.append(("up", peer))

    def peer_down(self, peer: int) -> None:
        self.news.append(("down", peer))

    def peer_said(self, peer: int, uid: PartitionUid, message: Message | Damaged) -> None:
        self.said.append((peer, uid, message))

    def find_peers(self, spu_ids: Iterable[int]) -> None:
        self.sought.extend(spu_ids)


@dataclass
class Raw:
    """The other end of a connection, frame by frame."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, *frames: list[bytes | bytearray | memoryview]) -> None:
        for frame in frames:
            self.writer.write(b"".join(frame))
        await self.writer.drain()

    async def receive(self) -> tuple[int, int, memoryview, memoryview]:
        """Kind, status, fixed part and tail of the next frame."""
        async with asyncio.timeout(DEADLINE_S):
            (length,) = PREFIX.unpack(await self.reader.readexactly(PREFIX.size))
            frame = memoryview(await self.reader.readexactly(length))
        header, fixed, tail = unpack_frame(frame)
        return header.api, header.status, fixed, tail

    async def ended(self) -> None:
        """Read on until the connection is closed, in whichever way."""
        async with asyncio.timeout(DEADLINE_S):
            try:
                await self.reader.read()
            except ConnectionResetError:
                return

    def close(self) -> None:
        self.writer.transport.abort()


@dataclass
class Spu:
    """Peers with their handler, the port that they listen at, and raw ends to be closed."""

    peers: Peers
    handler: Handler
    port: int = 0
    raw: list[Raw] = field(default_factory=list)

    async def dial(self, *frames: list[bytes | bytearray | memoryview]) -> Raw:
        """A connection to it that nobody but the test speaks on."""
        raw = Raw(*await asyncio.open_connection(HOST, self.port))
        self.raw.append(raw)
        await raw.send(*frames)
        return raw

    async def greeted(self, spu: int) -> Raw:
        """A connection of another SPU that was let in."""
        raw = await self.dial(Greeting(spu, self.peers.spu_id, CLUSTER).frame())
        kind, status, _, _ = await raw.receive()
        assert (kind, status) == (Kind.GREETING, ErrorCode.OK)
        return raw

    def knows(self, peer: int, port: int, host: str = HOST, key: str | None = None) -> None:
        self.peers.found((Peer(spu_id=peer, host=host, port=port, key=key),))


async def listening(spu_id: int) -> Spu:
    handler = Handler()
    spu = Spu(Peers(spu_id, handler), handler)
    spu.port = await spu.peers.listen(HOST, 0)
    return spu


async def close(spu: Spu) -> None:
    for raw in spu.raw:
        raw.close()
    await spu.peers.close()


def greeting(spu: int = 1, to: int = 0, cluster: str = CLUSTER, version: int = 1) -> Greeting:
    return Greeting(spu, to, cluster, version, version)
