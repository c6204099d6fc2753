"""The daemon as `sc.main` assembles it: what its configuration says holds at its ports."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from sc.config import Limits, LocalProvisioning, PrivateLimits, ScConfig
from sc.election.office import LocalOffice
from sc.kv import open_kv
from sc.kv.interface import KV, Delete, Put
from sc.main import _check_free, _provisioner, serve
from schemas.daemon.daemon import Listen
from schemas.errors import ConflictError, NotReadyError
from schemas.objects.keys import ClusterKeys
from spu.config import SpuConfig
from tests.polling import eventually
from tests.ports import free_ports
from tests.unit.sc.builders import SC


def has_ipv6() -> bool:
    with suppress(OSError), socket.create_server(("::1", 0), family=socket.AF_INET6):
        return True
    return False


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


@pytest.mark.parametrize(
    "waits_for", ["the KV", "the answer of the KV", "its name", "an earlier process to go"]
)
async def test_given_an_sc_that_is_asked_to_stop_while_it_waits_then_it_ends_at_once(
    monkeypatch: pytest.MonkeyPatch, waits_for: str
) -> None:
    kv = await open_kv("memory:")
    monkeypatch.setattr(type(kv), "SHARED", True)
    waiting = asyncio.Event()

    async def for_ever(*_: object, **__: object) -> Any:
        waiting.set()
        await asyncio.Event().wait()

    async def opened(_url: str) -> KV:
        return kv

    monkeypatch.setattr("sc.main.open_kv", for_ever if waits_for == "the KV" else opened)
    public, private = free_ports(2)
    config = ScConfig(kv="etcd://h", public=Listen(port=public), private=Listen(port=private))
    if waits_for == "the answer of the KV":
        monkeypatch.setattr(kv, "range", for_ever)
    elif waits_for == "an earlier process to go":
        monkeypatch.setattr("sc.main.claim_name", for_ever)
    elif waits_for == "its name":
        name = f"127.0.0.1:{public}"
        earlier = SC.model_copy(update={"name": name, "instance": "earlier"})
        entry = earlier.model_dump_json(by_alias=True).encode()
        await kv.txn([], [Put(ClusterKeys(config.cluster).sc(name), entry)])
        monkeypatch.setattr("sc.election.names.LOOK_S", 3_600.0)
        monkeypatch.setattr("sc.election.names.log.info", lambda *_, **__: waiting.set())
    daemon = asyncio.create_task(serve(config))
    await eventually(lambda: waiting.is_set() or daemon.done())
    os.kill(os.getpid(), signal.SIGTERM)
    await eventually(daemon.done)
    assert daemon.result() is None


async def test_given_an_sc_that_waits_for_its_name_then_it_knows_of_no_office_to_let_go_of() -> (
    None
):
    office = LocalOffice(SC, shared=True)
    with pytest.raises(NotReadyError, match="does not take part yet"):
        office.step_down()
    with pytest.raises(ConflictError, match="keeps its objects in a file"):
        LocalOffice(SC).step_down()


async def ended(config: ScConfig) -> OSError | None:
    """How a daemon ended that could not listen; None if it serves."""
    daemon = asyncio.create_task(serve(config))
    try:

        async def decided() -> bool:
            if daemon.done():
                return True
            with suppress(OSError):
                _, writer = await asyncio.open_connection(config.public.host, config.public.port)
                writer.close()
                return True
            return False

        await eventually(decided)
    finally:
        daemon.cancel()
        (end,) = await asyncio.gather(daemon, return_exceptions=True)
    return end if isinstance(end, OSError) else None


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
async def test_given_ipv6_then_it_serves_there_unless_the_port_is_in_use() -> None:
    public, private = free_ports(2)
    config = ScConfig(
        kv="memory:",
        public=Listen(host="::1", port=public),
        private=Listen(host="::1", port=private),
    )
    assert await ended(config) is None
    with socket.create_server(("::1", private), family=socket.AF_INET6):
        error = await ended(config)
    assert error is not None
    assert str(error).endswith(f"::1:{private}: Address already in use")


def test_given_ipv6_then_managed_spus_get_an_address_that_they_can_read(tmp_path: Path) -> None:
    config = ScConfig(
        kv="memory:",
        private=Listen(host="::1", port=9004),
        provisioning=LocalProvisioning(directory=str(tmp_path)),
    )
    make = _provisioner(config)
    assert isinstance(make, partial)
    address = make.args[1]
    assert SpuConfig(spu_id=1, log_dir=str(tmp_path), controller=address).controller == (address,)


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
async def test_given_a_name_of_two_addresses_then_one_in_use_is_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def both(_host: object, port: int, **_more: object) -> list[Any]:
        kind = (socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
        four, six = ("127.0.0.1", port), ("::1", port, 0, 0)
        return [(socket.AF_INET, *kind, four), (socket.AF_INET6, *kind, six)]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", both)
    (public,) = free_ports(1)
    await _check_free(Listen(host="localhost", port=public))
    with (
        socket.create_server(("::1", public), family=socket.AF_INET6),
        pytest.raises(OSError, match=r"localhost:.*: Address already in use"),
    ):
        await _check_free(Listen(host="localhost", port=public))
