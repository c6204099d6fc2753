"""Statistics for many readers: computed once, and not in one go."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sc.api.feeds import EventStream
from sc.api.statistics import Followed, StatisticsView
from sc.controller import Controller
from sc.statistics.board import Board, Changes
from sc.store.local_store import LocalStore
from schemas.control.statistics import ReplicaNumbers, SpuNumbers, Statistics
from schemas.ids import PartitionUid
from schemas.objects.partition import LiveReplica
from tests.polling import eventually
from tests.unit.sc.builders import partition_of, spu_of, topic_of

PARTITIONS = 2_000


@pytest.fixture
def board() -> Board:
    store = LocalStore()
    partitions = [partition_of("t", index, (1,), leader=1) for index in range(PARTITIONS)]
    for obj in (spu_of(1), topic_of("t"), *partitions):
        store.put(obj)
    found = Board(store)
    rows = tuple(ReplicaNumbers(PartitionUid(p.uid), 0, 1, 1, 1) for p in partitions)
    found.told(1, Statistics(spu=SpuNumbers(), replicas=rows), 0)
    found.close_second(1)
    return found


def view_of(board: Board, trouble: str | None = None) -> StatisticsView:
    controller = SimpleNamespace(
        statistics=board,
        view=SimpleNamespace(store=board._store, sessions={}),
        clock_ms=lambda: 2_000,
        seconds=SimpleNamespace(end=asyncio.Event().wait),
        kv_health=SimpleNamespace(trouble=trouble),
    )
    return StatisticsView(cast(Controller, controller))


class Reader:
    """A stream that writes down what it is sent."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    async def send(self, events: list[tuple[str, str]]) -> None:
        self.sent += [text for _, text in events]

    async def while_waiting(self, wait: Any) -> None:
        await wait()


async def test_readers_that_saw_the_same_get_the_same_and_it_is_computed_once(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    view, computed = view_of(board), list[Changes]()
    real = view.changed

    async def counted(changes: Changes, wanted: Followed) -> Any:
        computed.append(changes)
        return await real(changes, wanted)

    monkeypatch.setattr(view, "changed", counted)
    readers = [Reader() for _ in range(3)]
    following = [
        asyncio.create_task(view.follow(cast(EventStream, one), Followed())) for one in readers
    ]
    # One that goes away early does not take it from the others.
    await asyncio.sleep(0)
    following[0].cancel()
    await eventually(lambda: all(one.sent for one in readers[1:]))
    for task in following:
        task.cancel()
    await asyncio.gather(*following, return_exceptions=True)
    assert len(computed) == 1
    assert readers[1].sent[0] is readers[2].sent[0]
    assert readers[1].sent[0].count('"committedEnd"') == PARTITIONS


async def test_others_have_their_turn_while_many_partitions_are_added_up(board: Board) -> None:
    view, turns = view_of(board), 0
    done = asyncio.create_task(view.changed(board.changes_since(-1), Followed()))
    while not done.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns > PARTITIONS / 256


async def test_given_catching_up_then_only_partitions_with_a_replica_that_is_not_live() -> None:
    store = LocalStore()
    whole = partition_of("t", 0, (1, 2), lrs=tuple(live(1, 2)), leader=1)
    lagging = partition_of("t", 1, (1, 2), lrs=tuple(live(1)), leader=1)
    other = partition_of("u", 0, (1, 2), lrs=tuple(live(1)), leader=1)
    for obj in (spu_of(1), topic_of("t"), topic_of("u"), whole, lagging, other):
        store.put(obj)
    board = Board(store)
    rows = tuple(ReplicaNumbers(PartitionUid(p.uid), 0, 5, 5, 50) for p in (whole, lagging, other))
    board.told(1, Statistics(spu=SpuNumbers(), replicas=rows), 0)
    board.close_second(1)
    for topics, expected in ((), ["t-1", "u-0"]), (("t",), ["t-1"]):
        wanted = Followed(frozenset(topics), catching_up=True)
        found = await view_of(board).changed(board.changes_since(0), wanted)
        assert found is not None
        assert sorted(one.name for one in found.partitions) == expected
        assert found.topics[0].offsets == 10, "sums are of all partitions"


async def test_given_the_kv_cannot_be_written_then_readers_hear_of_it_and_of_the_end() -> None:
    board = Board(LocalStore())
    view = view_of(board, "no room")
    nothing = board.changes_since(board.version)
    found = await view.changed(nothing, Followed())
    assert found is not None
    assert found.trouble == "no room"
    view._controller.kv_health.trouble = None  # type: ignore[misc]
    found = await view.changed(nothing, Followed())
    assert found is not None
    assert found.trouble is None
    assert await view_of(board).changed(nothing, Followed()) is None


def live(*spus: int) -> Iterator[LiveReplica]:
    return (LiveReplica(spu_id=spu, storage_id=f"s{spu}") for spu in spus)
