"""One client connection: frames in, answers out, in whatever order they come.

The first frame is HELLO. Requests are carried out as they are parsed, so produce requests of
one connection are appended in the order they arrived; answers go out as soon as they are known.
Two bounds: beyond so many unanswered requests the socket is not read; and no fetch is carried out
while the client does not take what was sent, nor a second one from the disk beside another, so
a slow reader costs one answer, not all of them. When the client goes away, so does everything
that waited for it. What is pushed to it is `spu.server.subscriptions`'s business.

A request that is refused is answered and the connection lives; bytes that are not a frame are
answered and end it, since nobody knows where the next frame begins.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Protocol, cast

from schemas.daemon.logs import get_logger
from schemas.errors import ProtocolError, RunnelError, UnsupportedError
from schemas.ids import PartitionUid
from schemas.wire.batch import Buffer
from schemas.wire.log_requests import ListSegmentsRequest, VerifyRequest, VerifyResponse
from schemas.wire.protocol import (
    MAX_FRAME_BYTES,
    MAX_SUBSCRIPTION_BYTES,
    MIN_PROTOCOL_VERSION,
    PROTOCOL_VERSION,
    Api,
    FrameHeader,
    HelloRequest,
    HelloResponse,
    pack_error,
    pack_frame,
    unpack_frame,
)
from schemas.wire.record_requests import (
    Acks,
    FetchRequest,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ProduceRequest,
    ProduceResponse,
)
from schemas.wire.subscription_requests import (
    Grant,
    SubscribeRequest,
    SubscriptionEntry,
    unpack_numbers,
)
from spu.net.framing import FrameReader
from spu.replica.replica import Found, Replica
from spu.replica.waiters import Waiter
from spu.server.subscriptions import Subscriptions
from spu.server.verifications import Verifications
from spu.storage.segment import Damage

_log = get_logger("spu.server.connection")

MAX_IN_FLIGHT: Final = 256
HELLO_TIMEOUT_S: Final = 10.0
_WRITE_HIGH_BYTES: Final = 4 << 20


@dataclass(slots=True)
class ListenerCounters:
    """What went through the listener since it started; a /metrics endpoint reads it."""

    bytes_in: int = 0
    bytes_out: int = 0
    connections: int = 0
    connections_total: int = 0
    requests: dict[str, int] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)


class Partitions(Protocol):
    """What a connection needs of the replica host."""

    spu_id: int

    @property
    def cluster_uid(self) -> str | None: ...

    @property
    def read_threads(self) -> Executor: ...

    @property
    def client_reads(self) -> Executor: ...

    def replica(self, uid: PartitionUid) -> Replica: ...


class _Request:
    """A request that is not answered yet."""

    __slots__ = ("api", "correlation", "fetch", "replica", "waiter")

    def __init__(
        self,
        api: int,
        correlation: int,
        replica: Replica | None = None,
        fetch: FetchRequest | None = None,
    ) -> None:
        self.api = api
        self.correlation = correlation
        self.replica = replica
        self.fetch = fetch
        self.waiter: Waiter | None = None


class Connection(asyncio.BufferedProtocol):
    """The protocol of one connection. ``closed`` is called once, when it is gone; ``verifying``
    is held by one verification of the SPU at a time."""

    def __init__(
        self,
        partitions: Partitions,
        counters: ListenerCounters,
        closed: Callable[[Connection], None],
        verifying: asyncio.Lock,
        refusal: RunnelError | None = None,
    ) -> None:
        self._partitions = partitions
        self._counters = counters
        self._closed = closed
        self._refusal = refusal
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._greeted = False
        self._hello_timer: asyncio.TimerHandle | None = None
        self._unanswered: set[_Request] = set()
        self._reading = True
        self._writable = True
        self._parse_scheduled = False
        self._disk_busy = False
        # Fetches that wait for the client to take what was sent, or for the disk.
        self._held_back: deque[tuple[_Request, bool]] = deque()
        self._subscriptions = Subscriptions(partitions, self)
        self._verifications = Verifications(partitions, verifying)
        self._tasks: set[asyncio.Task[tuple[VerifyResponse, bytes]]] = set()

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not checked by isinstance: uvloop's transports only behave like asyncio's.
        self._transport = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(high=_WRITE_HIGH_BYTES)
        self._counters.connections += 1
        self._counters.connections_total += 1
        if self._refusal is not None:
            self._end(self._refusal)
            return
        self._hello_timer = self._loop.call_later(
            HELLO_TIMEOUT_S, self._end, ProtocolError("no HELLO came; this port speaks Runnel")
        )

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._counters.bytes_in += nbytes
        self._reader.received(nbytes)
        self._parse()

    def eof_received(self) -> bool:
        # A client that will not read an answer has no use for one: close.
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._counters.connections -= 1
        self._cancel_hello_timer()
        for request in self._unanswered:
            if request.waiter is not None:
                request.waiter.cancel()
        self._unanswered.clear()
        self._held_back.clear()
        self._subscriptions.close()
        self._verifications.close()
        self._closed(self)

    def pause_writing(self) -> None:
        self._writable = False
        self._regulate()

    def resume_writing(self) -> None:
        self._writable = True
        self._take_up_fetches()
        self._subscriptions.resume()
        self._parse_soon()

    # The listener's side

    def close(self) -> None:
        """Send what is buffered, then close."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close now; what was not sent is lost."""
        if self._transport is not None:
            self._transport.abort()

    # Frames in

    @property
    def _busy(self) -> bool:
        return not self._writable or len(self._unanswered) >= MAX_IN_FLIGHT

    def _parse(self) -> None:
        self._parse_scheduled = False
        try:
            while (
                not self._busy
                and self._transport is not None
                and not self._transport.is_closing()
                and (frame := self._reader.next_frame()) is not None
            ):
                self._serve(frame)
        except ProtocolError as error:
            self._end(error)
        self._regulate()

    def _parse_soon(self) -> None:
        """Go on with frames that were left when a bound was reached; from the loop, as an
        answer may be on its way out of the middle of something."""
        if not self._parse_scheduled and not self._reading:
            self._parse_scheduled = True
            self._loop.call_soon(self._parse)

    def _regulate(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if self._busy == self._reading:
            if self._reading:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()
            self._reading = not self._reading

    def _serve(self, frame: memoryview) -> None:
        """Carry out one request. Raises ProtocolError where the stream makes no sense."""
        header, fixed, tail = unpack_frame(frame)
        name = _NAMES.get(header.api, "unknown")
        self._counters.requests[name] = self._counters.requests.get(name, 0) + 1
        if not self._greeted and header.api != Api.HELLO:
            raise ProtocolError("the first frame is HELLO")
        request = _Request(header.api, header.correlation)
        self._unanswered.add(request)
        try:
            self._dispatch(request, header, fixed, tail)
        except ProtocolError as error:
            self._refuse(request, error)
            self._end(None)
        except RunnelError as error:
            self._refuse(request, error)
        except Exception as error:
            _log.exception("a request failed", api=name, peer=self._peer())
            self._refuse(request, RunnelError(f"the SPU met a bug: {error!r}; see its log"))

    def _dispatch(
        self, request: _Request, header: FrameHeader, fixed: memoryview, tail: memoryview
    ) -> None:
        if header.api == Api.HELLO:
            self._hello(request, fixed)
        elif header.version != PROTOCOL_VERSION:
            raise UnsupportedError(
                f"version {header.version} of requests is unknown; this SPU speaks"
                f" {PROTOCOL_VERSION}"
            )
        elif header.api == Api.PRODUCE:
            self._produce(request, ProduceRequest.unpack(fixed), tail)
        elif header.api == Api.FETCH:
            request.fetch = FetchRequest.unpack(fixed)
            request.replica = self._partitions.replica(request.fetch.uid)
            self._try_fetch(request, final=False)
        elif header.api == Api.LIST_OFFSETS:
            self._list_offsets(request, ListOffsetsRequest.unpack(fixed))
        elif header.api == Api.LIST_SEGMENTS:
            self._list_segments(request, ListSegmentsRequest.unpack(fixed))
        elif header.api == Api.VERIFY:
            self._verify(request, VerifyRequest.unpack(fixed))
        elif header.api in _OF_SUBSCRIPTIONS and len(tail) > MAX_SUBSCRIPTION_BYTES:
            # As objects these rows take many times their bytes.
            raise ProtocolError(
                f"a tail of {len(tail)} bytes is more than the {MAX_SUBSCRIPTION_BYTES} that a"
                " request about subscriptions has; name fewer"
            )
        elif header.api == Api.SUBSCRIBE:
            asked = SubscribeRequest.unpack(fixed)
            self._subscribe(request, SubscriptionEntry.unpack_all(tail, asked.entry_bytes))
        elif header.api == Api.CREDIT:
            grants = Grant.unpack_all(tail)
            self._unanswered.discard(request)
            for grant in grants:
                self._subscriptions.grant(grant.number, grant.credit)
        elif header.api == Api.UNSUBSCRIBE:
            ended = unpack_numbers(tail)
            self._unanswered.discard(request)
            self._subscriptions.remove(ended)
        else:
            raise UnsupportedError(f"this SPU knows no request {header.api}; upgrade it")

    def _hello(self, request: _Request, fixed: memoryview) -> None:
        hello = HelloRequest.unpack(fixed)
        if hello.max_version < MIN_PROTOCOL_VERSION or hello.min_version > PROTOCOL_VERSION:
            self._refuse(
                request,
                UnsupportedError(
                    f"the client speaks versions {hello.min_version} to {hello.max_version}, this"
                    f" SPU {MIN_PROTOCOL_VERSION} to {PROTOCOL_VERSION}; upgrade the older one"
                ),
            )
            self._end(None)
            return
        self._greeted = True
        self._cancel_hello_timer()
        response = HelloResponse(
            min(hello.max_version, PROTOCOL_VERSION), self._partitions.spu_id, MAX_FRAME_BYTES
        )
        self._answer(request, response.pack(), (self._partitions.cluster_uid or "").encode())

    # Produce and offsets

    def _produce(self, request: _Request, produce: ProduceRequest, batch: memoryview) -> None:
        if produce.acks is Acks.NONE:
            # No answer, whatever happens: the client chose not to know.
            self._unanswered.discard(request)
        replica = self._partitions.replica(produce.uid)
        request.waiter = replica.produce(produce, batch, partial(self._produced, request))

    def _produced(self, request: _Request, result: ProduceResponse | RunnelError) -> None:
        if isinstance(result, RunnelError):
            self._refuse(request, result)
        else:
            self._answer(request, result.pack())

    def _list_offsets(self, request: _Request, asked: ListOffsetsRequest) -> None:
        replica = self._partitions.replica(asked.uid)
        if asked.position < 0:
            found_now = replica.list_offsets(asked.position)
            self._answer(request, replace(found_now, by=asked.by).pack())
            return
        request.replica = replica
        found = self._loop.run_in_executor(
            self._partitions.read_threads, replica.find_offset, asked.position, asked.by
        )
        found.add_done_callback(partial(self._listed, request, replica))

    def _listed(
        self, request: _Request, replica: Replica, found: asyncio.Future[ListOffsetsResponse]
    ) -> None:
        error = None if found.cancelled() else found.exception()
        if error is not None:
            self._read_failed(request, replica, error)
        elif not found.cancelled():
            self._answer(request, found.result().pack())

    def _list_segments(self, request: _Request, asked: ListSegmentsRequest) -> None:
        replica = self._partitions.replica(asked.uid)
        response, segments = replica.list_segments()
        if asked.max_wait_ms and asked.known_version == response.version:
            told = partial(self._segments_changed, request, replica)
            request.waiter = replica.when_segments_change(asked.max_wait_ms, told)
        else:
            self._answer(request, response.pack(), b"".join(one.pack() for one in segments))

    def _segments_changed(
        self, request: _Request, replica: Replica, error: RunnelError | None
    ) -> None:
        request.waiter = None
        try:
            if error is not None:
                raise error
            response, segments = replica.list_segments()
        except RunnelError as refusal:
            self._refuse(request, refusal)
        else:
            self._answer(request, response.pack(), b"".join(one.pack() for one in segments))

    # Subscriptions

    def _subscribe(self, request: _Request, entries: list[SubscriptionEntry]) -> None:
        self._subscriptions.check(entries)
        # First: a client that gets no answer to this is not to wait for what it asked for.
        self._answer(request, b"")
        self._subscriptions.add(entries)

    # Verification

    def _verify(self, request: _Request, asked: VerifyRequest) -> None:
        task = self._loop.create_task(self._verifications.advance(asked), name="verify")
        # The loop itself keeps no task alive.
        self._tasks.add(task)
        task.add_done_callback(partial(self._verified, request))

    def _verified(
        self, request: _Request, task: asyncio.Task[tuple[VerifyResponse, bytes]]
    ) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        match task.exception():
            case None:
                response, problems = task.result()
                self._answer(request, response.pack(), problems)
            case RunnelError() as error:
                self._refuse(request, error)
            case error:
                _log.error("a verification failed", error=repr(error), peer=self._peer())
                self._refuse(request, RunnelError(f"the SPU met a bug: {error!r}; see its log"))

    # Fetch

    def _try_fetch(self, request: _Request, *, final: bool) -> None:
        """Answer a fetch if there is enough; with ``final`` with whatever there is."""
        replica, fetch = request.replica, request.fetch
        if replica is None or fetch is None or request not in self._unanswered:
            return
        if not self._writable:
            self._held_back.append((request, final))
            return
        try:
            found = replica.fetch(fetch)
        except BlockingIOError:
            self._fetch_in_thread(request, replica, fetch, final=final)
        except (RunnelError, Damage, OSError) as error:
            self._read_failed(request, replica, error)
        else:
            self._deliver(request, replica, found, final=final)

    def _fetch_in_thread(
        self, request: _Request, replica: Replica, fetch: FetchRequest, *, final: bool
    ) -> None:
        if self._disk_busy:
            self._held_back.append((request, final))
            return
        self._disk_busy = True
        future = self._loop.run_in_executor(
            self._partitions.client_reads, partial(replica.fetch, fetch, wait=True)
        )

        def done(future: asyncio.Future[Found]) -> None:
            self._disk_busy = False
            error = None if future.cancelled() else future.exception()
            if error is not None:
                self._read_failed(request, replica, error)
            elif not future.cancelled():
                self._deliver(request, replica, future.result(), final=final)
            self._take_up_fetches()

        future.add_done_callback(done)

    def _take_up_fetches(self) -> None:
        """Try again what was held back, each once; what still cannot go is held back again."""
        for _ in range(len(self._held_back)):
            if not self._writable:
                return
            request, final = self._held_back.popleft()
            self._try_fetch(request, final=final)

    def _deliver(self, request: _Request, replica: Replica, found: Found, *, final: bool) -> None:
        fetch = request.fetch
        if request not in self._unanswered or fetch is None:
            return
        if found.enough or final or fetch.max_wait_ms == 0:
            self._answer(request, found.response.pack(), found.data)
            return
        if found.response.lac != replica.lac:
            # More was committed while a thread was reading.
            self._try_fetch(request, final=False)
            return
        request.waiter = replica.when_more(
            fetch, len(found.data), partial(self._fetch_woken, request)
        )

    def _fetch_woken(self, request: _Request, error: RunnelError | None) -> None:
        request.waiter = None
        if error is not None:
            self._refuse(request, error)
        else:
            self._try_fetch(request, final=True)

    def _read_failed(self, request: _Request, replica: Replica, error: BaseException) -> None:
        match error:
            case RunnelError():
                self._refuse(request, error)
            case Damage() | OSError():
                self._refuse(request, replica.damaged(error))
            case _:
                _log.error("a read failed", error=repr(error), peer=self._peer())
                self._refuse(request, RunnelError(f"the SPU met a bug: {error!r}; see its log"))

    # Pushes and answers out

    @property
    def takes_more(self) -> bool:
        """Does the client take what is written?"""
        transport = self._transport
        return self._writable and transport is not None and not transport.is_closing()

    def push(self, pieces: list[Buffer], error: RunnelError | None) -> None:
        """Write a frame that no request asked for; ``error`` is what it says, if it is one."""
        if error is not None:
            self._count(error)
        self._write(pieces)

    def _answer(self, request: _Request, fixed: bytes, *tail: Buffer) -> None:
        if request in self._unanswered:
            self._unanswered.discard(request)
            self._write(pack_frame(request.api, request.correlation, fixed, *tail))

    def _refuse(self, request: _Request, error: RunnelError) -> None:
        self._count(error)
        if request in self._unanswered:
            self._unanswered.discard(request)
            self._write(pack_error(request.api, request.correlation, error))

    def _end(self, error: RunnelError | None) -> None:
        """Close, after an error frame that answers nothing in particular, if one is given."""
        if self._transport is None or self._transport.is_closing():
            return
        if error is not None:
            self._count(error)
            self._write(pack_error(0, 0, error))
        self._transport.close()

    def _write(self, pieces: list[Buffer]) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if len(pieces) == 1:
            transport.write(pieces[0])
        else:
            transport.writelines(pieces)
        self._counters.bytes_out += sum(map(len, pieces))
        self._parse_soon()

    def _count(self, error: RunnelError) -> None:
        name = error.code.name
        self._counters.errors[name] = self._counters.errors.get(name, 0) + 1

    def _cancel_hello_timer(self) -> None:
        if self._hello_timer is not None:
            self._hello_timer.cancel()
            self._hello_timer = None

    def _peer(self) -> str:
        return str(self._transport.get_extra_info("peername")) if self._transport else "gone"


_NAMES: Final = {api.value: api.name.lower() for api in Api}
_OF_SUBSCRIPTIONS: Final = frozenset({Api.SUBSCRIBE, Api.UNSUBSCRIBE, Api.CREDIT})
