"""Both ends of a connection between a client and an SPU, given whatever the other one may say.

Neither has a socket: a transport keeps what is written. Requests and answers are frames whose
lengths are right (`tests.fuzz.targets.frames` has the others), so that what stands in them is
looked at. The SPU's end has a real log behind a replica that always leads.
"""

from __future__ import annotations

import asyncio
import atexit
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, cast
from unittest import mock

from runnel.net.address import Address
from runnel.net.connection import Response, SpuConnection
from runnel.net.push import Subscription
from schemas.daemon.log_ring import LogRing
from schemas.errors import (
    DivergedError,
    ErrorCode,
    NotFoundError,
    NotReadyError,
    OffsetOutOfRangeError,
    RunnelError,
)
from schemas.ids import PartitionUid
from schemas.wire.batch import split_batches, verify
from schemas.wire.frame_budget import FrameBudget
from schemas.wire.log_requests import ListSegmentsResponse, SegmentInfo
from schemas.wire.protocol import (
    PREFIX,
    PROTOCOL_VERSION,
    Api,
    FrameHeader,
    HelloRequest,
    pack_frame,
    unpack_frame,
)
from schemas.wire.record_requests import (
    FetchRequest,
    FetchResponse,
    ListOffsetsResponse,
    PositionBy,
    ProduceRequest,
    ProduceResponse,
)
from schemas.wire.subscription_requests import PushResponse
from spu.net.admission import Admission
from spu.replica.batch_checks import admit
from spu.replica.replica import Found, Replica
from spu.replica.waiters import Callback, Listener, Listeners, Waiter
from spu.server import requests as spu_requests
from spu.server.connection import Connection
from spu.server.counters import ListenerCounters
from spu.server.turns import Turns
from spu.storage.log import PartitionLog
from tests.fuzz import repair
from tests.fuzz.law import Rejected, named_pieces, options
from tests.unit.spu.builders import CLUSTER, NOW_US, TERM, UID, batch_of, open_log

_LEO: Final = 6
#: Where a frame says which version of its api it is.
_VERSION_AT: Final = 5
#: A limit that small inputs reach.
_TAIL_BYTES: Final = 480
#: So many turns of the loop and nothing is under way any more: nothing here waits for anything.
_TURNS: Final = 12
_RUN: Final = asyncio.Runner(loop_factory=asyncio.new_event_loop)
atexit.register(_RUN.close)


class Transport(asyncio.Transport):
    """Keeps what is written, and whether it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closed

    def get_protocol(self) -> asyncio.BaseProtocol:
        return asyncio.Protocol()

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def frames(self) -> Iterator[tuple[FrameHeader, memoryview, memoryview]]:
        """What was written, and nothing is left over."""
        left = memoryview(bytes(self.written))
        while left:
            (length,) = PREFIX.unpack_from(left)
            assert len(left) >= PREFIX.size + length
            yield unpack_frame(left[PREFIX.size : PREFIX.size + length])
            left = left[PREFIX.size + length :]


class _AtOnce(Executor):
    """Does in the same thread what is given to it."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:
            done.set_exception(error)
        return done


@cache
def _log() -> PartitionLog:
    """A log of two segments, some of whose records have transaction ids."""
    directory = TemporaryDirectory(prefix="runnel-fuzz-log-")
    opened = open_log(Path(directory.name))
    atexit.register(directory.cleanup)
    atexit.register(opened.crash)
    for number in range(_LEO):
        if number == 3:
            opened.log.roll(NOW_US)
        ids = (number, number) if number % 2 else None
        opened.append(batch_of(time_us=1_000 + number, ids=ids))
        opened.sync()
    return opened.log


class _Replica:
    """Leads, with what `spu.replica.replica.Replica` has of a log that nothing is appended to.
    Every other read needs the disk."""

    def __init__(self) -> None:
        self.lac = _LEO - 1
        self.offsets = self
        self._listeners = Listeners()
        self._reads = 0

    def produce(
        self,
        request: ProduceRequest,
        batch: memoryview,
        answer: Callable[[ProduceResponse | RunnelError], None],
    ) -> Waiter | None:
        header = admit(batch, 1 << 20, "orders-0")
        assert header.record_count > 0
        answer(ProduceResponse(_LEO, self.lac))
        return None

    def fetch(self, request: FetchRequest, *, wait: bool = False) -> Found:
        self._reads += 1
        if self._reads % 2 and not wait:
            raise BlockingIOError
        if not 0 <= request.offset <= _LEO:
            raise OffsetOutOfRangeError(f"offset {request.offset}")
        if request.term not in (0, TERM):
            raise NotReadyError("another term")
        read = _log().read(request.offset, request.max_bytes, _LEO, wait=True)
        bounds = FetchResponse(0, self.lac)
        enough = len(read.data) >= request.min_bytes
        return Found(bounds, read.data, enough, read.next_offset, read.last_term)

    def when_more(self, request: FetchRequest, found_bytes: int, on_done: Callback) -> Waiter:
        return Waiter(_LEO, on_done)

    def listen(self, on_done: Callback) -> Listener:
        return self._listeners.add(on_done)

    def commit(self) -> None:
        """Tell all who listen."""
        self._listeners.release()

    def list_offsets(self, position: int, by: PositionBy) -> ListOffsetsResponse:
        return ListOffsetsResponse(max(position, 0), 0, self.lac, 1, by)

    def require_held(self, offset: int, term: int) -> None:
        if term != TERM:
            raise DivergedError("the log has never been in that term", diverged_at=0)

    def find_offset(self, position: int, by: PositionBy) -> ListOffsetsResponse:
        log = _log()
        by_id = by is PositionBy.TRANSACTION_ID
        find = log.offset_for_transaction_id if by_id else log.offset_for_timestamp
        return ListOffsetsResponse(find(position, _LEO), 0, self.lac, 1, by)

    def list_segments(self) -> tuple[ListSegmentsResponse, list[SegmentInfo]]:
        return ListSegmentsResponse(1, 0, self.lac), _log().segment_infos()

    def when_segments_change(self, max_wait_ms: int, on_done: Callback) -> Waiter:
        return Waiter(0, on_done)

    def verifiable(self) -> tuple[PartitionLog, int]:
        raise NotReadyError("it is being cut")

    def damaged(self, error: BaseException) -> RunnelError:
        raise AssertionError(f"the log is not damaged: {error!r}")


class _Spu:
    """An SPU of one partition."""

    spu_id = 1
    cluster_uid = CLUSTER
    read_threads = client_reads = _AtOnce()

    def __init__(self) -> None:
        self.only = _Replica()

    def replica(self, uid: PartitionUid) -> Replica:
        if uid != UID:
            raise NotFoundError(f"no replica of {uid}")
        return cast(Replica, self.only)


def served(data: bytes) -> None:
    """Requests of a client, each behind its api, the length of its fixed part and that of its tail.

    Each is answered once at most; no answer tells of a bug; what is pushed is whole batches, each
    once and in order, no more than one beyond what credit was given for; the end leaves nothing.
    """
    choice, data = options(data)
    requests = [_request(code, piece, choice) for code, piece in named_pieces(data)]
    version = PROTOCOL_VERSION + bool(choice & 4)
    with mock.patch.object(spu_requests, "MAX_SUBSCRIPTION_BYTES", _TAIL_BYTES):
        transport = _RUN.run(serve(requests, version, greeted=not choice & 2))
    refused = False
    asked = {number: api for number, (api, _fixed, _tail) in enumerate(requests, 1)}
    pushed: dict[int, int] = {}
    for header, fixed, tail in transport.frames():
        assert header.status != ErrorCode.INTERNAL, bytes(tail)
        if header.api == Api.PUSH:
            _pushed(header, fixed, tail, pushed)
        elif header.correlation:
            assert asked.pop(header.correlation) == header.api
        refused = refused or header.status != ErrorCode.OK
    if refused:
        raise Rejected


def _request(code: int, piece: bytes, choice: int) -> tuple[int, bytes, bytes]:
    length, rest = options(piece)
    fixed, tail = rest[:length], rest[length:]
    return code, fixed, repair.batches(tail) if choice & 1 and code == Api.PRODUCE else tail


async def serve(
    requests: list[tuple[int, bytes, bytes]], version: int, *, greeted: bool
) -> Transport:
    """What an SPU writes to a client that sends these and goes away, with nothing left of it."""
    loop, transport, spu = asyncio.get_running_loop(), Transport(), _Spu()
    troubles: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _loop, trouble: troubles.append(trouble))
    closed: list[Connection] = []
    counters = ListenerCounters()
    admission = Admission("the SPU", max_proven=1, max_unproven=1, max_per_address=1)
    budget = FrameBudget(1 << 20)
    # Without a clock: each input has to come to the same every time.
    turns = Turns(loop.call_soon, lambda: 0.0)
    logs = LogRing(1)
    logs.append({"level": "info"}, "{}")
    verifying = asyncio.Lock()
    end = Connection(spu, counters, admission, budget, turns, closed.append, verifying, logs)
    end.connection_made(transport)
    if greeted:
        _receive(end, pack_frame(Api.HELLO, 0, HelloRequest(1, 1).pack()))
    for number, (api, fixed, tail) in enumerate(requests, 1):
        if not transport.closed:
            head, *rest = pack_frame(api, number, fixed, tail)
            said = bytearray(head)
            said[_VERSION_AT] = version
            if not _receive(end, [said, *rest]):
                # It reads no more until it has room: what would follow waits at the client.
                break
    for turn in range(_TURNS):
        await asyncio.sleep(0)
        if turn == _TURNS // 2:
            spu.only.commit()
    end.connection_lost(None)
    assert (closed, counters.connections, budget.used_bytes) == ([end], 0, 0)
    assert not spu.only._listeners
    assert not troubles, troubles
    return transport


def _receive(to: asyncio.BufferedProtocol, frame: list[bytes | bytearray | memoryview]) -> bool:
    """Whether all of a frame was taken: a connection without room is not given anything."""
    left = b"".join(frame)
    while left:
        room = memoryview(to.get_buffer(-1))
        if not (count := min(len(room), len(left))):
            return False
        room[:count] = left[:count]
        left = left[count:]
        to.buffer_updated(count)
    return True


def _pushed(
    header: FrameHeader, fixed: memoryview, tail: memoryview, pushed: dict[int, int]
) -> None:
    if header.status != ErrorCode.OK:
        pushed.pop(header.correlation, None)
        return
    on_done = PushResponse.unpack(fixed)
    at = pushed.get(header.correlation)
    for batch_header, batch in split_batches(tail):
        verify(batch)
        assert at is None or at == batch_header.base_offset
        at = batch_header.next_offset
    assert at is None or at == on_done.next_offset
    pushed[header.correlation] = on_done.next_offset


#: Calls under way when answers come: their correlations are 1, 2 and 3.
_CALLS: Final = (Api.PRODUCE, Api.FETCH, Api.LIST_OFFSETS)
_RESPONSES: Final = (ProduceResponse, FetchResponse, ListOffsetsResponse)
#: Status, correlation and the length of the fixed part.
_ANSWER: Final = struct.Struct("<HBB")


def answered(data: bytes) -> None:
    """Frames of an SPU to a client with three calls and two subscriptions under way.

    Each call ends once, with an answer or an error of the tree; so does each subscription, whose
    frames come in their order; a connection that was lost has nothing under way.
    """
    _RUN.run(_answer(list(named_pieces(data))))


async def _answer(answers: list[tuple[int, bytes]]) -> None:
    loop, transport = asyncio.get_running_loop(), Transport()
    troubles: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _loop, trouble: troubles.append(trouble))
    connection = SpuConnection(Address("spu", 1))
    connection.connection_made(transport)
    calls = [await connection.start(api, b"", timeout_s=60) for api in _CALLS]
    opened = [connection.subscriptions.open(UID, at, 0, 1 << 20) for at in (0, 5)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for api, piece in answers:
        if transport.closed:
            break
        status, correlation, length = _ANSWER.unpack(
            piece[: _ANSWER.size].ljust(_ANSWER.size, b"\0")
        )
        rest = piece[_ANSWER.size :]
        frame = pack_frame(api, correlation, rest[:length], rest[length:], status=status)
        _receive(connection, frame)
        for one in opened:
            _take(one)
        await asyncio.sleep(0)
    rejected = transport.closed
    assert transport.closed == (not connection.usable)
    connection.abort()
    connection.connection_lost(None)
    for _ in range(_TURNS):
        await asyncio.sleep(0)
    for call, layout in zip(calls, _RESPONSES, strict=True):
        _decode(call, layout)
    for one in opened:
        assert one.ready
        _take(one)
        assert one.ended
        one.close()
    assert not troubles, troubles
    if rejected:
        raise Rejected


def _take(one: Subscription) -> None:
    """Take the frames that are there, or what ended it."""
    with suppress(RunnelError):
        while one.ready:
            frame = one.take()
            assert one.offset == frame.next_offset


def _decode(call: asyncio.Future[Response], layout: Any) -> None:
    with suppress(RunnelError):
        response = layout.unpack(call.result().fixed)
        assert layout.unpack(response.pack()) == response
