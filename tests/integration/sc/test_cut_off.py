"""An SC that does not reach the KV, or misses its answers, while SPUs and other SCs do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from typing import Any, cast

import pytest

from sc.kv.interface import KV, Delete, DeleteEvent, Op, Put
from schemas.errors import UnreachableError
from schemas.objects.keys import ClusterKeys
from schemas.objects.partition import Partition
from schemas.objects.topic import Topic
from tests.integration.sc.cable import Cable
from tests.integration.sc.conftest import manifest
from tests.integration.sc.linked_spu import LinkedSpu
from tests.integration.sc.several import RunningNode, leader_of, others, running_node
from tests.polling import eventually

pytestmark = pytest.mark.timeout(60)

#: Its holder gives up a whole second before the KV ends it.
LEASE_MS = 2_500
KEYS = ClusterKeys("test")


@pytest.fixture
async def cabled(kv: KV) -> AsyncIterator[list[tuple[RunningNode, Cable]]]:
    """Two SCs, each with its own way to the KV."""
    async with AsyncExitStack() as stack:
        found = []
        for _ in range(2):
            cable = Cable(kv)
            node = await stack.enter_async_context(running_node(cast(KV, cable), lease_ms=LEASE_MS))
            found.append((node, cable))
        yield found


async def test_given_an_sc_that_is_cut_off_from_the_kv_alone_then_its_sessions_end_before_its_lease(
    cabled: list[tuple[RunningNode, Cable]], kv: KV
) -> None:
    """Its SPU could tell it all the time what to do, and it must not answer."""
    nodes = [node for node, _ in cabled]
    leader = await leader_of(nodes)
    (standby,) = others(nodes, leader)
    await leader.call("POST", "/v1/spus", manifest("Spu", "spu-1", {"spuId": 1}))
    await leader.call("POST", "/v1/topics", manifest("Topic", "t", {}))
    async with LinkedSpu(1, [leader, standby]) as spu:
        await eventually(lambda: term_of(leader) is not None)
        term, old, first = term_of(leader), leader.controller, spu.session
        assert first is not None
        async with kv.watch(KEYS.leader, await kv.revision() + 1) as watch:
            cable_of(cabled, leader).cut()
            batch = await anext(watch)
        assert [type(event) for event in batch.events] == [DeleteEvent]
        assert first.closed
        assert not old.view.sessions
        assert not old.leads
        await eventually(lambda: standby.leads and 1 in standby.controller.view.sessions)
        await eventually(lambda: term_of(standby) is not None)
        assert term_of(standby) == term, "nobody was elected because of it"
        cable_of(cabled, leader).mend()
        assert await leader_of(nodes) is standby
        assert (await leader.call("GET", "/health"))[1]["role"] == "standby"


def cable_of(cabled: list[tuple[RunningNode, Cable]], wanted: RunningNode) -> Cable:
    return next(cable for node, cable in cabled if node is wanted)


def term_of(node: RunningNode) -> int | None:
    found = node.mirror.store.get(Partition, "t-0")
    return found.status.term if found is not None and found.status.resolution == "online" else None


async def test_given_one_whose_lease_is_over_then_it_welcomes_nobody(kv: KV) -> None:
    async with running_node(kv, lease_ms=60_000) as leader:
        await leader_of([leader])
        await leader.call("POST", "/v1/spus", manifest("Spu", "spu-1", {"spuId": 1}))
        old, hello = leader.controller, LinkedSpu(1, [leader]).hello()
        await old.check(hello, proven=False)
        leader.jump(60_000)
        with pytest.raises(UnreachableError, match="lease of this SC has ended"):
            await old.check(hello, proven=False)


def elects(success: Sequence[Op]) -> bool:
    return any(isinstance(op, Put) and op.key == KEYS.leader for op in success)


def lets_go(success: Sequence[Op]) -> bool:
    return any(isinstance(op, Delete) and op.key == KEYS.leader for op in success)


async def test_given_the_answer_to_its_election_is_lost_then_it_stands_again_and_leads(
    kv: KV,
) -> None:
    cable = Cable(kv)
    cable.loses_answer = lambda success: elects(success) and not cable.lost
    async with running_node(cast(KV, cable), lease_ms=60_000) as only:
        await leader_of([only])
        assert cable.lost == 1
        leadership = only.controller.leadership
        assert (await kv.txn(leadership.guards, [])).succeeded
        tenures = (await kv.range(KEYS.office(""))).items
        assert leadership.tenures == {
            item.key.removeprefix(KEYS.office("")): item.mod_revision for item in tenures
        }
        assert len(tenures) == 2
        status, _ = await only.call("POST", "/v1/topics", manifest("Topic", "t", {}))
        assert status == 201
        await eventually(lambda: only.mirror.store.get(Topic, "t") is not None)


@pytest.mark.parametrize("what", ["loses_answer", "loses_request"])
async def test_given_what_it_writes_as_it_lets_go_is_lost_then_another_one_leads(
    cabled: list[tuple[RunningNode, Cable]], what: str
) -> None:
    nodes = [node for node, _ in cabled]
    leader = await leader_of(nodes)
    (standby,) = others(nodes, leader)
    cable = cable_of(cabled, leader)
    setattr(cable, what, lambda success: lets_go(success) and not cable.lost)
    await eventually(lambda: len(leader.mirror.controllers) == 2)
    leader.node.step_down()
    await eventually(lambda: standby.leads and cable.lost == 1)
    await leader_of(nodes)
    assert not leader.work.done()


async def test_given_the_leader_dies_then_a_write_at_a_standby_is_done_once_when_another_one_leads(
    kv: KV,
) -> None:
    async with AsyncExitStack() as stack:
        nodes = [
            await stack.enter_async_context(running_node(kv, lease_ms=LEASE_MS)) for _ in range(2)
        ]
        leader = await leader_of(nodes)
        (standby,) = others(nodes, leader)
        await leader.die()
        said = list[tuple[int, dict[str, Any]]]()
        async with asyncio.timeout(30):
            while not said or said[-1][0] == 503:
                answer = await standby.call("POST", "/v1/topics", manifest("Topic", "t", {}))
                said.append(answer)
                await asyncio.sleep(0.05)
        refused = [error for status, error in said if status == 503]
        assert refused
        assert {error["code"] for error in refused} == {"NOT_READY"}
        assert all("retryAfterMs" in error["details"] for error in refused)
        assert said[-1][0] == 201, "what was refused was not done"
        assert standby.leads
        assert [topic.name for topic in standby.mirror.store.objects(Topic)] == ["t"]
