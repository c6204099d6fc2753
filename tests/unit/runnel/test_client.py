"""The asyncio client as a whole: what is left of it once it is closed."""

from __future__ import annotations

import asyncio

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
