"""What a wait says whose time is over: of the object and the time that the user named."""

from __future__ import annotations

import asyncio
import re

import pytest

from schemas.errors import DeadlineExceededError
from tests.polling import eventually
from tests.unit.runnel.conftest import World

WHY = "1 of 2 replicas are live"
AWAY = "the SC has not reached its KV for 6 s: no answer within 5 s"


async def test_given_a_topic_whose_partition_is_not_writable_then_it_names_both(
    world: World,
) -> None:
    world.sc.add_topic("orders")
    world.sc.add_partition("orders", writable=False, reason=WHY)
    said: list[str] = []

    def note(text: str) -> None:
        said.append(text)
        # A change that is no news: it is not said again.
        world.sc.add_partition("orders", writable=False, reason=WHY)

    with pytest.raises(DeadlineExceededError) as raised:
        await world.cluster.wait("topic", "orders", "writable", 0.2, note)
    assert said == [f"partition 'orders-0' is online, but not writable: {WHY}"]
    assert raised.value.message == (
        "topic 'orders' is not writable after 0.2 s;"
        f" partition 'orders-0' is online, but not writable: {WHY}"
    )


async def test_given_a_partition_then_it_names_that(world: World) -> None:
    world.sc.add_topic("orders")
    world.sc.add_partition("orders", writable=False, reason=WHY)
    with pytest.raises(DeadlineExceededError) as raised:
        await world.cluster.wait("partition", "orders-0", "writable", timeout=0.2)
    assert raised.value.message == (
        f"partition 'orders-0' is not writable after 0.2 s; it is online, but not writable: {WHY}"
    )


async def test_given_no_sc_then_the_time_is_the_users(world: World) -> None:
    world.sc.add_topic("orders")
    await world.sc.stop()
    said = r"whether topic 'orders' is writable is not known after 0\.2 s: no SC answers"
    with pytest.raises(DeadlineExceededError, match=said):
        await world.cluster.wait("topic", "orders", "writable", timeout=0.2)


@pytest.mark.parametrize("wanted", ["provisioned", "settled", "writable"])
async def test_given_an_sc_that_cannot_write_then_what_it_shows_does_not_count(
    world: World, wanted: str
) -> None:
    world.sc.add_topic("orders")
    world.sc.add_partition("orders")
    await world.cluster.wait("topic", "orders", wanted, timeout=0.2)
    said = f"topic 'orders' is {wanted} is not known after 0.2 s: what the SC shows may be old: "
    world.sc.trouble = AWAY
    with pytest.raises(DeadlineExceededError, match=re.escape(said + AWAY)):
        await world.cluster.wait("topic", "orders", wanted, timeout=0.2)
    world.sc.trouble, world.sc.ready = None, False
    with pytest.raises(DeadlineExceededError, match=re.escape(said + "the SC is looking")):
        await world.cluster.wait("topic", "orders", wanted, timeout=0.2)


async def test_given_an_sc_that_cannot_write_then_the_wait_ends_when_it_can(world: World) -> None:
    world.sc.add_topic("orders")
    world.sc.trouble = AWAY
    waiting = asyncio.create_task(world.cluster.wait("topic", "orders", "provisioned", 60))
    await eventually(lambda: world.sc.asked_health > 1)
    world.sc.trouble = None
    await waiting


async def test_given_an_sc_that_cannot_write_then_what_is_gone_is_gone(world: World) -> None:
    world.sc.trouble = AWAY
    assert await world.cluster.wait("topic", "orders", "deleted", timeout=0.2) is None
