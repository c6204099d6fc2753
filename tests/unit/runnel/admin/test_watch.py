"""Watching: events from bytes, what is news after a break, and the iterator over a fake SC."""

from __future__ import annotations

import asyncio

import pytest

import runnel
from runnel import blocking
from runnel.admin import sse
from runnel.admin.sse import EventParser, ServerEvent
from runnel.admin.watch import EventType, Watch, WatchEvent, WatchState
from schemas.errors import (
    CompactedError,
    InvalidRequestError,
    ProtocolError,
    RunnelError,
    UnreachableError,
)
from schemas.objects.metadata import Object
from tests.unit.runnel.conftest import World

EVENTS: dict[str, tuple[bytes, list[ServerEvent]]] = {
    "given-one-event": (b"event: added\nid: 7\ndata: {}\n\n", [ServerEvent("added", "7", "{}")]),
    "given-two-then-the-second-inherits-nothing": (
        b"event: a\nid: 1\ndata: x\n\ndata: y\n\n",
        [ServerEvent("a", "1", "x"), ServerEvent("", "", "y")],
    ),
    "given-data-of-two-lines-then-they-are-joined": (
        b"data: a\ndata: b\n\n", [ServerEvent("", "", "a\nb")],
    ),
    "given-a-comment-then-nothing": (b": alive\n\n", []),
    "given-no-data-then-nothing": (b"event: a\n\n", []),
    "given-windows-ends-then-they-go": (b"data: a\r\n\r\n", [ServerEvent("", "", "a")]),
    "given-no-space-after-the-colon-then-the-same": (b"data:a\n\n", [ServerEvent("", "", "a")]),
    "given-an-unknown-field-then-it-is-ignored": (
        b"retry: 5\ndata: a\n\n", [ServerEvent("", "", "a")],
    ),
    "given-an-unfinished-event-then-nothing-yet": (b"data: a\n", []),
}  # fmt: skip


@pytest.mark.parametrize(("data", "expected"), EVENTS.values(), ids=EVENTS)
def test_events_from_bytes_in_pieces_of_any_size(data: bytes, expected: list[ServerEvent]) -> None:
    for size in (1, 3, len(data)):
        parser = EventParser()
        pieces = (data[at : at + size] for at in range(0, len(data), size))
        assert [event for piece in pieces for event in parser.feed(piece)] == expected


def test_events_of_any_length_in_all_are_fine_but_one_has_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 100)
    parser = EventParser()
    for _ in range(50):
        # Never at a boundary: what is counted is the event, not the connection.
        assert len(list(parser.feed(b"data: a\n\ndata: b\n\nda"))) == 2
        assert len(list(parser.feed(b"ta: c\n\n"))) == 1
    with pytest.raises(ProtocolError, match="more than 100 bytes"):
        list(parser.feed(b"data: " + b"x" * 100))
    with pytest.raises(ProtocolError, match="not UTF-8"):
        list(EventParser().feed(b"data: \xff\n"))


def topic(name: str, revision: int, uid: str = "u") -> Object:
    return runnel.Topic(name).with_metadata(uid=uid, resource_version=str(revision))


def seen(events: list[WatchEvent]) -> list[tuple[EventType, str, int]]:
    return [(event.type, event.object.name, event.revision) for event in events]


def synced(*objects: Object, revision: int = 5) -> WatchState:
    """A reader that has read everything at a revision."""
    state = WatchState()
    assert state.resume() is None
    assert all(state.take("added", obj, obj.revision) == [] for obj in objects)
    assert len(state.synced(revision)) == len(objects)
    return state


def test_given_a_first_connection_then_all_there_is_is_added_at_once() -> None:
    state = WatchState()
    state.resume()
    assert state.take("added", topic("a", 3), 3) == []
    assert seen(state.synced(5)) == [("added", "a", 3)]
    assert state.resume() == 5


def test_given_changes_then_told_in_order_and_resumed_after_the_last_whole_revision() -> None:
    state = synced(topic("a", 3))
    assert seen(state.take("modified", topic("a", 6), 6)) == [("modified", "a", 6)]
    # One transaction wrote three objects at revision 8, and the connection breaks in the middle.
    assert state.take("added", topic("b", 8), None) == []
    assert state.take("deleted", topic("a", 6), None) == []
    assert state.resume() == 6
    assert state.take("added", topic("b", 8), None) == []
    assert state.take("deleted", topic("a", 6), None) == []
    told = [("added", "b", 8), ("deleted", "a", 8), ("added", "c", 8)]
    assert seen(state.take("added", topic("c", 8), 8)) == told
    assert state.resume() == 8


Relist = tuple[list[Object], list[tuple[EventType, str, int]]]
RELISTED: dict[str, Relist] = {
    "given-the-same-then-nothing": ([topic("a", 3), topic("b", 4)], []),
    "given-a-newer-one-then-modified": (
        [topic("a", 9), topic("b", 4)], [("modified", "a", 9)],
    ),
    "given-one-is-gone-then-deleted": ([topic("b", 4)], [("deleted", "a", 20)]),
    "given-a-new-one-then-added": (
        [topic("a", 3), topic("b", 4), topic("c", 9)], [("added", "c", 9)],
    ),
    "given-one-was-made-again-then-deleted-and-added": (
        [topic("a", 9, "other"), topic("b", 4)], [("deleted", "a", 20), ("added", "a", 9)],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("whole", "expected"), RELISTED.values(), ids=RELISTED)
def test_given_a_forgotten_revision_then_the_difference_is_told(
    whole: list[Object], expected: list[tuple[EventType, str, int]]
) -> None:
    state = synced(topic("a", 3), topic("b", 4))
    state.forget_revision()
    assert state.resume() is None
    for obj in whole:
        assert state.take("added", obj, obj.revision) == []
    assert seen(state.synced(20)) == expected
    assert state.resume() == 20


def test_given_a_break_in_the_middle_of_reading_everything_then_it_begins_anew() -> None:
    state = WatchState()
    state.resume()
    state.take("added", topic("a", 3), 3)
    assert state.resume() is None
    state.take("added", topic("b", 4), 4)
    assert seen(state.synced(5)) == [("added", "b", 4)]


async def following(watch: Watch, count: int) -> list[tuple[EventType, str]]:
    async with asyncio.timeout(10):
        found = [await anext(watch) for _ in range(count)]
    return [(event.type, event.object.name) for event in found]


async def test_watch_tells_what_there_is_and_what_changes(world: World) -> None:
    world.sc.add_topic("orders")
    async with world.cluster.watch("topics") as watch:
        assert await following(watch, 1) == [("added", "orders")]
        await world.cluster.apply(runnel.Topic("views"))
        await world.cluster.apply(runnel.Topic("orders", labels={"a": "b"}))
        await world.cluster.delete("topic", "views")
        assert await following(watch, 3) == [
            ("added", "views"), ("modified", "orders"), ("deleted", "views"),
        ]  # fmt: skip


async def test_given_state_was_taken_then_only_changes_are_told(world: World) -> None:
    world.sc.add_topic("orders")
    async with world.cluster.watch("topics") as watch:
        assert [obj.name for obj in await watch.state()] == ["orders"]
        world.sc.add_topic("views")
        assert await following(watch, 1) == [("added", "views")]
        with pytest.raises(InvalidRequestError, match="call state\\(\\) first"):
            await watch.state()


async def test_given_a_broken_connection_then_it_goes_on_where_it_was(world: World) -> None:
    told: list[RunnelError] = []
    world.sc.add_topic("orders")
    async with world.cluster.watch("topics", on_trouble=told.append) as watch:
        await watch.state()
        world.sc.cut()
        world.sc.add_topic("views")
        assert await following(watch, 1) == [("added", "views")]
        world.sc.cut()
        world.sc.add_topic("clicks")
        assert await following(watch, 1) == [("added", "clicks")]
    assert world.sc.watches == 3
    assert [isinstance(error, UnreachableError) for error in told] == [True, True]
    resumed = [query.get("resourceVersion") for query in world.sc.seen.queries]
    assert resumed[0] is None
    assert None not in resumed[1:]


async def test_given_compaction_while_away_then_the_difference_is_told(world: World) -> None:
    world.sc.add_topic("orders")
    world.sc.add_topic("views")
    async with world.cluster.watch("topics") as watch:
        await watch.state()
        world.sc.cut()
        world.sc.remove_topic("views")
        world.sc.add_topic("clicks")
        world.sc.compact()
        assert await following(watch, 2) == [("deleted", "views"), ("added", "clicks")]


async def test_given_since_then_only_later_changes_and_compaction_is_an_error(
    world: World,
) -> None:
    first = world.sc.add_topic("orders")
    world.sc.add_topic("views")
    async with world.cluster.watch("topics", since=first.revision) as watch:
        with pytest.raises(InvalidRequestError, match="without since"):
            await watch.state()
        assert await following(watch, 1) == [("added", "views")]
    world.sc.compact()
    async with world.cluster.watch("topics", since=first.revision) as watch:
        with pytest.raises(CompactedError):
            await following(watch, 1)


async def test_given_one_name_then_only_that_object(world: World) -> None:
    world.sc.add_topic("orders")
    world.sc.add_topic("views")
    async with world.cluster.watch("topics", "views") as watch:
        assert [obj.name for obj in await watch.state()] == ["views"]
        world.sc.remove_topic("orders")
        world.sc.remove_topic("views")
        assert await following(watch, 1) == [("deleted", "views")]


async def test_given_a_wait_that_was_cancelled_then_nothing_is_missed(world: World) -> None:
    async with world.cluster.watch("topics") as watch:
        await watch.state()
        waiting = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        world.sc.add_topic("orders")
        assert await following(watch, 1) == [("added", "orders")]


async def test_given_a_wait_that_is_being_cancelled_then_closing_waits_for_its_end(
    world: World,
) -> None:
    watch = world.cluster.watch("topics")
    waiting = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0.05)
    waiting.cancel()
    await watch.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_given_somebody_who_waits_then_closing_does_not_fail(world: World) -> None:
    watch = world.cluster.watch("topics")
    waiting = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0.05)
    await watch.close()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_given_no_sc_at_the_beginning_then_it_is_an_error(world: World) -> None:
    await world.sc.stop()
    with pytest.raises(UnreachableError):
        await anext(world.cluster.watch("topics"))


async def test_blocking_watch(world: World) -> None:
    world.sc.add_topic("orders")

    def follow() -> list[tuple[str, str]]:
        with blocking.connect(world.sc.address) as cluster, cluster.watch("topics") as watch:
            names = [("state", obj.name) for obj in watch.state()]
            cluster.apply(runnel.Topic("views"))
            event = next(iter(watch))
            return [*names, (event.type, event.object.name)]

    assert await asyncio.to_thread(follow) == [("state", "orders"), ("added", "views")]
