"""The SPU daemon: recover what is on disk, serve clients, follow the SC, stop cleanly.

It serves before it reaches the SC: it goes on leading the partitions that it led as their only
live replica.
"""

from __future__ import annotations

import asyncio
import signal
import time
from contextlib import AsyncExitStack
from importlib.metadata import version
from pathlib import Path

from connection_manager.client import ControllerLink
from schemas.daemon.collector import held, spare_what_is_there
from schemas.daemon.log_ring import LogRing
from schemas.daemon.logs import configure_logs, get_logger
from schemas.daemon.open_files import raise_limit
from schemas.daemon.secret_file import DEFAULT_FILE
from spu.config import SpuConfig
from spu.control import SpuControl
from spu.host.handover import hand_over
from spu.host.host import ReplicaHost
from spu.http import start_http_server
from spu.known_controllers import KnownControllers
from spu.server.listener import Listener
from spu.statistics import tell_statistics
from spu.storage.file_limits import divide

log = get_logger(__name__)


def _clock_us() -> int:
    return time.time_ns() // 1_000


async def serve(config: SpuConfig, logs: LogRing | None = None) -> None:
    """Run until a signal asks it to stop; clients may read ``logs``.

    Raises RunnelError or OSError if it cannot start.
    """
    files = divide(raise_limit())
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        secret_file = Path(config.secret_file or Path(config.log_dir, DEFAULT_FILE))
        controllers = KnownControllers(config.controller, Path(config.log_dir))
        control = SpuControl(config.spu_id, version("runnel"), secret_file, controllers)
        host = ReplicaHost(
            Path(config.log_dir),
            config.spu_id,
            control,
            _clock_us,
            storage_size=config.storage_size,
            open_files=files.logs,
            scrub_period_s=None if config.scrub_period is None else config.scrub_period / 1000,
            catch_up_rate=config.catch_up_rate,
        )
        control.attach(host)
        with held():
            await host.open()
        spare_what_is_there()
        stack.push_async_callback(host.close)
        private = await host.peers.listen(config.private_host, config.private.port)
        listener = Listener(host, files.clients, files.unproven, logs)
        public = await listener.start(config.public.host, config.public.port)
        stack.push_async_callback(listener.close)
        runner, http = await start_http_server(
            host,
            listener,
            control,
            config.http.host,
            config.http.port,
            config.limits.http,
            config.metrics,
        )
        stack.push_async_callback(runner.cleanup)
        log.info(
            "serving",
            spu=config.spu_id,
            public=public,
            private=private,
            http=http,
            logDir=config.log_dir,
        )
        if config.contradiction is not None:
            log.warning("SPUs on other machines cannot reach this one", why=config.contradiction)
        link = ControllerLink(controllers.addresses, control)
        tasks = [
            asyncio.create_task(link.run(), name="controller link"),
            asyncio.create_task(control.send(), name="reports"),
            asyncio.create_task(tell_statistics(host, listener, control), name="statistics"),
            asyncio.create_task(stop.wait(), name="stop signal"),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            log.info("stopping", spu=config.spu_id)
            await hand_over(host.replicas, control, lambda: control.connected)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def run(config: SpuConfig) -> None:
    """Run the daemon in this process. Raises RunnelError or OSError."""
    logs = configure_logs(f"spu-{config.spu_id}", level=config.log_level, form=config.log_format)
    import uvloop

    uvloop.run(serve(config, logs))
