"""The daemon as `sc.main` assembles it: what its configuration says holds at its ports."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import aiohttp
import pytest

from sc.config import Limits, PrivateLimits, ScConfig
from sc.election.office import LocalOffice
from sc.kv import open_kv
from sc.kv.interface import KV, Delete, Put
from sc.main import serve
from schemas.daemon.daemon import Listen
from schemas.errors import ConflictError, NotReadyError
from schemas.objects.keys import ClusterKeys
from tests.polling import eventually
from tests.ports import free_ports
from tests.unit.sc.builders import SC


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """A daemon tunes the collector of its process: this one has other tests to run."""
    callbacks, thresholds = list(gc.callbacks), gc.get_threshold()
    yield
    gc.callbacks[:] = callbacks
    gc.set_threshold(*thresholds)
    gc.unfreeze()


async def test_given_limits_of_the_private_port_then_they_hold() -> None:
    public, private = free_ports(2)
    config = ScConfig(
        kv="memory:",
        public=Listen(port=public),
        private=Listen(port=private),
        limits=Limits(private=PrivateLimits(waiting_connections_per_address=1)),
    )
    daemon = asyncio.create_task(serve(config))
    try:
        first: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

        async def connected() -> bool:
            with suppress(OSError):
                first.append(await asyncio.open_connection("127.0.0.1", private))
            return bool(first)

        await eventually(connected)
        (oldest, writer) = first[0]
        _reader, newest = await asyncio.open_connection("127.0.0.1", private)
        async with asyncio.timeout(5):
            with suppress(ConnectionError):
                assert await oldest.read(1) == b""
        writer.close()
        newest.close()
    finally:
        daemon.cancel()
        await asyncio.gather(daemon, return_exceptions=True)


async def test_given_an_sc_that_waits_for_its_name_then_it_does_not_say_that_it_leads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kv = await open_kv("memory:")
    monkeypatch.setattr(type(kv), "SHARED", True)

    async def opened(_url: str) -> KV:
        return kv

    monkeypatch.setattr("sc.main.open_kv", opened)
    public, private = free_ports(2)
    config = ScConfig(kv="etcd://h", public=Listen(port=public), private=Listen(port=private))
    keys, name = ClusterKeys(config.cluster), f"127.0.0.1:{public}"
    # On another machine, with a lease that has not ended.
    earlier = SC.model_copy(update={"name": name, "instance": "earlier"})
    entry = earlier.model_dump_json(by_alias=True).encode()
    await kv.txn([], [Put(keys.sc(name), entry), Put(keys.leader, entry)])
    daemon = asyncio.create_task(serve(config))
    try:
        async with aiohttp.ClientSession(f"http://{name}") as http:
            status, found = 0, dict[str, Any]()

            async def answered(method: str, path: str, wanted: int) -> bool:
                nonlocal status, found
                with suppress(aiohttp.ClientConnectionError):
                    async with http.request(method, path) as response:
                        status, found = response.status, await response.json()
                return status == wanted

            await eventually(lambda: answered("GET", "/v1/controllers", 503))
            assert (found["code"], "does not take part yet" in found["message"]) == (
                "NOT_READY",
                True,
            )
            assert found["details"]["retryAfterMs"] > 0
            await kv.txn([], [Delete(keys.sc(name)), Delete(keys.leader)])
            await eventually(lambda: answered("GET", "/v1/controllers", 200))
            assert [one["name"] for one in found["items"]] == [name]
    finally:
        daemon.cancel()
        await asyncio.gather(daemon, return_exceptions=True)


async def test_given_an_sc_that_waits_for_its_name_then_it_knows_of_no_office_to_let_go_of() -> (
    None
):
    office = LocalOffice(SC, shared=True)
    with pytest.raises(NotReadyError, match="does not take part yet"):
        office.step_down()
    with pytest.raises(ConflictError, match="keeps its objects in a file"):
        LocalOffice(SC).step_down()
