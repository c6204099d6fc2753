"""What the routes of streams answer, besides those that all kinds have."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from aiohttp import web

from sc.api.requests import BY_HEADER, Query, read_by, read_object_name
from sc.api.responses import Answer
from sc.api.routes import MAX_EPOCHS, Operation, Route
from sc.api.streams import StreamService, scale_of, truncation_of
from sc.api.subscribers import SubscriberService
from sc.controllers.streams.records import Request, RequestKind
from sc.dispatch.records import wall_ms
from schemas.control.streams import Published, ScaleRequest, SealRequest, TruncateRequest
from schemas.errors import InvalidRequestError, NotFoundError
from schemas.model import Model
from schemas.objects.manifest.validation import parse_model
from schemas.objects.quantities import check_name
from schemas.objects.stream import Stream
from schemas.streams.cuts import StreamCut
from schemas.streams.epochs import parse_segment

T = TypeVar("T")
Parsed = Callable[[web.Request, Callable[[Any], Any]], Awaitable[Any]]
"""Gives what a function makes of the JSON in a request's body."""


class StreamAnswers:
    """Answers of one server."""

    def __init__(
        self, streams: StreamService, subscribers: SubscriberService, parsed: Parsed
    ) -> None:
        self._streams = streams
        self._subscribers = subscribers
        self._parsed = parsed

    def by_operation(self) -> dict[Operation, Answer]:
        """What answers each operation that streams have besides those of all kinds."""
        return {
            Operation.SCALE: self._scale,
            Operation.SEAL: self._seal,
            Operation.TRUNCATE_STREAM: self._truncate,
            Operation.HEAD: self._head,
            Operation.REQUEST: self._request,
            Operation.EPOCHS: self._events,
            Operation.EPOCH: self._epoch,
            Operation.SEGMENT: self._segment,
            Operation.SUBSCRIBERS: self._all_subscribers,
            Operation.PUBLISH: self._publish,
            Operation.UNSUBSCRIBE: self._unsubscribe,
        }

    async def _scale(self, request: web.Request, route: Route, query: Query) -> web.Response:
        body = await self._parsed(request, partial(parse_model, ScaleRequest))
        asked = scale_of(body, _by(request), wall_ms())
        found = await self._streams.submit(_name(request), asked, dry_run=query.flag("dryRun"))
        return _json(found, route.success)

    async def _seal(self, request: web.Request, route: Route, query: Query) -> web.Response:
        body = await self._parsed(request, partial(parse_model, SealRequest))
        asked = Request(
            id=body.id or uuid.uuid4().hex,
            kind=RequestKind.SEAL,
            by=_by(request),
            at_ms=wall_ms(),
        )
        found = await self._streams.submit(_name(request), asked, dry_run=query.flag("dryRun"))
        return _json(found, route.success)

    async def _truncate(self, request: web.Request, route: Route, query: Query) -> web.Response:
        body = await self._parsed(request, partial(parse_model, TruncateRequest))
        asked = truncation_of(body, _by(request), wall_ms())
        found = await self._streams.submit(_name(request), asked, dry_run=query.flag("dryRun"))
        return _json(found, route.success)

    async def _head(self, request: web.Request, _route: Route, _query: Query) -> web.Response:
        return _json(await self._streams.head(_name(request)))

    async def _request(self, request: web.Request, _route: Route, _query: Query) -> web.Response:
        return _json(await self._streams.request(_name(request), request.match_info["request"]))

    async def _events(self, request: web.Request, _route: Route, query: Query) -> web.Response:
        limit = query.number("limit") or MAX_EPOCHS
        return _json(await self._streams.events(_name(request), limit))

    async def _epoch(self, request: web.Request, _route: Route, _query: Query) -> web.Response:
        text = request.match_info["epoch"]
        if text == "current":
            return _json(await self._streams.epoch(_name(request)))
        if not (text.isascii() and text.isdecimal() and len(text) <= 10):
            raise NotFoundError(f"{text!r} is no epoch; write its number, or current")
        return _json(await self._streams.epoch(_name(request), int(text)))

    async def _segment(self, request: web.Request, _route: Route, _query: Query) -> web.Response:
        segment = parse_segment(request.match_info["segment"])
        return _json(await self._streams.segment(_name(request), segment))

    async def _all_subscribers(
        self, request: web.Request, _route: Route, _query: Query
    ) -> web.Response:
        return _json(await self._subscribers.all(_name(request)))

    async def _publish(self, request: web.Request, _route: Route, _query: Query) -> web.Response:
        group = _group(request)
        body = await self._parsed(request, partial(parse_model, Published))
        cut = StreamCut.parse(body.cut)
        return _json(await self._subscribers.publish(_name(request), group, cut, wall_ms()))

    async def _unsubscribe(
        self, request: web.Request, _route: Route, _query: Query
    ) -> web.Response:
        return _json(await self._subscribers.remove(_name(request), _group(request)))


def _group(request: web.Request) -> str:
    try:
        return check_name(request.match_info["group"])
    except ValueError as error:
        raise InvalidRequestError(f"name of a reader group: {error}") from error


def _name(request: web.Request) -> str:
    return read_object_name(Stream, request.match_info)


def _by(request: web.Request) -> str:
    return read_by(request.headers.get(BY_HEADER), request.remote)


def _json(answer: Model, status: int = 200) -> web.Response:
    return web.json_response(answer.to_json(), status=status)
