"""One client connection: frames in, answers out, in whatever order the answers are ready.

The first frame is HELLO, and a short one. Answers are sent as soon as they are known. The socket is
not read while `MAX_IN_FLIGHT` requests are unanswered, while the client does not read what was
written, while the frames of all connections use all memory that they may, or while it is the turn
of others (`spu.server.turns`). A frame that stops
arriving ends the connection, and so does long silence. When the client disconnects, everything that
waited for it is dropped. `spu.server.requests` carries out the requests.

A request that is refused gets an error as its answer, and the connection goes on. Bytes that are
not a frame get an error too, but end the connection: nobody can tell where the next frame begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final, cast

from schemas.daemon.log_ring import LogRing
from schemas.daemon.logs import get_logger
from schemas.errors import ProtocolError, RunnelError, UnreachableError
from schemas.wire.batch import Buffer
from schemas.wire.frame_budget import FrameBudget
from schemas.wire.framing import FrameReader
from schemas.wire.keepalive import keep_alive
from schemas.wire.protocol import (
    MAX_FIRST_FRAME_BYTES,
    MAX_FRAME_BYTES,
    PREFIX,
    Api,
    pack_error,
    pack_frame,
    unpack_frame,
)
from schemas.wire.same_host import is_on_one_host
from spu.net.admission import Admission
from spu.replica.replica import Replica
from spu.server.counters import ListenerCounters
from spu.server.pending_request import PendingRequest
from spu.server.requests import Partitions, Requests
from spu.server.turns import Turns
from spu.storage.segment import Damage

_log = get_logger(__name__)

MAX_IN_FLIGHT: Final = 256
HELLO_TIMEOUT_S: Final = 10.0
#: How often a connection is looked at, whether it moves.
CHECK_EVERY_S: Final = 10.0
#: What must have come of an unfinished frame from one look to the next.
LEAST_PROGRESS_BYTES: Final = 16 << 10
#: A connection over which nothing comes for this long ends. Clients send something every minute.
IDLE_LIMIT_S: Final = 300.0
#: How long a client has to read what was written before the connection was ended.
_LAST_WORDS_S: Final = 5.0
_WRITE_HIGH_BYTES: Final = 4 << 20


class Connection(asyncio.BufferedProtocol):
    """The protocol of one connection. ``admission`` counts it, ``budget`` bounds its memory,
    ``turns`` its time;
    ``closed`` is called once, when the connection is gone; ``verifying`` is held by one
    verification of the SPU at a time; ``logs`` has the SPU's own log lines."""

    def __init__(
        self,
        partitions: Partitions,
        counters: ListenerCounters,
        admission: Admission,
        budget: FrameBudget,
        turns: Turns,
        closed: Callable[[Connection], None],
        verifying: asyncio.Lock,
        logs: LogRing,
    ) -> None:
        self._counters = counters
        self._admission = admission
        self._turns = turns
        self._closed = closed
        self._loop = asyncio.get_running_loop()
        self._claim = budget.claim(self._parse_soon)
        self._reader = FrameReader(
            MAX_FIRST_FRAME_BYTES,
            receive_bytes=PREFIX.size + MAX_FIRST_FRAME_BYTES,
            claim=self._claim,
        )
        self._transport: asyncio.Transport | None = None
        self._greeted = False
        # One timer: for the HELLO, then for the checks, then for the end.
        self._timer: asyncio.TimerHandle | None = None
        self._bytes_in = 0
        self._frames_in = 0
        self._paused_since_check = False
        self._silent_checks = 0
        self._unanswered: set[PendingRequest] = set()
        self._reading = True
        self._writable = True
        self._in_line = False
        self._parse_scheduled = False
        self._requests = Requests(partitions, self, verifying, counters.produce, logs)

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not checked by isinstance: uvloop's transports only behave like asyncio's.
        self._transport = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(high=_WRITE_HIGH_BYTES)
        keep_alive(transport)
        self._counters.connections += 1
        self._counters.connections_total += 1
        address = transport.get_extra_info("peername") or ("unknown",)
        try:
            self._admission.arrived(self, address[0], self._loop.time())
        except RunnelError as refusal:
            self.end(refusal)
            return
        self._timer = self._loop.call_later(
            HELLO_TIMEOUT_S, self.end, ProtocolError("no HELLO came; this port speaks Runnel")
        )

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._counters.bytes_in += nbytes
        self._bytes_in += nbytes
        self._reader.received(nbytes)
        self._parse()

    def eof_received(self) -> bool:
        # The client has closed its side and will send no more requests: close.
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is None:
            return
        self._transport = None
        self._counters.connections -= 1
        self._cancel_timer()
        self._admission.gone(self)
        self._claim.release()
        for request in self._unanswered:
            if request.waiter is not None:
                request.waiter.cancel()
        self._unanswered.clear()
        self._requests.close()
        self._closed(self)

    def pause_writing(self) -> None:
        self._writable = False
        self._regulate()

    def resume_writing(self) -> None:
        self._writable = True
        self._requests.resume()
        self._parse_soon()

    # The listener's side

    def close(self) -> None:
        """Send what is buffered, then close."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close now; unsent answers are lost."""
        if self._transport is not None:
            self._transport.abort()

    # Frames in

    @property
    def _busy(self) -> bool:
        return self._in_line or self._blocked

    @property
    def _blocked(self) -> bool:
        """Whether a bound is reached. To wait for a turn is no such thing: it is soon over."""
        return not self._writable or self._reader.starved or len(self._unanswered) >= MAX_IN_FLIGHT

    def _parse(self) -> None:
        self._parse_scheduled = False
        if self._in_line:
            return
        if (ends_s := self._turns.slice_ends_s()) is not None:
            self._parse_until(ends_s)
        else:
            self._stand_in_line()
            self._regulate()

    def _stand_in_line(self) -> None:
        self._in_line = True
        self._turns.wait(self._take_turn)

    def _take_turn(self, ends_s: float) -> None:
        self._in_line = False
        if self._transport is not None:
            self._parse_until(ends_s)

    def _parse_until(self, ends_s: float) -> None:
        # It asks the budget again, if the reader gets as far.
        self._reader.starved = False
        try:
            while (
                not self._busy
                and self._transport is not None
                and not self._transport.is_closing()
                and (frame := self._reader.next_frame()) is not None
            ):
                self._serve(frame)
                if self._turns.now_s() >= ends_s:
                    self._stand_in_line()
        except ProtocolError as error:
            self.end(error)
        self._reader.drop_taken()
        self._regulate()

    def _parse_soon(self) -> None:
        """Parse what was left when a bound was reached. The loop does it later, because the caller
        may be in the middle of sending an answer."""
        if not self._parse_scheduled and not self._reading:
            self._parse_scheduled = True
            self._loop.call_soon(self._parse)

    def _regulate(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if self._blocked:
            self._paused_since_check = True
        if self._busy == self._reading:
            try:
                if self._reading:
                    self._transport.pause_reading()
                else:
                    self._transport.resume_reading()
            except RuntimeError as error:
                self._lose_soon(error)
                return
            self._reading = not self._reading

    def _check(self, bytes_before: int, frames_before: int) -> None:
        """End the connection if the frame that is arriving has all but stopped, or if nothing has
        come for long although the SPU would have read it."""
        if (
            self._reader.mid_frame
            and not self._paused_since_check
            and self._frames_in == frames_before
            and self._bytes_in - bytes_before < LEAST_PROGRESS_BYTES
        ):
            self.end(ProtocolError(f"a frame stopped arriving for {CHECK_EVERY_S:g} s"))
            return
        # While too many requests are unanswered, it is the SPU that does not read.
        silent = self._bytes_in == bytes_before and len(self._unanswered) < MAX_IN_FLIGHT
        self._silent_checks = self._silent_checks + 1 if silent else 0
        if self._silent_checks * CHECK_EVERY_S >= IDLE_LIMIT_S:
            self.end(UnreachableError(f"nothing came from the client for {IDLE_LIMIT_S:g} s"))
            return
        self._check_later()

    def _check_later(self) -> None:
        self._paused_since_check = self._blocked
        self._timer = self._loop.call_later(
            CHECK_EVERY_S, self._check, self._bytes_in, self._frames_in
        )

    def _serve(self, frame: memoryview) -> None:
        """Carry out one request. Raises ProtocolError if the stream cannot be understood."""
        self._frames_in += 1
        header, fixed, tail = unpack_frame(frame)
        name = _NAMES.get(header.api, "unknown")
        self._counters.requests[name] = self._counters.requests.get(name, 0) + 1
        if not self._greeted and header.api != Api.HELLO:
            raise ProtocolError("the first frame must be HELLO")
        request = PendingRequest(header.api, header.correlation)
        self._unanswered.add(request)
        try:
            self._requests.dispatch(request, header, fixed, tail)
        except ProtocolError as error:
            self.refuse(request, error)
            self.end(None)
        except RunnelError as error:
            self.refuse(request, error)
            if not self._greeted:
                self.end(None)
        except Exception as error:
            _log.exception("a request failed", api=name, peer=self._peer())
            self.refuse(request, _bug(error))

    # Called by requests and subscriptions

    @property
    def is_writable(self) -> bool:
        return self._writable

    @property
    def is_on_this_host(self) -> bool:
        return self._transport is not None and is_on_one_host(self._transport)

    @property
    def takes_more(self) -> bool:
        """Whether the client reads what is written."""
        transport = self._transport
        return self._writable and transport is not None and not transport.is_closing()

    def push(self, pieces: list[Buffer], error: RunnelError | None) -> None:
        """Write a frame that answers no request; ``error`` is the error that it carries, if any."""
        if error is not None:
            self._count(error)
        self._write(pieces)

    def greeted(self) -> None:
        """HELLO was accepted: other requests may follow. Raises OverloadedError."""
        if self._greeted:
            return
        self._admission.proven(self)
        self._greeted = True
        self._reader.widen(MAX_FRAME_BYTES)
        self._cancel_timer()
        self._check_later()

    def is_pending(self, request: PendingRequest) -> bool:
        return request in self._unanswered

    def drop(self, request: PendingRequest) -> None:
        """Send no answer to it."""
        self._unanswered.discard(request)

    def answer(self, request: PendingRequest, fixed: bytes, *tail: Buffer) -> None:
        if request in self._unanswered:
            self._unanswered.discard(request)
            self._write(pack_frame(request.api, request.correlation, fixed, *tail))

    def refuse(self, request: PendingRequest, error: RunnelError) -> None:
        self._count(error)
        if request in self._unanswered:
            self._unanswered.discard(request)
            self._write(pack_error(request.api, request.correlation, error))

    def refuse_read(self, request: PendingRequest, replica: Replica, error: BaseException) -> None:
        """Refuse a request whose read has failed. Damage makes the replica unfit."""
        match error:
            case RunnelError():
                self.refuse(request, error)
            case Damage() | OSError():
                self.refuse(request, replica.damaged(error))
            case _:
                self.refuse_bug(request, "a read failed", error)

    def refuse_bug(self, request: PendingRequest, what: str, error: BaseException) -> None:
        """Log an unexpected error as ``what``, and answer the request with it."""
        _log.error(what, error=repr(error), peer=self._peer())
        self.refuse(request, _bug(error))

    def end(self, error: RunnelError | None) -> None:
        """Close; if ``error`` is given, first send an error frame that answers no request."""
        if self._transport is None or self._transport.is_closing():
            return
        if error is not None:
            self._count(error)
            self._write(pack_error(0, 0, error))
        self._cancel_timer()
        # A client that reads nothing would keep the connection open for as long as it likes.
        self._timer = self._loop.call_later(_LAST_WORDS_S, self.abort)
        self._transport.close()

    # How

    def _write(self, pieces: list[Buffer]) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        try:
            if len(pieces) == 1:
                transport.write(pieces[0])
            else:
                transport.writelines(pieces)
        except RuntimeError as error:
            self._lose_soon(error)
            return
        self._counters.bytes_out += sum(map(len, pieces))
        self._parse_soon()

    def _lose_soon(self, error: RuntimeError) -> None:
        """uvloop has closed its handle in a moment in which it tells nobody."""
        if self._transport is not None:
            # If it has not, nobody else would.
            with suppress(RuntimeError):
                self._transport.abort()
        self._loop.call_soon(self.connection_lost, error)

    def _count(self, error: RunnelError) -> None:
        name = error.code.name
        self._counters.errors[name] = self._counters.errors.get(name, 0) + 1

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _peer(self) -> str:
        return str(self._transport.get_extra_info("peername")) if self._transport else "gone"


_NAMES: Final = {api.value: api.name.lower() for api in Api}


def _bug(error: BaseException) -> RunnelError:
    return RunnelError(f"the SPU ran into a bug: {error!r}; see its log")
