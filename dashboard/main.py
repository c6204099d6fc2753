"""The dashboard process: serve until a signal asks to stop."""

from __future__ import annotations

import asyncio
import signal

from dashboard.config import DashboardConfig
from dashboard.live.hub import running
from dashboard.server import DashboardServer
from schemas.daemon.logs import configure_logs, get_logger
from schemas.daemon.open_files import raise_limit
from schemas.objects.spu import is_loopback

log = get_logger(__name__)


async def serve(config: DashboardConfig) -> None:
    """Run until a signal. Raises RunnelError or OSError if it cannot start, and what ends the hub:
    a dashboard without one shows a cluster that stands still."""
    raise_limit()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    server = DashboardServer(config)
    try:
        runner, port = await server.start()
        try:
            async with running(server.hub) as following:
                log.info("serving", url=f"http://{_shown(config.http.host)}:{port}", sc=config.sc)
                if not is_loopback(config.http.host):
                    log.warning(
                        "everybody who reaches this address sees the cluster",
                        host=config.http.host,
                        records=config.records,
                    )
                await _until(stop, following)
                log.info("stopping")
        finally:
            await runner.cleanup()
    finally:
        await server.close()


async def _until(stop: asyncio.Event, following: asyncio.Task[None]) -> None:
    stopped = asyncio.create_task(stop.wait(), name="stop signal")
    try:
        await asyncio.wait([following, stopped], return_when=asyncio.FIRST_COMPLETED)
        if following.done():
            following.result()
    finally:
        stopped.cancel()


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def run(config: DashboardConfig) -> None:
    """Run the dashboard in this process. Raises RunnelError or OSError."""
    configure_logs("dashboard", level=config.log_level, form=config.log_format)
    import uvloop

    uvloop.run(serve(config))
