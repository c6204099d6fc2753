"""A reader's part in its group, step by step: it looks at the state when a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any, NoReturn, cast

import pytest

from runnel.consume.settings import ConsumerSettings
from runnel.groups import blocking, decisions
from runnel.groups.group import ReaderGroup
from runnel.groups.opened import OpenSegment
from runnel.groups.reader import GroupReader
from runnel.groups.sources import TopicSource
from runnel.loop_thread import LoopThread
from runnel.records.offset_and_term import OffsetAndTerm
from runnel.state_log.log import StateLog
from schemas.clock import boottime_s
from schemas.errors import (
    DeadlineExceededError,
    FencedError,
    InvalidRequestError,
    NotFoundError,
    UnreachableError,
)
from tests.unit.runnel.conftest import World
from tests.unit.runnel.records.test_cursor import batch

RECORDS = 6
SOON_S = 5.0


@pytest.fixture
async def group(world: World) -> AsyncIterator[ReaderGroup]:
    """Of a topic with one partition of six records."""
    world.sc.add_topic("orders")
    world.log().put(bytearray(batch(0, RECORDS)))
    async with world.cluster.reader_group("g", topics=["orders"]) as made:
        yield made


async def reader_of(
    group: ReaderGroup, name: str, auto_commit_ms: int | None = 60_000
) -> GroupReader:
    """It has what it takes at first, and from then on looks by `look` alone."""
    settings = ConsumerSettings(max_wait_ms=50, auto_commit_ms=auto_commit_ms)
    made = group.reader(name, settings=settings)
    await made.start()
    assert made.member._looking is not None
    made.member._looking.cancel()
    await look(made)
    return made


async def look(of: GroupReader) -> None:
    await of.member._look_or_join()


async def offsets(of: GroupReader, count: int) -> list[int]:
    records = [await of.poll(SOON_S) for _ in range(count)]
    return [record.offset for record in records if record is not None]


def only(of: GroupReader) -> OpenSegment:
    (opened,) = of.member.segments.by_segment.values()
    return opened


def meet_end(of: GroupReader) -> OpenSegment:
    """Its user has processed all of its segment, which was sealed."""
    opened = only(of)
    opened.state.has_processed()
    of.member.end(opened)
    return opened


async def ends(of: GroupReader) -> None:
    """Ends under way are told."""
    await asyncio.gather(*of.member._ending)


async def open_places(group: ReaderGroup) -> list[int]:
    return [at.offset for at in (await group._state()).places.open.values()]


async def last_places(group: ReaderGroup) -> list[int]:
    return [at.offset for at in (await group._state()).places.last.values()]


async def test_given_polls_that_only_look_then_the_reader_joins_its_group(
    group: ReaderGroup,
) -> None:
    reader = group.reader("a", settings=ConsumerSettings(max_wait_ms=50))
    found: list[int] = []
    async with asyncio.timeout(20):
        while len(found) < RECORDS:
            if (record := await reader.poll(0)) is not None:
                found.append(record.offset)
    await reader.close()
    assert found == list(range(RECORDS))


async def test_given_a_close_while_it_joins_then_it_does_not_begin_to_look(
    group: ReaderGroup,
) -> None:
    reader = group.reader("a")
    assert await reader.poll(0) is None
    joining = asyncio.create_task(reader.start())
    await asyncio.sleep(0)
    await reader.close()
    with pytest.raises(InvalidRequestError, match="reader 'a' is closed"):
        await joining
    assert reader.member._looking is None
    assert not (await group._state()).readers


async def test_given_a_close_while_the_leader_has_not_answered_that_it_joined_then_it_leaves(
    world: World, group: ReaderGroup
) -> None:
    reader = group.reader("a")
    sent = len(world.spu.produced)
    world.spu.may_answer.clear()
    joining = asyncio.create_task(reader.start())
    async with asyncio.timeout(10):
        while len(world.spu.produced) == sent:  # noqa: ASYNC110 - state of the fake, not an event
            await asyncio.sleep(0.001)
    closing = asyncio.create_task(reader.close())
    await asyncio.sleep(0.01)
    world.spu.may_answer.set()
    await closing
    with pytest.raises(InvalidRequestError, match="is closed"):
        await joining
    assert not (await group._state()).readers


async def test_given_a_block_that_is_cancelled_while_its_reader_joins_then_no_reader_is_left(
    group: ReaderGroup,
) -> None:
    reader = group.reader("a")

    async def read() -> None:
        async with reader:
            pytest.fail("its block does not begin")

    reading = asyncio.create_task(read())
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert reader.member.closed
    assert reader.member._looking is None
    assert not (await group._state()).readers


async def test_given_a_close_that_is_cancelled_then_it_goes_on_and_a_later_one_waits_for_it(
    group: ReaderGroup,
) -> None:
    reader = group.reader("a")
    assert (await reader.poll(20)) is not None
    closing = asyncio.create_task(reader.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await reader.close()
    assert not (await group._state()).readers
    assert not reader.member.segments.by_segment


async def test_given_a_task_of_a_close_that_was_cancelled_then_who_closes_again_is_not(
    group: ReaderGroup,
) -> None:
    reader = group.reader("a")
    assert (await reader.poll(20)) is not None
    reader.member.begin_to_leave(commit=True)
    leaving = reader.member._leaving
    assert leaving is not None
    leaving.cancel()
    await reader.close()
    await reader.close()
    assert leaving.cancelled()


async def test_given_a_reset_while_an_end_is_asked_about_then_the_next_session_reads_all_again(
    group: ReaderGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answer = asyncio.Event(), asyncio.Event()

    async def after(*_: object) -> tuple[()]:
        asked.set()
        await answer.wait()
        return ()

    monkeypatch.setattr(TopicSource, "after", after)
    async with await reader_of(group, "a") as a:
        assert await offsets(a, RECORDS) == list(range(RECORDS))
        old = meet_end(a)
        await asked.wait()
        await group.reset("earliest")
        # It is fenced and joins, and then it takes the segment again.
        await look(a)
        await look(a)
        assert only(a) is not old
        answer.set()
        await ends(a)
        assert await open_places(group) == [0]
        assert await offsets(a, RECORDS) == list(range(RECORDS))


async def test_given_an_end_that_is_met_during_a_commit_then_it_waits_for_the_next_one(
    group: ReaderGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await reader_of(group, "a", auto_commit_ms=None) as a:
        assert await offsets(a, 3) == [0, 1, 2]
        move = decisions.move

        def slow(*args: Any, **more: Any) -> Any:
            # Another task of its user is handed the rest meanwhile.
            if rest := [record.offset for record in only(a).state.records()]:
                assert rest == [3, 4, 5]
                meet_end(a)
            return move(*args, **more)

        with monkeypatch.context() as patched:
            patched.setattr(decisions, "move", slow)
            await a.commit()
        await ends(a)
        assert await open_places(group) == [3]
        await a.commit()
        await ends(a)
        assert (await open_places(group), await last_places(group)) == ([], [RECORDS])


async def test_given_a_commit_that_failed_then_the_next_one_tells_the_end(
    group: ReaderGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> NoReturn:
        raise UnreachableError("no leader answers")

    async with await reader_of(group, "a", auto_commit_ms=None) as a:
        await offsets(a, RECORDS)
        meet_end(a)
        with monkeypatch.context() as patched:
            patched.setattr(decisions, "move", fail)
            with pytest.raises(UnreachableError):
                await a.commit()
        await a.commit()
        await ends(a)
        assert (await open_places(group), await last_places(group)) == ([], [RECORDS])


async def test_given_a_source_that_is_gone_when_its_last_records_are_processed_then_said(
    group: ReaderGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone(*_: object) -> NoReturn:
        raise NotFoundError("stream s/t does not exist")

    monkeypatch.setattr(TopicSource, "after", gone)
    async with await reader_of(group, "a") as a:
        await offsets(a, RECORDS)
        meet_end(a)
        with pytest.raises(NotFoundError, match="s/t does not exist"):
            await a.poll(SOON_S)


async def test_given_an_unknown_outcome_of_giving_back_then_it_reads_on_from_where_others_were(
    group: ReaderGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    update = StateLog.update

    async def unanswered(*args: Any) -> NoReturn:
        await update(*args)
        raise DeadlineExceededError("it is unknown", outcomeUnknown=True)

    async with await reader_of(group, "b") as b:
        await offsets(b, 3)
        only(b).state.has_processed()
        with monkeypatch.context() as patched:
            patched.setattr(StateLog, "update", unanswered)
            with pytest.raises(DeadlineExceededError):
                await b.member._release({only(b).segment})
        # Among equals, what is free goes to the first name.
        async with await reader_of(group, "a") as a:
            assert await offsets(a, 3) == [3, 4, 5]
            await look(b)
            assert b.segments() == ()
        await look(b)
        assert only(b).at.offset == RECORDS
        await b.commit()
        assert await open_places(group) == [RECORDS]


# -- commits of a session that is over ------------------------------------------------------------


@pytest.mark.parametrize("auto_commit_ms", [None, 60_000])
@pytest.mark.parametrize("by", ["offline", "reset"])
async def test_given_a_session_that_ended_then_the_next_commit_says_so_once(
    group: ReaderGroup, auto_commit_ms: int | None, by: str
) -> None:
    async with await reader_of(group, "a", auto_commit_ms) as a:
        assert await offsets(a, 3) == [0, 1, 2]
        await (group.offline("a") if by == "offline" else group.reset("earliest"))
        await look(a)
        await look(a)
        assert a.segments() == ("orders/0",)
        with pytest.raises(FencedError, match="is no longer in its group"):
            await a.commit()
        assert await open_places(group) == [0]
        assert await offsets(a, 3) == [0, 1, 2]
        await a.commit()
        assert await open_places(group) == [3]


async def test_given_a_commit_that_met_the_end_of_its_session_then_it_is_not_said_again(
    group: ReaderGroup,
) -> None:
    async with await reader_of(group, "a", None) as a:
        await offsets(a, 3)
        await group.offline("a")
        with pytest.raises(FencedError, match="is no longer in its group"):
            await a.commit()
        await look(a)
        await look(a)
        await offsets(a, 3)
        await a.commit()
        assert await open_places(group) == [3]


@pytest.mark.parametrize("handed_out", [0, 3])
async def test_given_nothing_to_commit_when_its_session_ends_then_commits_go_on(
    group: ReaderGroup, handed_out: int
) -> None:
    async with await reader_of(group, "a", None) as a:
        await offsets(a, handed_out)
        await a.commit()
        await group.offline("a")
        await look(a)
        await a.commit()
        assert a.member.failure is None
        assert await open_places(group) == [handed_out]


async def test_given_what_was_committed_by_itself_when_a_session_ends_then_commits_go_on(
    group: ReaderGroup,
) -> None:
    async with await reader_of(group, "a", 1) as a:
        await offsets(a, 3)
        only(a).state.has_processed()
        await look(a)
        assert await open_places(group) == [3]
        await group.offline("a")
        await look(a)
        await a.commit()
        assert await open_places(group) == [3]


# -- the clock of leases --------------------------------------------------------------------------


def awake(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host was suspended for an hour."""
    for module in ("member", "blocking"):
        monkeypatch.setattr(f"runnel.groups.{module}.boottime_s", lambda: boottime_s() + 3_600)


async def test_given_a_host_that_was_suspended_then_nothing_is_handed_out_before_a_renewal(
    group: ReaderGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await reader_of(group, "a") as a:
        await offsets(a, 1)
        due = [a.member.is_due]
        awake(monkeypatch)
        due.append(a.member.is_due)
        # Nobody has taken its place meanwhile.
        assert await offsets(a, 1) == [1]
        due.append(a.member.is_due)
        assert due == [False, True, False]


async def test_given_a_host_that_was_suspended_then_a_blocking_reader_renews_its_lease_first(
    group: ReaderGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Thread:
        def call(self, work: Any) -> NoReturn:
            work.close()
            raise UnreachableError("the client's thread was called")

    async with await reader_of(group, "a") as a:
        await offsets(a, 1)
        records: Iterator[object] = iter(blocking.GroupReader(cast(LoopThread, Thread()), a))
        next(records)
        awake(monkeypatch)
        with pytest.raises(UnreachableError, match="was called"):
            next(records)


# -- how far behind it is -------------------------------------------------------------------------


async def test_given_records_that_were_handed_out_then_the_metrics_do_not_count_them(
    world: World, group: ReaderGroup
) -> None:
    def lag() -> object:
        return world.cluster.metrics.consumers["orders"].lag_records

    async with await reader_of(group, "a") as a:
        await offsets(a, 2)
        assert lag() == {0: RECORDS - 2}
        await offsets(a, RECORDS - 2)
        assert lag() == {0: 0}


async def test_given_a_log_that_begins_later_then_nothing_is_processed_before_the_first_record(
    world: World, group: ReaderGroup
) -> None:
    """Retention may remove more: who has read nothing begins with what there is."""
    world.log().put(bytearray(batch(RECORDS, RECORDS)))
    world.log().start = RECORDS
    async with await reader_of(group, "a") as a:
        item = await a.member.segments.queue.get()
        assert item is not None
        assert only(a).processed() == OffsetAndTerm(0)
        a.member.segments.queue.put_nowait(item)
        assert await offsets(a, 1) == [RECORDS]
