"""The asyncio client as a whole: what its parts share, and what is left once it is closed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.unit.runnel.conftest import World


@pytest.mark.parametrize("error", [None, RuntimeError()], ids=["at-the-end", "after-an-error"])
async def test_given_a_close_that_is_cancelled_then_the_connections_are_closed_all_the_same(
    world: World, error: Exception | None
) -> None:
    world.sc.add_topic("orders")
    world.spu.may_answer.clear()
    producer = await world.cluster.producer("orders", linger_ms=0)
    producer.send(b"v")
    leaving = asyncio.create_task(world.cluster.leave(error))
    done, _ = await asyncio.wait([leaving], timeout=0.05)
    assert not done
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert world.cluster._sc._session.closed


async def test_given_many_who_open_a_topic_at_once_then_the_sc_is_asked_twice(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.sc.add_topic("orders")
    route = await world.cluster._route("orders")
    get, asked = world.cluster.get, 0

    async def counted(*arguments: Any) -> Any:
        nonlocal asked
        asked += 1
        return await get(*arguments)

    monkeypatch.setattr(world.cluster, "get", counted)
    # The question of the first was sent before the others asked; they share a newer one.
    await asyncio.gather(*(world.cluster._schema(route) for _ in range(100)))
    assert asked == 2
    await world.cluster._schema(route)
    assert asked == 3
