"""A picture that stays true through broken connections."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from typing import Any, cast

import pytest

from runnel.admin.http import ScClient
from runnel.admin.sse import ServerEvent
from runnel.status.feed import follow
from runnel.status.state import ClusterState
from schemas.errors import (
    CompactedError,
    InvalidRequestError,
    NotFoundError,
    RunnelError,
    UnreachableError,
)
from schemas.objects.topic import Topic
from tests.polling import eventually
from tests.unit.sc.builders import topic_of

Script = list[ServerEvent | RunnelError]


class Sc:
    """Answers each connection with the next script; after the last one a connection stays open."""

    def __init__(self, *scripts: Script) -> None:
        self._scripts = list(scripts)
        self.queries: list[str | None] = []
        self.catching_up: list[str | None] = []
        self.kinds: list[str] = []

    async def stream(
        self, path: str, query: Mapping[str, str]
    ) -> AsyncGenerator[ServerEvent, None]:
        assert path == "/v1/watch"
        self.kinds.append(query["kinds"])
        self.queries.append(query.get("resourceVersion"))
        self.catching_up.append(query.get("catchingUp"))
        if not self._scripts:
            await asyncio.Event().wait()
        for event in self._scripts.pop(0):
            if isinstance(event, RunnelError):
                raise event
            yield event


def event(name: str, data: Any, revision: int | None = None) -> ServerEvent:
    return ServerEvent(name, "" if revision is None else str(revision), json.dumps(data))


def added(name: str, revision: int | None = None) -> ServerEvent:
    return event("added", topic_of(name).to_json(), revision)


SYNCED = event("synced", {"revision": "9"}, 9)


async def followed(sc: Sc, connections: int) -> tuple[list[str], list[str | None]]:
    """The topics, and what was said of the connection, once so many were opened."""
    state, said = ClusterState(), list[str | None]()
    changes = 0

    def changed() -> None:
        nonlocal changes
        changes += 1

    def lost(error: RunnelError | None) -> None:
        said.append(None if error is None else error.message)

    task = asyncio.create_task(follow(cast(ScClient, sc), state, changed, lost))
    await eventually(lambda: len(sc.queries) == connections or task.done())
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    if not task.cancelled():
        task.result()
    assert changes > 0
    return [topic.name for topic in state.objects(Topic)], said


async def test_given_a_break_then_it_resumes_and_says_so() -> None:
    sc = Sc([added("a"), SYNCED, added("b", 10), UnreachableError("cut")], [added("c", 11)])
    topics, said = await followed(sc, 3)
    assert topics == ["a", "b", "c"]
    assert sc.queries == [None, "10", "11"]
    assert said[:2] == ["cut", None]


@pytest.mark.parametrize(
    "gone",
    [
        pytest.param(event("compacted", {"firstAvailable": 20}), id="given-it-within-the-stream"),
        pytest.param(CompactedError("compacted", first_available=20), id="given-it-as-the-answer"),
    ],
)
async def test_given_a_compacted_revision_then_it_reads_everything_again(
    gone: ServerEvent | RunnelError,
) -> None:
    topics, _ = await followed(Sc([added("a"), SYNCED, gone], [added("b"), SYNCED]), 3)
    assert topics == ["b"]


async def test_given_an_sc_that_has_no_such_stream_then_it_ends() -> None:
    state = ClusterState()
    sc = Sc([NotFoundError("there is no /v1/watch")])
    with pytest.raises(NotFoundError):
        await follow(cast(ScClient, sc), state, lambda: None, lambda _: None)


async def test_given_no_sc_at_the_beginning_then_it_ends() -> None:
    state = ClusterState()
    with pytest.raises(UnreachableError):
        await follow(
            cast(ScClient, Sc([UnreachableError("nobody")])),
            state,
            lambda: None,
            lambda _: None,
        )


async def test_given_an_sc_that_knows_no_streams_then_it_is_asked_for_the_others() -> None:
    sc = Sc([InvalidRequestError("kinds: 'streams' is none")], [added("a"), SYNCED])
    topics, said = await followed(sc, 3)
    known = "spus,spugroups,topics,partitions,pipelines"
    assert (topics, sc.kinds) == (["a"], [f"{known},streams,stats", *[f"{known},stats"] * 2])
    assert sc.catching_up == ["true"] * 3
    assert said[0] == "the SC ended the stream", "the refusal is not said"


async def test_given_an_sc_that_cannot_choose_partitions_then_it_sends_all() -> None:
    refusal = InvalidRequestError("catchingUp: no such parameter")
    sc = Sc([refusal], [refusal], [added("a"), SYNCED])
    topics, said = await followed(sc, 4)
    assert (topics, sc.catching_up) == (["a"], ["true", "true", None, None])
    assert said[0] == "the SC ended the stream", "the refusal is not said"


async def test_given_another_refusal_then_it_ends() -> None:
    refusal = InvalidRequestError("kinds: 'spugroups' is none")
    sc = Sc([refusal], [refusal], [refusal])
    with pytest.raises(InvalidRequestError):
        await follow(cast(ScClient, sc), ClusterState(), lambda: None, lambda _: None)
