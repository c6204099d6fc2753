"""Readers of a group over a topic of a scripted SPU: who reads what, and what is read again."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from runnel.consume.settings import ConsumerSettings
from runnel.groups import decisions
from runnel.groups.cut import GroupCut
from runnel.groups.group import ReaderGroup
from runnel.groups.reader import GroupReader
from runnel.records.record import Record
from schemas.errors import (
    ConflictError,
    FencedError,
    InvalidRequestError,
    NotFoundError,
    UnreachableError,
)
from tests.polling import eventually
from tests.unit.runnel.conftest import World
from tests.unit.runnel.records.test_cursor import batch

PARTITIONS = 4
EACH = 6
QUIET_S = 0.5
SETTINGS = ConsumerSettings(max_wait_ms=50)


@pytest.fixture
async def group(world: World) -> AsyncIterator[ReaderGroup]:
    """Of a topic with four partitions of six records each."""
    world.sc.add_topic("orders", partitions=PARTITIONS)
    for index in range(PARTITIONS):
        fill(world, index)
    async with world.cluster.reader_group("g", topics=["orders"], lease=1.0) as made:
        yield made


def fill(world: World, index: int, count: int = EACH) -> None:
    log = world.log(index=index)
    log.put(bytearray(batch(log.end, count)))


def reader(group: ReaderGroup, name: str, **settings: object) -> GroupReader:
    found = ConsumerSettings(max_wait_ms=50, **settings)  # type: ignore[arg-type]
    return group.reader(name, timeout=QUIET_S, settings=found)


def place(record: Record) -> tuple[int, int]:
    return record.partition, record.offset


async def everything(of: GroupReader) -> list[tuple[int, int]]:
    return [place(record) async for record in of]


async def for_ever(of: GroupReader) -> None:
    while True:
        await of.poll(1)


def all_records(count: int = EACH) -> Counter[tuple[int, int]]:
    return Counter((p, n) for p in range(PARTITIONS) for n in range(count))


async def test_given_two_readers_then_each_record_once_and_positions_stay(
    world: World, group: ReaderGroup
) -> None:
    async with reader(group, "a") as a, reader(group, "b") as b:
        await eventually(lambda: len(a.segments()) == len(b.segments()) == 2)
        assert sorted(a.segments() + b.segments()) == [f"orders/{p}" for p in range(PARTITIONS)]
        found = await asyncio.gather(everything(a), everything(b))
        assert Counter(found[0] + found[1]) == all_records()
        info = await group.describe()
        assert [(one.name, one.segments) for one in info.readers] == [("a", 2), ("b", 2)]
    info = await group.describe()
    assert info.readers == ()
    assert [(one.position, one.end, one.reader) for one in info.segments] == [
        (EACH, EACH, None)
    ] * PARTITIONS
    assert info.lag == 0
    fill(world, 0)
    async with reader(group, "c") as c:
        assert await everything(c) == [(0, n) for n in range(EACH, 2 * EACH)]


async def test_given_a_reader_that_comes_later_then_half_goes_to_it(group: ReaderGroup) -> None:
    async with reader(group, "a") as a:
        await eventually(lambda: len(a.segments()) == PARTITIONS)
        async with reader(group, "b") as b:
            await eventually(lambda: len(a.segments()) == len(b.segments()) == 2)
        # It has left: nobody waits for its lease.
        await eventually(lambda: len(a.segments()) == PARTITIONS)


async def test_given_segments_that_could_not_be_given_back_then_they_are_read_on(
    group: ReaderGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From where they were read up to, and not from where was committed last."""
    release, failed = decisions.release, 0

    def fails(*args: Any) -> Any:
        nonlocal failed
        failed += 1
        if failed <= 2:
            raise UnreachableError("no leader answers")
        return release(*args)

    monkeypatch.setattr(decisions, "release", fails)
    async with reader(group, "a", auto_commit_ms=None) as a:
        await eventually(lambda: len(a.segments()) == PARTITIONS)
        before = await everything(a)
        async with reader(group, "b") as b:
            await eventually(lambda: len(a.segments()) == len(b.segments()) == 2)
            found = await asyncio.gather(everything(a), everything(b))
    assert failed > 2
    assert Counter([*before, *found[0], *found[1]]) == all_records()


async def test_given_records_in_hand_then_they_are_read_again_unless_the_user_asked_for_more(
    group: ReaderGroup,
) -> None:
    a = reader(group, "a")
    iterator = aiter(a)
    got = [place(await anext(iterator)) for _ in range(3)]
    await a.commit()
    # It dies with the third one in hand.
    await dead(a)
    await group.offline("a")
    async with reader(group, "b") as b:
        found = await everything(b)
    assert Counter(got[:2] + found) == all_records()


async def test_given_a_batch_in_hand_then_it_is_not_committed(group: ReaderGroup) -> None:
    a = reader(group, "a")
    batches = a.batches(max_records=2)
    first = await anext(batches)
    second = await anext(batches)
    await a.commit()
    await dead(a)
    await group.offline("a")
    async with reader(group, "b") as b:
        found = await everything(b)
    assert len(found) == sum(all_records().values()) - first.num_rows
    assert second.num_rows == 2


async def dead(of: GroupReader) -> None:
    """It does nothing any more, as if its process was gone."""
    of._closed = True
    assert of._looking is not None
    of._looking.cancel()
    await of._drop()


async def test_given_a_reader_that_shows_no_life_then_others_get_its_segments_and_it_joins_again(
    group: ReaderGroup,
) -> None:
    async with reader(group, "a") as a, reader(group, "b") as b:
        await eventually(lambda: len(a.segments()) == len(b.segments()) == 2)
        first = await a.poll(5)
        assert first is not None
        # As in a process that is frozen: the lease is over when it goes on.
        assert a._looking is not None
        a._looking.cancel()
        await eventually(lambda: len(b.segments()) == PARTITIONS)
        assert a.is_due, "it hands out nothing more"
        a._looking = asyncio.create_task(a._look_on())
        second = await a.poll(5)
        assert a._session in {one.session for one in (await group._state()).readers.values()}, (
            "it joined again"
        )
        await eventually(lambda: len(a.segments()) == 2)
        rest = await asyncio.gather(everything(a), everything(b))
        found = Counter(rest[0] + rest[1])
        if second is not None:
            found[place(second)] += 1
        found[place(first)] += 1
        assert set(found) == set(all_records())


async def test_given_another_process_under_the_name_then_the_first_is_fenced(
    group: ReaderGroup,
) -> None:
    a, again = reader(group, "a"), reader(group, "a")
    await a.start()
    await again.start()
    with pytest.raises(FencedError, match=r"reader 'a' of group 'g' was opened again by .*\(pid"):
        await for_ever(a)
    assert len(await everything(again)) == PARTITIONS * EACH


async def test_given_a_checkpoint_then_it_waits_for_the_users_and_a_reset_replays_what_came_after(
    world: World, group: ReaderGroup
) -> None:
    async with reader(group, "a") as a, reader(group, "b") as b:
        await eventually(lambda: len(a.segments()) == len(b.segments()) == 2)
        iterators = aiter(a), aiter(b)
        before = [place(await anext(one)) for one in iterators for _ in range(2)]
        asked = asyncio.create_task(group.checkpoint(timeout=10))
        await eventually(lambda: a.attention and b.attention)
        assert not asked.done()
        after = [place(await anext(one)) for one in iterators]
        cut = await asked
        after += [place(record) for one in iterators async for record in one]
        assert Counter(before + after) == all_records()
    assert GroupCut.parse(str(cut)) == cut
    await group.reset(cut)
    fill(world, 0, 1)
    async with reader(group, "c") as c:
        assert Counter(await everything(c)) == Counter([*after, (0, EACH)])


async def test_given_an_open_reader_then_a_reset_moves_it(group: ReaderGroup) -> None:
    async with reader(group, "a") as a:
        assert Counter(await everything(a)) == all_records()
        for to, wanted in (("earliest", all_records()), ("latest", Counter[tuple[int, int]]())):
            before = a._session
            await group.reset(to)  # type: ignore[arg-type]
            await eventually(lambda before=before: a._session != before)
            await eventually(lambda: len(a.segments()) == PARTITIONS)
            assert Counter(await everything(a)) == wanted


async def test_given_partitions_that_are_added_then_read_from_their_beginning(
    world: World, group: ReaderGroup
) -> None:
    async with reader(group, "a") as a:
        assert Counter(await everything(a)) == all_records()
        world.sc.grow("orders", PARTITIONS + 1)
        fill(world, PARTITIONS)
        a._grown_s = 0.0
        await eventually(lambda: len(a.segments()) == PARTITIONS + 1)
        assert await everything(a) == [(PARTITIONS, n) for n in range(EACH)]


async def test_given_a_group_that_is_deleted_then_its_readers_are_told(group: ReaderGroup) -> None:
    async with reader(group, "a") as a:
        await everything(a)
        await group.delete()
        with pytest.raises(NotFoundError, match="there is no reader group 'g'"):
            await for_ever(a)
    with pytest.raises(NotFoundError):
        await group.describe()


async def test_refusals(world: World, group: ReaderGroup) -> None:
    cluster = world.cluster
    await cluster.reader_group("g", topics=["orders"], lease=1.0)
    with pytest.raises(ConflictError, match=r"reader group 'g' is there, and its lease is 1 s"):
        await cluster.reader_group("g", topics=["orders"])
    world.sc.add_topic("others")
    with pytest.raises(ConflictError, match="and reads orders; leave that out"):
        await cluster.reader_group("g", topics=["others"], lease=1.0)
    with pytest.raises(NotFoundError, match="there is no reader group 'h'"):
        await cluster.reader_group("h")
    with pytest.raises(InvalidRequestError, match="lease is 0; give 1 to 3600 seconds"):
        await cluster.reader_group("h", topics=["orders"], lease=0)
    with pytest.raises(InvalidRequestError, match="'a/b' is the name of a stream"):
        await cluster.reader_group("h", topics=["a/b"])
    with pytest.raises(InvalidRequestError, match="topics is 'orders'; give a list of names"):
        await cluster.reader_group("h", topics="orders")
    with pytest.raises(InvalidRequestError, match="name of a reader group"):
        await cluster.reader_group("_h", topics=["orders"])
    with pytest.raises(InvalidRequestError, match="not a place of a group"):
        GroupCut.parse("{}")
    with pytest.raises(NotFoundError, match="has no reader 'z'; its readers: none"):
        await group.offline("z")
    (only,) = await cluster.reader_groups()
    assert (only.name, only.sources) == ("g", ("orders",))


async def test_given_a_topic_made_again_then_said(world: World, group: ReaderGroup) -> None:
    world.sc.remove_topic("orders")
    world.sc.add_topic("orders")
    with pytest.raises(NotFoundError, match="orders was deleted and created again since group g"):
        await group.reader("a").start()
    with pytest.raises(InvalidRequestError, match="was deleted and created again"):
        await group.reset("earliest")
