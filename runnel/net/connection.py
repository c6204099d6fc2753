"""One multiplexed connection to an SPU.

Requests are written in the order in which `SpuConnection.start` is called, and each returns a
future of its response: many may be in flight, and responses come in any order. Every call has a
deadline. When the connection breaks, all calls in flight fail with `UnreachableError`; a connection
is never reused after that (`runnel.net.pool` opens another). A connection whose network carries
nothing any more counts as broken (`runnel.net.silent_link`).

Frames that the SPU pushes come here too and are handed to `runnel.net.push`.

Neighbours: `schemas.wire.framing` cuts received bytes into frames, `schemas.wire.protocol` packs
and unpacks.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, cast

from runnel.net.address import Address
from runnel.net.push import Subscriptions
from runnel.net.silent_link import LOOK_EVERY_S, Link, SilentLink
from schemas.errors import (
    DeadlineExceededError,
    ErrorCode,
    InvalidRequestError,
    OverloadedError,
    RunnelError,
    UnreachableError,
)
from schemas.wire.dialling import CONNECT_S, dial
from schemas.wire.framing import FrameReader
from schemas.wire.keepalive import keep_alive, unacknowledged
from schemas.wire.protocol import (
    FRAME_OVERHEAD,
    MAX_FRAME_BYTES,
    MIN_PROTOCOL_VERSION,
    PROTOCOL_VERSION,
    Api,
    FrameHeader,
    HelloRequest,
    HelloResponse,
    pack_frame,
    raise_for_status,
    unpack_frame,
)
from schemas.wire.same_host import is_on_one_host

Buffer = bytes | bytearray | memoryview
_RECEIVE_BYTES: Final = 64 << 10
#: A connection over which nothing was sent for this long sends something, because an SPU ends those
#: that are silent for minutes.
PING_EVERY_S: Final = 60.0
_MAX_CORRELATION: Final = (1 << 32) - 1
#: For the socket to be gone, once it is closed.
_CLOSE_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Response:
    """The two parts of an answer; the views keep the frame's memory alive."""

    fixed: memoryview
    tail: memoryview


class SpuConnection(asyncio.BufferedProtocol):
    """See the module's text. Use `open_connection` to get one."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.cluster_uid = ""
        self.spu_id = -1
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader(owned=True, receive_bytes=_RECEIVE_BYTES)
        self._transport: asyncio.Transport | None = None
        self._calls: dict[int, tuple[asyncio.Future[Response], asyncio.TimerHandle]] = {}
        self._correlation = 0
        self._max_frame_bytes = MAX_FRAME_BYTES
        self._writable = asyncio.Event()
        self._closed = asyncio.Event()
        self._failure: RunnelError | None = None
        self._ping_timer: asyncio.TimerHandle | None = None
        self._heard_at = self._loop.time()
        self._link = SilentLink()
        self._link_timer: asyncio.TimerHandle | None = None
        self.subscriptions = Subscriptions(self)

    @property
    def name(self) -> str:
        """The name of the SPU in messages."""
        return f"the SPU at {self.address}"

    @property
    def heard_at(self) -> float:
        """When the last bytes came, by the loop's clock."""
        return self._heard_at

    @property
    def is_on_this_host(self) -> bool:
        """Whether the SPU runs on this host, as far as its address says."""
        return self._transport is not None and is_on_one_host(self._transport)

    @property
    def usable(self) -> bool:
        """False once the connection broke or was closed."""
        return self._failure is None

    async def start(
        self, api: Api, fixed: bytes, *tail: Buffer, timeout_s: float
    ) -> asyncio.Future[Response]:
        """Write one request and return the future of its response.

        Waits only while the socket takes no more bytes. The future raises the error that the SPU
        answered, DeadlineExceededError after ``timeout_s``, or UnreachableError. Raises
        UnreachableError itself when the connection is broken, InvalidRequestError for a frame
        longer than the SPU accepts. If the SPU sends nothing at all until the deadline, it counts
        as lost and the connection is closed.
        """
        began_at = self._loop.time()
        transport = await self._writing(fixed, tail, timeout_s)
        correlation = self._next_correlation()
        future: asyncio.Future[Response] = self._loop.create_future()
        timer = self._loop.call_at(
            began_at + timeout_s, self._expire, correlation, timeout_s, began_at
        )
        self._calls[correlation] = (future, timer)
        # A caller that was cancelled never reads the error of its future: mark it as seen.
        future.add_done_callback(_retrieve)
        self._write(transport, pack_frame(api, correlation, fixed, *tail))
        return future

    async def post(self, api: Api, fixed: bytes, *tail: Buffer, timeout_s: float) -> None:
        """Write a request that has no response. Raises as `start` does."""
        transport = await self._writing(fixed, tail, timeout_s)
        self._write(transport, pack_frame(api, self._next_correlation(), fixed, *tail))

    async def request(self, api: Api, fixed: bytes, *tail: Buffer, timeout_s: float) -> Response:
        """`start` and wait for the response."""
        return await (await self.start(api, fixed, *tail, timeout_s=timeout_s))

    async def ask(self, api: Api, fixed: bytes, tail: bytes, timeout_s: float) -> None:
        """`request` with an empty response."""
        await self.request(api, fixed, tail, timeout_s=timeout_s)

    def tell(self, api: Api, tail: bytes) -> None:
        """Write a short request that has no response, at once; nothing on a broken connection."""
        if self._failure is None and self._transport is not None:
            self._write(self._transport, pack_frame(api, self._next_correlation(), b"", tail))

    async def hello(self, timeout_s: float) -> None:
        """Agree on a version; must come first. Raises UnsupportedError if there is none."""
        offer = HelloRequest(MIN_PROTOCOL_VERSION, PROTOCOL_VERSION)
        response = await self.request(Api.HELLO, offer.pack(), timeout_s=timeout_s)
        answer = HelloResponse.unpack(response.fixed)
        self.spu_id = answer.spu_id
        self.cluster_uid = bytes(response.tail).decode(errors="replace")
        self._max_frame_bytes = min(MAX_FRAME_BYTES, answer.max_frame_bytes)
        self._ping_later()

    def abort(self) -> None:
        """Close at once; calls in flight fail."""
        self._fail(UnreachableError(f"the connection to the SPU at {self.address} was closed"))
        if self._transport is not None:
            self._transport.abort()

    async def close(self) -> None:
        """Close, and wait until the socket is gone."""
        self.abort()
        if self._transport is not None:
            # uvloop may have closed its handle in a moment in which it tells nobody.
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_S):
                    await self._closed.wait()

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not checked by isinstance: uvloop's transports only behave like asyncio's.
        self._transport = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(high=4 << 20)
        keep_alive(transport)
        self._writable.set()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._heard_at = self._loop.time()
        self._reader.received(nbytes)
        try:
            while (frame := self._reader.next_frame()) is not None:
                self._answered(frame)
        except RunnelError as error:
            self._fail(
                UnreachableError(
                    f"the SPU at {self.address} sent bytes that are not a frame: {error}"
                )
            )
            if self._transport is not None:
                self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        why = f": {exc}" if exc else ""
        self._fail(UnreachableError(f"the SPU at {self.address} closed the connection{why}"))
        self._closed.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _answered(self, frame: memoryview) -> None:
        header, fixed, tail = unpack_frame(frame)
        if header.api == Api.PUSH:
            if header.status == ErrorCode.OK:
                self.subscriptions.received(header.correlation, fixed, tail)
            else:
                self.subscriptions.refused(header.correlation, self._error(header, fixed, tail))
            return
        if header.correlation == 0 and header.status != ErrorCode.OK:
            self._ended_by_spu(self._error(header, fixed, tail))
            return
        future, timer = self._calls.pop(header.correlation, (None, None))
        if future is None or timer is None:
            return  # Its caller has given up already.
        timer.cancel()
        if future.done():
            return
        if header.status == ErrorCode.OK:
            future.set_result(Response(fixed, tail))
        else:
            future.set_exception(self._error(header, fixed, tail))

    def _ended_by_spu(self, error: RunnelError) -> None:
        """The SPU said why it closes the connection."""
        # After HELLO, a request in flight may have been carried out: it was not refused.
        if not (isinstance(error, OverloadedError) and self.spu_id < 0):
            error = UnreachableError(
                f"the SPU at {self.address} closed the connection: {error.message}"
            )
        self._fail(error)
        if self._transport is not None:
            self._transport.abort()

    def _ping_later(self) -> None:
        if self._failure is None:
            self._ping_timer = self._loop.call_later(
                PING_EVERY_S, self._ping_if_silent, self._correlation
            )

    def _ping_if_silent(self, correlation_before: int) -> None:
        """Send something if nothing else was sent."""
        if self._correlation == correlation_before:
            self._send_nothing()
        self._ping_later()

    def _send_nothing(self) -> None:
        """Send a CREDIT that grants nothing, which no SPU answers."""
        self.tell(Api.CREDIT, b"")

    def _look_later(self) -> None:
        self._link_timer = self._loop.call_later(LOOK_EVERY_S, self._look_at_link, self._heard_at)

    def _look_at_link(self, heard_before: float) -> None:
        """Break the connection if the network carries nothing; look on while that matters."""
        self._link_timer = None
        if self._failure is not None or self._transport is None:
            return
        waiting = unacknowledged(self._transport)
        heard = self._heard_at > heard_before
        match self._link.look(heard=heard, unacknowledged=waiting):
            case Link.LOST:
                self._fail(UnreachableError(f"the network no longer carries to {self.name}"))
                self._transport.abort()
                return
            case Link.PROBE:
                self._send_nothing()
            case Link.KEEP:
                pass
        if self._calls or (waiting is not None and waiting.segments):
            self._look_later()

    def _error(self, header: FrameHeader, fixed: memoryview, tail: memoryview) -> RunnelError:
        """The error in a frame whose status is not OK."""
        try:
            raise_for_status(header, tail, fixed)
        except RunnelError as error:
            error.details.setdefault("spu", str(self.address))
            return error
        raise AssertionError("the status is OK")

    def _expire(self, correlation: int, timeout_s: float, silent_since: float) -> None:
        future, _timer = self._calls.pop(correlation)
        error = DeadlineExceededError(
            f"the SPU at {self.address} did not answer within {timeout_s:.1f} s"
        )
        if not future.done():
            future.set_exception(error)
        if self._heard_at < silent_since:
            # A peer that vanished without a word: TCP alone would notice after many minutes.
            self._fail(UnreachableError(error.message))
            if self._transport is not None:
                self._transport.abort()

    async def _writing(
        self, fixed: bytes, tail: tuple[Buffer, ...], timeout_s: float
    ) -> asyncio.Transport:
        """The transport, once it takes bytes and the frame was found to be short enough."""
        length = FRAME_OVERHEAD + len(fixed) + sum(len(piece) for piece in tail)
        if length > self._max_frame_bytes:
            raise InvalidRequestError(
                f"a request of {length} bytes is more than the {self._max_frame_bytes} that"
                f" the SPU at {self.address} accepts; send smaller batches"
            )
        if not self._writable.is_set():
            try:
                async with asyncio.timeout(timeout_s):
                    await self._writable.wait()
            except TimeoutError:
                raise DeadlineExceededError(
                    f"the SPU at {self.address} took no data for {timeout_s:.1f} s"
                ) from None
        if self._failure is not None or self._transport is None:
            raise self._failure or UnreachableError(f"not connected to the SPU at {self.address}")
        if self._link_timer is None:
            self._look_later()
        return self._transport

    def _write(self, transport: asyncio.Transport, frame: list[Buffer]) -> None:
        try:
            transport.writelines(frame)
        except RuntimeError as error:
            # uvloop may have closed its handle in a moment in which it tells nobody. If it has not,
            # nobody else would.
            with suppress(RuntimeError):
                transport.abort()
            self._loop.call_soon(self.connection_lost, error)

    def _next_correlation(self) -> int:
        self._correlation = self._correlation % _MAX_CORRELATION + 1
        return self._correlation

    def _fail(self, error: RunnelError) -> None:
        if self._failure is None:
            self._failure = error
        if self._ping_timer is not None:
            self._ping_timer.cancel()
            self._ping_timer = None
        if self._link_timer is not None:
            self._link_timer.cancel()
            self._link_timer = None
        calls, self._calls = self._calls, {}
        for future, timer in calls.values():
            timer.cancel()
            if not future.done():
                future.set_exception(self._failure)
        self.subscriptions.fail(self._failure)
        self._writable.set()


def _retrieve(future: asyncio.Future[Response]) -> None:
    if not future.cancelled():
        future.exception()


async def open_connection(address: Address, timeout_s: float) -> SpuConnection:
    """Connect and shake hands. Raises UnreachableError that names the address."""
    connect_s = min(timeout_s, CONNECT_S)
    try:
        connection = await dial(
            lambda: SpuConnection(address), address.host, address.port, connect_s
        )
    except TimeoutError:
        raise UnreachableError(f"no SPU answered at {address} within {connect_s:.1f} s") from None
    except OSError as error:
        raise UnreachableError(f"no SPU answers at {address}: {_reason(error)}") from error
    try:
        await connection.hello(timeout_s)
    except BaseException:
        await connection.close()
        raise
    return connection


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
