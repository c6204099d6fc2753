"""What SCs that stand by answer: reads from their own mirrors, and the rest from the leader."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import aiohttp
import pytest

from sc.kv.interface import KV
from schemas.objects.topic import Topic
from tests.integration.sc.conftest import manifest
from tests.integration.sc.several import (
    RunningNode,
    leader_of,
    make_stale,
    others,
    running_node,
)
from tests.polling import eventually

pytestmark = pytest.mark.timeout(60)


async def test_given_a_standby_then_it_serves_reads_and_passes_writes_on(
    nodes: list[RunningNode],
) -> None:
    leader = await leader_of(nodes)
    standby, other = others(nodes, leader)
    created = manifest("Topic", "t", {})
    status, answer = await standby.call("POST", "/v1/topics", created, **{"X-Runnel-By": "ann"})
    assert (status, answer["metadata"]["name"]) == (201, "t")
    # What it has passed on it shows itself.
    assert standby.mirror.store.get(Topic, "t") is not None
    assert (await standby.call("GET", "/v1/topics/t"))[0] == 200
    await eventually(lambda: other.mirror.store.get(Topic, "t") is not None)
    assert [
        item["metadata"]["name"] for item in (await other.call("GET", "/v1/topics"))[1]["items"]
    ]
    _, history = await other.call("GET", "/v1/topics/t/history")
    assert history["items"][-1]["by"] == "ann"
    status, error = await standby.call("POST", "/v1/topics", created)
    assert (status, error["message"].startswith("Topic t exists")) == (409, True)
    _, assignments = await standby.call("GET", "/v1/assignments?topic=t")
    assert assignments["clusterUid"] == leader.controller.leadership.cluster_uid
    status, cluster = await standby.call("GET", "/v1/cluster")
    assert (status, cluster["office"]["office"]) == (200, leader.controller.leadership.holder)
    patch = {"spec": {"partitions": 2}}
    async with standby.http.patch(
        f"http://{standby.public}/v1/topics/t?dryRun=true",
        json=patch,
        headers={"Content-Type": "application/merge-patch+json"},
    ) as response:
        assert response.status == 200


async def test_given_a_write_through_a_standby_then_it_is_answered_when_its_mirror_shows_it(
    nodes: list[RunningNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = await leader_of(nodes)
    standby, _ = others(nodes, leader)
    waited: list[int] = []

    async def applied(revision: int) -> None:
        waited.append(revision)

    monkeypatch.setattr(standby.mirror.feed, "applied", applied)
    _, answer = await standby.call("POST", "/v1/topics", manifest("Topic", "t", {}))
    # What it claims of streams waits for the mirror, too.
    assert int(answer["metadata"]["resourceVersion"]) in waited


async def test_given_a_request_that_was_passed_on_then_a_standby_does_not_pass_it_on_again(
    nodes: list[RunningNode],
) -> None:
    leader = await leader_of(nodes)
    standby, _ = others(nodes, leader)
    topic = manifest("Topic", "t", {})
    status, error = await standby.call("POST", "/v1/topics", topic, **{"X-Runnel-Via": "sc"})
    assert (status, error["code"]) == (503, "NOT_READY")
    assert leader.mirror.store.get(Topic, "t") is None
    status, found = await standby.call("GET", "/v1/cluster", **{"X-Runnel-Via": "sc"})
    assert (status, "does not lead any more" in found["officeUnknown"]) == (200, True)
    # Whoever leads answers, wherever the request comes from.
    status, _ = await leader.call("POST", "/v1/topics", topic, **{"X-Runnel-Via": "sc"})
    assert status == 201


async def test_given_a_feed_of_a_standby_then_it_outlives_the_leader(
    nodes: list[RunningNode],
) -> None:
    leader = await leader_of(nodes)
    standby, _ = others(nodes, leader)
    async with standby.http.get(f"http://{standby.public}/v1/topics?watch=true") as response:
        await leader.call("POST", "/v1/topics", manifest("Topic", "one", {}))
        await _until_line(response, b'"one"')
        await leader.die()
        remaining = others(nodes, leader)
        successor = await leader_of(remaining)
        await successor.call("POST", "/v1/topics", manifest("Topic", "two", {}))
        await _until_line(response, b'"two"')


async def test_given_a_mirror_that_lacks_what_is_asked_for_then_the_leader_answers(
    nodes: list[RunningNode],
) -> None:
    """It may have been made a moment ago, also where another one of the name was deleted before."""
    leader = await leader_of(nodes)
    behind = others(nodes, leader)[0]
    spec: dict[str, object] = {"partitions": 1, "replicationFactor": 1}
    status, _ = await leader.call("POST", "/v1/topics", manifest("Topic", "orders", spec))
    assert status == 201

    def settled() -> bool:
        found = behind.mirror.store.get(Topic, "orders")
        return found is not None and found.status.observed_generation > 0

    await eventually(settled)
    old = behind.mirror.store.get(Topic, "orders")
    assert old is not None
    behind.mirror.store.remove("Topic", "orders")
    assert (await behind.call("GET", "/v1/topics/orders"))[0] == 200
    assert (await behind.call("GET", "/v1/topics/other"))[0] == 404
    for deleted in (False, True):
        if deleted:
            behind.mirror.store.put(old.with_metadata(deletion_timestamp="2026-01-01T00:00:00Z"))
        _, found = await behind.call("GET", "/v1/assignments?topic=orders")
        assert [one["name"] for one in found["topics"]] == ["orders"]
    _, found = await behind.call("GET", "/v1/assignments?topic=other")
    assert found["topics"] == []


async def test_given_statistics_then_a_standby_passes_the_stream_on(
    nodes: list[RunningNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = await leader_of(nodes)
    standby, _ = others(nodes, leader)
    path = f"http://{standby.public}/v1/watch?kinds=topics,stats"
    async with standby.http.get(path) as response:
        assert response.content_type == "text/event-stream"
        await _until_line(response, b"synced")
        await leader.call("POST", "/v1/topics", manifest("Topic", "t", {}))
        await _until_line(response, b'"t"')
        # It is no request that waits for its answer.
        monkeypatch.setattr("sc.api.standby.MOST_ASKING", 1)
        assert (await standby.call("GET", "/v1/stats"))[0] == 200


async def test_given_statistics_of_an_sc_that_leads_no_more_then_the_stream_ends(
    nodes: list[RunningNode],
) -> None:
    leader = await leader_of(nodes)
    await eventually(lambda: len(leader.mirror.controllers) == 3)
    async with leader.http.get(f"http://{leader.public}/v1/watch?kinds=topics,stats") as response:
        await _until_line(response, b"synced")
        assert (await leader.call("POST", "/v1/controllers/step-down"))[0] == 200
        async with asyncio.timeout(10):
            while await response.content.readline():
                pass


async def _until_line(response: aiohttp.ClientResponse, text: bytes) -> None:
    async with asyncio.timeout(10):
        while text not in (line := await response.content.readline()):
            assert line, "the stream ended"


async def test_given_no_leader_then_writes_are_refused_with_when_to_try_again(kv: KV) -> None:
    async with running_node(kv) as one, running_node(kv) as two:
        leader = await leader_of([one, two])
        (standby,) = others([one, two], leader)
        described = (await standby.call("GET", "/v1/cluster"))[1]
        # Nobody stands in the place of the one that dies.
        standby.node._turns.stepped_down(standby.mirror.clock_ms())
        await leader.die()
        await eventually(lambda: standby.mirror.leader is None)
        status, error = await standby.call("POST", "/v1/topics", manifest("Topic", "t", {}))
        assert (status, error["code"]) == (503, "NOT_READY")
        assert error["details"]["retryAfterMs"] > 0
        assert (await standby.call("GET", "/v1/topics"))[0] == 200
        # Clients begin by asking for this.
        status, found = await standby.call("GET", "/v1/cluster")
        assert (status, found["clusterUid"]) == (200, described["clusterUid"])
        assert described["office"]["office"]
        assert found == described | {
            "office": None,
            "officeUnknown": "no SC leads at the moment; try again in a moment",
            "revision": found["revision"],
        }


async def test_given_no_sc_has_ever_led_then_nothing_is_said_of_the_cluster(kv: KV) -> None:
    async with running_node(kv) as only:
        await leader_of([only])
        only.mirror.identity = None
        only.node._turns.stepped_down(only.mirror.clock_ms() + 60_000)
        only.controller.end("it is told to")
        await eventually(lambda: not only.leads)
        status, error = await only.call("GET", "/v1/cluster")
        assert (status, error["code"]) == (503, "NOT_READY")


async def test_given_nobody_knows_better_then_a_standby_answers_from_what_it_has(
    nodes: list[RunningNode],
) -> None:
    leader = await leader_of(nodes)
    standby, other = others(nodes, leader)
    await leader.call("POST", "/v1/topics", manifest("Topic", "t", {}))
    await eventually(lambda: standby.mirror.store.get(Topic, "t") is not None)
    for one in nodes:
        make_stale(one)
    # As where the KV is away: nobody leads, and each is as old as the others.
    for one in (leader, other):
        one.node._turns.stepped_down(one.mirror.clock_ms() + 60_000)
    leader.controller.end("the KV is away")
    await eventually(lambda: not leader.leads)
    status, found = await standby.call("GET", "/v1/topics")
    assert (status, [one["metadata"]["name"] for one in found["items"]]) == (200, ["t"])
    assert (await standby.call("GET", "/v1/assignments?topic=t"))[0] == 200


async def test_given_assignments_of_an_sc_that_is_cut_off_then_the_stream_ends(
    nodes: list[RunningNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its mirror never changes; whoever asks again gets those that another SC knows."""
    monkeypatch.setattr("sc.api.feeds.KEEPALIVE_S", 0.1)
    leader = await leader_of(nodes)
    standby, _ = others(nodes, leader)
    await eventually(lambda: len(standby.mirror.controllers) == 3)
    path = "/v1/assignments?watch=true"
    async with AsyncExitStack() as stack:
        of_standby, of_leader = [
            await stack.enter_async_context(one.http.get(f"http://{one.public}{path}"))
            for one in (standby, leader)
        ]
        for stream in (of_standby, of_leader):
            await _until_line(stream, b"alive")
        make_stale(standby)
        # One that leads is asked whatever it has missed: nobody else knows more.
        make_stale(leader)
        async with asyncio.timeout(10):
            while await of_standby.content.readline():
                pass
        for _ in range(8):
            await _until_line(of_leader, b"alive")
        status, _ = await leader.call("POST", "/v1/topics", manifest("Topic", "t", {}))
        assert status == 201
        await _until_line(of_leader, b'"t"')
        again = await stack.enter_async_context(standby.http.get(f"http://{standby.public}{path}"))
        await _until_line(again, b'"t"')
