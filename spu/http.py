"""``/metrics`` and ``/health`` of an SPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from connection_manager.guarded_site import (
    ConnectionGuard,
    ConnectionLimits,
    GuardedSite,
    serving,
)
from connection_manager.port_runner import port_runner
from schemas.control.messages import ReplicaRole
from spu.config import HttpLimits
from spu.control import SpuControl
from spu.host.host import ReplicaHost
from spu.server.listener import Listener

#: Descriptors that probes and scrapers leave to logs and to clients.
SPARE_DESCRIPTORS: Final = 64


class _SpuCollector(Collector):
    """Reads the listener's counters and the replicas' state on each scrape."""

    def __init__(self, host: ReplicaHost, listener: Listener, control: SpuControl) -> None:
        self._host = host
        self._listener = listener
        self._control = control

    def collect(self) -> Iterator[Metric]:
        counters = self._listener.counters
        requests = CounterMetricFamily("runnel_spu_requests", "Requests by api.", labels=["api"])
        for api, count in counters.requests.items():
            requests.add_metric([str(api)], count)
        yield requests
        yield CounterMetricFamily(
            "runnel_spu_received_bytes", "Bytes from clients.", value=counters.bytes_in
        )
        yield CounterMetricFamily(
            "runnel_spu_sent_bytes", "Bytes to clients.", value=counters.bytes_out
        )
        errors = CounterMetricFamily(
            "runnel_spu_errors", "Requests answered with an error, by code.", labels=["code"]
        )
        for code, count in counters.errors.items():
            errors.add_metric([code], count)
        yield errors
        yield GaugeMetricFamily(
            "runnel_spu_connections", "Clients connected now.", value=counters.connections
        )
        reports = self._host.reports()
        replicas = GaugeMetricFamily("runnel_spu_replicas", "Replicas by role.", labels=["role"])
        for role in ReplicaRole:
            replicas.add_metric([role.value], sum(r.role is role for r in reports))
        yield replicas
        yield GaugeMetricFamily(
            "runnel_spu_unfit_replicas",
            "Replicas that may not lead.",
            value=sum(not r.fit for r in reports),
        )
        yield GaugeMetricFamily(
            "runnel_spu_stalled_replicas",
            "Replicas that lead and have committed nothing for a while although records wait.",
            value=len(self._host.obstacles.stalled),
        )
        yield GaugeMetricFamily(
            "runnel_spu_unreachable_peers",
            "SPUs that this one has to connect to and has not reached for a while.",
            value=len(self._host.obstacles.unreachable),
        )
        scrubber = self._host.scrubber
        yield CounterMetricFamily(
            "runnel_spu_scrubbed_bytes",
            "Bytes that scrubbing has verified.",
            value=scrubber.checked_bytes,
        )
        yield CounterMetricFamily(
            "runnel_spu_scrub_passes", "Passes over all replicas.", value=scrubber.passes
        )
        yield CounterMetricFamily(
            "runnel_spu_scrub_damaged_replicas",
            "Replicas in which scrubbing found damaged records or indexes.",
            value=scrubber.damaged,
        )
        yield GaugeMetricFamily(
            "runnel_spu_connected", "1 with an SC session.", value=int(self._control.connected)
        )


async def start_http_server(
    host: ReplicaHost,
    listener: Listener,
    control: SpuControl,
    address: str,
    port: int,
    limits: HttpLimits | None = None,
) -> tuple[web.AppRunner, int]:
    """Start to listen; returns the runner, for the caller to clean up, and the bound port."""
    limits = limits or HttpLimits()
    guard = ConnectionGuard(
        ConnectionLimits(
            connections=limits.connections,
            waiting=limits.waiting_connections,
            waiting_per_address=limits.waiting_connections_per_address,
            spare_descriptors=SPARE_DESCRIPTORS,
        )
    )
    registry = CollectorRegistry()
    registry.register(_SpuCollector(host, listener, control))

    async def metrics(_request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), content_type="text/plain")

    async def health(_request: web.Request) -> web.Response:
        return web.json_response({"status": "ok", "controllerConnected": control.connected})

    app = web.Application(middlewares=[serving])
    app.add_routes([web.get("/metrics", metrics), web.get("/health", health)])
    runner = port_runner(app)
    await runner.setup()
    try:
        await GuardedSite(runner, address, port, guard).start()
    except BaseException:
        await runner.cleanup()
        raise
    bound: int = runner.addresses[0][1]
    return runner, bound
