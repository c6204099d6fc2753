"""The SC daemon: configuration in, servers up, a clean stop on SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Final

from connection_manager.guarded_site import ConnectionLimits
from connection_manager.manager import start_private_server
from connection_manager.private_port import PrivatePort
from sc.api.server import PublicServer, start_public_server
from sc.api.standby import LeaderProxy
from sc.config import PrivateLimits, ScConfig
from sc.controller import Controller, MakeProvisioner
from sc.dispatch.kv_updater import written_at
from sc.election.names import claim_name, own_process
from sc.election.node import Node
from sc.election.office import LocalOffice
from sc.kv import open_kv
from sc.kv.interface import KV
from sc.leadership import Leadership, check_place
from sc.mirror import Mirror
from sc.provisioning.local import LocalProvisioner
from sc.sharing.claims import BucketClaims
from sc.sharing.facts_port import FactsPort
from schemas.control.controllers import ControllerEntry
from schemas.control.facts import PATH as FACTS
from schemas.daemon.collector import spare_what_is_there
from schemas.daemon.daemon import Listen
from schemas.daemon.kv_url import without_password
from schemas.daemon.log_ring import LogRing
from schemas.daemon.logs import configure_logs, get_logger
from schemas.daemon.open_files import raise_limit
from schemas.errors import InvalidRequestError, RunnelError

#: Descriptors that SPUs leave to the store and to ``/proc``.
PRIVATE_SPARE_DESCRIPTORS: Final = 32
#: etcd counts leases in seconds, and a holder stops a second before the end.
SHORTEST_LEASE_MS: Final = 2_000
LONGEST_LEASE_MS: Final = 60_000
#: How often an SC looks whether another one starts the same SPUs.
LOOK_AT_OTHERS_S: Final = 1.0
EVERYWHERE: Final = ("0.0.0.0", "::", "")  # noqa: S104 - nobody listens here

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
        await _check_free(listen)
    if not SHORTEST_LEASE_MS <= config.lease <= LONGEST_LEASE_MS:
        raise InvalidRequestError(
            f"lease: {config.lease} ms; write {SHORTEST_LEASE_MS // 1000}s to"
            f" {LONGEST_LEASE_MS // 1000}s: for so long nobody leads after the leading SC is gone,"
            " and etcd counts whole seconds"
        )
    if config.advertised_host in EVERYWHERE:
        raise InvalidRequestError(
            f"advertisedHost: {config.advertised_host} stands for all addresses; write the name or"
            " the IP address at which clients, SPUs and other SCs reach this host"
        )
    # From here on it may wait for long: for the KV, for its name.
    await _until(stop, _serve_over_kv(config, logs))


async def _serve_over_kv(config: ScConfig, logs: LogRing | None) -> None:
    kv = await open_kv(config.kv)
    try:
        if kv.SHARED:
            await _serve_in_turn(config, kv, logs)
        else:
            await _serve_alone(config, kv, logs)
    finally:
        await kv.close()


async def _serve_alone(config: ScConfig, kv: KV, logs: LogRing | None) -> None:
    """Lead from the start to the end: nobody else can use this KV."""
    controller = await Controller.acquire(
        kv,
        config.cluster,
        grace_ms=config.grace_ms,
        provisioner=_provisioner(config),
        require_secrets=config.require_spu_secrets,
        buckets=config.buckets,
    )
    spare_what_is_there()
    spus = PrivatePort(lambda: None)
    spus.manager = controller.connections
    only = LocalOffice(
        _entry(config, config.public.port, config.private.port),
        controller.leadership.identity.buckets,
    )
    server = _server(config, controller.mirror, only, logs, None)
    server.lead(controller)
    async with _serving(config, spus, server) as (public, private):
        only.me = _entry(config, public, private)
        await controller.run_alone()


async def _serve_in_turn(config: ScConfig, kv: KV, logs: LogRing | None) -> None:
    """Stand by, and lead when this SC is elected."""
    mirror = Mirror(kv, config.cluster)
    await check_place(kv, mirror.keys, config.buckets)
    await mirror.load()
    me = _entry(config, config.public.port, config.private.port)
    check_provisions(me, mirror.controllers.values())
    spare_what_is_there()
    provisioner = _provisioner(config)

    def make(
        leadership: Leadership, holds: Callable[[], bool], claims: BucketClaims | None
    ) -> Controller:
        return Controller(
            mirror,
            leadership,
            grace_ms=config.grace_ms,
            provisioner=provisioner,
            require_secrets=config.require_spu_secrets,
            holds=holds,
            claims=claims,
        )

    def leads(controller: Controller | None) -> None:
        spus.manager = None if controller is None else controller.connections
        facts.leading = controller
        server.lead(controller)

    def leader() -> ControllerEntry | None:
        found = mirror.leader_entry
        if mirror.kv_health.away_ms >= config.lease:
            # Nobody can have renewed a lease.
            return None
        return None if found is None or found.name == me.name else found

    facts = FactsPort()
    spus = PrivatePort(lambda: None if (found := leader()) is None else found.private)
    office = LocalOffice(me, shared=True)
    proxy = LeaderProxy(mirror, me.name, leader)
    server = _server(config, mirror, office, logs, proxy)
    async with _serving(config, spus, server, facts) as (public, private):
        # Ports may be free ones, which are known now.
        me = office.me = _entry(config, public, private)
        lease_ms = int(config.lease)
        node = Node(
            mirror,
            me,
            make,
            leads,
            buckets=config.buckets,
            lease_ms=lease_ms,
            predecessor=await claim_name(kv, mirror.keys, me, lease_ms),
        )
        office.node = node
        await _watching_provisions(node.run(), mirror, me)


async def _watching_provisions(
    working: Coroutine[None, None, None], mirror: Mirror, me: ControllerEntry
) -> None:
    """Do something, and look whether another SC that was started at the same moment starts the same
    SPUs: neither saw the other one then."""
    async with asyncio.TaskGroup() as group:
        work = group.create_task(working, name="node")
        while not work.done():
            earlier = (
                other
                for other in mirror.controllers.values()
                if (other.since, other.name) < (me.since, me.name)
            )
            check_provisions(me, earlier)
            await asyncio.wait([work], timeout=LOOK_AT_OTHERS_S)


def _server(
    config: ScConfig,
    mirror: Mirror,
    office: LocalOffice,
    logs: LogRing | None,
    proxy: LeaderProxy | None,
) -> PublicServer:
    named = () if config.advertised_host is None else (config.advertised_host,)
    return PublicServer(
        mirror,
        office,
        version("runnel"),
        (config.public.host, *named, *config.allowed_hosts),
        config.limits,
        logs,
        dashboard=config.dashboard,
        proxy=proxy,
    )


@asynccontextmanager
async def _serving(
    config: ScConfig, spus: PrivatePort, server: PublicServer, facts: FactsPort | None = None
) -> AsyncIterator[tuple[int, int]]:
    """Listen to SPUs, to other SCs and to clients; gives the ports."""
    async with AsyncExitStack() as stack:
        runner, private = await start_private_server(
            spus.serve,
            config.private.host,
            config.private.port,
            _private_limits(config.limits.private),
            {} if facts is None else {FACTS: facts.serve},
        )
        stack.push_async_callback(runner.cleanup)
        runner, public = await start_public_server(server, config.public.host, config.public.port)
        stack.push_async_callback(runner.cleanup)
        log.info("serving", public=public, private=private, kv=without_password(config.kv))
        yield public, private


def _entry(config: ScConfig, public: int, private: int) -> ControllerEntry:
    """What this SC says of itself to others."""
    host = config.advertised_host or config.public.host
    if host in EVERYWHERE:
        host = socket.gethostname()
    shown = _in_address(host)
    provisions = None
    if config.provisioning is not None:
        provisions = f"{socket.gethostname()}:{Path(config.provisioning.directory).resolve()}"
    return ControllerEntry(
        name=f"{shown}:{public}",
        public=f"{shown}:{public}",
        private=f"{shown}:{private}",
        version=version("runnel"),
        since=written_at(),
        instance=secrets.token_hex(8),
        provisions=provisions,
        shares=True,
        **own_process(),
    )


def _in_address(host: str) -> str:
    """A host as it stands before a port."""
    return f"[{host}]" if ":" in host else host


def check_provisions(mine: ControllerEntry, others: Iterable[ControllerEntry]) -> None:
    """Raise InvalidRequestError where two SCs would each start the SPUs of the same SpuGroups."""
    for other in others:
        if other.name == mine.name or None in (mine.provisions, other.provisions):
            continue
        if other.provisions != mine.provisions:
            raise InvalidRequestError(
                f"provisioning: SC {other.name} starts managed SPUs in {other.provisions}, and this"
                f" one would start the same ones in {mine.provisions}: leave provisioning out here"
            )


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
    address = f"{_in_address(config.private.host)}:{config.private.port}"
    ports = frozenset({config.public.port, config.private.port})
    allowed = tuple(map(Path, config.provisioning.allowed_dirs))
    return partial(LocalProvisioner, directory, address, ports, allowed_dirs=allowed)


async def _check_free(listen: Listen) -> None:
    """Raise OSError where this process could not listen, before it deposes the SC that leads: at
    one of the addresses that its servers bind, IPv4 and IPv6."""
    loop = asyncio.get_running_loop()
    try:
        bound = await loop.create_server(
            asyncio.Protocol, listen.host, listen.port, start_serving=False
        )
        bound.close()
    except OSError as error:
        # What a name means has other numbers than what the system refuses.
        why = error.strerror or str(error)
        if error.errno is not None and not isinstance(error, socket.gaierror):
            # Without the address, which asyncio adds.
            why = os.strerror(error.errno)
        raise OSError(error.errno, f"{listen.host}:{listen.port}: {why}") from error


async def _until(stop: asyncio.Event, working: Coroutine[None, None, None]) -> None:
    work = asyncio.create_task(working, name="SC")
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
