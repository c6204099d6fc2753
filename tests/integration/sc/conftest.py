"""A controller over a memory KV with its two servers on free ports."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import aiohttp
import pytest

from connection_manager.manager import start_private_server
from sc.api.server import PublicServer, start_public_server
from sc.controller import Controller
from sc.election.office import LocalOffice
from sc.kv import open_kv
from sc.kv.interface import KV
from schemas.objects.manifest.validation import parse_object
from schemas.objects.metadata import Object
from tests.integration.sc.connections import PRIVATE_LIMITS
from tests.integration.sc.several import RunningNode, running_node
from tests.polling import eventually
from tests.unit.sc.builders import SC


@dataclass
class RunningSc:
    """An SC under test and how to reach it."""

    controller: Controller
    http: aiohttp.ClientSession
    public: str
    private: str
    work: asyncio.Task[None]
    server: PublicServer

    async def call(
        self, method: str, path: str, body: object = None
    ) -> tuple[int, dict[str, object]]:
        """Status and JSON of one request."""
        async with self.http.request(method, f"{self.public}{path}", json=body) as response:
            return response.status, await response.json()

    async def create(self, kind: str, name: str, spec: dict[str, object]) -> tuple[int, object]:
        cls = {"Spu": "spus", "Topic": "topics"}.get(kind, kind)
        return await self.call("POST", f"/v1/{cls}", manifest(kind, name, spec))

    async def until(self, plural: str, name: str, resolution: str) -> Object:
        """Wait until an object has a resolution; fails after 10 s with what it was last."""
        last: object = None
        async with asyncio.timeout(10):
            while True:
                status, last = await self.call("GET", f"/v1/{plural}/{name}")
                if status == 200 and last["status"]["resolution"] == resolution:  # type: ignore[index]
                    return parse_object(last)
                await asyncio.sleep(0.01)
        raise AssertionError(f"{plural}/{name} did not become {resolution}: {last}")

    async def until_gone(self, plural: str, name: str) -> None:
        async def gone() -> bool:
            return (await self.call("GET", f"/v1/{plural}/{name}"))[0] == 404

        await eventually(gone)


def manifest(kind: str, name: str, spec: dict[str, object]) -> dict[str, object]:
    return {"apiVersion": "runnel/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


@asynccontextmanager
async def run_sc(
    kv: KV, *, grace_ms: int = 0, require_secrets: bool = False
) -> AsyncIterator[RunningSc]:
    """Run an SC over a KV until the block ends."""
    async with AsyncExitStack() as stack:
        controller = await Controller.acquire(
            kv, "test", grace_ms=grace_ms, require_secrets=require_secrets
        )
        private, private_port = await start_private_server(
            controller.connections.serve, "127.0.0.1", 0, PRIVATE_LIMITS
        )
        stack.push_async_callback(private.cleanup)
        server = PublicServer(controller.mirror, LocalOffice(SC), "test")
        server.lead(controller)
        public, public_port = await start_public_server(server, "127.0.0.1", 0)
        stack.push_async_callback(public.cleanup)
        work = asyncio.create_task(controller.run_alone())

        async def stop() -> None:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

        stack.push_async_callback(stop)
        http = await stack.enter_async_context(aiohttp.ClientSession())
        yield RunningSc(
            controller,
            http,
            f"http://127.0.0.1:{public_port}",
            f"127.0.0.1:{private_port}",
            work,
            server,
        )


@pytest.fixture
async def kv() -> AsyncIterator[KV]:
    store = await open_kv("memory:")
    yield store
    await store.close()


@pytest.fixture
async def nodes(kv: KV) -> AsyncIterator[list[RunningNode]]:
    """Three SCs over one KV."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(running_node(kv)) for _ in range(3)]


@pytest.fixture
async def sc(kv: KV) -> AsyncIterator[RunningSc]:
    async with run_sc(kv) as running:
        yield running
