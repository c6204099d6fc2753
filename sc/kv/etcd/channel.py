"""Calls to the members of one etcd: connections, failover, deadlines, authentication.

Moves bytes; `wire` knows what they mean. Every endpoint has a channel of its own, and one of them
is current. If a member fails or does not answer, the next becomes current, so that one dead,
frozen or cut-off member costs one attempt. (One channel over all addresses would also do, but it
accepts no names, checks a certificate against the wrong one, and stays with a frozen member until
its pings go unanswered.) A member without a leader refuses at once, because every call says
``hasleader``.

Pings find a connection that died in silence: 10 s idle, 5 s to answer. ``ping_timeout`` is set as
well: gRPC's keepalive timeout alone does not end a connection to a frozen process.

A call about a lease waits less for one member than other calls do, because its holder gives up
after 1 s.

A call is repeated, at most until its time is up, when nothing was applied, or when repeating does
no harm (`Repeat`). A write whose outcome is unknown ends as DeadlineExceededError, never as
anything that sounds certain.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final

import grpc
import grpc.aio

from sc.kv.etcd import wire
from sc.kv.etcd.failures import CallFailed, Failure, Verdict, failure_of
from sc.kv.etcd.options import LEASE_ATTEMPT_TIMEOUT_MS, EtcdOptions, Tls
from schemas.backoff import ceiling_ms
from schemas.errors import (
    CompactedError,
    DeadlineExceededError,
    RunnelError,
    UnreachableError,
)

_CHANNEL_OPTIONS: Final[tuple[tuple[str, int], ...]] = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    # Also how long one try to connect may take.
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # Stores opened side by side do not share connections or their failures.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)

_BACKOFF_MS = 20.0
_MAX_BACKOFF_MS = 500.0

_MAX_RENEWALS = 2
"""How often one call asks for a new token before it gives up."""

_NEED_LEADER = ("hasleader", "true")

_TROUBLE = (
    grpc.aio.AioRpcError,
    grpc.aio.UsageError,
    asyncio.InvalidStateError,
    asyncio.CancelledError,
)
"""The exceptions that gRPC raises from a call."""

_Attempt = Callable[["Endpoint", float, grpc.aio.Metadata], Awaitable[bytes]]


class Repeat(enum.Enum):
    """Whether to repeat an attempt whose outcome is unknown."""

    READ = "repeat it, it changes nothing"
    HARMLESS = "repeat it, it takes effect once at most; refusals after it prove nothing"
    NEVER = "give up"


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer. ``doubtful`` when an earlier attempt of the same call may have been applied."""

    payload: bytes
    doubtful: bool


class Endpoint:
    """One member: its channel, and the long-lived streams that run over it."""

    def __init__(self, name: str, tls: Tls | None) -> None:
        self.name = name
        target = f"dns:///{name}"
        options: list[tuple[str, int | str]] = list(_CHANNEL_OPTIONS)
        if tls is None:
            self._channel = grpc.aio.insecure_channel(target, options=options)
        else:
            if tls.server_name is not None:
                options.append(("grpc.ssl_target_name_override", tls.server_name))
            credentials = grpc.ssl_channel_credentials(tls.ca, tls.key, tls.cert)
            self._channel = grpc.aio.secure_channel(target, credentials, options=options)
        self._unary: dict[str, grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]] = {}
        self._open: set[Stream] = set()

    async def unary(
        self, method: str, request: bytes, timeout_s: float, metadata: grpc.aio.Metadata
    ) -> bytes:
        """Send a request and return the answer's bytes. Raises CallFailed."""
        call = self._unary.get(method)
        if call is None:
            call = self._unary[method] = self._channel.unary_unary(method)
        try:
            return await call(request, timeout=timeout_s, metadata=metadata)
        except _TROUBLE as error:
            raise _call_failed(self.name, error) from error

    async def exchange(
        self, method: str, request: bytes, timeout_s: float, metadata: grpc.aio.Metadata
    ) -> bytes:
        """One request and one answer over a stream of their own. Raises CallFailed.

        A stream kept open for the next request could die unseen between the two.
        """
        stream = self.stream(method, metadata, timeout_s)
        try:
            await stream.write(request)
            return await stream.read()
        finally:
            stream.cancel()

    def stream(
        self, method: str, metadata: grpc.aio.Metadata, timeout_s: float | None = None
    ) -> Stream:
        """Open a stream in both directions. Raises CallFailed."""
        try:
            call: grpc.aio.StreamStreamCall[bytes, bytes] = self._channel.stream_stream(method)(
                timeout=timeout_s, metadata=metadata
            )
        except _TROUBLE as error:
            raise _call_failed(self.name, error) from error
        stream = Stream(self.name, call, self._open.discard)
        self._open.add(stream)
        return stream

    def cut_streams(self) -> None:
        """End every stream; their readers raise CallFailed."""
        for stream in list(self._open):
            stream.cancel()

    async def close(self) -> None:
        """End everything; calls under way raise CallFailed."""
        self.cut_streams()
        await self._channel.close()


class Stream:
    """A stream of bytes in both directions. One reader at a time."""

    def __init__(
        self,
        endpoint: str,
        call: grpc.aio.StreamStreamCall[bytes, bytes],
        on_cancel: Callable[[Stream], None],
    ) -> None:
        self._endpoint = endpoint
        self._call = call
        self._on_cancel = on_cancel

    async def write(self, request: bytes) -> None:
        """Raises CallFailed, also when the stream has ended."""
        try:
            await self._call.write(request)
        except _TROUBLE as error:
            raise _call_failed(self._endpoint, error) from error

    async def read(self) -> bytes:
        """The next message. Raises CallFailed, also when the stream has ended. Cancelling the wait
        ends the stream."""
        try:
            payload = await self._call.read()
        except _TROUBLE as error:
            raise _call_failed(self._endpoint, error) from error
        if isinstance(payload, bytes):
            return payload
        raise CallFailed(failure_of(self._endpoint, "UNAVAILABLE", "the stream ended"))

    def cancel(self) -> None:
        """End the stream. May be called again."""
        self._on_cancel(self)
        self._call.cancel()


class Members:
    """The members of one etcd. Methods raise RunnelError as `sc.kv.interface` says."""

    def __init__(self, options: EtcdOptions) -> None:
        self._options = options
        self._endpoints = [Endpoint(name, options.tls) for name in options.endpoints]
        self._current = 0
        #: Members that did not answer a call about a lease in time, and still have streams.
        self._left: set[Endpoint] = set()
        self._anonymous = grpc.aio.Metadata(_NEED_LEADER)
        self._token: str | None = None
        self._renewing = asyncio.Lock()
        self._closed = False

    @property
    def attempt_timeout_s(self) -> float:
        return self._options.attempt_timeout_ms / 1000

    @property
    def request_timeout_s(self) -> float:
        return self._options.request_timeout_ms / 1000

    async def call(
        self, method: str, request: bytes, repeat: Repeat, *, for_lease: bool = False
    ) -> Reply:
        """Send a request until it is answered. ``for_lease``: each attempt has little time, because
        a lease waits for it."""
        return await self._repeated(
            lambda endpoint, timeout_s, metadata: endpoint.unary(
                method, request, timeout_s, metadata
            ),
            repeat,
            for_lease,
        )

    async def exchange(self, method: str, request: bytes) -> bytes:
        """The same for what etcd offers as a stream only, which is the renewal of leases; repeated
        as if it only read."""
        reply = await self._repeated(
            lambda endpoint, timeout_s, metadata: endpoint.exchange(
                method, request, timeout_s, metadata
            ),
            Repeat.READ,
            True,
        )
        return reply.payload

    async def open_stream(self, method: str) -> tuple[Endpoint, Stream]:
        """One attempt to open a stream to the current member. Raises CallFailed."""
        self.check_open()
        metadata = await self._metadata(self._endpoints[self._current], self.attempt_timeout_s)
        # Not the one that gave a token, if all turned from it meanwhile.
        endpoint = self._endpoints[self._current]
        return endpoint, endpoint.stream(method, metadata)

    def turn_from(self, endpoint: Endpoint, failure: Failure, *, cut_later: bool = False) -> None:
        """Use the next member from now on, unless that has happened already. Streams move along:
        one that stayed behind could fall silent on a member that nobody asks any more.
        ``cut_later``: they do so when another member answers; until then, all may be slow."""
        if failure.verdict is Verdict.CUT_OFF or len(self._endpoints) == 1:
            return
        turns = self._endpoints[self._current] is endpoint
        if turns:
            self._current = (self._current + 1) % len(self._endpoints)
        if cut_later:
            self._left.add(endpoint)
        elif turns or failure.verdict is Verdict.NO_ANSWER:
            endpoint.cut_streams()

    @property
    def token(self) -> str | None:
        """The token that identifies the caller to etcd; None if none was needed yet."""
        return self._token

    def forget_token(self, token: str | None) -> None:
        """Authenticate anew before the next call, unless that has happened since."""
        if self._token == token:
            self._token = None

    def check_open(self) -> None:
        """Raises UnreachableError after `close`."""
        if self._closed:
            raise closed_error()

    async def close(self) -> None:
        """End all calls and streams. May be called again."""
        self._closed = True
        await asyncio.gather(*[endpoint.close() for endpoint in self._endpoints])

    def _answered(self, endpoint: Endpoint) -> None:
        if self._left and endpoint is self._endpoints[self._current]:
            for left in self._left - {endpoint}:
                left.cut_streams()
            self._left.clear()

    async def _repeated(self, attempt: _Attempt, repeat: Repeat, for_lease: bool) -> Reply:
        attempt_s = self.attempt_timeout_s
        if for_lease:
            attempt_s = min(attempt_s, LEASE_ATTEMPT_TIMEOUT_MS / 1000)
        clock = asyncio.get_running_loop().time
        until = clock() + self.request_timeout_s
        doubtful = False
        failures = renewals = 0
        metadata = self._anonymous
        while True:
            self.check_open()
            endpoint = self._endpoints[self._current]
            left_s = until - clock()
            # A call that cannot be repeated waits for as long as etcd itself may need to answer.
            timeout_s = left_s if repeat is Repeat.NEVER else min(left_s, attempt_s)
            try:
                metadata = await self._metadata(endpoint, min(left_s, attempt_s))
                payload = await attempt(endpoint, timeout_s, metadata)
                self._answered(endpoint)
                return Reply(payload, doubtful)
            except CallFailed as failed:
                failure = failed.failure
            self.check_open()
            match failure.verdict:
                case Verdict.EXPIRED if renewals < _MAX_RENEWALS:
                    renewals += 1
                    token = metadata.get("token")
                    self.forget_token(str(token) if token is not None else None)
                    continue
                case Verdict.EXPIRED | Verdict.FINAL | Verdict.COMPACTED:
                    error = _final_error(failure)
                    if doubtful and repeat is Repeat.HARMLESS:
                        raise _unanswered(failure, repeat) from error
                    raise error
                case Verdict.UNKNOWN | Verdict.NO_ANSWER | Verdict.CUT_OFF:
                    doubtful = True
            silent = failure.verdict is Verdict.NO_ANSWER
            self.turn_from(endpoint, failure, cut_later=for_lease and silent)
            if doubtful and repeat is Repeat.NEVER:
                raise _unanswered(failure, repeat)
            pause_s = (
                round_pause_s(failures // len(self._endpoints)) if self._tried_all(failures) else 0
            )
            failures += 1
            if clock() + pause_s >= until:
                if doubtful:
                    raise _unanswered(failure, repeat)
                raise failure.error(failure.message)
            await asyncio.sleep(pause_s)

    def _tried_all(self, failures: int) -> bool:
        return failures % len(self._endpoints) == len(self._endpoints) - 1

    async def _metadata(self, endpoint: Endpoint, timeout_s: float) -> grpc.aio.Metadata:
        if self._options.user is None:
            return self._anonymous
        token = self._token
        if token is None:
            try:
                async with asyncio.timeout(timeout_s):
                    token = await self._new_token(endpoint, timeout_s)
            except TimeoutError:
                text = f"etcd {endpoint.name}: no token in time"
                raise CallFailed(Failure(Verdict.NOT_APPLIED, text)) from None
        return grpc.aio.Metadata(_NEED_LEADER, ("token", token))

    async def _new_token(self, endpoint: Endpoint, timeout_s: float) -> str:
        # Checking a password costs etcd some 100 ms: a second call waits for the first.
        async with self._renewing:
            if self._token is None:
                user, password = self._options.user or "", self._options.password
                request = wire.authenticate_request(user, password)
                try:
                    payload = await endpoint.unary(
                        wire.AUTHENTICATE, request, timeout_s, self._anonymous
                    )
                except CallFailed as failed:
                    raise CallFailed(_before_the_call(failed.failure)) from failed
                self._token = wire.parse_authenticate(payload)
            return self._token


def closed_error() -> UnreachableError:
    """The error of every call after `KV.close`."""
    return UnreachableError("the KV store is closed")


def round_pause_s(rounds: int) -> float:
    """How long to wait after every member failed ``rounds`` + 1 times.

    Without jitter: few processes talk to one etcd.
    """
    return ceiling_ms(rounds, _BACKOFF_MS, _MAX_BACKOFF_MS) / 1000


def _before_the_call(failure: Failure) -> Failure:
    """A failure to authenticate says nothing bad about the call that was to follow."""
    if failure.verdict in (Verdict.UNKNOWN, Verdict.NO_ANSWER, Verdict.CUT_OFF):
        return replace(failure, verdict=Verdict.NOT_APPLIED)
    return failure


def _final_error(failure: Failure) -> RunnelError:
    if failure.verdict is Verdict.COMPACTED:
        return CompactedError(failure.message, first_available=0)
    return failure.error(failure.message)


def _unanswered(failure: Failure, repeat: Repeat) -> DeadlineExceededError:
    what = "" if repeat is Repeat.READ else ", the outcome is unknown; read again, then decide"
    return DeadlineExceededError(f"no answer in time{what}: {failure.message}")


def _call_failed(endpoint: str, error: BaseException) -> CallFailed:
    """The meaning of a gRPC failure. Raises ``error`` itself when it is the task's cancellation."""
    match error:
        case grpc.aio.AioRpcError():
            return CallFailed(failure_of(endpoint, error.code().name, error.details() or ""))
        case asyncio.CancelledError():
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise error
            # Not the task but the call was cancelled: the stream was cut, or the channel closed.
            text = f"etcd {endpoint}: the call was cut off"
            return CallFailed(Failure(Verdict.CUT_OFF, text))
        case _:
            # A write to a stream that has ended, or a call on a closed channel.
            return CallFailed(failure_of(endpoint, "UNAVAILABLE", "the stream has ended"))
