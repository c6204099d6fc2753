"""State logs by key, against a scripted SPU: a topic that is deleted is found or made anew."""

from __future__ import annotations

import itertools

import pytest

from runnel.state_log.topic_logs import TopicLogs
from schemas.errors import NotFoundError
from tests.unit.runnel.conftest import World
from tests.unit.runnel.state_log.test_fold import Words

TOPIC = "_states"
KEY = "k"
LONG_S = 20.0

Logs = TopicLogs[list[str], str]


@pytest.fixture
def logs(world: World) -> Logs:
    """Of a topic that is made when somebody writes."""
    ids = itertools.count()

    async def make() -> None:
        world.sc.add_topic(TOPIC, partitions=2)
        world.cluster._leaders.forget(TOPIC)

    async def truncate(_partition: str, _before: int) -> None:
        raise AssertionError("there is not enough for a snapshot")

    return TopicLogs(
        Words(),
        lambda: world.cluster._route(TOPIC),
        make,
        truncate,
        lambda: f"id{next(ids)}",
    )


async def say(logs: Logs, word: str) -> list[str]:
    log = await logs.made_log_of(KEY)
    return list(await log.update(lambda _state: [word], LONG_S))


async def states(logs: Logs) -> list[list[str]]:
    return [list(state) async for state in logs.states(LONG_S)]


def delete(world: World, *, again: bool) -> None:
    """The SPU has it no more, or somebody else has made it again."""
    world.sc.remove_topic(TOPIC)
    if again:
        world.sc.add_topic(TOPIC, partitions=2)
    gone = NotFoundError("it does not hold the partition", spu=1)
    world.spu.produce_script.append(gone)
    world.spu.fetch_script.append(gone)


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("reads", [False, True])
async def test_given_a_topic_that_was_deleted_then_the_call_after_the_next_begins_anew(
    world: World, logs: Logs, again: bool, reads: bool
) -> None:
    assert await say(logs, "a") == ["a"]
    delete(world, again=again)
    with pytest.raises(NotFoundError):
        await (states(logs) if reads else say(logs, "b"))
    world.spu.produce_script.clear()
    world.spu.fetch_script.clear()
    assert await states(logs) == ([[], []] if again else [])
    assert await say(logs, "c") == ["c"]


async def test_given_a_decision_that_does_not_find_something_then_the_logs_stay(
    logs: Logs,
) -> None:
    await say(logs, "a")
    log = await logs.log_of(KEY)

    def refuse(_state: list[str]) -> list[str]:
        raise NotFoundError("there is no such word")

    with pytest.raises(NotFoundError):
        await log.update(refuse, LONG_S)
    assert await logs.log_of(KEY) is log
