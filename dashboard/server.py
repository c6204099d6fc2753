"""The HTTP port of a dashboard: its pages, the live stream, and answers in JSON. It only reads.

Every screen has an address of its own, and is the same page, whose scripts show it.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from aiohttp import hdrs, web
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from connection_manager.guarded_site import ConnectionGuard, ConnectionLimits, GuardedSite, serving
from connection_manager.port_runner import port_runner
from dashboard.answers.cluster import BY, SharedCluster
from dashboard.answers.consumers import consumers, consumers_json
from dashboard.answers.events import events, log_lines, traced
from dashboard.answers.groups import groups, groups_json
from dashboard.answers.objects import describe, replicas, segments, series
from dashboard.answers.once import Shared
from dashboard.answers.records import read_page, records, serve_tail
from dashboard.answers.streams import Epochs
from dashboard.config import DashboardConfig
from dashboard.guard import HEADERS, check_request
from dashboard.live.hub import Hub
from dashboard.live.socket import serve_live
from dashboard.metrics import BROWSERS, CLUSTER_UP
from dashboard.open_sockets import OpenSockets
from runnel.admin.http import ScClient
from runnel.metrics.lag import lag_metrics
from runnel.positions.lag import PartitionLag, partition_lags
from schemas.daemon.log_options import LogLevel
from schemas.daemon.logs import get_logger
from schemas.daemon.metrics import CONTENT_TYPE, daemon_registry, exposition
from schemas.errors import ErrorCode, InvalidRequestError, NotFoundError, RunnelError
from schemas.objects.kinds import BY_PLURAL
from schemas.objects.spu import is_loopback

STATIC: Final = Path(__file__).parent / "static"
#: The first parts of the addresses of screens.
SCREENS: Final = (
    "placement",
    "topics",
    "consumers",
    "groups",
    "pipelines",
    "streams",
    "spus",
    "events",
    "trace",
    "logs",
)
MAX_SERIES_S: Final = 900
#: All browsers together ask so often at most for the positions of consumers and groups.
CONSUMERS_S: Final = 2.0
#: A scrape waits so long at most for a cluster that does not answer; then it goes without it.
SCRAPE_S: Final = 2.0
#: Descriptors that are left to connections to the cluster.
SPARE_DESCRIPTORS: Final = 64

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

log = get_logger(__name__)

_STATUS: Final = {
    ErrorCode.NOT_FOUND: 404,
    ErrorCode.INVALID_REQUEST: 400,
    ErrorCode.UNAUTHORIZED: 403,
    ErrorCode.OFFSET_OUT_OF_RANGE: 400,
    ErrorCode.UNSUPPORTED: 501,
    ErrorCode.UNREACHABLE: 503,
    ErrorCode.NOT_READY: 503,
    ErrorCode.DEADLINE_EXCEEDED: 504,
}


class DashboardServer:
    """Serves one cluster."""

    def __init__(self, config: DashboardConfig) -> None:
        self._config = config
        self._sc = ScClient.parse(config.sc, BY)
        self._cluster = SharedCluster(config.sc)
        self.hub = Hub(self._sc)
        self._sockets = OpenSockets()
        names = (socket.gethostname(), config.http.host, *config.allowed_hosts)
        self._names = frozenset(name.lower() for name in names)
        self._epochs = Epochs(self._cluster)
        self._consumers = Shared(lambda: consumers(self._cluster), CONSUMERS_S)
        self._groups = Shared(lambda: groups(self._cluster), CONSUMERS_S)
        self._metrics = _DashboardCollector()
        self._registry = daemon_registry(version("runnel"), [self._metrics])

    async def close(self) -> None:
        """End all connections to the cluster."""
        await self._cluster.close()
        await self._sc.close()

    async def start(self) -> tuple[web.AppRunner, int]:
        """Listen; gives the runner, for the caller to clean up, and the port."""
        limits = self._config.limits
        guard = ConnectionGuard(
            ConnectionLimits(
                connections=limits.connections,
                waiting=limits.waiting_connections,
                waiting_per_address=limits.waiting_connections,
                spare_descriptors=SPARE_DESCRIPTORS,
            )
        )
        app = web.Application(middlewares=[serving, self._middleware])
        app.add_routes(self._routes())
        app.on_shutdown.append(self._end_sockets)
        runner = port_runner(app)
        await runner.setup()
        try:
            await GuardedSite(runner, self._config.http.host, self._config.http.port, guard).start()
        except BaseException:
            await runner.cleanup()
            raise
        port: int = runner.addresses[0][1]
        return runner, port

    async def _end_sockets(self, _app: web.Application) -> None:
        await self._sockets.close()

    def _routes(self) -> list[web.AbstractRouteDef]:
        return [
            web.get("/", self._page),
            *(web.get(f"/{name}", self._page) for name in SCREENS),
            *(web.get(f"/{name}/{{rest:.+}}", self._page) for name in SCREENS),
            web.static("/static", STATIC),
            web.get("/live", self._live),
            web.get("/api/about", self._about),
            web.get("/api/series", self._series),
            web.get("/api/objects/{kind}/{name}", self._object),
            web.get("/api/partitions/{name}/replicas", self._replicas),
            web.get("/api/topics/{name}/segments", self._segments),
            web.get("/api/topics/{name}/records", self._records),
            web.get("/api/topics/{name}/tail", self._tail),
            web.get("/api/streams/{scope}/{name}/epochs", self._stream_epochs),
            web.get("/api/consumers", self._list_consumers),
            web.get("/api/groups", self._list_groups),
            web.get("/api/events", self._events),
            web.get("/api/trace/{cause}", self._trace),
            web.get("/api/logs/{daemon}", self._logs),
            web.get("/metrics", self._scrape),
            web.get("/health", self._health),
        ]

    @web.middleware
    async def _middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            check_request(request.headers, self._names)
            response = await handler(request)
        except RunnelError as error:
            response = _refused(error)
        except web.HTTPException as error:
            response = _refused(
                NotFoundError(f"there is nothing at {request.path}")
                if error.status == 404
                else InvalidRequestError(f"{request.method} {request.path}: {error.reason}"),
                error.status,
            )
        except ConnectionError:
            raise
        except Exception as error:
            log.error("request failed", path=request.path, exc_info=error)
            response = _refused(RunnelError(f"internal error: {error!r}"))
        if not response.prepared:
            response.headers.update(HEADERS)
            # A browser asks each time whether a file has changed: after an upgrade it has.
            response.headers.setdefault(
                hdrs.CACHE_CONTROL, "no-cache" if _is_file(request) else "no-store"
            )
        return response

    # -- pages ----------------------------------------------------------------------------------

    async def _page(self, _request: web.Request) -> web.StreamResponse:
        return web.FileResponse(STATIC / "index.html")

    async def _live(self, request: web.Request) -> web.StreamResponse:
        return await serve_live(self.hub, request, self._sockets)

    # -- answers --------------------------------------------------------------------------------

    async def _about(self, _request: web.Request) -> web.Response:
        return _json(
            {
                "sc": self._config.sc,
                "version": version("runnel"),
                "records": self._config.records,
                "loopback": is_loopback(self._config.http.host),
            }
        )

    async def _series(self, request: web.Request) -> web.Response:
        seconds = _seconds(request.query.get("seconds", str(MAX_SERIES_S)))
        return _json(await series(self._sc, seconds))

    async def _object(self, request: web.Request) -> web.Response:
        kind = request.match_info["kind"]
        if kind not in BY_PLURAL:
            raise NotFoundError(f"{kind!r} is no kind; there are {', '.join(BY_PLURAL)}")
        return _json(await describe(self._cluster, kind, request.match_info["name"]))

    async def _replicas(self, request: web.Request) -> web.Response:
        return _json(await replicas(self._cluster, request.match_info["name"]))

    async def _segments(self, request: web.Request) -> web.Response:
        first = request.query.get("first", "0")
        if not (first.isascii() and first.isdigit() and len(first) < 10):
            raise InvalidRequestError(f"first: {first!r} is not the number of a partition")
        return _json(await segments(self._cluster, request.match_info["name"], int(first)))

    async def _stream_epochs(self, request: web.Request) -> web.Response:
        last = request.query.get("last")
        if last is not None and not (last.isascii() and last.isdigit() and len(last) < 10):
            raise InvalidRequestError(f"last: {last!r} is not the number of an epoch")
        name = f"{request.match_info['scope']}/{request.match_info['name']}"
        state = self.hub.state
        existing = {p.spec.segment_id or 0 for p in state.partitions_of(name)}
        # Before the hub knows the cluster, nothing says that a segment is gone.
        known = existing if state.complete else None
        wanted = None if last is None else int(last)
        return _json(await self._epochs.latest(name, wanted, known))

    async def _records(self, request: web.Request) -> web.Response:
        self._require_records()
        page = read_page(request.query)
        return _json(await records(self._cluster, request.match_info["name"], page))

    async def _tail(self, request: web.Request) -> web.StreamResponse:
        self._require_records()
        partition = read_page(request.query).partition
        topic = request.match_info["name"]
        return await serve_tail(self._cluster, topic, partition, request, self._sockets)

    def _require_records(self) -> None:
        if not self._config.records:
            raise NotFoundError("this dashboard shows no records: its configuration says so")

    async def _list_consumers(self, _request: web.Request) -> web.Response:
        return _json(consumers_json(await self._consumers.get()))

    async def _list_groups(self, _request: web.Request) -> web.Response:
        return _json(groups_json(await self._groups.get()))

    async def _events(self, request: web.Request) -> web.Response:
        query = request.query
        return _json(await events(self._sc, query.get("for"), query.get("cause")))

    async def _trace(self, request: web.Request) -> web.Response:
        return _json(await traced(self._sc, request.match_info["cause"]))

    async def _logs(self, request: web.Request) -> web.Response:
        level = request.query.get("level", LogLevel.INFO.value)
        if level not in [*LogLevel]:
            raise InvalidRequestError(f"level: {level!r} is none of {', '.join(LogLevel)}")
        daemon = request.match_info["daemon"]
        return _json(await log_lines(self._cluster, self._sc, daemon, LogLevel(level)))

    # -- for programs ---------------------------------------------------------------------------

    async def _scrape(self, _request: web.Request) -> web.Response:
        self._metrics.browsers = self.hub.browsers
        try:
            async with asyncio.timeout(SCRAPE_S):
                found = await self._consumers.get()
            self._metrics.lags = partition_lags(found, datetime.now(UTC))
            self._metrics.cluster_up = True
        except (RunnelError, TimeoutError):
            self._metrics.lags, self._metrics.cluster_up = (), False
        return web.Response(
            body=exposition(self._registry), headers={hdrs.CONTENT_TYPE: CONTENT_TYPE}
        )

    async def _health(self, _request: web.Request) -> web.Response:
        return _json({"status": "ok"})


class _DashboardCollector(Collector):
    """The metrics of the dashboard, as the last scrape has found them."""

    def __init__(self) -> None:
        self.browsers = 0
        self.cluster_up = False
        self.lags: tuple[PartitionLag, ...] = ()

    def collect(self) -> Iterable[Metric]:
        yield BROWSERS.of(self.browsers)
        yield CLUSTER_UP.of(float(self.cluster_up))
        yield from lag_metrics(self.lags)


def _json(data: Any, status: int = 200) -> web.Response:
    return web.json_response(data, status=status, dumps=_dumps)


def _dumps(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def _refused(error: RunnelError, status: int | None = None) -> web.Response:
    return _json(
        {"code": error.code.name, "message": error.message},
        status or _STATUS.get(error.code, 500),
    )


def _seconds(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 6 and 1 <= int(text) <= MAX_SERIES_S):
        raise InvalidRequestError(f"seconds: {text!r} is not a number from 1 to {MAX_SERIES_S}")
    return int(text)


def _is_file(request: web.Request) -> bool:
    return not request.path.startswith(("/api/", "/metrics", "/health", "/live"))
