"""One open session, the same on both sides: requests, replies, heartbeats.

The reader never waits for the handler, so heartbeats and replies flow while a request is being
handled. Requests of the peer are handled one after the other, in order. The queue is bounded: a
peer that sends requests faster than they are handled is disconnected.

The end that closes a session says why by a code, and `Session.end` tells how it ended, because a
peer that is gone and one that will be back are not the same to the SC.

A request that has begun is finished, even when the session ends meanwhile: half of its changes on
a disk would be worse than all or none. `on_close` is called at once, but `run` returns only after
the handler, so that a peer that connects again never has two handlers running. Requests that are
still queued are dropped; the peer sends them again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import aiohttp
from pydantic import ValidationError

from connection_manager.heartbeat import HeartbeatMonitor, Lateness
from schemas.causality import caused_by, current_cause
from schemas.control.messages import Envelope, Heartbeat, Message, Reply, decode_envelope, misread
from schemas.control.session_end import CloseCode, SessionEnd, end_by
from schemas.daemon.logs import get_logger
from schemas.errors import (
    DeadlineExceededError,
    ErrorCode,
    RunnelError,
    UnreachableError,
    error_from,
)
from schemas.wire.keepalive import listen, pace

#: Of an SC to an SPU: an assignment of all partitions.
MAX_MESSAGE_BYTES = 256 << 20
#: Of an SPU of an older version to the SC: it says everything it holds in one hello or report, here
#: of 40,000 replicas. Others send at most `MAX_PART_BYTES`.
MAX_OLDER_SPU_MESSAGE_BYTES = 16 << 20
#: Before an SPU has said who it is, and proven it.
MAX_IDENTITY_BYTES = 4 << 10
MAX_QUEUED_REQUESTS = 1024
REQUEST_TIMEOUT_S = 30.0
#: A line that carries less is of no use: a message has the time that it needs on this one.
SLOWEST_BYTES_S = 4_000
CLOSE_TIMEOUT_S = 1.0
#: How long the reader may take to find out why a connection broke while something was sent.
LAST_WORDS_S = 0.05

log = get_logger(__name__)

Handler = Callable[[Message], Awaitable[None]]


class WebSocket(Protocol):
    """The part of an aiohttp WebSocket, on either end, that a session needs."""

    async def send_str(self, data: str) -> None: ...
    async def receive(self) -> aiohttp.WSMessage: ...
    async def close(self, *, code: int = CloseCode.NORMAL) -> Any: ...
    def get_extra_info(self, name: str, default: Any = None) -> Any: ...


class SessionEndedError(Exception):
    """Why a session ended, and how."""

    def __init__(self, reason: str, end: SessionEnd) -> None:
        super().__init__(reason)
        self.end = end


class Session:
    """An open, welcomed connection. `run` it; it ends when the connection does."""

    def __init__(
        self,
        socket: WebSocket,
        handler: Handler,
        *,
        peer: str,
        heartbeat_ms: int,
        misses: int,
        protocol: str | None = None,
        lateness: Lateness | None = None,
    ) -> None:
        self.peer = peer
        #: The WebSocket subprotocol that both ends know; None with an older version.
        self.protocol = protocol
        self._socket = socket
        self._handler = handler
        self._heartbeat_s = heartbeat_ms / 1000
        self._monitor = HeartbeatMonitor(misses, heartbeat_ms, lateness)
        self._inbox: asyncio.Queue[Envelope] = asyncio.Queue(MAX_QUEUED_REQUESTS)
        self._replies: dict[int, asyncio.Future[Reply]] = {}
        self._next_id = 1
        self._closed: str | None = None
        self._code = CloseCode.NORMAL
        self._over = asyncio.Event()
        self._handling: asyncio.Task[dict[str, Any] | None] | None = None
        #: How the session ended; means something only once it has.
        self.end = SessionEnd.CLOSED
        #: Called once with the reason, as soon as the session has ended.
        self.on_close: Callable[[str], None] = lambda _reason: None

    @property
    def closed(self) -> bool:
        return self._closed is not None

    @property
    def silent_ticks(self) -> int:
        """For how many heartbeats the peer has said nothing."""
        return self._monitor.silent_ticks

    @property
    def quiet(self) -> bool:
        """Whether the peer has missed almost as many heartbeats as it may."""
        return self._monitor.quiet

    async def run(self) -> str:
        """Serve the session until it ends, and give the reason.

        Waits without limit for the request that is being handled, even when cancelled itself.
        """
        with contextlib.suppress(OSError):
            # It may have ended already.
            listen(self._socket)
        tasks = [
            asyncio.create_task(self._read(), name=f"{self.peer} reader"),
            asyncio.create_task(self._work(), name=f"{self.peer} worker"),
            asyncio.create_task(self._beat(), name=f"{self.peer} heartbeat"),
            asyncio.create_task(self._listen(), name=f"{self.peer} monitor"),
            asyncio.create_task(self._over.wait(), name=f"{self.peer} end"),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                error = task.exception()
                if isinstance(error, SessionEndedError):
                    self.close(str(error), error.end)
                elif error is not None:
                    log.error("session failed", peer=self.peer, exc_info=error)
                    self.close(f"internal error: {error}")
        finally:
            if self._closed is None:
                self._code = CloseCode.GOODBYE
            self.close("cancelled")
            for task in tasks:
                task.cancel()
            try:
                await asyncio.gather(*tasks, return_exceptions=True)
                # Not wait_for: before Python 3.12 it can swallow a cancellation.
                with contextlib.suppress(Exception):
                    async with asyncio.timeout(CLOSE_TIMEOUT_S):
                        await self._socket.close(code=self._code)
            finally:
                await self._finish_handling()
        return self._closed or "closed"

    def close(self, reason: str, end: SessionEnd = SessionEnd.CLOSED) -> None:
        """End the session; requests that wait for a reply fail."""
        if self._closed is not None:
            return
        self._closed, self.end = reason, end
        if end is SessionEnd.SILENT:
            self._code = CloseCode.SILENT
        self._over.set()
        for future in self._replies.values():
            if not future.done():
                future.set_exception(UnreachableError(f"session with {self.peer} ended: {reason}"))
        self._replies.clear()
        self.on_close(reason)

    async def request(self, body: Message, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        """Send a request and wait until the peer has carried it out.

        Raises the peer's error; UnreachableError when the session ends first and
        DeadlineExceededError after ``timeout_s``, and what the slowest line needs for this message:
        both leave the outcome unknown.
        """
        if self._closed is not None:
            raise UnreachableError(f"session with {self.peer} ended: {self._closed}")
        request_id = self._next_id
        self._next_id += 1
        text = Envelope(id=request_id, cause=current_cause(), body=body).encode()
        limit_s = timeout_s + len(text) / SLOWEST_BYTES_S
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._replies[request_id] = future
        try:
            async with asyncio.timeout(limit_s):
                await self._send(text)
                reply = await future
        except TimeoutError:
            raise DeadlineExceededError(
                f"{self.peer} did not answer {body.type} within {limit_s:.3g} s"
            ) from None
        finally:
            self._replies.pop(request_id, None)
            if future.done() and not future.cancelled():
                future.exception()
        if reply.error is not None:
            code = reply.error.get("code", "INTERNAL")
            raise error_from(code, str(reply.error.get("message")), reply.error.get("details"))

    async def notify(self, body: Message) -> None:
        """Send a message that gets no reply. Raises UnreachableError when the session has ended;
        whether the message arrives is unknown."""
        if self._closed is not None:
            raise UnreachableError(f"session with {self.peer} ended: {self._closed}")
        await self._send(Envelope(cause=current_cause(), body=body).encode())

    async def _send(self, text: str) -> None:
        try:
            await self._socket.send_str(text)
        except (ConnectionError, RuntimeError, aiohttp.ClientError) as error:
            # The peer may have said why it closed, and the reader has not seen that yet.
            loop = asyncio.get_running_loop()
            loop.call_later(LAST_WORDS_S, self.close, f"send failed: {error}", SessionEnd.LOST)
            raise UnreachableError(f"session with {self.peer} ended: {error}") from error

    async def _read(self) -> None:
        while True:
            message = await self._socket.receive()
            if message.type is not aiohttp.WSMsgType.TEXT:
                closed = message.type is aiohttp.WSMsgType.CLOSE
                raise SessionEndedError(
                    f"connection closed by {self.peer}",
                    end_by(message.data) if closed else SessionEnd.LOST,
                )
            self._monitor.heard()
            try:
                envelope = decode_envelope(message.data)
            except ValidationError as error:
                raise SessionEndedError(
                    f"{self.peer} sent a message that does not parse: {misread(error)}",
                    SessionEnd.CLOSED,
                ) from error
            if envelope.reply_to is not None:
                future = self._replies.get(envelope.reply_to)
                if future is not None and not future.done() and isinstance(envelope.body, Reply):
                    future.set_result(envelope.body)
            elif not isinstance(envelope.body, Heartbeat):
                try:
                    self._inbox.put_nowait(envelope)
                except asyncio.QueueFull:
                    raise SessionEndedError(
                        f"{self.peer} sends requests faster than they are handled",
                        SessionEnd.CLOSED,
                    ) from None

    async def _work(self) -> None:
        while True:
            envelope = await self._inbox.get()
            if self._closed is not None:
                return
            with caused_by(envelope.cause):
                self._handling = asyncio.create_task(
                    self._handle(envelope.body), name=f"{self.peer} handler"
                )
                # When the session ends, waiting and replying stop; the handler runs on.
                error = await asyncio.shield(self._handling)
                if envelope.id is not None:
                    with contextlib.suppress(UnreachableError):
                        reply = Reply(error=error)
                        answer = Envelope(reply_to=envelope.id, cause=envelope.cause, body=reply)
                        await self._send(answer.encode())

    async def _handle(self, body: Message) -> dict[str, Any] | None:
        """Handle a request; gives the error to reply with, or None."""
        try:
            await self._handler(body)
        except RunnelError as failure:
            return failure.to_json()
        except Exception as failure:
            log.error("request failed", peer=self.peer, exc_info=failure)
            return {"code": ErrorCode.INTERNAL.name, "message": repr(failure)}
        return None

    async def _finish_handling(self) -> None:
        """Wait for the request that is being handled. Cancellations are raised afterwards."""
        cancelled: asyncio.CancelledError | None = None
        while self._handling is not None and not self._handling.done():
            try:
                await asyncio.wait([self._handling])
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled

    async def _beat(self) -> None:
        while True:
            try:
                await self._send(Envelope(cause="heartbeat", body=Heartbeat()).encode())
            except UnreachableError:
                await self._over.wait()
            await asyncio.sleep(self._heartbeat_s)

    async def _listen(self) -> None:
        """Separate from `_beat`: sending to a dead host with full buffers waits for ever."""
        while True:
            await asyncio.sleep(self._heartbeat_s)
            if not self._monitor.tick(pace(self._socket)):
                raise SessionEndedError(
                    f"{self.peer} missed {self._monitor.allowed} heartbeats", SessionEnd.SILENT
                )
