"""Carries out the requests of one client connection, and answers them.

HELLO agrees on a version of the protocol, LIST_LOG_LINES reads the SPU's own log lines, and every
other request names a partition and goes to its replica. Requests are carried out as they are
parsed, so produce requests of one connection are appended in the order in which they arrived.
Neighbours: `spu.server.connection` parses requests and writes answers; `spu.server.fetches`,
`spu.server.subscriptions` and `spu.server.verifications` carry out requests that take more than one
step; `spu.server.log_lines` answers LIST_LOG_LINES.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from functools import partial
from time import perf_counter
from typing import Final, Protocol

from schemas.daemon.latency import LatencyHistogram
from schemas.daemon.log_ring import LogRing
from schemas.errors import ProtocolError, RunnelError, UnsupportedError
from schemas.ids import PartitionUid
from schemas.wire.batch import Buffer
from schemas.wire.log_line_requests import ListLogLinesRequest
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
)
from schemas.wire.record_requests import (
    Acks,
    FetchRequest,
    ListOffsetsRequest,
    ListOffsetsResponse,
    PositionBy,
    ProduceRequest,
    ProduceResponse,
)
from schemas.wire.subscription_requests import (
    Grant,
    SubscribeRequest,
    SubscriptionEntry,
    unpack_numbers,
)
from spu.replica.replica import Replica
from spu.server.fetches import Fetches
from spu.server.log_lines import list_log_lines
from spu.server.pending_request import PendingRequest, Responder
from spu.server.subscriptions import Subscriptions
from spu.server.verifications import Verifications

_OF_SUBSCRIPTIONS: Final = frozenset({Api.SUBSCRIBE, Api.UNSUBSCRIBE, Api.CREDIT})


class Partitions(Protocol):
    """The part of the replica host that the public port needs."""

    spu_id: int

    @property
    def cluster_uid(self) -> str | None: ...

    @property
    def read_threads(self) -> Executor: ...

    @property
    def client_reads(self) -> Executor: ...

    def replica(self, uid: PartitionUid) -> Replica: ...


class Client(Responder, Protocol):
    """The connection that the requests come over."""

    @property
    def takes_more(self) -> bool: ...

    def push(self, pieces: list[Buffer], error: RunnelError | None) -> None: ...

    def greeted(self) -> None:
        """Its HELLO was accepted. Raises OverloadedError if there are too many clients."""

    def end(self, error: RunnelError | None) -> None:
        """Close it, after an error frame if one is given."""


class Requests:
    """The requests of one connection. Call `resume` when its client reads again, and `close` when
    it is gone; ``verifying`` is held by one verification of the SPU at a time, ``produced`` gets
    the time from each batch to its acknowledgement, and ``logs`` has the SPU's own log lines."""

    def __init__(
        self,
        partitions: Partitions,
        client: Client,
        verifying: asyncio.Lock,
        produced: LatencyHistogram,
        logs: LogRing,
    ) -> None:
        self._partitions = partitions
        self._client = client
        self._produce_latency = produced
        self._loop = asyncio.get_running_loop()
        self._fetches = Fetches(partitions.client_reads, client)
        self._subscriptions = Subscriptions(partitions, client)
        self._verifications = Verifications(partitions, verifying)
        self._logs = logs
        self._tasks: set[asyncio.Task[tuple[VerifyResponse, bytes]]] = set()

    def resume(self) -> None:
        """The client reads again what is written."""
        self._fetches.resume()
        self._subscriptions.resume()

    def close(self) -> None:
        """The client is gone."""
        self._fetches.close()
        self._subscriptions.close()
        self._verifications.close()

    def dispatch(
        self, request: PendingRequest, header: FrameHeader, fixed: memoryview, tail: memoryview
    ) -> None:
        """Carry out a request. Raises RunnelError if it is refused, ProtocolError if the stream
        cannot be understood."""
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
            fetch = FetchRequest.unpack(fixed)
            self._fetches.begin(request, self._partitions.replica(fetch.uid), fetch)
        elif header.api == Api.LIST_OFFSETS:
            self._list_offsets(request, ListOffsetsRequest.unpack(fixed))
        elif header.api == Api.LIST_SEGMENTS:
            self._list_segments(request, ListSegmentsRequest.unpack(fixed))
        elif header.api == Api.VERIFY:
            self._verify(request, VerifyRequest.unpack(fixed))
        elif header.api == Api.LIST_LOG_LINES:
            asked_lines = ListLogLinesRequest.unpack(fixed)
            self._client.answer(request, *list_log_lines(self._logs, asked_lines, tail))
        elif header.api in _OF_SUBSCRIPTIONS and len(tail) > MAX_SUBSCRIPTION_BYTES:
            # As Python objects, these rows take many times their bytes.
            raise ProtocolError(
                f"a tail of {len(tail)} bytes is more than the {MAX_SUBSCRIPTION_BYTES} that a"
                " request about subscriptions may have; name fewer"
            )
        elif header.api == Api.SUBSCRIBE:
            asked = SubscribeRequest.unpack(fixed)
            self._subscribe(request, SubscriptionEntry.unpack_all(tail, asked.entry_bytes))
        elif header.api == Api.CREDIT:
            grants = Grant.unpack_all(tail)
            self._client.drop(request)
            for grant in grants:
                self._subscriptions.grant(grant.number, grant.credit)
        elif header.api == Api.UNSUBSCRIBE:
            ended = unpack_numbers(tail)
            self._client.drop(request)
            self._subscriptions.remove(ended)
        else:
            raise UnsupportedError(f"this SPU knows no request {header.api}; upgrade it")

    def _hello(self, request: PendingRequest, fixed: memoryview) -> None:
        hello = HelloRequest.unpack(fixed)
        if hello.max_version < MIN_PROTOCOL_VERSION or hello.min_version > PROTOCOL_VERSION:
            self._client.refuse(
                request,
                UnsupportedError(
                    f"the client speaks versions {hello.min_version} to {hello.max_version}, this"
                    f" SPU {MIN_PROTOCOL_VERSION} to {PROTOCOL_VERSION}; upgrade the older one"
                ),
            )
            self._client.end(None)
            return
        self._client.greeted()
        response = HelloResponse(
            min(hello.max_version, PROTOCOL_VERSION), self._partitions.spu_id, MAX_FRAME_BYTES
        )
        self._client.answer(request, response.pack(), (self._partitions.cluster_uid or "").encode())

    # Produce and offsets

    def _produce(self, request: PendingRequest, produce: ProduceRequest, batch: memoryview) -> None:
        began_s = perf_counter()
        if produce.acks is Acks.NONE:
            # No answer, whatever happens: the client asked for none.
            self._client.drop(request)
        replica = self._partitions.replica(produce.uid)
        request.waiter = replica.produce(produce, batch, partial(self._produced, request, began_s))

    def _produced(
        self, request: PendingRequest, began_s: float, result: ProduceResponse | RunnelError
    ) -> None:
        if isinstance(result, RunnelError):
            self._client.refuse(request, result)
        else:
            self._client.answer(request, result.pack())
            self._produce_latency.observe(perf_counter() - began_s)

    def _list_offsets(self, request: PendingRequest, asked: ListOffsetsRequest) -> None:
        replica = self._partitions.replica(asked.uid)
        if asked.term:
            replica.offsets.require_held(asked.below, asked.term)
        if asked.position < 0 or asked.by is PositionBy.OFFSET:
            found_now = replica.offsets.list_offsets(asked.position, asked.by)
            self._client.answer(request, found_now.pack())
            return
        request.replica = replica
        found = self._loop.run_in_executor(
            self._partitions.read_threads, replica.offsets.find_offset, asked.position, asked.by
        )
        found.add_done_callback(partial(self._listed, request, replica))

    def _listed(
        self, request: PendingRequest, replica: Replica, found: asyncio.Future[ListOffsetsResponse]
    ) -> None:
        error = None if found.cancelled() else found.exception()
        if error is not None:
            self._client.refuse_read(request, replica, error)
        elif not found.cancelled():
            self._client.answer(request, found.result().pack())

    def _list_segments(self, request: PendingRequest, asked: ListSegmentsRequest) -> None:
        replica = self._partitions.replica(asked.uid)
        response, segments = replica.offsets.list_segments()
        if asked.max_wait_ms and asked.known_version == response.version:
            on_done = partial(self._segments_changed, request, replica)
            request.waiter = replica.when_segments_change(asked.max_wait_ms, on_done)
        else:
            self._client.answer(request, response.pack(), b"".join(one.pack() for one in segments))

    def _segments_changed(
        self, request: PendingRequest, replica: Replica, error: RunnelError | None
    ) -> None:
        request.waiter = None
        try:
            if error is not None:
                raise error
            response, segments = replica.offsets.list_segments()
        except RunnelError as refusal:
            self._client.refuse(request, refusal)
        else:
            self._client.answer(request, response.pack(), b"".join(one.pack() for one in segments))

    # Subscriptions

    def _subscribe(self, request: PendingRequest, entries: list[SubscriptionEntry]) -> None:
        self._subscriptions.check(entries)
        # The answer goes first: the frames of the subscriptions follow it.
        self._client.answer(request, b"")
        self._subscriptions.add(entries)

    # Verification

    def _verify(self, request: PendingRequest, asked: VerifyRequest) -> None:
        task = self._loop.create_task(self._verifications.advance(asked), name="verify")
        # Kept here because the loop itself keeps no task alive.
        self._tasks.add(task)
        task.add_done_callback(partial(self._verified, request))

    def _verified(
        self, request: PendingRequest, task: asyncio.Task[tuple[VerifyResponse, bytes]]
    ) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        match task.exception():
            case None:
                response, problems = task.result()
                self._client.answer(request, response.pack(), problems)
            case RunnelError() as error:
                self._client.refuse(request, error)
            case error:
                self._client.refuse_bug(request, "a verification failed", error)
