"""The public HTTP server: what each route answers, errors as JSON, and what a request caused."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from aiohttp import hdrs, web

from connection_manager.guarded_site import (
    ConnectionGuard,
    ConnectionLimits,
    GuardedSite,
    serving,
)
from connection_manager.port_runner import port_runner
from sc.api.admission_warnings import WARNING_HEADER, warning_header, warnings_of
from sc.api.answers import Health, RecoveryRequest, SpuSecret
from sc.api.bodies import Bodies, BodyError
from sc.api.cluster import cluster_answer
from sc.api.documents import Documents
from sc.api.events import EventQuery, EventRing, read_about
from sc.api.feeds import Feeds
from sc.api.listing import render
from sc.api.log_lines import log_lines_text, read_log_query, read_since
from sc.api.merge_patch import MEDIA_TYPE, patched
from sc.api.objects import ObjectService, WriteOptions
from sc.api.older_clients import is_older, known_to
from sc.api.pipelines import PipelineReports
from sc.api.reads import ObjectReads
from sc.api.requests import (
    BY_HEADER,
    CAUSE_HEADER,
    LAST_EVENT_HEADER,
    Query,
    read_by,
    read_cause,
    read_kinds,
    read_last_event,
    read_object_name,
    read_query,
)
from sc.api.routes import DEFAULT_EVENTS, DEFAULT_HISTORY, STATISTICS, Operation, Route, routes
from sc.api.scrape import scrape
from sc.api.selectors import Selection
from sc.api.standby import (
    RETRY_AFTER_MS,
    STALE_MS,
    LeaderProxy,
    is_answered_here,
    is_too_old,
)
from sc.api.statistics import Followed, StatisticsView, Wanted
from sc.api.stream_answers import StreamAnswers
from sc.api.streams import StreamService
from sc.api.subscribers import SubscriberService
from sc.config import Limits
from sc.controller import KV_AWAY_MS, Controller
from sc.mirror import Mirror
from schemas.causality import caused_by, new_cause
from schemas.control.controllers import ControllerRole, ControllersAnswer
from schemas.daemon.hosts import accepts
from schemas.daemon.log_ring import LogRing
from schemas.daemon.logs import get_logger
from schemas.daemon.metrics import CONTENT_TYPE
from schemas.errors import (
    ErrorCode,
    InvalidRequestError,
    NotReadyError,
    RunnelError,
    UnauthorizedError,
)
from schemas.objects.kinds import BY_PLURAL
from schemas.objects.manifest.validation import parse_model, parse_object
from schemas.objects.metadata import Object
from schemas.objects.partition import (
    ArchivedRange,
    Partition,
    Truncation,
    UncleanElection,
)
from schemas.objects.pipeline import Pipeline, PipelineReport
from schemas.objects.spu import Spu

#: Descriptors that clients leave to the store, to the sessions of SPUs and to ``/proc``.
SPARE_DESCRIPTORS: Final = 64
_JSON: Final = "application/json"

log = get_logger(__name__)

_STATUS = {
    ErrorCode.NOT_FOUND: 404,
    ErrorCode.CONFLICT: 409,
    ErrorCode.FENCED: 409,
    ErrorCode.COMPACTED: 410,
    ErrorCode.UNAUTHORIZED: 403,
    ErrorCode.UNSUPPORTED: 422,
    ErrorCode.DEADLINE_EXCEEDED: 504,
    ErrorCode.NOT_READY: 503,
    ErrorCode.UNREACHABLE: 503,
    ErrorCode.OVERLOADED: 503,
    ErrorCode.INVALID_REQUEST: 400,
    ErrorCode.INVALID_MANIFEST: 400,
    ErrorCode.PROTOCOL: 400,
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Answer = Callable[[web.Request, Route, Query], Awaitable[web.StreamResponse]]


T = TypeVar("T")


class Office(Protocol):
    """Who leads, and how this SC lets go."""

    @property
    def name(self) -> str:
        """The name of this SC."""

    def controllers(self) -> ControllersAnswer:
        """The SCs that run."""

    def step_down(self) -> None:
        """Let another SC lead. Raises ConflictError."""


@dataclass(frozen=True, slots=True)
class _LeaderServices:
    """What answers requests while this SC leads."""

    controller: Controller
    objects: ObjectService
    pipelines: PipelineReports
    views: StatisticsView
    streams: Mapping[Operation, Answer]


class PublicServer:
    """Serves one mirror, and one controller while this SC leads (`lead`). ``hosts`` are names of
    the SC besides those of this machine, which a request may carry in its header ``Host``; ``logs``
    has the SC's own log lines; ``dashboard`` is the address that it tells clients. ``office`` and
    ``proxy``: where several SCs share a KV."""

    def __init__(
        self,
        mirror: Mirror,
        office: Office,
        version: str,
        hosts: Iterable[str] = (),
        limits: Limits | None = None,
        logs: LogRing | None = None,
        *,
        dashboard: str | None = None,
        proxy: LeaderProxy | None = None,
    ) -> None:
        limits = limits or Limits()
        self._mirror, self._office, self._proxy = mirror, office, proxy
        self._services: _LeaderServices | None = None
        self._knows_a_leader = False
        self._bodies = Bodies(limits.body_bytes)
        self.guard = ConnectionGuard(
            ConnectionLimits(
                connections=limits.connections,
                waiting=limits.waiting_connections,
                waiting_per_address=limits.waiting_connections_per_address,
                spare_descriptors=SPARE_DESCRIPTORS,
            )
        )
        self._reads = ObjectReads(mirror, self._as_now)
        self._version, self._dashboard = version, dashboard
        self._logs = logs or LogRing(1)
        self._hosts = frozenset(name.lower() for name in (socket.gethostname(), *hosts))
        self._documents = Documents()
        self.feeds = Feeds(mirror, self._as_now)
        self.app = web.Application(middlewares=[serving, self._middleware])
        self.app.on_shutdown.append(self._end_feeds)
        self._event_ring = EventRing()
        self.app.cleanup_ctx.append(self._following_events)
        answers: dict[Operation, Answer] = {
            Operation.HEALTH: self._health,
            Operation.METRICS: self._metrics,
            Operation.CLUSTER: self._cluster,
            Operation.RECOVER: self._recover,
            Operation.CONTROLLERS: self._controllers,
            Operation.STEP_DOWN: self._step_down,
            Operation.SCHEMAS: self._schemas,
            Operation.OPENAPI: self._openapi,
            Operation.ASSIGNMENTS: self._assignments,
            Operation.LOGS: self._log_lines,
            Operation.EVENTS: self._events,
            Operation.STATISTICS: self._statistics,
            Operation.WATCH: self._watch,
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
        for route in routes():
            self._add(route, answers.get(route.operation, self._about_a_stream))

    def lead(self, controller: Controller | None) -> None:
        """Answer as the SC that leads from now on; None: stand by."""
        if controller is None:
            self._services = None
            return
        streams = StreamAnswers(
            StreamService(controller), SubscriberService(controller), self._parsed
        )
        self._services = _LeaderServices(
            controller,
            ObjectService(controller),
            PipelineReports(controller),
            StatisticsView(controller),
            streams.by_operation(),
        )

    @property
    def _leading(self) -> _LeaderServices | None:
        """What answers as the leader, if this SC leads now."""
        return (
            self._services
            if self._services is not None and self._services.controller.leads
            else None
        )

    @property
    def _as_leader(self) -> _LeaderServices:
        if (services := self._leading) is None:
            raise NotReadyError(
                "this SC leads no more; try again in a moment", retryAfterMs=RETRY_AFTER_MS
            )
        return services

    def _as_now(self, obj: Object) -> Object:
        """An object as users see it: some of what it shows is not in the KV."""
        return obj if self._services is None else self._services.controller.as_now(obj)

    def _add(self, route: Route, answer: Answer) -> None:
        async def handle(request: web.Request) -> web.StreamResponse:
            # Probes and scrapers may send any parameters.
            pairs = request.query.items() if route.versioned else ()
            query = read_query(route, pairs)
            if self._leading is None:
                if self._proxy is not None and not is_answered_here(route, query):
                    return await self._proxy.forward(request)
                if self._proxy is not None and is_too_old(self._mirror, route):
                    found = await self._proxy.fresher(request)
                    if found is not None:
                        return found
            response = await answer(request, route, query)
            trouble = self._mirror.kv_health.trouble
            if trouble is not None and route.versioned and not response.prepared:
                text = f"what objects say of their state may be old: {trouble}"
                response.headers.add(WARNING_HEADER, warning_header(text))
            return response

        methods = ("GET", "HEAD") if route.method == "GET" else (route.method,)
        for method in methods:
            self.app.router.add_route(method, route.path, handle)

    @property
    def held_body_bytes(self) -> int:
        """Bytes of bodies that are being received or worked on."""
        return self._bodies.held_bytes

    async def _end_feeds(self, _app: web.Application) -> None:
        self.feeds.end()

    async def _following_events(self, _app: web.Application) -> AsyncIterator[None]:
        following = self._event_ring.follow(self._mirror.kv, self._mirror.keys)
        task = asyncio.create_task(following, name="events")
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if self._proxy is not None:
            await self._proxy.close()

    @web.middleware
    async def _middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        refusal: RunnelError | None = None
        cause = new_cause("api")
        try:
            cause = read_cause(request.headers.get(CAUSE_HEADER)) or cause
        except InvalidRequestError as error:
            refusal = error
        host = request.headers.get(hdrs.HOST)
        if not accepts(host, self._hosts, self._advertised()):
            refusal = UnauthorizedError(
                f"Host: {host!r} is not a name of this SC; use its IP address, or add the"
                " name to allowedHosts in its configuration"
            )
        with caused_by(cause):
            if refusal is None:
                response = await self._answer(request, handler)
            else:
                response = _error(refusal)
        if not response.prepared:
            response.headers[CAUSE_HEADER] = cause
        self._mirror.metrics.requests.labels(request.method, str(response.status)).inc()
        return response

    def _advertised(self) -> Iterator[str]:
        for spu in self._mirror.store.objects(Spu):
            yield from (ingress.host for ingress in spu.spec.public_endpoint.ingress)

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except BodyError as error:
            return _error(error, error.STATUS)
        except RunnelError as error:
            return _error(error)
        except web.HTTPException as error:
            return _http_error(request, error)
        except ConnectionError:
            raise
        except Exception as error:
            log.error("request failed", method=request.method, path=request.path, exc_info=error)
            return _error(RunnelError(f"internal error: {error!r}"))

    # -- the cluster ------------------------------------------------------------------------

    async def _health(self, request: web.Request, _route: Route, _query: Query) -> web.Response:
        services, held = self._leading, self._mirror.leader_entry
        role = ControllerRole.STANDBY if services is None else ControllerRole.LEADER
        leader = None if held is None else held.name
        asked = request.query.get("role")
        if asked in (ControllerRole.LEADER, ControllerRole.STANDBY) and asked != role:
            raise NotReadyError(f"this SC is the {role.value}", role=role.value, leader=leader)
        # This SC itself leads only once it has looked at what its predecessor left.
        another = held is not None and leader != self._office.name
        self._knows_a_leader = self._knows_a_leader or services is not None or another
        if not self._knows_a_leader:
            raise NotReadyError("no SC leads yet; try again in a moment")
        if services is not None and not services.controller.ready:
            raise NotReadyError(
                "the SC is looking at every object once after its start; try again in a moment"
            )
        kv = self._mirror.kv_health
        if kv.away_ms >= KV_AWAY_MS:
            raise NotReadyError(
                f"the SC has not reached its KV for {kv.away_ms / 1000:.0f} s: {kv.why}; it can"
                " change nothing until the KV is back",
                kvAwayMs=kv.away_ms,
            )
        if kv.unwritable:
            raise NotReadyError(kv.unwritable, kvUnwritable=True)
        if services is None and self._mirror.stale_ms >= STALE_MS:
            raise NotReadyError(
                f"the SC stands by, and has not followed the KV for"
                f" {self._mirror.stale_ms / 1000:.0f} s",
                role=role.value,
            )
        found = Health(revision=self._mirror.store.revision, role=role, leader=leader)
        return _json(found.to_json())

    async def _metrics(self, _request: web.Request, _route: Route, _query: Query) -> web.Response:
        headers = {hdrs.CONTENT_TYPE: CONTENT_TYPE}
        controller = None if (services := self._leading) is None else services.controller
        return web.Response(body=scrape(self._mirror, controller), headers=headers)

    async def _cluster(self, _request: web.Request, _route: Route, _query: Query) -> web.Response:
        return self._described()

    async def _recover(self, request: web.Request, _route: Route, query: Query) -> web.Response:
        options = _write_options(request, query)
        wanted = await self._parsed(request, partial(parse_model, RecoveryRequest))
        await self._as_leader.controller.recover(wanted.spu, options.by, dry_run=options.dry_run)
        return self._described()

    def _described(self) -> web.Response:
        answer = cluster_answer(self._as_leader.controller, self._version, self._dashboard)
        return _json(answer.model_dump(mode="json", by_alias=True))

    async def _controllers(
        self, _request: web.Request, _route: Route, _query: Query
    ) -> web.Response:
        return _json(self._office.controllers().model_dump(mode="json", by_alias=True))

    async def _step_down(self, request: web.Request, _route: Route, _query: Query) -> web.Response:
        log.info("asked to step down", by=read_by(request.headers.get(BY_HEADER), request.remote))
        self._office.step_down()
        return _json(self._office.controllers().model_dump(mode="json", by_alias=True))

    async def _about_a_stream(
        self, request: web.Request, route: Route, query: Query
    ) -> web.StreamResponse:
        return await self._as_leader.streams[route.operation](request, route, query)

    async def _schemas(self, _request: web.Request, _route: Route, _query: Query) -> web.Response:
        return _text(await self._documents.schemas())

    async def _openapi(self, _request: web.Request, _route: Route, _query: Query) -> web.Response:
        return _text(await self._documents.openapi())

    async def _assignments(
        self, request: web.Request, _route: Route, query: Query
    ) -> web.StreamResponse:
        topics = frozenset(query.all("topic"))
        if query.flag("watch"):
            return await self.feeds.assignments(request, topics)
        return _text((await self.feeds.assignments_text(topics)).text)

    async def _log_lines(self, _request: web.Request, _route: Route, query: Query) -> web.Response:
        return _text(log_lines_text(self._logs, read_log_query(query)))

    async def _statistics(self, _request: web.Request, _route: Route, query: Query) -> web.Response:
        wanted = Wanted(
            topics=frozenset(query.all("topic")),
            seconds=query.number("seconds") or 0,
            limit=query.number("limit"),
            after=query.text("continue") or "",
        )
        if wanted.topics and (wanted.limit is not None or wanted.after):
            raise InvalidRequestError("limit and continue: topics that are named have no pages")
        found = await self._as_leader.views.all(wanted)
        return _text(found.model_dump_json(by_alias=True, exclude_none=True))

    async def _watch(self, request: web.Request, _route: Route, query: Query) -> web.StreamResponse:
        kinds, with_statistics = read_kinds(query.text("kinds"))
        last = read_last_event(request.headers.get(LAST_EVENT_HEADER))
        after = query.number("resourceVersion") if last is None else last
        wanted = Followed(
            frozenset(query.all("topic")), query.flag("catchingUp"), Pipeline in kinds
        )
        if (wanted.topics or wanted.catching_up) and not with_statistics:
            raise InvalidRequestError(
                f"topic and catchingUp: kinds has no {STATISTICS}, of which they choose"
            )
        send = partial(self._as_leader.views.follow, wanted=wanted)
        if not kinds:
            return await self.feeds.run(request, send)
        beside = send if with_statistics else None
        return await self.feeds.objects(request, kinds, Selection(), after, beside)

    async def _events(self, _request: web.Request, _route: Route, query: Query) -> web.Response:
        asked = EventQuery(
            read_about(query.text("for")),
            read_since(query.text("since")),
            query.text("cause"),
            query.number("limit") or DEFAULT_EVENTS,
            query.number("after") or 0,
        )
        found = await self._event_ring.read(asked)
        return _json(found.model_dump(mode="json", by_alias=True))

    # -- objects ----------------------------------------------------------------------------

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
            return await self.feeds.objects(request, (cls,), selection, after)
        if after is not None:
            raise InvalidRequestError("resourceVersion: allowed with watch=true only")
        if limit is None:
            if token is not None:
                raise InvalidRequestError("continue: repeat the limit of the previous page")
            page = self._reads.everything(cls, selection)
        else:
            page = await self._reads.page(cls, selectors, limit, token)
        return _text(await render(page, older=is_older(request.headers)))

    async def _get(self, request: web.Request, route: Route, _query: Query) -> web.Response:
        cls = _kind(route)
        return _shown(request, self._reads.get(cls, _name(request, cls)))

    async def _history(self, request: web.Request, route: Route, query: Query) -> web.Response:
        cls = _kind(route)
        limit = query.number("limit") or DEFAULT_HISTORY
        found = await self._reads.history(cls, _name(request, cls), limit)
        return _json(found.model_dump(mode="json", by_alias=True))

    async def _create(self, request: web.Request, route: Route, query: Query) -> web.Response:
        options = _write_options(request, query)
        obj = await self._parsed(request, partial(_object_of, _kind(route)))
        done = await self._as_leader.objects.create(obj, options)
        return self._written(request, done, route)

    async def _replace(self, request: web.Request, route: Route, query: Query) -> web.Response:
        options = _write_options(request, query)
        cls = _kind(route)
        name = _name(request, cls)
        obj = await self._parsed(request, partial(_object_of, cls))
        if obj.name != name:
            raise InvalidRequestError(f"metadata.name is {obj.name!r}, the address says {name!r}")
        before = self._mirror.store.get(cls, name)
        done = await self._as_leader.objects.replace(obj, options)
        return self._written(request, done, route, before)

    async def _patch(self, request: web.Request, route: Route, query: Query) -> web.Response:
        options = _write_options(request, query)
        cls = _kind(route)
        name = _name(request, cls)
        before = self._mirror.store.get(cls, name)
        async with self._bodies.received(request, MEDIA_TYPE) as body:
            patch = await body.parse(lambda data: data)

            async def change(old: Object) -> Object:
                return await body.run(lambda: parse_object(patched(old, patch)))

            done = await self._as_leader.objects.patch(cls, name, change, options)
            return self._written(request, done, route, before)

    def _written(
        self, request: web.Request, obj: Object, route: Route, before: Object | None = None
    ) -> web.Response:
        """The answer to a user's write, with warnings; ``before``: the object as it was known."""
        response = _shown(request, obj, route.success)
        for text in warnings_of(obj, self._mirror.store, before):
            response.headers.add(WARNING_HEADER, warning_header(text))
        return response

    async def _replicas(self, request: web.Request, _route: Route, _query: Query) -> web.Response:
        found = self._as_leader.objects.replicas(_name(request, Partition))
        return _json(found.model_dump(mode="json", by_alias=True))

    async def _elect(self, request: web.Request, route: Route, query: Query) -> web.Response:
        options = _write_options(request, query)
        name = _name(request, Partition)
        election = await self._parsed(request, partial(parse_model, UncleanElection))
        done = await self._as_leader.objects.elect(name, election, options)
        return _shown(request, done, route.success)

    async def _truncate(self, request: web.Request, route: Route, query: Query) -> web.Response:
        options = _write_options(request, query)
        name = _name(request, Partition)
        truncation = await self._parsed(request, partial(parse_model, Truncation))
        done = await self._as_leader.objects.truncate(name, truncation, options)
        return _shown(request, done, route.success)

    async def _archived(self, request: web.Request, route: Route, query: Query) -> web.Response:
        options = _write_options(request, query)
        name = _name(request, Partition)
        archived = await self._parsed(request, partial(parse_model, ArchivedRange))
        done = await self._as_leader.objects.archived(name, archived, options)
        return _shown(request, done, route.success)

    async def _system_topic(self, request: web.Request, route: Route, query: Query) -> web.Response:
        options = _write_options(request, query)
        found = await self._as_leader.objects.system_topic(request.match_info["name"], options)
        return _shown(request, found, route.success)

    async def _issue_secret(self, request: web.Request, route: Route, query: Query) -> web.Response:
        options = _write_options(request, query)
        spu = self._reads.get(Spu, _name(request, Spu))
        if not isinstance(spu, Spu):
            raise TypeError(spu)
        secret = await self._as_leader.controller.secrets.issue(spu.spec.spu_id, options.by)
        response = _json(SpuSecret(spu_id=spu.spec.spu_id, secret=secret).to_json(), route.success)
        response.headers[hdrs.CACHE_CONTROL] = "no-store"
        return response

    async def _report(self, request: web.Request, route: Route, _query: Query) -> web.Response:
        by = read_by(request.headers.get(BY_HEADER), request.remote)
        name = _name(request, Pipeline)
        report = await self._parsed(request, partial(parse_model, PipelineReport))
        return _shown(
            request, await self._as_leader.pipelines.take(name, report, by), route.success
        )

    async def _delete(self, request: web.Request, route: Route, query: Query) -> web.Response:
        options = _write_options(request, query)
        cls = _kind(route)
        gone = await self._as_leader.objects.delete(
            cls,
            _name(request, cls),
            options,
            wanted=query.number("resourceVersion"),
            force=query.flag("force"),
        )
        return _shown(request, gone, route.success)

    async def _parsed(self, request: web.Request, parse: Callable[[Any], T]) -> T:
        """What ``parse`` makes of the JSON in a body. Raises InvalidRequestError."""
        async with self._bodies.received(request, _JSON) as body:
            return await body.parse(parse)


def _json(data: Any, status: int = 200) -> web.Response:
    return web.json_response(data, status=status)


def _text(body: str, status: int = 200) -> web.Response:
    return web.Response(text=body, content_type=_JSON, status=status)


def _shown(request: web.Request, obj: Object, status: int = 200) -> web.Response:
    """An object, as the client can read it."""
    text = json.dumps(obj.to_json())
    return _text(known_to(text, older=is_older(request.headers)), status)


def _error(error: RunnelError, status: int | None = None) -> web.Response:
    return _json(error.to_json(), status or _STATUS.get(error.code, 500))


def _http_error(request: web.Request, error: web.HTTPException) -> web.Response:
    """An error of aiohttp, in the form of all other errors."""
    code = "NOT_FOUND" if error.status == 404 else "INVALID_REQUEST"
    # As the client sent it: decoded, it may hold control characters that a terminal obeys.
    path = request.rel_url.raw_path
    message = f"{request.method} {path}: {error.reason}"
    kind = path.removeprefix("/v1/").partition("/")[0]
    if error.status == 404 and path.startswith("/v1/") and kind not in BY_PLURAL:
        message = f"there is no {path}; known kinds: {', '.join(BY_PLURAL)}"
    response = _json({"code": code, "message": message, "details": {}}, error.status)
    if "Allow" in error.headers:
        response.headers["Allow"] = error.headers["Allow"]
    return response


def _kind(route: Route) -> type[Object]:
    if route.cls is None:
        raise TypeError(f"{route.path} is about no kind")
    return route.cls


def _name(request: web.Request, cls: type[Object]) -> str:
    return read_object_name(cls, request.match_info)


def _write_options(request: web.Request, query: Query) -> WriteOptions:
    by = read_by(request.headers.get(BY_HEADER), request.remote)
    return WriteOptions(by, dry_run=query.flag("dryRun"))


def _object_of(cls: type[Object], data: Any) -> Object:
    """The object that data describes. Raises InvalidRequestError, also for one of another kind."""
    obj = parse_object(data)
    if not isinstance(obj, cls):
        raise InvalidRequestError(f"kind: {obj.kind} does not belong under /v1/{cls.PLURAL}")
    return obj


async def start_public_server(
    server: PublicServer, host: str, port: int
) -> tuple[web.AppRunner, int]:
    """Listen. Gives the runner, to clean up, and the bound port."""
    runner = port_runner(server.app)
    await runner.setup()
    try:
        await GuardedSite(runner, host, port, server.guard).start()
    except BaseException:
        await runner.cleanup()
        raise
    bound: int = runner.addresses[0][1]
    return runner, bound
