"""What a standby does with a request: its mirror answers most reads, the leader the rest.

A request is passed on rather than redirected: browsers and older clients follow no redirection of a
request with a body. It is passed on once, by a header that says so, and the answer to a write comes
when the mirror of the standby shows it, so that a client which reads next finds it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
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
#: A mirror that may have missed so much answers no reads.
STALE_MS: Final = 10_000
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


def check_fresh(mirror: Mirror, route: Route) -> None:
    """Raise NotReadyError when a standby's mirror is too old to answer from."""
    if route.operation in _OF_OBJECTS and (age_ms := mirror.stale_ms) >= STALE_MS:
        raise NotReadyError(
            f"this SC stands by, and has not followed the KV for {age_ms / 1000:.0f} s; ask another"
            " SC",
            retryAfterMs=RETRY_AFTER_MS,
        )


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

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def forward(self, request: web.Request) -> web.StreamResponse:
        """The leader's answer. Raises NotReadyError if nothing was sent to it, else
        DeadlineExceededError when it did not answer."""
        leader = self._leader()
        if leader is None or leader.name == self._me or VIA_HEADER in request.headers:
            raise NotReadyError(
                "no SC leads at the moment; try again in a moment", retryAfterMs=RETRY_AFTER_MS
            )
        if self._session is None:
            limits = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=SILENCE_S)
            self._session = aiohttp.ClientSession(timeout=limits, auto_decompress=False)
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
        try:
            async with self._session.request(
                request.method, url, headers=headers, data=data, allow_redirects=False
            ) as answer:
                if answer.content_type == "text/event-stream":
                    response = _head(answer)
                    await response.prepare(request)
                    async for chunk in answer.content.iter_any():
                        await response.write(chunk)
                    return response
                body = await answer.read()
                if request.method not in ("GET", "HEAD"):
                    await self._until_shown(body)
                return web.Response(status=answer.status, headers=_kept(answer), body=body)
        except aiohttp.ClientConnectorError as error:
            raise NotReadyError(
                f"the SC that leads, {leader.name}, cannot be reached from this one: {error};"
                " another one leads in a moment if it is away",
                retryAfterMs=RETRY_AFTER_MS,
            ) from error
        except (aiohttp.ClientError, TimeoutError) as error:
            if response is not None:
                # The reader of a stream begins again where it was.
                return response
            raise DeadlineExceededError(
                f"the SC that leads, {leader.name}, did not answer ({str(error) or 'timed out'}):"
                " whether a write was done is not known; read, then decide"
            ) from error

    async def _until_shown(self, body: bytes) -> None:
        """Wait until this SC shows what the leader has written, if the answer says that."""
        try:
            answer: Any = json.loads(body)
            revision = int(answer["metadata"]["resourceVersion"])
        except (ValueError, KeyError, TypeError, RecursionError):
            return
        with suppress(RunnelError):
            await self._mirror.feed.applied(revision)


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
