"""What the routes of objects answer: those that all kinds have, and those of single kinds but
streams."""

from __future__ import annotations

from functools import partial
from typing import Any

from aiohttp import hdrs, web

from sc.api.admission_warnings import WARNING_HEADER, warning_header, warnings_of
from sc.api.answers import SpuSecret
from sc.api.bodies import Bodies
from sc.api.feeds import Feeds
from sc.api.leading import Leading
from sc.api.listing import render
from sc.api.merge_patch import MEDIA_TYPE, patched
from sc.api.older_clients import is_older
from sc.api.reads import ObjectReads
from sc.api.requests import (
    BY_HEADER,
    LAST_EVENT_HEADER,
    Query,
    WriteOptions,
    read_by,
    read_last_event,
    read_object_name,
    read_write_options,
)
from sc.api.responses import Answer, as_json, as_text, shown
from sc.api.routes import DEFAULT_HISTORY, Operation, Route
from sc.api.selectors import Selection
from sc.mirror import Mirror
from schemas.errors import InvalidRequestError
from schemas.objects.manifest.validation import parse_model, parse_object
from schemas.objects.metadata import Object
from schemas.objects.partition import ArchivedRange, Partition, Truncation, UncleanElection
from schemas.objects.pipeline import Pipeline, PipelineReport
from schemas.objects.spu import Spu


class ObjectAnswers:
    """Answers of one server."""

    def __init__(
        self, mirror: Mirror, reads: ObjectReads, feeds: Feeds, bodies: Bodies, leading: Leading
    ) -> None:
        self._mirror = mirror
        self._reads = reads
        self._feeds = feeds
        self._bodies = bodies
        self._leading = leading

    def by_operation(self) -> dict[Operation, Answer]:
        """What answers each operation on objects."""
        return {
            Operation.LIST: self._list,
            Operation.CREATE: self._create,
            Operation.GET: self._get,
            Operation.REPLACE: self._replace,
            Operation.PATCH: self._patch,
            Operation.DELETE: self._delete,
            Operation.HISTORY: self._history,
            Operation.ELECT: self._elect,
            Operation.TRUNCATE: self._truncate,
            Operation.ARCHIVED: self._archived,
            Operation.REPLICAS: self._replicas,
            Operation.SYSTEM_TOPIC: self._system_topic,
            Operation.ISSUE: self._issue_secret,
            Operation.REPORT: self._report,
        }

    async def _list(self, request: web.Request, route: Route, query: Query) -> web.StreamResponse:
        cls = _kind(route)
        selectors = (query.text("labelSelector") or "", query.text("fieldSelector") or "")
        selection = Selection.parse(*selectors)
        limit, token, after = (
            query.number("limit"),
            query.text("continue"),
            query.number("resourceVersion"),
        )
        if query.flag("watch"):
            if limit is not None or token is not None:
                raise InvalidRequestError("limit and continue: a watch has no pages")
            # A browser that reconnects repeats the URL, and says in the header how far it got.
            last = read_last_event(request.headers.get(LAST_EVENT_HEADER))
            after = after if last is None else last
            return await self._feeds.objects(request, (cls,), selection, after)
        if after is not None:
            raise InvalidRequestError("resourceVersion: allowed with watch=true only")
        if limit is None:
            if token is not None:
                raise InvalidRequestError("continue: repeat the limit of the previous page")
            page = self._reads.everything(cls, selection)
        else:
            page = await self._reads.page(cls, selectors, limit, token)
        return as_text(await render(page, older=is_older(request.headers)))

    async def _get(self, request: web.Request, route: Route, _query: Query) -> web.Response:
        cls = _kind(route)
        return shown(request, self._reads.get(cls, _name(request, cls)))

    async def _history(self, request: web.Request, route: Route, query: Query) -> web.Response:
        cls = _kind(route)
        limit = query.number("limit") or DEFAULT_HISTORY
        found = await self._reads.history(cls, _name(request, cls), limit)
        return as_json(found.model_dump(mode="json", by_alias=True))

    async def _create(self, request: web.Request, route: Route, query: Query) -> web.Response:
        options = _options(request, query)
        obj = await self._bodies.parsed(request, partial(_object_of, _kind(route)))
        done = await self._leading.as_leader.objects.create(obj, options)
        return self._written(request, done, route)

    async def _replace(self, request: web.Request, route: Route, query: Query) -> web.Response:
        options = _options(request, query)
        cls = _kind(route)
        name = _name(request, cls)
        obj = await self._bodies.parsed(request, partial(_object_of, cls))
        if obj.name != name:
            raise InvalidRequestError(f"metadata.name is {obj.name!r}, the address says {name!r}")
        before = self._mirror.store.get(cls, name)
        done = await self._leading.as_leader.objects.replace(obj, options)
        return self._written(request, done, route, before)

    async def _patch(self, request: web.Request, route: Route, query: Query) -> web.Response:
        options = _options(request, query)
        cls = _kind(route)
        name = _name(request, cls)
        before = self._mirror.store.get(cls, name)
        async with self._bodies.received(request, MEDIA_TYPE) as body:
            patch = await body.parse(lambda data: data)

            async def change(old: Object) -> Object:
                return await body.run(lambda: parse_object(patched(old, patch)))

            done = await self._leading.as_leader.objects.patch(cls, name, change, options)
            return self._written(request, done, route, before)

    async def _delete(self, request: web.Request, route: Route, query: Query) -> web.Response:
        options = _options(request, query)
        cls = _kind(route)
        gone = await self._leading.as_leader.objects.delete(
            cls,
            _name(request, cls),
            options,
            wanted=query.number("resourceVersion"),
            force=query.flag("force"),
        )
        return shown(request, gone, route.success)

    def _written(
        self, request: web.Request, obj: Object, route: Route, before: Object | None = None
    ) -> web.Response:
        """The answer to a user's write, with warnings; ``before``: the object as it was known."""
        response = shown(request, obj, route.success)
        for text in warnings_of(obj, self._mirror.store, before):
            response.headers.add(WARNING_HEADER, warning_header(text))
        return response

    async def _replicas(self, request: web.Request, _route: Route, _query: Query) -> web.Response:
        found = self._leading.as_leader.objects.replicas(_name(request, Partition))
        return as_json(found.model_dump(mode="json", by_alias=True))

    async def _elect(self, request: web.Request, route: Route, query: Query) -> web.Response:
        options = _options(request, query)
        name = _name(request, Partition)
        election = await self._bodies.parsed(request, partial(parse_model, UncleanElection))
        done = await self._leading.as_leader.objects.elect(name, election, options)
        return shown(request, done, route.success)

    async def _truncate(self, request: web.Request, route: Route, query: Query) -> web.Response:
        options = _options(request, query)
        name = _name(request, Partition)
        truncation = await self._bodies.parsed(request, partial(parse_model, Truncation))
        done = await self._leading.as_leader.objects.truncate(name, truncation, options)
        return shown(request, done, route.success)

    async def _archived(self, request: web.Request, route: Route, query: Query) -> web.Response:
        options = _options(request, query)
        name = _name(request, Partition)
        archived = await self._bodies.parsed(request, partial(parse_model, ArchivedRange))
        done = await self._leading.as_leader.objects.archived(name, archived, options)
        return shown(request, done, route.success)

    async def _system_topic(self, request: web.Request, route: Route, query: Query) -> web.Response:
        options = _options(request, query)
        found = await self._leading.as_leader.objects.system_topic(
            request.match_info["name"], options
        )
        return shown(request, found, route.success)

    async def _issue_secret(self, request: web.Request, route: Route, query: Query) -> web.Response:
        options = _options(request, query)
        spu = self._reads.get(Spu, _name(request, Spu))
        if not isinstance(spu, Spu):
            raise TypeError(spu)
        secret = await self._leading.as_leader.controller.secrets.issue(spu.spec.spu_id, options.by)
        response = as_json(
            SpuSecret(spu_id=spu.spec.spu_id, secret=secret).to_json(), route.success
        )
        response.headers[hdrs.CACHE_CONTROL] = "no-store"
        return response

    async def _report(self, request: web.Request, route: Route, _query: Query) -> web.Response:
        by = read_by(request.headers.get(BY_HEADER), request.remote)
        name = _name(request, Pipeline)
        report = await self._bodies.parsed(request, partial(parse_model, PipelineReport))
        return shown(
            request, await self._leading.as_leader.pipelines.take(name, report, by), route.success
        )


def _kind(route: Route) -> type[Object]:
    if route.cls is None:
        raise TypeError(f"{route.path} is about no kind")
    return route.cls


def _name(request: web.Request, cls: type[Object]) -> str:
    return read_object_name(cls, request.match_info)


def _options(request: web.Request, query: Query) -> WriteOptions:
    return read_write_options(request.headers.get(BY_HEADER), request.remote, query)


def _object_of(cls: type[Object], data: Any) -> Object:
    """The object that data describes. Raises InvalidRequestError, also for one of another kind."""
    obj = parse_object(data)
    if not isinstance(obj, cls):
        raise InvalidRequestError(f"kind: {obj.kind} does not belong under /v1/{cls.PLURAL}")
    return obj
