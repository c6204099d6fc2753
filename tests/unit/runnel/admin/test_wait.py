"""What a wait says whose time is over: of the object and the time that the user named."""

from __future__ import annotations

import pytest

from schemas.errors import DeadlineExceededError
from tests.unit.runnel.conftest import World

WHY = "1 of 2 replicas are live"


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
