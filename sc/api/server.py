"""The public HTTP server: routes, errors as JSON, and what each request is caused by."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from sc.api.assignments import assignments
from sc.api.feeds import feed_assignments, feed_objects
from sc.api.objects import ObjectService
from sc.controller import Controller
from schemas.causality import caused_by, new_cause
from schemas.errors import (
    ErrorCode,
    InvalidRequestError,
    NotFoundError,
    NotReadyError,
    RunnelError,
)
from schemas.kinds import BY_PLURAL
from schemas.logs import get_logger
from schemas.manifest import json_schemas
from schemas.metadata import Object
from schemas.validation import parse_object

MAX_BODY_BYTES = 32 << 20

log = get_logger(__name__)

_STATUS = {
    ErrorCode.NOT_FOUND: 404,
    ErrorCode.CONFLICT: 409,
    ErrorCode.FENCED: 409,
    ErrorCode.COMPACTED: 410,
    ErrorCode.UNAUTHORIZED: 403,
    ErrorCode.UNSUPPORTED: 501,
    ErrorCode.DEADLINE_EXCEEDED: 504,
    ErrorCode.NOT_READY: 503,
    ErrorCode.UNREACHABLE: 503,
    ErrorCode.OVERLOADED: 503,
    ErrorCode.INVALID_REQUEST: 400,
    ErrorCode.INVALID_MANIFEST: 400,
    ErrorCode.PROTOCOL: 400,
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def _json(data: Any, status: int = 200) -> web.Response:
    return web.json_response(data, status=status)


def _error(error: RunnelError) -> web.Response:
    return _json(error.to_json(), _STATUS.get(error.code, 500))


class PublicServer:
    """Serves one controller."""

    def __init__(self, controller: Controller, version: str) -> None:
        self._controller = controller
        self._objects = ObjectService(controller)
        self._version = version
        self.app = web.Application(middlewares=[self._middleware], client_max_size=MAX_BODY_BYTES)
        self.app.add_routes(
            [
                web.get("/health", self._health),
                web.get("/metrics", self._metrics),
                web.get("/v1/cluster", self._cluster),
                web.get("/v1/schemas", self._schemas),
                web.get("/v1/assignments", self._assignments),
                web.get("/v1/{plural}", self._list),
                web.post("/v1/{plural}", self._create),
                web.get("/v1/{plural}/{name}", self._get),
                web.put("/v1/{plural}/{name}", self._replace),
                web.delete("/v1/{plural}/{name}", self._delete),
            ]
        )

    @web.middleware
    async def _middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        cause = request.headers.get("X-Runnel-Cause") or new_cause("api")
        with caused_by(cause):
            try:
                response = await handler(request)
            except RunnelError as error:
                response = _error(error)
            except web.HTTPException as error:
                message = f"{request.method} {request.path}: {error.reason}"
                body = {"code": "NOT_FOUND" if error.status == 404 else "INVALID_REQUEST"}
                response = _json({**body, "message": message, "details": {}}, error.status)
            except ConnectionError:
                raise
            except Exception as error:
                log.error(
                    "request failed", method=request.method, path=request.path, exc_info=error
                )
                response = _error(RunnelError(f"internal error: {error!r}"))
            if not response.prepared:
                response.headers["X-Runnel-Cause"] = cause
            self._controller.metrics.requests.labels(request.method, str(response.status)).inc()
            return response

    async def _health(self, _request: web.Request) -> web.Response:
        if not self._controller.ready:
            raise NotReadyError("the SC is looking at every object once; it is ready in a moment")
        return _json({"status": "ok", "revision": self._controller.view.store.revision})

    async def _metrics(self, _request: web.Request) -> web.Response:
        self._controller.gauges()
        return web.Response(body=self._controller.metrics.render(), content_type="text/plain")

    async def _cluster(self, _request: web.Request) -> web.Response:
        office = self._controller.office
        return _json(
            {
                "cluster": self._controller.keys.cluster,
                "clusterUid": office.cluster_uid,
                "version": self._version,
                "revision": self._controller.view.store.revision,
                "office": office.stamp.to_json(),
            }
        )

    async def _schemas(self, _request: web.Request) -> web.Response:
        return _json(json_schemas())

    async def _assignments(self, request: web.Request) -> web.StreamResponse:
        topics = frozenset(request.query.getall("topic", []))
        if request.query.get("watch") == "true":
            return await feed_assignments(request, self._controller, topics)
        body = assignments(self._controller, topics).model_dump_json(by_alias=True)
        return web.Response(text=body, content_type="application/json")

    async def _list(self, request: web.Request) -> web.StreamResponse:
        cls = _kind(request)
        labels = _labels(request.query.get("labelSelector", ""))
        if request.query.get("watch") == "true":
            return await feed_objects(
                request,
                self._controller,
                cls,
                lambda obj: labels.items() <= obj.metadata.labels.items(),
            )
        items = [obj.to_json() for obj in self._objects.select(cls, labels)]
        return _json({"items": items, "revision": str(self._controller.view.store.revision)})

    async def _get(self, request: web.Request) -> web.Response:
        return _json(self._objects.get(_kind(request), request.match_info["name"]).to_json())

    async def _create(self, request: web.Request) -> web.Response:
        obj = await _body(request, _kind(request))
        return _json((await self._objects.create(obj)).to_json(), 201)

    async def _replace(self, request: web.Request) -> web.Response:
        obj = await _body(request, _kind(request))
        name = request.match_info["name"]
        if obj.name != name:
            raise InvalidRequestError(f"metadata.name is {obj.name!r}, the address says {name!r}")
        return _json((await self._objects.replace(obj)).to_json())

    async def _delete(self, request: web.Request) -> web.Response:
        gone = await self._objects.delete(_kind(request), request.match_info["name"])
        return _json(gone.to_json(), 202)


def _kind(request: web.Request) -> type[Object]:
    plural = request.match_info["plural"]
    cls = BY_PLURAL.get(plural)
    if cls is None:
        known = ", ".join(BY_PLURAL)
        raise NotFoundError(f"there is no /v1/{plural}; known kinds: {known}")
    return cls


def _labels(selector: str) -> dict[str, str]:
    labels = {}
    for term in filter(None, selector.split(",")):
        key, equals, value = term.partition("=")
        if not equals or not key:
            raise InvalidRequestError(f"labelSelector: {term!r} is not KEY=VALUE")
        labels[key.strip()] = value.strip()
    return labels


async def _body(request: web.Request, cls: type[Object]) -> Object:
    try:
        data = json.loads(await request.read())
        # JSON can spell half of a surrogate pair, which no file and no terminal can hold.
        json.dumps(data, ensure_ascii=False).encode()
        obj = parse_object(data)
    except UnicodeEncodeError as error:
        before = error.object[max(0, error.start - 40) : error.start]
        raise InvalidRequestError(
            f"the body holds half of a surrogate pair, which is no character, after: {before}"
        ) from error
    except RecursionError:
        # Without its cause: that one is a thousand frames long.
        raise InvalidRequestError("the body is nested too deeply") from None
    except ValueError as error:
        raise InvalidRequestError(f"the body is not JSON: {error}") from error
    if not isinstance(obj, cls):
        raise InvalidRequestError(f"kind: {obj.kind} does not belong under /v1/{cls.PLURAL}")
    return obj


async def start_public_server(
    server: PublicServer, host: str, port: int
) -> tuple[web.AppRunner, int]:
    """Listen. Gives the runner, to clean up, and the bound port."""
    runner = web.AppRunner(server.app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
    except BaseException:
        await runner.cleanup()
        raise
    bound: int = runner.addresses[0][1]
    return runner, bound
