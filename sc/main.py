"""The SC daemon: configuration in, servers up, a clean stop on SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Final

from connection_manager.guarded_site import ConnectionLimits
from connection_manager.manager import start_private_server
from sc.api.server import PublicServer, start_public_server
from sc.config import PrivateLimits, ScConfig
from sc.controller import Controller, MakeProvisioner
from sc.kv import open_kv
from sc.provisioning.local import LocalProvisioner
from schemas.daemon.collector import spare_what_is_there
from schemas.daemon.daemon import Listen
from schemas.daemon.kv_url import without_password
from schemas.daemon.log_ring import LogRing
from schemas.daemon.logs import configure_logs, get_logger
from schemas.daemon.open_files import raise_limit
from schemas.errors import InvalidRequestError, RunnelError

#: Descriptors that SPUs leave to the store and to ``/proc``.
PRIVATE_SPARE_DESCRIPTORS: Final = 32

log = get_logger(__name__)


async def serve(config: ScConfig, logs: LogRing | None = None) -> None:
    """Run until a signal asks to stop; clients may read ``logs``.

    Raises RunnelError or OSError when it cannot start.
    """
    raise_limit()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    for listen in (config.public, config.private):
        _check_free(listen)
    kv = await open_kv(config.kv)
    try:
        controller = await Controller.acquire(
            kv,
            config.cluster,
            grace_ms=config.grace_ms,
            provisioner=_provisioner(config),
            require_secrets=config.require_spu_secrets,
            buckets=config.buckets,
        )
        spare_what_is_there()
        private, private_port = await start_private_server(
            controller.connections,
            config.private.host,
            config.private.port,
            _private_limits(config.limits.private),
        )
        try:
            hosts = (config.public.host, *config.allowed_hosts)
            server = PublicServer(
                controller,
                version("runnel"),
                hosts,
                config.limits,
                logs,
                dashboard=config.dashboard,
            )
            public, public_port = await start_public_server(
                server, config.public.host, config.public.port
            )
            try:
                log.info(
                    "serving",
                    public=public_port,
                    private=private_port,
                    kv=without_password(config.kv),
                )
                await _until(stop, controller)
            finally:
                await public.cleanup()
        finally:
            await private.cleanup()
    finally:
        await kv.close()


def _private_limits(limits: PrivateLimits) -> ConnectionLimits:
    """The bounds of the private port."""
    return ConnectionLimits(
        connections=limits.connections,
        waiting=limits.waiting_connections,
        waiting_per_address=limits.waiting_connections_per_address,
        spare_descriptors=PRIVATE_SPARE_DESCRIPTORS,
    )


def _provisioner(config: ScConfig) -> MakeProvisioner | None:
    """What starts managed SPUs. Raises InvalidRequestError."""
    if config.provisioning is None:
        return None
    if config.private.port == 0:
        raise InvalidRequestError("provisioning: SPUs must know private.port; it cannot be 0")
    directory = Path(config.provisioning.directory)
    address = f"{config.private.host}:{config.private.port}"
    ports = frozenset({config.public.port, config.private.port})
    allowed = tuple(map(Path, config.provisioning.allowed_dirs))
    return partial(LocalProvisioner, directory, address, ports, allowed_dirs=allowed)


def _check_free(listen: Listen) -> None:
    """Raise OSError where this process could not listen, before it deposes the SC that leads."""
    try:
        socket.create_server((listen.host, listen.port)).close()
    except OSError as error:
        why = os.strerror(error.errno) if error.errno is not None else str(error)
        raise OSError(error.errno, f"{listen.host}:{listen.port}: {why}") from error


async def _until(stop: asyncio.Event, controller: Controller) -> None:
    work = asyncio.create_task(controller.run(), name="controller")
    stopped = asyncio.create_task(stop.wait(), name="stop signal")
    try:
        await asyncio.wait([work, stopped], return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            try:
                work.result()
            except BaseExceptionGroup as group:
                # What stopped the controller is one thing, however many tasks met it.
                expected = group.subgroup(RunnelError)
                raise (_leaf(expected) if expected is not None else group) from None
        log.info("stopping")
    finally:
        stopped.cancel()
        work.cancel()
        await asyncio.gather(work, stopped, return_exceptions=True)


def _leaf(group: BaseException) -> BaseException:
    return _leaf(group.exceptions[0]) if isinstance(group, BaseExceptionGroup) else group


def run(config: ScConfig) -> None:
    """Run the daemon in this process. Raises RunnelError or OSError."""
    logs = configure_logs("sc", level=config.log_level, form=config.log_format)
    import uvloop

    uvloop.run(serve(config, logs))
