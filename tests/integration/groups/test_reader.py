"""Readers of a group over a topic of a scripted SPU: who reads what, and what is read again."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, NoReturn

import pytest

from runnel.consume.consumer import Consumer
from runnel.consume.settings import ConsumerSettings
from runnel.groups import decisions, opened
from runnel.groups.cut import GroupCut
from runnel.groups.group import ReaderGroup
from runnel.groups.reader import GroupReader
from runnel.groups.sources import TopicSource
from runnel.net.routing import SegmentGoneError
from runnel.records.offset_and_term import OffsetAndTerm
from runnel.records.record import Record
from schemas.errors import (
    ConflictError,
    FencedError,
    InvalidRequestError,
    NotFoundError,
    RunnelError,
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


@pytest.mark.parametrize("error", [None, RunnelError("the process ends")])
async def test_given_a_client_that_ends_by_an_error_then_what_is_in_hand_is_read_again(
    world: World, group: ReaderGroup, error: RunnelError | None
) -> None:
    """Nobody closes the reader, as in a script that a failing handler ends."""
    a = reader(group, "a")
    iterator = aiter(a)
    before = [place(await anext(iterator)) for _ in range(3)]
    await world.cluster._end_streams(error)
    async with reader(group, "b") as b:
        again = await everything(b)
    assert Counter(before + again) - all_records() == Counter(before[2:] if error else [])
    assert not all_records() - Counter(before + again)


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

    move = decisions.move
    monkeypatch.setattr(decisions, "release", fails)

    # It shows that it is alive, and commits nothing with that.
    def no_places(state: Any, name: str, of: str, session: str, _at: Any, **more: Any) -> Any:
        return move(state, name, of, session, {}, **more)

    monkeypatch.setattr(decisions, "move", no_places)
    async with reader(group, "a") as a:
        await eventually(lambda: len(a.segments()) == PARTITIONS)
        before = await everything(a)
        async with reader(group, "b") as b:
            await eventually(lambda: len(a.segments()) == len(b.segments()) == 2)
            found = await asyncio.gather(everything(a), everything(b))
    assert failed > 2
    assert Counter([*before, *found[0], *found[1]]) == all_records()


async def test_given_a_reader_that_its_user_forgot_then_the_group_closes_it(
    world: World, group: ReaderGroup
) -> None:
    async with group:
        async for _ in reader(group, "a"):
            break
        gc.collect()
        assert [one.name for one in (await group.describe()).readers] == ["a"]
    assert (await group.describe()).readers == ()


async def test_given_records_in_hand_then_they_are_read_again_unless_the_user_asked_for_more(
    group: ReaderGroup,
) -> None:
    a = reader(group, "a")
    iterator = aiter(a)
    got = [place(await anext(iterator)) for _ in range(3)]
    await eventually(lambda: committed(group, 2))
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
    await eventually(lambda: committed(group, first.num_rows))
    await dead(a)
    await group.offline("a")
    async with reader(group, "b") as b:
        found = await everything(b)
    assert len(found) == sum(all_records().values()) - first.num_rows
    assert second.num_rows == 2


async def committed(group: ReaderGroup, count: int) -> bool:
    """Whether so many records are committed."""
    return sum(one.position for one in (await group.describe()).segments) == count


async def dead(of: GroupReader) -> None:
    """It does nothing any more, as if its process was gone."""
    of.member.closed = True
    assert of.member._looking is not None
    of.member._looking.cancel()
    await of.member._drop()


async def test_given_a_reader_that_shows_no_life_then_others_get_its_segments_and_it_joins_again(
    group: ReaderGroup,
) -> None:
    async with reader(group, "a") as a, reader(group, "b") as b:
        await eventually(lambda: len(a.segments()) == len(b.segments()) == 2)
        first = await a.poll(5)
        assert first is not None
        # As in a process that is frozen: the lease is over when it goes on.
        assert a.member._looking is not None
        a.member._looking.cancel()
        await eventually(lambda: len(b.segments()) == PARTITIONS)
        assert a.member.is_due, "it hands out nothing more"
        a.member._looking = asyncio.create_task(a.member._look_on())
        second = await a.poll(5)
        assert a.member._session in {
            one.session for one in (await group._state()).readers.values()
        }, "it joined again"
        await eventually(lambda: len(a.segments()) == 2)
        rest = await asyncio.gather(everything(a), everything(b))
        found = Counter(rest[0] + rest[1])
        if second is not None:
            found[place(second)] += 1
        found[place(first)] += 1
        assert set(found) == set(all_records())


async def test_given_a_timeout_between_a_chunk_and_a_checkpoint_then_no_record_is_lost(
    world: World, group: ReaderGroup
) -> None:
    async with reader(group, "a") as a:
        assert Counter(await everything(a)) == all_records()
        async with a.member._turn:
            # The checkpoint is seen while the user waits, and cannot be passed before the timeout.
            asking = asyncio.create_task(a.poll(0.3))
            await asyncio.sleep(0)
            a.member.attention = True
            fill(world, 0, 1)
            await world.spu.grown()
            assert await asking is None
        assert [place(r) for r in [await a.poll(5)] if r is not None] == [(0, EACH)]


async def test_given_a_call_that_is_cancelled_then_no_record_is_lost(group: ReaderGroup) -> None:
    async with reader(group, "a") as a:
        first = await a.poll(5)
        assert first is not None
        await a.member._turn.acquire()
        a.member.attention = True
        for call in (a.poll(0.01), asyncio.wait_for(anext(aiter(a)), 0.01)):
            with suppress(TimeoutError):
                assert await call is None
        a.member._turn.release()
        assert Counter([place(first), *await everything(a)]) == all_records()


async def test_given_records_and_batches_in_turns_then_each_once(group: ReaderGroup) -> None:
    found: list[tuple[int, int]] = []
    async with reader(group, "a") as a:
        while (record := await a.poll(QUIET_S)) is not None:
            found.append(place(record))
            async for batch in a.batches(max_records=2):
                offsets = batch.column("offset").to_pylist()
                found += [(batch.column("partition")[0].as_py(), n) for n in offsets]
                break
    assert Counter(found) == all_records()


async def test_given_no_commits_by_itself_then_only_what_was_committed_is_not_read_again(
    group: ReaderGroup,
) -> None:
    async with reader(group, "a", auto_commit_ms=None) as a:
        iterator = aiter(a)
        before = [place(await anext(iterator)) for _ in range(3)]
        await a.commit()
        await anext(iterator)
    async with reader(group, "b", auto_commit_ms=None) as b:
        rest = await everything(b)
        await b.commit()
    assert Counter([*before, *rest]) == all_records()
    async with reader(group, "c") as c:
        assert await everything(c) == []


async def test_given_an_sc_that_does_not_answer_then_the_group_goes_on(
    world: World, group: ReaderGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def for_long(*_args: object) -> int:
        await asyncio.sleep(60)
        return 0

    async with reader(group, "a") as a, reader(group, "b") as b:
        await eventually(lambda: len(a.segments()) == len(b.segments()) == 2)
        monkeypatch.setattr("runnel.net.routing.TopicRoute.partition_count_now", for_long)
        a.member._grown_s = b.member._grown_s = 0.0
        sessions = a.member._session, b.member._session
        # Longer than the lease.
        await asyncio.sleep(1.5)
        assert (a.member._session, b.member._session) == sessions
        found = await asyncio.gather(everything(a), everything(b))
        assert Counter(found[0] + found[1]) == all_records()


async def test_given_segments_that_cannot_be_opened_at_first_then_they_are_read_later(
    group: ReaderGroup, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody answers what a consumer has to know before it begins."""
    next_chunk = Consumer.next_chunk
    fails = 3 * PARTITIONS

    async def late(of: Consumer) -> object:
        nonlocal fails
        if fails:
            fails -= 1
            raise UnreachableError("the SC does not answer")
        return await next_chunk(of)

    monkeypatch.setattr(opened, "_AGAIN_MS", 10.0)
    monkeypatch.setattr(Consumer, "next_chunk", late)
    with caplog.at_level(logging.WARNING, "runnel"):
        async with reader(group, "a") as a:
            assert Counter(await everything(a)) == all_records()
    assert fails == 0
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == PARTITIONS
    assert all("cannot be read yet" in one and "does not answer" in one for one in said)


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
        await eventually(lambda: a.member.attention and b.member.attention)
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
            before = a.member._session
            await group.reset(to)  # type: ignore[arg-type]
            await eventually(lambda before=before: a.member._session != before)
            await eventually(lambda: len(a.segments()) == PARTITIONS)
            assert Counter(await everything(a)) == wanted


async def test_given_partitions_that_are_added_then_read_from_their_beginning(
    world: World, group: ReaderGroup
) -> None:
    async with reader(group, "a") as a:
        assert Counter(await everything(a)) == all_records()
        world.sc.grow("orders", PARTITIONS + 1)
        fill(world, PARTITIONS)
        a.member._grown_s = 0.0
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


async def test_given_a_group_that_is_made_again_with_other_sources_then_its_readers_are_told(
    world: World, group: ReaderGroup
) -> None:
    world.sc.add_topic("other", partitions=1)
    async with reader(group, "a") as a:
        await everything(a)
        await group.delete()
        await world.cluster.reader_group("g", topics=["other"], lease=1.0)
        with pytest.raises(
            NotFoundError, match=r"'g' was deleted and made again|there is no reader group 'g'"
        ):
            await for_ever(a)


async def test_given_a_cut_beyond_the_end_then_a_reset_is_refused(group: ReaderGroup) -> None:
    ends = {partition: OffsetAndTerm(EACH) for partition in range(PARTITIONS)}
    there = (await group.checkpoint()).topics["orders"]
    await group.reset(GroupCut({}, {"orders": replace(there, places=ends)}))
    beyond = ends | {2: OffsetAndTerm(EACH + 1)}
    far = GroupCut({}, {"orders": replace(there, places=beyond)})
    with pytest.raises(
        InvalidRequestError, match=r"beyond the end of orders/2: offset 7, and it ends at 6"
    ):
        await group.reset(far)


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
    with pytest.raises(InvalidRequestError, match=r"to is '{}'; give .*GroupCut.parse"):
        await group.reset("{}")  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError, match="start is 5; give 'earliest', 'latest', or a"):
        await cluster.reader_group("h", topics=["orders"], start=5)  # type: ignore[arg-type]
    with pytest.raises(NotFoundError, match="has no reader 'z'; its readers: none"):
        await group.offline("z")
    (only,) = await cluster.reader_groups()
    assert (only.name, only.sources) == ("g", ("orders",))


async def test_given_a_segment_that_was_truncated_then_its_source_is_not_gone(
    group: ReaderGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def truncated(*_: object) -> NoReturn:
        raise SegmentGoneError("segment number 0 of stream s was removed by a truncation")

    monkeypatch.setattr(TopicSource, "extents", truncated)
    assert (await group.describe()).gone == ()


async def test_given_a_topic_made_again_then_said(world: World, group: ReaderGroup) -> None:
    assert (await group.describe()).gone == ()
    world.sc.remove_topic("orders")
    assert (await group.describe()).gone == ("orders",)
    world.sc.add_topic("orders")
    assert (await group.describe()).gone == ("orders",)
    with pytest.raises(NotFoundError, match="orders was deleted and created again since group g"):
        await group.reader("a").start()
    with pytest.raises(InvalidRequestError, match="was deleted and created again"):
        await group.reset("earliest")
