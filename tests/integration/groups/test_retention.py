"""Streams are told how far a group is: by its users, or with its checkpoints."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from runnel.consume.settings import ConsumerSettings
from runnel.groups.cut import GroupCut
from runnel.groups.group import NewGroup, ReaderGroup
from runnel.groups.places import Places, SourceSegment
from runnel.groups.reader import GroupReader
from runnel.groups.retention import Publisher
from runnel.groups.state import Completed, Created, GroupConfig, GroupState, Reset
from runnel.groups.stored_state import GroupsState
from schemas.errors import (
    ConflictError,
    InvalidRequestError,
    NotFoundError,
    NotReadyError,
)
from schemas.streams.cuts import StreamCut
from schemas.streams.epochs import even, first_epoch
from tests.integration.groups.stream_world import STREAM, group_of
from tests.polling import eventually
from tests.unit.runnel.conftest import World
from tests.unit.runnel.streams.test_consumer import KEYS, Stream, cut

SEGMENTS = 2


@pytest.fixture
def stream(world: World) -> Stream:
    world.sc.subscribers[STREAM] = {}
    change = even(0, SEGMENTS, 0, 0)
    return Stream([(first_epoch(change), change)], 4, sealed=False)


async def made(world: World, stream: Stream, **options: Any) -> ReaderGroup:
    group = group_of(world, stream)
    await group.create(NewGroup(streams=[STREAM], lease=1.0, **options))
    return group


def reader(group: ReaderGroup, name: str) -> GroupReader:
    return group.reader(name, timeout=0.5, settings=ConsumerSettings(max_wait_ms=50))


def published(world: World) -> dict[str, StreamCut]:
    return world.sc.subscribers[STREAM]


def ends(stream: Stream) -> StreamCut:
    return StreamCut(STREAM, "u", {one: len(records) for one, records in stream.records.items()})


# -- manual ---------------------------------------------------------------------------------------


async def test_given_retention_manual_then_only_users_move_the_place(
    world: World, stream: Stream
) -> None:
    group = await made(world, stream, retention="manual", checkpoint_every=0.1)
    start = cut({"0.0": 0, "0.1": 0})
    assert published(world) == {"g": start}, "what it begins with is kept at once"
    with pytest.raises(NotFoundError, match="has no checkpoint yet; ask for one, and publish that"):
        await group.publish()
    async with reader(group, "a") as a:
        assert len([record async for record in a]) == 4 * KEYS
        await eventually(lambda: has_checkpoints(group, 1))
    assert published(world) == {"g": start}
    asked = await group.checkpoint()
    await group.publish(asked)
    assert published(world) == {"g": ends(stream)}
    await group.publish(GroupCut({STREAM: cut({"0.0": 1, "0.1": 1})}))
    assert published(world) == {"g": ends(stream)}, "it never goes back"
    info = await group.describe()
    assert (info.retention, info.published) == ("manual", {STREAM: ends(stream)})
    await group.delete()
    assert published(world) == {}


async def has_checkpoints(group: ReaderGroup, count: int) -> bool:
    return len((await group._state()).completed) >= count


async def test_refusals(world: World, stream: Stream) -> None:
    group = await made(world, stream, retention="manual")
    world.sc.add_topic("orders")
    for options, message in (
        ({"topics": ["orders"], "retention": "manual"}, "and the group has no stream: the reten"),
        ({"streams": [STREAM], "retention": "all"}, "retention is 'all'; give one of none, manual"),
        (
            {"streams": [STREAM], "retention": "automatic", "checkpoint_every": None},
            "makes no checkpoints by itself; give checkpoint_every, or retention manual",
        ),
    ):
        with pytest.raises(InvalidRequestError, match=message):
            await group_of(world, stream, "h").create(NewGroup(**options))
    with pytest.raises(ConflictError, match="reader group 'g' is there, and its retention is man"):
        await made(world, stream)
    for place, message in (
        (GroupCut(), f"the cut says nothing of stream {STREAM}"),
        (GroupCut({STREAM: cut({}, uid="old")}), "is of an earlier stream s/t, which was deleted"),
        (str(GroupCut()), "give a GroupCut, as checkpoint"),
    ):
        with pytest.raises(InvalidRequestError, match=message):
            await group.publish(place)  # type: ignore[arg-type]
    await group.delete()
    group = await made(world, stream)
    assert published(world) == {}
    with pytest.raises(InvalidRequestError, match="has retention none: its streams wait for nob"):
        await group.publish(GroupCut({STREAM: cut({})}))
    assert (await group.describe()).published == {}


async def test_given_a_topic_beside_then_only_the_stream_is_told(
    world: World, stream: Stream
) -> None:
    world.sc.add_topic("orders")
    group = await made(world, stream, retention="manual", topics=["orders"])
    await group.publish(await group.checkpoint())
    assert set(published(world)) == {"g"}
    await group.delete()


async def test_given_an_sc_that_refuses_then_it_is_said_what_is_left_to_do(
    world: World, stream: Stream
) -> None:
    world.sc.refused = [ConflictError("too many")]
    with pytest.raises(ConflictError, match=r"is made, and .* yet: too many\. Tell it: runnel"):
        await made(world, stream, retention="manual")
    await group_of(world, stream).delete()
    world.sc.refused = [NotReadyError("not yet")]
    with pytest.raises(NotReadyError, match=r"is made, and .* yet: not yet\. Tell it: runnel"):
        await made(world, stream, retention="manual")
    group = await made(world, stream, retention="manual")
    assert published(world) == {}
    world.sc.refused = [NotReadyError("not yet")]
    assert (await group.describe()).published == {}
    assert (await group.describe()).published == {STREAM: None}
    await group.publish(await group.checkpoint())
    world.sc.refused = [NotReadyError("not yet")]
    with pytest.raises(NotReadyError):
        await group.delete()
    assert set(published(world)) == {"g"}
    del world.sc.subscribers[STREAM]
    await group.delete()
    with pytest.raises(NotFoundError):
        await group.describe()


async def test_given_a_group_that_is_deleted_while_it_publishes_then_no_subscription_is_left(
    world: World, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = await made(world, stream, retention="manual")
    place = await group.checkpoint()
    source = await group._find_source(STREAM)
    subscription = source.subscription("g")
    assert subscription is not None
    publish = type(subscription).publish

    async def late(of: Any, cut: GroupCut) -> None:
        await group.delete()
        await publish(of, cut)

    monkeypatch.setattr(type(subscription), "publish", late)
    with pytest.raises(NotFoundError, match="there is no reader group 'g'"):
        await group.publish(place)
    assert published(world) == {}


# -- automatic ------------------------------------------------------------------------------------


async def test_given_retention_automatic_then_checkpoints_are_published_by_a_reader(
    world: World, stream: Stream
) -> None:
    group = await made(world, stream, retention="automatic", checkpoint_every=0.1)
    async with reader(group, "a") as a, reader(group, "b") as b:
        asked = [asyncio.create_task(every(one)) for one in (a, b)]
        await eventually(lambda: published(world) == {"g": ends(stream)})
        for one in asked:
            one.cancel()
        await asyncio.gather(*asked, return_exceptions=True)


async def every(of: GroupReader) -> None:
    while True:
        await of.poll(0.1)


async def test_given_an_sc_that_does_not_answer_then_reading_goes_on_and_it_is_said_once(
    world: World, stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    group = await made(world, stream, retention="automatic", checkpoint_every=0.1)
    world.sc.refused = [NotReadyError("not yet") for _ in range(2)]
    with caplog.at_level(logging.WARNING, "runnel"):
        async with reader(group, "a") as a:
            assert len([record async for record in a]) == 4 * KEYS
            asked = asyncio.create_task(every(a))
            await eventually(lambda: published(world) == {"g": ends(stream)})
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
    assert world.sc.refused == []
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith("group g: the retention of stream s/t could not be told how far it is")


async def test_given_a_checkpoint_that_was_asked_for_then_it_is_not_published(
    world: World, stream: Stream
) -> None:
    group = await made(world, stream, retention="automatic", checkpoint_every=3_600.0)
    async with reader(group, "a") as a:
        assert len([record async for record in a]) == 4 * KEYS
        asked = asyncio.create_task(every(a))
        await group.checkpoint()
        await asyncio.sleep(0.4)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
    assert published(world) == {"g": cut({"0.0": 0, "0.1": 0})}


# -- the state ------------------------------------------------------------------------------------


async def test_given_a_first_reader_that_does_not_publish_then_another_does_a_lease_later() -> None:
    kind = GroupsState()
    config = GroupConfig({}, 15_000, 30_000, "automatic")
    state = kind.apply(kind.empty(), Created("g", config, Places(), "test", 1))
    group = state["g"]
    seen: list[float] = []

    async def still_there() -> None:
        seen.append(now_s)

    publisher = Publisher("g", still_there)
    for now_s in range(0, 60, 5):
        if now_s in (10, 40):
            # Checkpoints that come too soon after each other are passed over.
            group.completed.append(Completed(str(now_s - 5), 1, Places(), may_publish=True))
            group.completed.append(Completed(str(now_s), 1, Places(), may_publish=True))
        publisher.look(group, [], now_s, 15.0)
        if publisher.task is not None:
            await publisher.task
    assert seen == [25, 55]


def test_given_a_reset_then_checkpoints_before_it_are_not_published() -> None:
    kind = GroupsState()
    config = GroupConfig({STREAM: "u"}, 15_000, 30_000, "automatic")
    state = kind.apply(kind.empty(), Created("g", config, Places(), "test", 1))
    state["g"].completed.append(Completed("one", 1, Places(), may_publish=True))
    state = kind.apply(state, Reset("g", Places(), "test", 2))
    assert [(one.id, one.may_publish) for one in state["g"].completed] == [("one", False)]


def test_given_a_log_of_before_then_it_is_read() -> None:
    """Neither did configurations have a retention, nor checkpoints who asked for them."""
    kind = GroupsState()
    config = {"sources": {"orders": "u"}, "leaseMs": 15_000, "checkpointEveryMs": 0}
    places = {"open": [["orders", 0, 0, 1 << 32, 5, 1]], "waiting": [], "last": []}
    group = {
        "config": config, "generation": 1, "by": "test", "at": 1, "places": places, "readers": [],
        "owners": [], "checkpoints": [], "completed": [["one", 1, places]],
    }  # fmt: skip
    read = kind.read_state(json.loads(json.dumps({"g": group})))["g"]
    assert isinstance(read, GroupState)
    assert read.config == GroupConfig({"orders": "u"}, 15_000, 0, "none")
    assert [(one.id, one.may_publish) for one in read.completed] == [("one", False)]
    created = {
        "kind": "created", "group": "g", "config": config, "places": places, "by": "t", "at_us": 1,
    }  # fmt: skip
    update = kind.read_update(created)
    assert isinstance(update, Created)
    assert update.config.retention == "none"
    assert set(update.places.open) == {SourceSegment("orders", 0)}
    with pytest.raises(ValueError, match="'all' is none of none, manual, automatic"):
        kind.read_update({**created, "config": {**config, "retention": "all"}})
