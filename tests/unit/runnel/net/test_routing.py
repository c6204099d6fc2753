"""What the error says once a request has been tried in vain for its whole time."""

from __future__ import annotations

import pytest

from runnel.aio import ConsumerSettings
from schemas.errors import DeadlineExceededError, NotReadyError
from tests.unit.runnel.conftest import World

WHY = "1 of 2 replicas are live, without SPU 1"
SC = rf"\. The SC says of the partition: {WHY}$"


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
