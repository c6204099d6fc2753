"""Events, log lines and traces from Python."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import runnel
from tests.unit.runnel.cli.cluster.test_logs import log, spu_at
from tests.unit.runnel.cli.objects.test_events import event
from tests.unit.runnel.conftest import World


@pytest.fixture
def told(world: World) -> World:
    """The SC and an SPU have two lines each, and there are two events."""
    world.sc._store(spu_at("edge", 1, world.spu.port))
    world.sc.events = [event(1), event(2, cause="api-2")]
    log(world.sc.log_ring, 1, "sc", cause="api-1", object="Topic/orders")
    log(world.spu.log_ring, 2, "spu-1", cause="api-1", level="warning")
    log(world.sc.log_ring, 3, "sc")
    log(world.spu.log_ring, 4, "spu-1", level="error")
    return world


async def test_events(told: World) -> None:
    found = await told.cluster.events("topic/orders", cause="api-2", limit=5)
    assert [(one.object, one.revision) for one in found] == [("topic/orders", 2)]
    assert told.sc.seen.queries[-1] == {"for": "topic/orders", "cause": "api-2", "limit": "5"}
    before = datetime.now(UTC)
    await told.cluster.events(since=timedelta(minutes=10))
    asked = datetime.fromisoformat(told.sc.seen.queries[-1]["since"])
    assert before <= asked + timedelta(minutes=10) <= datetime.now(UTC)


async def test_logs(told: World) -> None:
    whole = await told.cluster.logs()
    assert [line["event"] for line in whole.lines] == [f"event {n}" for n in (1, 2, 3, 4)]
    severe = await told.cluster.logs(level="warning", spus=["edge"])
    assert [line["event"] for line in severe.lines] == ["event 2", "event 4"]
    later = await told.cluster.logs(since=datetime(2026, 1, 31, 12, 0, 3, tzinfo=UTC), limit=1)
    assert [line["event"] for line in later.lines] == ["event 3", "event 4"]
    told.sc._store(spu_at("far", 2, 1))
    assert list((await told.cluster.logs()).away) == ["spu-2"]


async def test_mistakes(told: World) -> None:
    with pytest.raises(runnel.InvalidRequestError, match="'loud' is none of debug, info"):
        await told.cluster.logs(level="loud")
    with pytest.raises(runnel.NotFoundError, match="there is no SPU 'x'"):
        await told.cluster.logs(spus=["x"])


async def test_trace(told: World) -> None:
    found = await told.cluster.trace("api-1")
    assert [(step.process, step.object) for step in found.steps] == [
        ("sc", "topic/orders"),
        ("sc", "topic/orders"),
        ("spu-1", None),
    ]
    assert (await told.cluster.trace("api-9")).steps == ()
