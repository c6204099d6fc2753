"""What the error says once a request has been tried in vain for its whole time."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest
import uvloop

from runnel.admin.answers import ClusterInfo
from runnel.aio import ConsumerSettings
from runnel.client.links import Links
from runnel.net import routing
from runnel.net.metadata import LeaderCache
from runnel.net.routing import SegmentGoneError, TopicRoute
from schemas.control.assignments import Assignments, TopicAssignment
from schemas.errors import DeadlineExceededError, NotReadyError
from schemas.objects.topic import Compression, Durability, TopicResolution
from tests.unit.runnel.conftest import World

WHY = "1 of 2 replicas are live, without SPU 1"
SC = rf"\. The SC says of the partition: {WHY}$"


class Leaders(LeaderCache):
    """One topic, always the same."""

    def __init__(self, topic: TopicAssignment) -> None:
        self._topic = topic
        self.now = time.monotonic
        self.answers = True

    async def topic(self, name: str, newer_than: float = 0.0) -> TopicAssignment:
        assert name == self._topic.name
        return self._topic

    def answered_at(self, name: str) -> float:
        return math.inf if self.answers else -math.inf


class OneStream:
    """An SC that answers at once, and names a stream without segments."""

    async def assignments(self, name: str) -> Assignments:
        stream = TopicAssignment(
            name=name,
            uid="u",
            resolution=TopicResolution.PROVISIONED,
            partition_count=0,
            replication_factor=1,
            compression=Compression.NONE,
            durability=Durability.REPLICATED,
            max_record_size=1_024,
        )
        return Assignments(cluster="shop", cluster_uid="c", revision=1, topics=(stream,))


async def test_given_a_leader_that_commits_nothing_then_the_error_has_the_reason(
    world: World,
) -> None:
    world.sc.add_topic("orders")
    world.spu.commits = False
    world.sc.led_reason = WHY
    with pytest.raises(DeadlineExceededError, match=f"^gave up on orders/0 after.*first.*{SC}"):
        await world.cluster.offsets("orders", timeout=0.05)


async def test_given_no_leader_then_the_reason_is_said_once(world: World) -> None:
    world.sc.add_topic("orders")
    world.sc.endpoints = [None]
    with pytest.raises(DeadlineExceededError) as raised:
        await world.cluster.offsets("orders", timeout=0.05)
    assert raised.value.message.count("no SPU is online") == 1


async def test_given_a_fetch_in_vain_then_the_error_has_the_reason(world: World) -> None:
    world.sc.add_topic("orders")
    world.sc.led_reason = WHY
    world.spu.fetch_script.extend([NotReadyError("not now")] * 1_000)
    settings = ConsumerSettings(give_up_ms=50)
    async with world.cluster.consumer("orders", 0, settings=settings) as consumer:
        with pytest.raises(DeadlineExceededError, match=f"not now{SC}"):
            await anext(consumer)


async def test_given_a_batch_in_vain_then_the_error_has_the_reason(world: World) -> None:
    world.sc.add_topic("orders")
    world.sc.led_reason = WHY
    world.spu.produce_script.extend([NotReadyError("not now")] * 1_000)
    producer = await world.cluster.producer("orders", delivery_timeout_ms=50)
    with pytest.raises(DeadlineExceededError, match=f"Last error: not now{SC}"):
        await producer.send(b"v")
    with pytest.raises(DeadlineExceededError):
        await producer.close()


async def test_given_a_segment_that_the_sc_does_not_name_when_asked_again_then_it_is_gone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.sc.add_topic("orders", partitions=2)
    route = await world.cluster._route("orders")
    for _ in range(3):
        # Partitions of a topic may be on their way.
        with pytest.raises(NotReadyError, match="is not placed yet"):
            await route.partition(7)
    stream = route.topic.model_copy(update={"name": "shop/orders"})
    route = TopicRoute(stream, Leaders(stream), route._connections, route.random, route.policy)
    assert (await route.partition(1)).index == 1
    # One that somebody names may be new: the SC is asked, and not what was known before.
    assert [route.count_with(named) for named in (None, [0], [7])] == [2, 2, 8]
    with pytest.raises(NotReadyError, match="is not placed yet"):
        await route.partition(7)
    for _ in range(2):
        # It would be newer than all that this SC knows.
        with pytest.raises(NotReadyError, match=r"number 7 .* is not known yet: no SC"):
            await route.partition(7)
    newer = stream.model_copy(
        update={
            "partition_count": 8,
            "partitions": (
                *stream.partitions,
                stream.partitions[0].model_copy(update={"index": 7}),
            ),
        }
    )
    route._leaders = Leaders(newer)
    assert (await route.partition(7)).index == 7
    assert not route._unheard_since
    route._leaders = Leaders(stream)
    route.suspect(7)
    monkeypatch.setattr(routing, "UNHEARD_S", 0.0)
    with pytest.raises(SegmentGoneError, match="segment number 7 of stream shop/orders"):
        await route.partition(7)
    older = stream.model_copy(update={"partitions": stream.partitions[1:]})
    leaders = Leaders(older)
    route = TopicRoute(older, leaders, route._connections, route.random, route.policy)
    route.suspect(0)
    leaders.answers = False
    with pytest.raises(NotReadyError, match=r"number 0 .* is not known yet: no SC"):
        await route.partition(0)
    leaders.answers = True
    # Newer ones are known: it cannot be one that was not heard of.
    monkeypatch.setattr(routing, "UNHEARD_S", 60.0)
    with pytest.raises(SegmentGoneError, match="segment number 0 of stream shop/orders"):
        await route.partition(0)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_given_an_answer_after_a_failure_then_it_counts_though_the_loop_told_no_later_time(
    run: Callable[[Coroutine[None, None, None]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routing, "UNHEARD_S", 0.0)

    async def ask() -> None:
        links = Links(cast(Any, OneStream()), ClusterInfo("shop", "c", "0"))
        route = await links._route("shop/orders")
        for _ in range(20):
            route.suspect(7)
            with pytest.raises(SegmentGoneError):
                await route.partition(7)

    run(ask())
