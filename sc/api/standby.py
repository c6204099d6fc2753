"""What a standby does with a request: its mirror answers most reads, the leader the rest.

A request is passed on rather than redirected: browsers and older clients follow no redirection of a
request with a body. It is passed on once, by a header that says so, and the answer to a write comes
when the mirror of the standby shows it, so that a client which reads next finds it.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from typing import Any, Final

import aiohttp
from aiohttp import hdrs, web
from yarl import URL

from sc.api.requests import BY_HEADER, Query, read_by
from sc.api.routes import STATISTICS, Operation, Route
from sc.mirror import Mirror
from schemas.control.controllers import ControllerEntry
from schemas.errors import DeadlineExceededError, NotReadyError, RunnelError
from schemas.objects.pipeline import Pipeline

VIA_HEADER: Final = "X-Runnel-Via"
CONNECT_S: Final = 1.0
#: Longer than the leader takes for anything but a stream, which sends something more often.
SILENCE_S: Final = 40.0
#: What clients are told to wait before they ask again while nobody leads.
RETRY_AFTER_MS: Final = 200
#: So many answers may be waited for at once: an SC ends the oldest of 100 connections of one
#: address that wait.
MOST_ASKING: Final = 90
#: Methods of requests that change nothing.
_SAFE: Final = frozenset({"GET", "HEAD"})
#: A mirror that may have missed so much answers no reads, if that of another SC may.
STALE_MS: Final = 10_000
#: How long it is believed that another SC has no fresher one.
BELIEVED_MS: Final = 5_000
#: How long another SC may take before its answer begins: the kernel of a stopped process accepts
#: connections all the same.
FRESHER_S: Final = 1.5
#: How often it is looked whether the SC that was asked still leads.
LOOK_S: Final = 0.2
_BY_THE_MIRROR: Final = frozenset(
    {
        *(Operation.HEALTH, Operation.METRICS, Operation.SCHEMAS, Operation.OPENAPI),
        *(Operation.ASSIGNMENTS, Operation.LOGS, Operation.EVENTS, Operation.CONTROLLERS),
        *(Operation.LIST, Operation.GET, Operation.HISTORY, Operation.WATCH),
    }
)
#: Those that show what objects are; the others need no mirror.
_OF_OBJECTS: Final = frozenset(
    {Operation.ASSIGNMENTS, Operation.LIST, Operation.GET, Operation.WATCH}
)
#: Headers of one connection.
_HOP_BY_HOP: Final = frozenset(
    {
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te"),
        *("trailer", "transfer-encoding", "upgrade", "host", "content-length"),
        *("content-encoding", "accept-encoding", "server", "date"),
    }
)


def is_answered_here(route: Route, query: Query) -> bool:
    """Whether a standby answers a request itself. What runners of pipelines and SPUs told is known
    to the leader alone."""
    if route.operation not in _BY_THE_MIRROR or route.cls is Pipeline:
        return False
    if route.operation is not Operation.WATCH:
        return True
    kinds = (query.text("kinds") or "").split(",")
    return STATISTICS not in kinds and Pipeline.PLURAL not in kinds


def is_too_old(mirror: Mirror, route: Route) -> bool:
    """Whether what a standby's mirror shows may be too old to answer from."""
    return route.operation in _OF_OBJECTS and mirror.stale_ms >= STALE_MS


class _UnknownOutcomeError(aiohttp.ClientError):
    """The SC that was asked broke the connection: it may have done what it was asked for."""


async def _once(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Send a request that changes something once: aiohttp sends DELETE and PUT again when the
    connection breaks, and would then say that nothing was sent if nobody listens any more."""
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        if request.method in _SAFE:
            raise
        raise _UnknownOutcomeError(str(error)) from error


class LeaderProxy:
    """Passes requests on to the SC that leads. ``leader`` gives it as of now, ``me`` is the name of
    this SC."""

    def __init__(
        self, mirror: Mirror, me: str, leader: Callable[[], ControllerEntry | None]
    ) -> None:
        self._mirror = mirror
        self._me = me
        self._leader = leader
        self._session: aiohttp.ClientSession | None = None
        #: Instances of SCs that had nothing fresher, or did not answer, and until when that is
        #: believed.
        self._not_fresher: dict[str, int] = {}
        #: How many answers are waited for; not those of streams that have begun.
        self._asking = 0

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def forward(self, request: web.Request) -> web.StreamResponse:
        """The leader's answer. Raises NotReadyError if nothing was sent to it; when it did not
        answer, also for a read, and else DeadlineExceededError."""
        leader = self._leader()
        if VIA_HEADER in request.headers:
            raise NotReadyError(
                f"SC {self._me}, which {request.headers[VIA_HEADER]} passed this on to, does not"
                " lead any more; try again in a moment",
                retryAfterMs=RETRY_AFTER_MS,
            )
        if leader is None or leader.name == self._me:
            raise self._no_leader()
        return await self._pass_on(request, leader)

    def _no_leader(self) -> NotReadyError:
        health = self._mirror.kv_health
        if health.trouble is None:
            said = "no SC leads at the moment; try again in a moment"
            return NotReadyError(said, retryAfterMs=RETRY_AFTER_MS)
        return NotReadyError(
            f"no SC leads at the moment, as far as SC {self._me} knows: {health.trouble}",
            retryAfterMs=RETRY_AFTER_MS,
            askAnother=True,
            kvAwayMs=health.away_ms,
        )

    async def fresher(self, request: web.Request) -> web.StreamResponse | None:
        """The answer of another SC whose mirror is not too old; None if there is none. Raises
        NotReadyError for a request that another SC has passed on."""
        if VIA_HEADER in request.headers:
            raise NotReadyError(
                f"SC {self._me} stands by, and has not followed the KV for"
                f" {self._mirror.stale_ms / 1000:.0f} s",
                retryAfterMs=RETRY_AFTER_MS,
            )
        clock_ms = self._mirror.clock_ms
        for other in [*self._mirror.controllers.values()]:
            if other.name == self._me or self._not_fresher.get(other.instance, 0) > clock_ms():
                continue
            with suppress(RunnelError):
                if self._asking >= MOST_ASKING:
                    # It is not asked, so nothing is known of it.
                    continue
                found = await self._pass_on(request, other, FRESHER_S)
                if found.prepared or found.status < web.HTTPServiceUnavailable.status_code:
                    return found
            now_ms = clock_ms()
            believed = {sc: until for sc, until in self._not_fresher.items() if until > now_ms}
            self._not_fresher = believed | {other.instance: now_ms + BELIEVED_MS}
        return None

    async def known_to_leader(self, request: web.Request) -> web.StreamResponse | None:
        """The leader's answer to a question about what this mirror lacks: it may be new. None if
        nobody leads, or it does not answer, or the request was passed on already."""
        leader = self._leader()
        if VIA_HEADER in request.headers or leader is None or leader.name == self._me:
            return None
        with suppress(RunnelError):
            return await self._pass_on(request, leader)
        return None

    async def _pass_on(
        self, request: web.Request, leader: ControllerEntry, begins_within_s: float | None = None
    ) -> web.StreamResponse:
        if self._session is None:
            limits = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=SILENCE_S)
            self._session = aiohttp.ClientSession(
                # `_asking` is the bound, which streams that have begun do not count for.
                connector=aiohttp.TCPConnector(limit=0),
                timeout=limits,
                auto_decompress=False,
                middlewares=(_once,),
            )
        if self._asking >= MOST_ASKING:
            # What waited here would be sent when nobody waits for its answer any more.
            raise NotReadyError(
                f"SC {self._me} waits for {MOST_ASKING} answers of {leader.name}; ask again",
                retryAfterMs=RETRY_AFTER_MS,
                askAnother=True,
            )
        headers = {
            name: value
            for name, value in request.headers.items()
            if name.lower() not in _HOP_BY_HOP
        }
        headers[VIA_HEADER] = self._me
        headers[BY_HEADER] = read_by(request.headers.get(BY_HEADER), request.remote)
        data = request.content if request.body_exists else None
        url = URL(f"http://{leader.public}{request.raw_path}", encoded=True)
        response: web.StreamResponse | None = None
        asking = ExitStack()
        self._asking += 1
        asking.callback(self._answered)
        try:
            async with await self._while_it_runs(
                leader,
                self._session.request(
                    request.method, url, headers=headers, data=data, allow_redirects=False
                ),
                begins_within_s,
            ) as answer:
                if answer.content_type == "text/event-stream":
                    asking.close()
                    response = _head(answer)
                    await response.prepare(request)
                    async for chunk in answer.content.iter_any():
                        await response.write(chunk)
                    return response
                body = await answer.read()
                if request.method not in _SAFE:
                    await self._until_shown(body)
                return web.Response(status=answer.status, headers=_kept(answer), body=body)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise NotReadyError(
                f"SC {self._me} cannot reach the SC that leads, {leader.name}:"
                f" {_why_no_connection(error)}; another one leads in a moment if it is away",
                retryAfterMs=RETRY_AFTER_MS,
                askAnother=True,
            ) from error
        except (aiohttp.ClientError, TimeoutError) as error:
            if response is not None:
                # The reader of a stream begins again where it was.
                return response
            why = str(error) or "timed out"
            said = (
                f"SC {leader.name}, which SC {self._me} passed this on to, did not answer ({why})"
            )
            if request.method in _SAFE:
                raise NotReadyError(
                    f"{said}; another one leads in a moment if it is away",
                    retryAfterMs=RETRY_AFTER_MS,
                    askAnother=True,
                ) from error
            raise DeadlineExceededError(
                f"{said}: whether a write was done is not known; read, then decide"
            ) from error
        finally:
            asking.close()

    def _answered(self) -> None:
        self._asking -= 1

    async def _while_it_runs(
        self,
        asked: ControllerEntry,
        request: Awaitable[aiohttp.ClientResponse],
        begins_within_s: float | None,
    ) -> aiohttp.ClientResponse:
        """The answer to a request. Raises TimeoutError when it does not begin in time, and when the
        SC that was asked leads no more, although it did: it may stand still for long."""
        clock = asyncio.get_running_loop().time
        until = math.inf if begins_within_s is None else clock() + begins_within_s
        led = self._is_leader(asked)
        task: asyncio.Future[aiohttp.ClientResponse] = asyncio.ensure_future(request)
        try:
            while not task.done():
                await asyncio.wait([task], timeout=LOOK_S)
                if task.done():
                    break
                if led and not self._is_leader(asked):
                    raise TimeoutError("it leads no more")
                if clock() >= until:
                    raise TimeoutError(f"nothing within {begins_within_s:g} s")
            return task.result()
        finally:
            task.cancel()

    def _is_leader(self, sc: ControllerEntry) -> bool:
        found = self._leader()
        return found is not None and found.instance == sc.instance

    async def _until_shown(self, body: bytes) -> None:
        """Wait until this SC shows what the leader has written, if the answer says that."""
        try:
            answer: Any = json.loads(body)
            revision = int(answer["metadata"]["resourceVersion"])
        except (ValueError, KeyError, TypeError, RecursionError):
            return
        with suppress(RunnelError):
            await self._mirror.feed.applied(revision)


def _why_no_connection(error: Exception) -> str:
    if not isinstance(error, aiohttp.ClientConnectorError):
        return f"no connection within {CONNECT_S:g} s"
    cause = error.os_error
    if cause.errno is None or isinstance(cause, socket.gaierror):
        return cause.strerror or str(cause)
    # asyncio's own words name the address alone.
    return os.strerror(cause.errno).lower()


def _kept(answer: aiohttp.ClientResponse) -> list[tuple[str, str]]:
    return [
        (name, value) for name, value in answer.headers.items() if name.lower() not in _HOP_BY_HOP
    ]


def _head(answer: aiohttp.ClientResponse) -> web.StreamResponse:
    response = web.StreamResponse(status=answer.status)
    for name, value in _kept(answer):
        if name != hdrs.CONTENT_TYPE:
            response.headers.add(name, value)
    response.headers[hdrs.CONTENT_TYPE] = answer.headers.get(hdrs.CONTENT_TYPE, "text/plain")
    return response
