"""One connection to another SPU, the same at both ends: greetings, messages, pushes, pings.

It carries the messages of all partitions that the two SPUs share, in order. Messages are written at
once. Pushes of batches wait while the other end does not read what was sent, and partitions take
turns, so that a follower that catches up does not delay the messages of others, and memory stays
bounded. A peer that is silent for too long is disconnected: a process that is suspended keeps its
connections open.

If the SC has given the two SPUs a key, each proves after the greetings that it knows it; nothing
else that the other sends is looked at before its proof. Until the greeting and the proof were
accepted, frames are short.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final, Protocol, cast

from schemas.control.proof import PeerEnd, peer_proof
from schemas.daemon.logs import get_logger
from schemas.errors import (
    CorruptBatchError,
    ErrorCode,
    ProtocolError,
    RunnelError,
    UnauthorizedError,
    UnreachableError,
    error_from,
)
from schemas.ids import PartitionUid
from schemas.wire.batch import Buffer
from schemas.wire.framing import FrameReader
from schemas.wire.keepalive import keep_alive, listen, pace, unacknowledged
from schemas.wire.protocol import (
    MAX_FIRST_FRAME_BYTES,
    MAX_FRAME_BYTES,
    PREFIX,
    pack_error,
    pack_frame,
    unpack_frame,
)
from spu.replication.messages import Message
from spu.replication.wire import (
    MIN_PEER_VERSION,
    NONCE_BYTES,
    PEER_VERSION,
    Damaged,
    Greeting,
    Kind,
    damaged,
    decode,
    encode,
)

_log = get_logger(__name__)

GREETING_TIMEOUT_S: Final = 2.0
#: An older version pings every second.
PING_EVERY_S: Final = 0.5
#: A peer that sent nothing for this many ping intervals counts as gone. They are counted, not
#: timed: an SPU that itself stood still finds one long interval, and then what came meanwhile. On a
#: long line they are more, because what was lost takes round trips to come.
SILENT_PINGS: Final = 4
#: So many more at most: when a line was slow and lost much, TCP may pause for longer than a new
#: connection takes, and all partitions that the two SPUs share wait for it.
MOST_MORE_PINGS: Final = 8
#: Pushes wait while this many bytes are still to be sent.
_WRITE_HIGH_BYTES: Final = 4 << 20
#: The SPU that was dialled may also answer with an error, whose text has up to 4 KiB.
_FIRST_ANSWER_BYTES: Final = 2 * MAX_FIRST_FRAME_BYTES


class PeerEvents(Protocol):
    """What the owner of connections to peers provides."""

    def opened(self, connection: PeerConnection) -> None:
        """The connection is there; `lost` follows in any case."""

    def arrived(self, connection: PeerConnection, address: str) -> None:
        """Raise a RunnelError to refuse a connection that another SPU may have dialled."""

    def greet(self, greeting: Greeting) -> None:
        """Raise a RunnelError to refuse the sender of this greeting."""

    def key(self, peer: int) -> bytes | None:
        """The key that this SPU shares with a peer; None if the peer need not prove itself."""

    def proof_unchecked(self, peer: int) -> None:
        """The peer has proven itself, but its key is not known here."""

    def greeted(self, connection: PeerConnection, peer: int) -> None:
        """Both greetings have arrived and were accepted, and the proofs, if there is a key."""

    def received(self, peer: int, uid: PartitionUid, message: Message | Damaged) -> None: ...

    def lost(self, connection: PeerConnection, reason: str) -> None:
        """The connection is gone; called once, whether or not it was ever greeted."""


class PeerConnection(asyncio.BufferedProtocol):
    """``greeting`` makes our greeting to an SPU; ``dialled`` is the SPU that we dialled, None if
    it dialled us."""

    def __init__(
        self, events: PeerEvents, greeting: Callable[[int], Greeting], dialled: int | None
    ) -> None:
        self.peer: int | None = None
        #: Set once the connection is greeted, or lost for a `reason`.
        self.settled = asyncio.Event()
        self.reason = ""
        #: Held while a push is read from the disk.
        self.cold = asyncio.Lock()
        self._drained = asyncio.Event()
        self._drained.set()
        self._events = events
        self._greeting = greeting
        self._dialled = dialled
        self._loop = asyncio.get_running_loop()
        first_bytes = MAX_FIRST_FRAME_BYTES if dialled is None else _FIRST_ANSWER_BYTES
        self._reader = FrameReader(first_bytes, receive_bytes=PREFIX.size + first_bytes)
        self._transport: asyncio.Transport | None = None
        self._writable = True
        self._pushes: deque[Callable[[], None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._nonce = secrets.token_bytes(NONCE_BYTES)
        # The greeting of a peer that has not proven itself yet, and what its proof must be.
        self._unproven: tuple[Greeting, bytes] | None = None
        self._silent_pings = 0

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(high=_WRITE_HIGH_BYTES)
        keep_alive(transport)
        self._events.opened(self)
        if self._dialled is None:
            address = transport.get_extra_info("peername") or ("unknown",)
            try:
                self._events.arrived(self, address[0])
            except RunnelError as refusal:
                self.end(refusal)
                return
        self._timer = self._loop.call_later(
            GREETING_TIMEOUT_S, self.end, UnreachableError("no greeting came")
        )
        if self._dialled is not None:
            self._greet(self._dialled)

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
        self._reader.drop_taken()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is None:
            return
        self._transport = None
        self._pushes.clear()
        self._drained.set()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.reason = self.reason or (str(exc) if exc else "the other end closed it")
        self.settled.set()
        self._events.lost(self, self.reason)

    def pause_writing(self) -> None:
        self._writable = False
        self._drained.clear()

    def resume_writing(self) -> None:
        self._writable = True
        self._drained.set()
        while self._pushes and self._writable:
            self._pushes.popleft()()

    # The owner's side

    @property
    def accepted(self) -> bool:
        """Whether the other end dialled."""
        return self._dialled is None

    @property
    def usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def send(self, uid: PartitionUid, message: Message) -> None:
        """Send a message. It is lost if the connection is."""
        self._write(encode(uid, message))

    def push(self, push: Callable[[], None]) -> None:
        """Call ``push``, which writes batches by `write`, once the other end reads them."""
        if self._writable and not self._pushes:
            push()
        else:
            self._pushes.append(push)

    @property
    def is_drained(self) -> bool:
        """Whether `drained` would not wait."""
        return self._drained.is_set()

    async def drained(self) -> None:
        """Wait until the other end has read most of what was sent, or is gone."""
        await self._drained.wait()

    def line(self) -> dict[str, float]:
        """What is known of the line, for the log: what waits here, and what the kernel says."""
        if self._transport is None:
            return {}
        found: dict[str, float] = {
            "waiting_bytes": self._transport.get_write_buffer_size(),
            "waiting_pushes": len(self._pushes),
            "silent_pings": self._silent_pings,
        }
        if (sent := unacknowledged(self._transport)) is not None:
            found["unacknowledged"] = sent.segments
            found["retransmissions"] = sent.retransmissions
        if (speed := pace(self._transport)) is not None:
            found["answer_ms"] = round(speed.answer_ms)
            found["silent_ms"] = speed.silent_ms
        return found

    def write(self, frame: list[Buffer]) -> None:
        """Write a frame unchanged."""
        self._write(frame)

    def end(self, error: RunnelError) -> None:
        """Tell the other end why, then close."""
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
        if self._unproven is not None:
            self._prove(header.api, bytes(fixed))
        elif self.peer is None:
            if header.api != Kind.GREETING:
                raise ProtocolError("the first frame must be a greeting")
            self._greeted(Greeting.unpack(fixed, tail))
        elif header.api == Kind.PROOF:
            self._events.proof_unchecked(self.peer)
        elif header.api != Kind.PING:
            try:
                uid, message = decode(header.api, fixed, tail)
            except CorruptBatchError as error:
                # Only one partition is affected: the stream of frames itself is whole.
                _log.error("a peer sent a damaged batch", peer=self.peer, reason=error.message)
                self._write(encode(*damaged(fixed)))
                return
            self._events.received(self.peer, uid, message)

    def _greeted(self, greeting: Greeting) -> None:
        if greeting.max_version < MIN_PEER_VERSION or greeting.min_version > PEER_VERSION:
            raise ProtocolError(
                f"SPU {greeting.spu} speaks replication versions {greeting.min_version} to"
                f" {greeting.max_version}, this SPU {MIN_PEER_VERSION} to {PEER_VERSION}; upgrade"
                " the older one"
            )
        if self._dialled not in {None, greeting.spu}:
            raise ProtocolError(
                f"SPU {greeting.spu} answers at the address of SPU {self._dialled}; check the"
                " privateEndpoint of both"
            )
        self._events.greet(greeting)
        if self._dialled is None:
            self._greet(greeting.spu)
        key = self._events.key(greeting.spu)
        if key is None:
            self._settle(greeting.spu)
            return
        if len(greeting.nonce) != NONCE_BYTES:
            raise _unproven(greeting.spu)
        ours, theirs = PeerEnd(greeting.to, self._nonce), PeerEnd(greeting.spu, greeting.nonce)
        proof = peer_proof(key, greeting.cluster_uid, ours, theirs)
        self._write(pack_frame(Kind.PROOF, 0, proof))
        self._unproven = greeting, peer_proof(key, greeting.cluster_uid, theirs, ours)

    def _greet(self, peer: int) -> None:
        self._write(replace(self._greeting(peer), nonce=self._nonce).frame())

    def _prove(self, kind: int, proof: bytes) -> None:
        """Take the peer's proof. Raises UnauthorizedError if it is none."""
        if self._unproven is None:
            raise RuntimeError("no proof is awaited")
        greeting, expected = self._unproven
        if kind != Kind.PROOF or not hmac.compare_digest(proof, expected):
            raise _unproven(greeting.spu)
        self._unproven = None
        self._settle(greeting.spu)

    def _settle(self, peer: int) -> None:
        self.peer = peer
        self._reader.widen(MAX_FRAME_BYTES)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(PING_EVERY_S, self._ping)
        if self._transport is not None:
            listen(self._transport)
        self.settled.set()
        self._events.greeted(self, peer)

    def _ping(self) -> None:
        self._silent_pings += 1
        if self._silent_pings > (allowed := self._allowed_pings()):
            self.abort(f"it was silent for {allowed * PING_EVERY_S:g} s")
            return
        self._write(pack_frame(Kind.PING, 0, b""))
        self._timer = self._loop.call_later(PING_EVERY_S, self._ping)

    def _allowed_pings(self) -> int:
        found = None if self._transport is None else pace(self._transport)
        more = 0 if found is None else found.more_intervals(PING_EVERY_S * 1_000)
        return SILENT_PINGS + min(more, MOST_MORE_PINGS)

    def _write(self, frame: list[Buffer]) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        try:
            if len(frame) == 1:
                self._transport.write(frame[0])
            else:
                self._transport.writelines(frame)
        except RuntimeError as error:
            # uvloop may have closed its handle in a moment in which it tells nobody. If it has not,
            # nobody else would.
            with suppress(RuntimeError):
                self._transport.abort()
            self._loop.call_soon(self.connection_lost, error)


def _unproven(peer: int) -> UnauthorizedError:
    return UnauthorizedError(
        f"SPU {peer} has not proven who it is: it is another program, or it does not know the key"
        " of the two SPUs yet, which it gets from the SC"
    )
