"""``/metrics`` and ``/health`` of an SPU."""

from __future__ import annotations

from importlib.metadata import version
from typing import Final

from aiohttp import hdrs, web
from prometheus_client.registry import Collector

from connection_manager.guarded_site import (
    ConnectionGuard,
    ConnectionLimits,
    GuardedSite,
    serving,
)
from connection_manager.port_runner import port_runner
from schemas.daemon.metrics import CONTENT_TYPE, daemon_registry, exposition
from spu.config import HttpLimits, MetricsConfig
from spu.control import SpuControl
from spu.host.host import ReplicaHost
from spu.metrics.partitions import PartitionCollector
from spu.metrics.spu import SpuCollector
from spu.server.listener import Listener

#: Descriptors that probes and scrapers leave to logs and to clients.
SPARE_DESCRIPTORS: Final = 64


async def start_http_server(
    host: ReplicaHost,
    listener: Listener,
    control: SpuControl,
    address: str,
    port: int,
    limits: HttpLimits | None = None,
    shown: MetricsConfig | None = None,
) -> tuple[web.AppRunner, int]:
    """Start to listen; returns the runner, for the caller to clean up, and the bound port.
    ``shown`` says which metrics there are."""
    limits = limits or HttpLimits()
    guard = ConnectionGuard(
        ConnectionLimits(
            connections=limits.connections,
            waiting=limits.waiting_connections,
            waiting_per_address=limits.waiting_connections_per_address,
            spare_descriptors=SPARE_DESCRIPTORS,
        )
    )
    collectors: list[Collector] = [SpuCollector(host, listener.counters, control)]
    if shown is not None and shown.per_partition:
        collectors.append(PartitionCollector(host))
    registry = daemon_registry(version("runnel"), collectors)

    async def metrics(_request: web.Request) -> web.Response:
        return web.Response(body=exposition(registry), headers={hdrs.CONTENT_TYPE: CONTENT_TYPE})

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
