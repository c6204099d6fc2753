"""Several SCs work for streams: each for its buckets, with what the leader tells of SPUs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from connection_manager import guarded_site
from sc.kv.interface import KV, Compare
from sc.sharing import listening
from sc.sharing.claims import BucketClaims
from sc.sharing.facts_port import MOST_LISTENERS
from schemas.control.facts import PATH, Facts
from schemas.control.messages import LoadReport, ReplicaRole
from schemas.objects.partition import Partition
from schemas.objects.stream import Stream, StreamState
from tests.integration.sc.conftest import manifest
from tests.integration.sc.linked_spu import LinkedSpu
from tests.integration.sc.several import RunningNode, leader_of, others, running_node
from tests.polling import eventually
from tests.unit.sc.builders import SC

pytestmark = pytest.mark.timeout(60)

STREAMS = 12


@pytest.fixture
def guarded(monkeypatch: pytest.MonkeyPatch) -> set[BucketClaims]:
    """Those that were asked for the right to write for a stream. Use it before ``nodes``."""
    found: set[BucketClaims] = set()
    guard = BucketClaims.guard

    def noted(claims: BucketClaims, stream: Stream) -> Compare:
        found.add(claims)
        return guard(claims, stream)

    monkeypatch.setattr(BucketClaims, "guard", noted)
    return found


@pytest.fixture
async def nodes(kv: KV) -> AsyncIterator[list[RunningNode]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(running_node(kv)) for _ in range(3)]


def shares(node: RunningNode) -> dict[str, int]:
    """For how many buckets each SC works, by instance, as one mirror shows it."""
    found: dict[str, int] = {}
    for owner in node.mirror.bucket_owners.values():
        name = owner.value.decode()
        found[name] = found.get(name, 0) + 1
    return found


def workers(nodes: list[RunningNode]) -> set[BucketClaims]:
    """What those hold that have any of the streams there are."""
    streams = nodes[0].mirror.store.objects(Stream)
    claims = [one.node._sharer.claims for one in nodes if one.node._sharer is not None]
    return {one for one in claims if any(one.buckets.holds(stream.uid) for stream in streams)}


async def shared_by(nodes: list[RunningNode]) -> None:
    """Wait until these share all buckets, as each of them sees it."""
    names = {f"of {one.private.rpartition(':')[2]}" for one in nodes}
    for one in nodes:
        await eventually(
            lambda one=one: shares(one).keys() == names and sum(shares(one).values()) == 64
        )


async def create(node: RunningNode, prefix: str, **scaling: object) -> None:
    """Create streams, as a client does: whose request nobody took asks again."""
    for number in range(STREAMS):
        spec: dict[str, object] = {"scaling": scaling or {"minSegments": 2}}
        made = manifest("Stream", f"s/{prefix}-{number}", spec)

        async def created(made: object = made) -> bool:
            status, answer = await node.call("POST", "/v1/streams", made)
            assert status in (201, 503), answer
            return status == 201

        await eventually(created)


def active(node: RunningNode, prefix: str) -> int:
    return sum(
        one.status.state is StreamState.ACTIVE and one.name.startswith(f"s/{prefix}-")
        for one in node.mirror.store.objects(Stream)
    )


async def test_given_three_then_each_works_for_its_part_also_when_one_is_gone(
    guarded: set[BucketClaims], nodes: list[RunningNode]
) -> None:
    leader = await leader_of(nodes)
    await shared_by(nodes)
    sharers = {one.name: one.node._sharer for one in nodes}
    resting = {name: one._worker._resting for name, one in sharers.items() if one is not None}
    assert resting == {one.name: one is leader for one in nodes}
    # By a hash of names that chance chose: 21 each on average, and one in some hundred runs has 9.
    assert min(shares(leader).values()) >= 3
    _, found = await leader.call("GET", "/v1/controllers")
    assert sum(item["buckets"] for item in found["items"]) == 64
    await leader.call("POST", "/v1/spus", manifest("Spu", "spu-1", {"spuId": 1}))
    await leader.call("POST", "/v1/scopes", manifest("Scope", "s", {}))
    async with LinkedSpu(1, [leader, *others(nodes, leader)]):
        await create(leader, "first")
        await eventually(lambda: active(leader, "first") == STREAMS)
        assert workers(nodes) <= guarded
        assert len(list(leader.mirror.store.objects(Partition))) == 2 * STREAMS
        gone, left = others(nodes, leader)
        await gone.die()
        await create(left, "second")
        await eventually(lambda: active(leader, "second") == STREAMS)
        await shared_by([leader, left])
        # What leads now rested from its own part as a standby, and goes on with it as the leader.
        await leader.die()
        await leader_of([left])
        await create(left, "third")
        await eventually(lambda: active(left, "third") == STREAMS)
        await shared_by([left])


async def test_given_load_then_whoever_works_for_a_stream_scales_it(
    nodes: list[RunningNode],
) -> None:
    leader = await leader_of(nodes)
    await shared_by(nodes)
    await leader.call("POST", "/v1/spus", manifest("Spu", "spu-1", {"spuId": 1}))
    await leader.call("POST", "/v1/scopes", manifest("Scope", "s", {}))
    spu = LinkedSpu(1, [leader, *others(nodes, leader)])
    async with spu:
        await create(leader, "busy", type="eventsPerSecond", targetRate=10, window="1s")
        await eventually(lambda: active(leader, "busy") == STREAMS)
        assert len(workers(nodes)) > 1

        def led() -> int:
            return sum(one.role is ReplicaRole.LEADER for one in spu.replicas.values())

        # A new stream does not wait for that.
        await eventually(lambda: led() == STREAMS)
        hot = LoadReport(parts=2)
        told = [one.model_copy(update={"load": hot}) for one in spu.replicas.values()]
        spu.replicas |= {one.uid: one for one in told}
        spu._report(*told)

        def scaled() -> int:
            found = leader.mirror.store.objects(Stream)
            return sum(one.status.current_epoch == 1 for one in found)

        await eventually(lambda: scaled() == STREAMS)
        assert active(leader, "busy") == STREAMS


async def test_given_one_that_cannot_hear_the_leader_then_it_leaves_its_part_to_others(
    nodes: list[RunningNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = await leader_of(nodes)
    await shared_by(nodes)
    deaf, able = others(nodes, leader)
    # More than twice the time between two messages.
    monkeypatch.setattr(listening, "DEAF_MS", 2_500)
    assert deaf.node._sharer is not None
    listener = deaf.node._sharer._worker._listener
    elsewhere = SC.model_copy(update={"private": "127.0.0.1:1", "instance": "elsewhere"})
    known, listener._leader = listener._leader, lambda: elsewhere
    await shared_by([leader, able])
    assert deaf.node._sharer.trouble.endswith("let this SC reach its private port, 127.0.0.1:1")
    listener._leader = known
    await shared_by(nodes)


async def test_facts_go_on_for_as_long_as_the_leader_leads(
    monkeypatch: pytest.MonkeyPatch, nodes: list[RunningNode]
) -> None:
    leader = await leader_of(nodes)
    monkeypatch.setattr(guarded_site, "HEADER_TIMEOUT_S", 0.3)
    async with leader.http.get(f"http://{leader.private}{PATH}") as response:
        for _second in range(3):
            Facts.decode(await response.content.readline())
        await leader.call("POST", "/v1/controllers/step-down")
        async with asyncio.timeout(10):
            while line := await response.content.readline():
                Facts.decode(line)


async def test_facts_are_for_scs_and_for_a_few_of_them(nodes: list[RunningNode]) -> None:
    leader = await leader_of(nodes)
    standby, _ = others(nodes, leader)
    async with AsyncExitStack() as stack:
        for _number in range(MOST_LISTENERS - 2):
            path = f"http://{leader.private}{PATH}"
            response = await stack.enter_async_context(leader.http.get(path))
            assert response.status == 200
            assert Facts.decode(await response.content.readline()).spus == ()

        async def refused(node: RunningNode, **headers: str) -> tuple[int, str]:
            path = f"http://{node.private}{PATH}"
            async with node.http.get(path, headers=headers) as response:
                return response.status, "" if response.ok else await response.text()

        async def full() -> bool:
            return await refused(leader) == (503, "too many listen here already\n")

        # The two others listen, too.
        await eventually(full)
        assert await refused(standby) == (503, "this SC does not lead\n")
        assert (await refused(leader, Origin="http://evil"))[0] == 403


async def test_given_no_leader_to_hear_then_nothing_is_placed(nodes: list[RunningNode]) -> None:
    leader = await leader_of(nodes)
    await shared_by(nodes)
    await leader.call("POST", "/v1/scopes", manifest("Scope", "s", {}))
    await create(leader, "all")
    await asyncio.sleep(1)
    assert active(leader, "all") == 0
    reasons = {one.status.reason for one in leader.mirror.store.objects(Stream)}
    assert reasons
    assert None not in reasons
