"""Several SCs over one KV in this process, with the servers that the daemon has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from connection_manager.manager import start_private_server
from connection_manager.private_port import PrivatePort
from sc.api.server import PublicServer, start_public_server
from sc.api.standby import LeaderProxy
from sc.controller import Controller, MakeProvisioner
from sc.election.node import Node
from sc.election.office import LocalOffice
from sc.kv.interface import KV
from sc.leadership import Leadership
from sc.mirror import Mirror, boottime_ms
from sc.sharing.claims import BucketClaims
from sc.sharing.facts_port import FactsPort
from schemas.control.controllers import ControllerEntry
from schemas.control.facts import PATH
from tests.integration.sc.connections import PRIVATE_LIMITS
from tests.polling import eventually

LEASE_MS = 900


@dataclass
class RunningNode:
    """One SC and how to reach it. ``ahead_ms`` is how far its clock has jumped."""

    name: str
    mirror: Mirror
    http: aiohttp.ClientSession
    public: str
    private: str
    clock: list[int] = field(default_factory=lambda: [0])
    node: Node = field(init=False)
    work: asyncio.Task[None] = field(init=False)

    @property
    def controller(self) -> Controller:
        found = self.node.controller
        assert found is not None, f"{self.name} does not lead"
        return found

    @property
    def leads(self) -> bool:
        return self.node.controller is not None

    def jump(self, ms: int) -> None:
        """Its process was stopped for so long, and goes on."""
        self.clock[0] += ms

    async def call(
        self, method: str, path: str, body: object = None, **headers: str
    ) -> tuple[int, dict[str, Any]]:
        async with self.http.request(
            method, f"http://{self.public}{path}", json=body, headers=headers
        ) as response:
            return response.status, await response.json()

    async def die(self) -> None:
        """End as a process that is killed: its lease stays."""
        self.node.keeper.lease = 0
        self.work.cancel()
        await asyncio.gather(self.work, return_exceptions=True)


@asynccontextmanager
async def running_node(
    kv: KV,
    *,
    lease_ms: int = LEASE_MS,
    grace_ms: int = 5_000,
    provisioner: MakeProvisioner | None = None,
) -> AsyncIterator[RunningNode]:
    """Run one until the block ends."""
    async with AsyncExitStack() as stack:
        clock = [0]
        mirror = Mirror(kv, "test", clock_ms=lambda: boottime_ms() + clock[0])
        await mirror.load()

        def leader() -> ControllerEntry | None:
            found = mirror.leader_entry
            return None if found is None or found.name == me.name else found

        def make(
            leadership: Leadership, holds: Callable[[], bool], claims: BucketClaims | None
        ) -> Controller:
            return Controller(
                mirror,
                leadership,
                grace_ms=grace_ms,
                provisioner=provisioner,
                holds=holds,
                claims=claims,
            )

        def leads(controller: Controller | None) -> None:
            spus.manager = None if controller is None else controller.connections
            facts.leading = controller
            server.lead(controller)

        spus = PrivatePort(lambda: None if (found := leader()) is None else found.private)
        facts = FactsPort()
        runner, private = await start_private_server(
            spus.serve, "127.0.0.1", 0, PRIVATE_LIMITS, {PATH: facts.serve}
        )
        stack.push_async_callback(runner.cleanup)
        me = ControllerEntry(
            name="?", public="?", private="?", version="test", since="-", instance="i"
        )
        office = LocalOffice(me, shared=True)
        proxy = LeaderProxy(mirror, f"sc-{private}", leader)
        server = PublicServer(mirror, office, "test", proxy=proxy)
        runner, public = await start_public_server(server, "127.0.0.1", 0)
        stack.push_async_callback(runner.cleanup)
        me = office.me = ControllerEntry(
            name=f"sc-{private}",
            public=f"127.0.0.1:{public}",
            private=f"127.0.0.1:{private}",
            version="test",
            since="2026-01-01T00:00:00Z",
            instance=f"of {private}",
            shares=True,
        )
        http = await stack.enter_async_context(aiohttp.ClientSession())
        running = RunningNode(me.name, mirror, http, me.public, me.private, clock)
        running.node = office.node = Node(mirror, me, make, leads, lease_ms=lease_ms)
        running.work = asyncio.create_task(running.node.run())

        async def stop() -> None:
            running.work.cancel()
            await asyncio.gather(running.work, return_exceptions=True)

        stack.push_async_callback(stop)
        yield running


async def leader_of(nodes: list[RunningNode]) -> RunningNode:
    """The one that leads, once all know it."""

    def known() -> bool:
        leading = [one for one in nodes if one.leads]
        names = {None if (e := one.mirror.leader_entry) is None else e.name for one in nodes}
        return len(leading) == 1 and names == {leading[0].name}

    await eventually(known)
    return next(one for one in nodes if one.leads)


def others(nodes: list[RunningNode], leader: RunningNode) -> list[RunningNode]:
    """All but the one that leads."""
    return [one for one in nodes if one is not leader]


def make_stale(node: RunningNode) -> None:
    """Its watch broke ten seconds ago, and nobody mends it."""
    node.mirror._mend = asyncio.Event().wait  # type: ignore[method-assign, assignment]
    node.mirror._broken_since_ms = node.mirror.clock_ms() - 10_000
