"""A whole controller and its SPUs: one that is deleted, one that knows more than the SC; and SCs
that follow one another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from connection_manager.manager import start_private_server
from sc.controller import Controller
from sc.dispatch.reader import KvReader
from sc.kv.interface import KV, Put
from sc.leadership import acquire
from sc.store.codec import encode_object
from schemas.errors import FencedError
from schemas.objects.keys import ClusterKeys
from schemas.objects.spu import SpuResolution
from tests.integration.sc.calls import register, secret_of
from tests.integration.sc.conftest import RunningSc
from tests.integration.sc.connections import PRIVATE_LIMITS, Peer, hello_of
from tests.polling import eventually
from tests.simulated_spu import SimulatedSpu
from tests.unit.sc.builders import spu_of


async def test_given_spu_deleted_then_its_session_ends_and_the_spu_is_told_why(
    sc: RunningSc,
) -> None:
    await register(sc, 1)
    async with SimulatedSpu(1, sc.private) as spu:
        await sc.until("spus", "spu-1", "online")
        assert (await sc.call("DELETE", "/v1/spus/spu-1"))[0] == 202
        await eventually(lambda: "SPU 1 is not registered" in str(spu.link.trouble))
        assert 1 not in sc.controller.view.sessions


@asynccontextmanager
async def tenure(kv: KV, port: int) -> AsyncIterator[tuple[Controller, int]]:
    """A controller that listens for SPUs on a port of the test's choice."""
    controller = await Controller.acquire(kv, "test", grace_ms=0)
    private, bound = await start_private_server(
        controller.connections.serve, "127.0.0.1", port, PRIVATE_LIMITS
    )
    work = asyncio.create_task(controller.run_alone())
    try:
        yield controller, bound
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        await private.cleanup()


async def test_given_sc_restart_on_the_same_port_then_the_spu_comes_back_by_itself(kv: KV) -> None:
    spu_1 = spu_of(1, SpuResolution.INIT)
    key = ClusterKeys("test").object("spus", spu_1.name)
    await kv.txn([], [Put(key, encode_object(spu_1, "test"))])
    async with AsyncExitStack() as first:
        controller, port = await first.enter_async_context(tenure(kv, 0))
        async with SimulatedSpu(1, f"127.0.0.1:{port}") as spu:
            await eventually(lambda: 1 in controller.view.sessions)
            await first.aclose()
            await eventually(lambda: spu.link.trouble is not None)
            async with tenure(kv, port) as (second, _port):
                await eventually(lambda: 1 in second.view.sessions)
                # The SC knows that they are connected before the SPU does.
                await eventually(lambda: spu.link.trouble is None)


async def test_given_spu_that_saw_a_later_revision_then_all_begin_anew_in_another_incarnation(
    sc: RunningSc,
) -> None:
    await register(sc, 1, 2)
    async with SimulatedSpu(2, sc.private) as other:
        await sc.until("spus", "spu-2", "online")
        async with sc.http.ws_connect(f"http://{sc.private}/session") as socket:
            peer = Peer(socket)
            await peer.say(hello_of(kv_revision=10_000))
            assert "SPU 1 has not proven who it is" in (await peer.rejected()).message
        ahead = SimulatedSpu(1, sc.private)
        ahead.held_secret, ahead.seen_revision = await secret_of(sc, 1), 10_000
        async with ahead:
            await eventually(lambda: ahead.session is not None)
            assert sc.controller.leadership.stamp.incarnation == 1
            await eventually(lambda: other.seen_stamp == sc.controller.leadership.stamp)


async def test_given_another_sc_in_office_then_the_first_ends_before_it_tells_of_it(
    sc: RunningSc, kv: KV
) -> None:
    await acquire(kv, ClusterKeys("test"))
    with pytest.raises(ExceptionGroup) as ended:
        async with asyncio.timeout(15):
            await asyncio.shield(sc.work)
    assert ended.group_contains(FencedError, match="another SC has taken over")
    current = await kv.get(ClusterKeys("test").current_office)
    assert current is not None
    assert not sc.controller.leads
    # It follows the mirror no more, although that shows what the other one wrote.
    follow = asyncio.create_task(sc.controller.mirror.run())
    late = spu_of(7)
    key = ClusterKeys("test").object("spus", late.name)
    written = await kv.txn([], [Put(key, encode_object(late, "test"))])
    await sc.controller.feed.applied(written.revision)
    assert not len(sc.controller.queue)
    follow.cancel()
    await asyncio.gather(follow, return_exceptions=True)


async def test_given_another_sc_in_office_while_the_mirror_loads_then_the_first_never_leads(
    kv: KV, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = KvReader.load

    async def late(reader: KvReader) -> None:
        await acquire(kv, ClusterKeys("test"))
        await load(reader)

    monkeypatch.setattr(KvReader, "load", late)
    controller = await Controller.acquire(kv, "test", grace_ms=0)
    assert not controller.leads
    with pytest.raises(ExceptionGroup) as ended:
        async with asyncio.timeout(15):
            await controller.run_alone()
    assert ended.group_contains(FencedError, match="another SC has taken over")
