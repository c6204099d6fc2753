"""One connection to another SPU, the same at either end: greetings, messages, pushes, pings.

Messages of all partitions that the two SPUs share travel on it, in order. What is said is written
at once; pushes of batches wait while the other end does not take what was sent, each partition in
its turn, so that one follower that catches up does not delay what the others say, and memory stays
bounded. An end that is silent for too long is given up: a process that is stopped keeps its
connections.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, cast

from schemas.daemon.logs import get_logger
from schemas.errors import (
    CorruptBatchError,
    ErrorCode,
    ProtocolError,
    RunnelError,
    UnreachableError,
    error_from,
)
from schemas.ids import PartitionUid
from schemas.wire.batch import Buffer
from schemas.wire.framing import FrameReader
from schemas.wire.protocol import pack_error, pack_frame, unpack_frame
from spu.replication.messages import Message
from spu.replication.wire import (
    MIN_PEER_VERSION,
    PEER_VERSION,
    Damaged,
    Greeting,
    Kind,
    damaged,
    decode,
    encode,
)

_log = get_logger(__name__)

GREETING_TIMEOUT_S: Final = 5.0
PING_EVERY_S: Final = 1.0
#: An end that said nothing for so many pings is gone.
SILENT_PINGS: Final = 4
#: Pushes wait while so much was not taken by the other end.
_WRITE_HIGH_BYTES: Final = 4 << 20


class PeerEvents(Protocol):
    """Who owns connections to peers."""

    def greet(self, greeting: Greeting) -> None:
        """Raise a RunnelError to refuse whoever says this."""

    def greeted(self, connection: PeerConnection, peer: int) -> None:
        """Both ends know each other."""

    def received(self, peer: int, uid: PartitionUid, message: Message | Damaged) -> None: ...

    def lost(self, connection: PeerConnection, reason: str) -> None:
        """Told once, whether it ever was greeted or not."""


class PeerConnection(asyncio.BufferedProtocol):
    """``greeting`` gives ours for an SPU; ``dialled`` is the SPU that was dialled, None where we
    were."""

    def __init__(
        self, events: PeerEvents, greeting: Callable[[int], Greeting], dialled: int | None
    ) -> None:
        self.peer: int | None = None
        #: Set when it is known what becomes of it: greeted, or lost for a `reason`.
        self.settled = asyncio.Event()
        self.reason = ""
        #: Held by who reads from the disk what is to be sent.
        self.cold = asyncio.Lock()
        self._taken = asyncio.Event()
        self._taken.set()
        self._events = events
        self._greeting = greeting
        self._dialled = dialled
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._writable = True
        self._pushes: deque[Callable[[], None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._silent_pings = 0

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(high=_WRITE_HIGH_BYTES)
        self._timer = self._loop.call_later(
            GREETING_TIMEOUT_S, self.end, UnreachableError("no greeting came")
        )
        if self._dialled is not None:
            self._write(self._greeting(self._dialled).frame())

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._silent_pings = 0
        self._reader.received(nbytes)
        try:
            while self.usable and (frame := self._reader.next_frame()) is not None:
                self._serve(frame)
        except RunnelError as error:
            self.end(error)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._pushes.clear()
        self._taken.set()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.reason = self.reason or (str(exc) if exc else "the other end closed it")
        self.settled.set()
        self._events.lost(self, self.reason)

    def pause_writing(self) -> None:
        self._writable = False
        self._taken.clear()

    def resume_writing(self) -> None:
        self._writable = True
        self._taken.set()
        while self._pushes and self._writable:
            self._pushes.popleft()()

    # The owner's side

    @property
    def usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def send(self, uid: PartitionUid, message: Message) -> None:
        """Say something; it is lost where the connection is."""
        self._write(encode(uid, message))

    def push(self, push: Callable[[], None]) -> None:
        """Call ``push``, which writes batches by `write`, once the other end takes them."""
        if self._writable and not self._pushes:
            push()
        else:
            self._pushes.append(push)

    async def taken(self) -> None:
        """Wait until the other end has taken what was sent, or is gone."""
        await self._taken.wait()

    def write(self, frame: list[Buffer]) -> None:
        """Write a frame as it is."""
        self._write(frame)

    def end(self, error: RunnelError) -> None:
        """Close, and say why to the other end."""
        if not self.usable or self._transport is None:
            return
        self.reason = error.message
        self._write(pack_error(0, 0, error))
        self._transport.close()

    def abort(self, reason: str) -> None:
        """Close now."""
        if self._transport is not None:
            self.reason = reason
            self._transport.abort()

    # How

    def _serve(self, frame: memoryview) -> None:
        header, fixed, tail = unpack_frame(frame)
        if header.status != ErrorCode.OK:
            raise error_from(header.status, bytes(tail).decode(errors="replace"))
        if self.peer is None:
            if header.api != Kind.GREETING:
                raise ProtocolError("the first frame is a greeting")
            self._greeted(Greeting.unpack(fixed, tail))
        elif header.api != Kind.PING:
            try:
                uid, message = decode(header.api, fixed, tail)
            except CorruptBatchError as error:
                # It concerns one partition, and the stream of frames is in order.
                _log.error("a peer sent a damaged batch", peer=self.peer, reason=error.message)
                self._write(encode(*damaged(fixed)))
                return
            self._events.received(self.peer, uid, message)

    def _greeted(self, greeting: Greeting) -> None:
        if greeting.max_version < MIN_PEER_VERSION or greeting.min_version > PEER_VERSION:
            raise ProtocolError(
                f"SPU {greeting.spu} speaks replication versions {greeting.min_version} to"
                f" {greeting.max_version}, this one {MIN_PEER_VERSION} to {PEER_VERSION}; upgrade"
                " the older one"
            )
        if self._dialled not in {None, greeting.spu}:
            raise ProtocolError(
                f"SPU {greeting.spu} answers where SPU {self._dialled} should; check the"
                " privateEndpoint of both"
            )
        self._events.greet(greeting)
        if self._dialled is None:
            self._write(self._greeting(greeting.spu).frame())
        self.peer = greeting.spu
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(PING_EVERY_S, self._ping)
        self.settled.set()
        self._events.greeted(self, greeting.spu)

    def _ping(self) -> None:
        self._silent_pings += 1
        if self._silent_pings > SILENT_PINGS:
            self.abort(f"it was silent for {SILENT_PINGS * PING_EVERY_S:g} s")
            return
        self._write(pack_frame(Kind.PING, 0, b""))
        self._timer = self._loop.call_later(PING_EVERY_S, self._ping)

    def _write(self, frame: list[Buffer]) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if len(frame) == 1:
            self._transport.write(frame[0])
        else:
            self._transport.writelines(frame)
