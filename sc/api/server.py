"""The public HTTP server: which answer each route has, errors as JSON, what a request caused."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import Final

from aiohttp import hdrs, web

from connection_manager.guarded_site import (
    ConnectionGuard,
    ConnectionLimits,
    GuardedSite,
    serving,
)
from connection_manager.port_runner import port_runner
from sc.api.admission_warnings import WARNING_HEADER, warning_header
from sc.api.assignments import lacks
from sc.api.bodies import Bodies, BodyError
from sc.api.cluster_answers import ClusterAnswers, Office
from sc.api.events import EventRing
from sc.api.feeds import Feeds
from sc.api.leading import Leading
from sc.api.object_answers import ObjectAnswers
from sc.api.reads import ObjectReads
from sc.api.requests import CAUSE_HEADER, Query, read_cause, read_query
from sc.api.responses import Answer, as_error, http_error
from sc.api.routes import Operation, Route, routes
from sc.api.standby import STALE_MS, LeaderProxy, is_answered_here, is_too_old
from sc.config import Limits
from sc.controller import Controller
from sc.mirror import Mirror
from schemas.causality import caused_by, new_cause
from schemas.daemon.hosts import accepts
from schemas.daemon.log_ring import LogRing
from schemas.daemon.logs import get_logger
from schemas.errors import (
    InvalidRequestError,
    NotFoundError,
    NotReadyError,
    RunnelError,
    UnauthorizedError,
)
from schemas.objects.spu import Spu

#: Descriptors that clients leave to the store, to the sessions of SPUs and to ``/proc``.
SPARE_DESCRIPTORS: Final = 64

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

log = get_logger(__name__)


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
        self._mirror, self._proxy = mirror, proxy
        self._bodies = Bodies(limits.body_bytes)
        self._leading = Leading(self._bodies)
        self.guard = ConnectionGuard(
            ConnectionLimits(
                connections=limits.connections,
                waiting=limits.waiting_connections,
                waiting_per_address=limits.waiting_connections_per_address,
                spare_descriptors=SPARE_DESCRIPTORS,
            )
        )
        self._hosts = frozenset(name.lower() for name in (socket.gethostname(), *hosts))
        self.feeds = Feeds(mirror, self._leading.as_now, self._is_fresh)
        self._event_ring = EventRing()
        self.app = web.Application(middlewares=[serving, self._middleware])
        self.app.on_shutdown.append(self._end_feeds)
        self.app.cleanup_ctx.append(self._following_events)
        self._of_cluster = ClusterAnswers(
            mirror,
            office,
            version,
            dashboard=dashboard,
            feeds=self.feeds,
            events=self._event_ring,
            bodies=self._bodies,
            logs=logs or LogRing(1),
            leading=self._leading,
        )
        reads = ObjectReads(mirror, self._leading.as_now)
        of_objects = ObjectAnswers(mirror, reads, self.feeds, self._bodies, self._leading)
        answers = self._of_cluster.by_operation() | of_objects.by_operation()
        for route in routes():
            self._add(route, answers.get(route.operation, self._about_a_stream))

    def lead(self, controller: Controller | None) -> None:
        """Answer as the SC that leads from now on; None: stand by."""
        self._leading.lead(controller)

    async def _about_a_stream(
        self, request: web.Request, route: Route, query: Query
    ) -> web.StreamResponse:
        return await self._leading.as_leader.streams[route.operation](request, route, query)

    def _add(self, route: Route, answer: Answer) -> None:
        async def handle(request: web.Request) -> web.StreamResponse:
            # Probes and scrapers may send any parameters.
            pairs = request.query.items() if route.versioned else ()
            query, how = read_query(route, pairs), answer
            if self._leading.services is None:
                if self._proxy is not None and not is_answered_here(route, query):
                    try:
                        return await self._proxy.forward(request)
                    except NotReadyError as error:
                        # Without this, no client could begin while none leads.
                        if route.operation is not Operation.CLUSTER:
                            raise
                        how = self._of_cluster.without_leader(error.message)
                if self._proxy is not None and is_too_old(self._mirror, route):
                    found = await self._proxy.fresher(request)
                    if found is not None:
                        return found
            try:
                response = await self._answered_here(how, request, route, query)
            except NotFoundError:
                found = await self._known_to_leader(request)
                if found is None:
                    raise
                return found
            trouble = self._mirror.kv_health.trouble
            if trouble is not None and route.versioned and not response.prepared:
                text = f"what objects say of their state may be old: {trouble}"
                response.headers.add(WARNING_HEADER, warning_header(text))
            return response

        methods = ("GET", "HEAD") if route.method == "GET" else (route.method,)
        for method in methods:
            self.app.router.add_route(method, route.path, handle)

    async def _answered_here(
        self, answer: Answer, request: web.Request, route: Route, query: Query
    ) -> web.StreamResponse:
        """The answer of this SC, or of the one that leads where this one's mirror lacks a topic of
        which leaders are asked for. Raises NotFoundError for an object that it lacks."""
        if route.operation is Operation.ASSIGNMENTS and lacks(self._mirror, query.all("topic")):
            found = await self._known_to_leader(request)
            if found is not None:
                return found
        return await answer(request, route, query)

    async def _known_to_leader(self, request: web.Request) -> web.StreamResponse | None:
        if self._leading.services is not None or self._proxy is None:
            return None
        return await self._proxy.known_to_leader(request)

    def _is_fresh(self) -> bool:
        """Whether no other SC would be asked for what this one's mirror shows."""
        if self._proxy is None or self._leading.services is not None:
            return True
        return self._mirror.stale_ms < STALE_MS

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
                response = as_error(refusal)
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
            return as_error(error, error.STATUS)
        except RunnelError as error:
            return as_error(error)
        except web.HTTPException as error:
            return http_error(request, error)
        except ConnectionError:
            raise
        except Exception as error:
            log.error("request failed", method=request.method, path=request.path, exc_info=error)
            return as_error(RunnelError(f"internal error: {error!r}"))


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
