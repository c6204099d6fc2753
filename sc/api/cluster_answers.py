"""What the routes of the cluster as a whole answer: its health, its SCs, its feeds."""

from __future__ import annotations

from functools import partial
from typing import Protocol

from aiohttp import hdrs, web

from sc.api.answers import Health, RecoveryRequest
from sc.api.bodies import Bodies
from sc.api.cluster import cluster_answer
from sc.api.documents import Documents
from sc.api.events import EventQuery, EventRing, read_about
from sc.api.feeds import Feeds
from sc.api.leading import Leading
from sc.api.log_lines import log_lines_text, read_log_query, read_since
from sc.api.requests import (
    BY_HEADER,
    LAST_EVENT_HEADER,
    Query,
    read_by,
    read_kinds,
    read_last_event,
    read_write_options,
)
from sc.api.responses import Answer, as_json, as_text
from sc.api.routes import DEFAULT_EVENTS, STATISTICS, Operation, Route
from sc.api.scrape import scrape
from sc.api.selectors import Selection
from sc.api.standby import STALE_MS
from sc.api.statistics import Followed, Wanted
from sc.controller import KV_AWAY_MS, Controller
from sc.mirror import Mirror
from schemas.control.controllers import ControllerRole, ControllersAnswer
from schemas.daemon.log_ring import LogRing
from schemas.daemon.logs import get_logger
from schemas.daemon.metrics import CONTENT_TYPE
from schemas.errors import InvalidRequestError, NotReadyError
from schemas.objects.manifest.validation import parse_model
from schemas.objects.pipeline import Pipeline

log = get_logger(__name__)


class Office(Protocol):
    """Who leads, and how this SC lets go."""

    @property
    def name(self) -> str:
        """The name of this SC."""

    def controllers(self) -> ControllersAnswer:
        """The SCs that run."""

    def step_down(self, leader: str | None) -> None:
        """Let another SC lead. Raises ConflictError."""


class ClusterAnswers:
    """Answers of one server. ``dashboard`` is the address that it tells clients."""

    def __init__(
        self,
        mirror: Mirror,
        office: Office,
        version: str,
        *,
        dashboard: str | None,
        feeds: Feeds,
        events: EventRing,
        bodies: Bodies,
        logs: LogRing,
        leading: Leading,
    ) -> None:
        self._mirror, self._office = mirror, office
        self._version, self._dashboard = version, dashboard
        self._feeds = feeds
        self._event_ring = events
        self._bodies = bodies
        self._logs = logs
        self._leading = leading
        self._documents = Documents()
        self._knows_a_leader = False

    def by_operation(self) -> dict[Operation, Answer]:
        """What answers each operation on the cluster."""
        return {
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
        }

    async def _health(self, request: web.Request, _route: Route, _query: Query) -> web.Response:
        services, held = self._leading.services, self._mirror.leader_entry
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
        revision = self._mirror.store.revision
        found = Health(revision=revision, role=role, leader=leader, trouble=kv.trouble)
        return as_json(found.to_json())

    async def _metrics(self, _request: web.Request, _route: Route, _query: Query) -> web.Response:
        headers = {hdrs.CONTENT_TYPE: CONTENT_TYPE}
        controller = None if (services := self._leading.services) is None else services.controller
        return web.Response(body=scrape(self._mirror, controller), headers=headers)

    async def _cluster(self, _request: web.Request, _route: Route, _query: Query) -> web.Response:
        services = self._leading.services
        return self._described(None if services is None else services.controller)

    def without_leader(self, why: str) -> Answer:
        """What answers about the cluster while no answer of an SC that leads is to be had."""

        async def answer(_request: web.Request, _route: Route, _query: Query) -> web.Response:
            return self._described(None, why)

        return answer

    async def _recover(self, request: web.Request, _route: Route, query: Query) -> web.Response:
        options = read_write_options(request.headers.get(BY_HEADER), request.remote, query)
        wanted = await self._bodies.parsed(request, partial(parse_model, RecoveryRequest))
        await self._leading.as_leader.controller.recoveries.recover(
            wanted.spu, options.by, dry_run=options.dry_run
        )
        return self._described(self._leading.as_leader.controller)

    def _described(self, controller: Controller | None, why: str | None = None) -> web.Response:
        answer = cluster_answer(self._mirror, controller, self._version, self._dashboard, why)
        return as_json(answer.model_dump(mode="json", by_alias=True))

    async def _controllers(
        self, _request: web.Request, _route: Route, _query: Query
    ) -> web.Response:
        return as_json(self._office.controllers().model_dump(mode="json", by_alias=True))

    async def _step_down(self, request: web.Request, _route: Route, query: Query) -> web.Response:
        by, leader = read_by(request.headers.get(BY_HEADER), request.remote), query.text("leader")
        log.info("asked to step down", by=by, leader=leader)
        self._office.step_down(leader)
        return as_json(self._office.controllers().model_dump(mode="json", by_alias=True))

    async def _schemas(self, _request: web.Request, _route: Route, _query: Query) -> web.Response:
        return as_text(await self._documents.schemas())

    async def _openapi(self, _request: web.Request, _route: Route, _query: Query) -> web.Response:
        return as_text(await self._documents.openapi())

    async def _assignments(
        self, request: web.Request, _route: Route, query: Query
    ) -> web.StreamResponse:
        topics = frozenset(query.all("topic"))
        if query.flag("watch"):
            return await self._feeds.assignments(request, topics)
        return as_text((await self._feeds.assignments_text(topics)).text)

    async def _log_lines(self, _request: web.Request, _route: Route, query: Query) -> web.Response:
        return as_text(log_lines_text(self._logs, read_log_query(query)))

    async def _statistics(self, _request: web.Request, _route: Route, query: Query) -> web.Response:
        wanted = Wanted(
            topics=frozenset(query.all("topic")),
            seconds=query.number("seconds") or 0,
            limit=query.number("limit"),
            after=query.text("continue") or "",
        )
        if wanted.topics and (wanted.limit is not None or wanted.after):
            raise InvalidRequestError("limit and continue: topics that are named have no pages")
        found = await self._leading.as_leader.views.all(wanted)
        return as_text(found.model_dump_json(by_alias=True, exclude_none=True))

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
        send = partial(self._leading.as_leader.views.follow, wanted=wanted)
        if not kinds:
            return await self._feeds.run(request, send)
        beside = send if with_statistics else None
        return await self._feeds.objects(request, kinds, Selection(), after, beside)

    async def _events(self, _request: web.Request, _route: Route, query: Query) -> web.Response:
        asked = EventQuery(
            read_about(query.text("for")),
            read_since(query.text("since")),
            query.text("cause"),
            query.number("limit") or DEFAULT_EVENTS,
            query.number("after") or 0,
        )
        found = await self._event_ring.read(asked)
        return as_json(found.model_dump(mode="json", by_alias=True))
