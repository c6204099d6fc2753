"""Places in a stream for which its retention waits, by the names of groups."""

from __future__ import annotations

import pytest

from schemas.errors import ConflictError, NotFoundError
from tests.unit.runnel.conftest import World
from tests.unit.runnel.streams.test_consumer import cut

STREAM = "s/t"


async def test_given_a_stream_then_subscribers_come_go_and_never_go_back(world: World) -> None:
    world.sc.subscribers[STREAM] = {}
    stream = world.cluster.stream(STREAM)
    assert await stream.subscribers() == {}
    assert await stream.subscribe("a/b ?", cut({"0.0": 5}))
    assert not await stream.subscribe("a/b ?", cut({"0.0": 3}))
    assert await stream.subscribe("c", cut({"0.0": 3}))
    assert await stream.subscribers() == {"a/b ?": cut({"0.0": 5}), "c": cut({"0.0": 3})}
    world.sc.refused = [ConflictError("there are too many")]
    with pytest.raises(ConflictError, match="too many"):
        await stream.subscribe("d", cut({"0.0": 3}))
    for _ in range(2):
        await stream.unsubscribe("a/b ?")
    assert set(await stream.subscribers()) == {"c"}
    other = world.cluster.stream("s/other")
    for call in (other.subscribers(), other.subscribe("c", cut({})), other.unsubscribe("c")):
        with pytest.raises(NotFoundError, match="there is no stream s/other"):
            await call
