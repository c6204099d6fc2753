"""Consumers with names against scripted servers: resuming, committing, fencing, truncation."""

from __future__ import annotations

import asyncio
import uuid
from datetime import UTC, datetime
from typing import NoReturn

import pytest

from runnel.aio import Consumer, ConsumerSettings
from runnel.positions import admin
from runnel.positions.admin import NamedConsumer, PartitionProgress
from runnel.state_log.conditional_append import record_batch
from runnel.state_log.fold import Entry
from schemas.errors import (
    CorruptBatchError,
    DivergedError,
    FencedError,
    InvalidRequestError,
    NotFoundError,
    OffsetOutOfRangeError,
)
from schemas.ids import PartitionUid
from schemas.objects.system_topics import POSITIONS
from schemas.wire.batch import MAX_OFFSET, build_control
from schemas.wire.partitioner import partition_for
from tests.polling import eventually
from tests.unit.runnel.conftest import World
from tests.unit.runnel.fake_spu import FakeLog, Step
from tests.unit.runnel.records.test_cursor import batch

BY_HAND = ConsumerSettings(max_wait_ms=50, auto_commit_ms=None)
AT_ONCE = ConsumerSettings(max_wait_ms=50, auto_commit_ms=1)


async def fill(world: World, partitions: int = 1) -> None:
    """Per partition: control, records 1 2 3, control, record 5."""
    world.sc.add_topic("orders", partitions)
    for index in range(partitions):
        log = world.log(index=index)
        log.put(build_control("term", 0))
        log.put(batch(1, 3))
        log.put(build_control("term", 0))
        log.put(batch(5, 1))
    # What a leader's first act would be.
    world.sc.add_topic(POSITIONS, 2)
    for index in range(2):
        world.log(POSITIONS, index).put(build_control("term", 0))


async def some(consumer: Consumer, count: int) -> list[int]:
    """The offsets of the next records; no more are asked for."""
    found = []
    async with asyncio.timeout(20):
        async for record in consumer:
            found.append(record.offset)
            if len(found) == count:
                break
    return found


async def rest(world: World, name: str = "billing") -> list[int]:
    async with world.cluster.consumer("orders", stop="latest", name=name) as consumer:
        return await some(consumer, 99)


async def only(world: World, name: str = "billing") -> NamedConsumer:
    (found,) = await world.cluster.consumers(name)
    return found


async def committed(world: World) -> dict[int, int | None]:
    return {p.partition: p.committed for p in (await only(world)).partitions}


def writes(world: World) -> FakeLog:
    return world.log(POSITIONS, partition_for(b"billing", 2))


async def test_given_a_clean_end_then_the_next_one_goes_on_after_all_that_was_handed_out(
    world: World,
) -> None:
    await fill(world)
    async with world.cluster.consumer("orders", name="billing") as consumer:
        assert consumer.name == "billing"
        assert await some(consumer, 2) == [1, 2]
    assert await rest(world) == [3, 5]
    assert await rest(world) == []
    assert await rest(world, "another") == [1, 2, 3, 5]
    found = await only(world)
    assert (found.open, found.lag, found.topic_gone) == (False, 0, False)


async def test_given_an_error_then_what_was_in_hand_comes_again(world: World) -> None:
    await fill(world)

    async def process() -> None:
        async with world.cluster.consumer("orders", name="billing") as consumer:
            await some(consumer, 2)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await process()
    assert await rest(world) == [2, 3, 5]


async def test_given_batches_and_an_error_then_the_batch_in_hand_comes_again(world: World) -> None:
    await fill(world)

    async def process() -> None:
        async with world.cluster.consumer("orders", name="billing") as consumer:
            async for _rows in consumer.batches():
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await process()
    assert await rest(world) == [1, 2, 3, 5]


@pytest.mark.parametrize(
    ("max_records", "expected", "again"),
    [
        pytest.param(1, [[1], [2], [3], [5]], [2, 3, 5], id="given-1"),
        pytest.param(3, [[1, 2, 3], [5]], [5], id="given-3"),
        pytest.param(4, [[1, 2, 3, 5]], [1, 2, 3, 5], id="given-as-many-as-there-are"),
    ],
)
async def test_given_max_records_then_only_the_batch_in_hand_comes_again(
    world: World, max_records: int, expected: list[list[int]], again: list[int]
) -> None:
    await fill(world)
    found: list[list[int]] = []

    async def process() -> None:
        async with world.cluster.consumer("orders", name="billing") as consumer:
            async for rows in consumer.batches(max_records=max_records):
                found.append(rows["offset"].to_pylist())
                if len(found) == min(2, len(expected)):
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await process()
    assert found == expected[:2]
    assert await rest(world) == again
    whole = world.cluster.consumer("orders", "earliest", "latest")
    batches = whole.batches(max_records=max_records)
    assert [rows["offset"].to_pylist() async for rows in batches] == expected


async def test_given_max_records_of_0_then_refused(world: World) -> None:
    with pytest.raises(InvalidRequestError, match="max_records is 0"):
        await anext(world.cluster.consumer("orders").batches(max_records=0))


async def test_given_an_end_that_is_cut_short_then_closing_does_not_commit_what_was_in_hand(
    world: World,
) -> None:
    await fill(world)
    async with world.cluster.consumer("orders", name="billing") as first:
        assert await some(first, 2) == [1, 2]
        leaving = asyncio.ensure_future(first.leave(KeyboardInterrupt()))
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.wait([leaving])
        # Record 2 was in hand: a second signal ended what should have committed the first.
        await first.close()
    assert await rest(world) == [2, 3, 5]


async def test_given_no_end_then_what_was_committed_by_hand_counts(world: World) -> None:
    await fill(world)
    consumer = world.cluster.consumer("orders", name="billing", settings=BY_HAND)
    await some(consumer, 1)
    await consumer.commit()
    await some(consumer, 1)
    consumer.abandon()
    assert (await only(world)).open
    assert await rest(world) == [2, 3, 5]


async def test_given_no_commit_of_its_own_then_closing_commits_nothing(world: World) -> None:
    await fill(world)
    for settings, commit in ((BY_HAND, True), (AT_ONCE, False)):
        consumer = world.cluster.consumer("orders", name="billing", settings=settings)
        await some(consumer, 1)
        await consumer.close(commit=commit)
        assert await committed(world) == {0: 0}
        assert not (await only(world)).open


async def test_given_time_then_the_record_in_hand_is_not_committed_until_more_is_asked_for(
    world: World,
) -> None:
    await fill(world)
    async with world.cluster.consumer("orders", name="billing", settings=AT_ONCE) as consumer:
        records = aiter(consumer)
        await anext(records)
        await anext(records)

        async def done() -> bool:
            return await committed(world) == {0: 2}

        await eventually(done)
        # Asked for, though nothing comes for a while: all before is processed.
        await anext(records)
        await anext(records)
        more = asyncio.ensure_future(anext(records))

        async def all_done() -> bool:
            return await committed(world) == {0: 6}

        await eventually(all_done)
        more.cancel()


async def test_given_batches_and_time_then_those_that_are_done_with_are_committed(
    world: World,
) -> None:
    await fill(world)
    async with world.cluster.consumer("orders", name="billing", settings=AT_ONCE) as consumer:
        batches = consumer.batches()
        for _ in range(50):
            if (await anext(batches)).column("offset")[-1].as_py() == 5:
                break
        more = asyncio.ensure_future(anext(batches))

        async def done() -> bool:
            return await committed(world) == {0: 6}

        await eventually(done)
        more.cancel()


async def test_given_offsets_then_these_are_committed(world: World) -> None:
    await fill(world)
    async with world.cluster.consumer("orders", name="billing", settings=BY_HAND) as consumer:
        await some(consumer, 4)
        await consumer.commit({0: 3})
        with pytest.raises(InvalidRequestError, match="does not read the partitions"):
            await consumer.commit({7: 3})
    assert await rest(world) == [3, 5]


@pytest.mark.parametrize(
    ("offsets", "says"),
    [
        pytest.param(
            {0: 1 << 63},
            "commit of partition 0 is 9223372036854775808; .* from 0 to 9223372036854775807",
            id="given-65-bits",
        ),
        pytest.param({0: True}, "commit of partition 0 is True; an offset", id="given-a-flag"),
        pytest.param({False: 3}, "commit: False is not the number", id="given-a-flag-as-partition"),
    ],
)
async def test_given_what_is_no_offset_then_it_is_refused_and_positions_can_be_read(
    world: World, offsets: dict[int, int], says: str
) -> None:
    await fill(world)
    async with world.cluster.consumer("orders", name="billing", settings=BY_HAND) as consumer:
        await some(consumer, 4)
        with pytest.raises(InvalidRequestError, match=says):
            await consumer.commit(offsets)
        await consumer.commit({0: MAX_OFFSET})
    assert await committed(world) == {0: MAX_OFFSET}


async def test_given_what_an_earlier_version_wrote_then_the_error_says_which_and_what_to_do(
    world: World,
) -> None:
    await fill(world)
    async with world.cluster.consumer("orders", name="billing", settings=BY_HAND) as consumer:
        await some(consumer, 4)
    log = writes(world)
    update = {"kind": "committed", "name": "billing", "topic": "orders", "at_us": 1}
    entry = Entry("old", ({**update, "offsets": [[0, 1 << 63]], "terms": []},))
    log.put(record_batch(entry.pack(), 1))
    place = f"_positions/{partition_for(b'billing', 2)} at offset {log.end - 1}: "
    with pytest.raises(CorruptBatchError, match="9223372036854775808 is no whole") as raised:
        await world.cluster.consumers("billing")
    assert raised.value.message.startswith(place)
    assert raised.value.message.endswith("runnel delete topic _positions --force")


async def test_given_a_commit_ahead_then_none_of_its_own_goes_back(world: World) -> None:
    await fill(world)
    async with world.cluster.consumer("orders", name="billing", settings=AT_ONCE) as consumer:
        await some(consumer, 2)
        await consumer.commit({0: 5})
        before = writes(world).end
        await some(consumer, 1)
        # Nothing to do, again and again.
        for _ in range(50):
            await asyncio.sleep(0)
        assert await committed(world) == {0: 5}
    assert await rest(world) == [5]
    # Closed; opened, committed at the end, and closed.
    assert writes(world).end == before + 4


async def test_given_no_news_then_nothing_is_written(world: World) -> None:
    await fill(world)
    async with world.cluster.consumer("orders", name="billing", settings=BY_HAND) as consumer:
        await some(consumer, 1)
        await consumer.commit()
        before = writes(world).end
        await consumer.commit()
        assert writes(world).end == before


async def test_given_all_is_read_then_it_is_committed_and_more_can_be(world: World) -> None:
    await fill(world)
    consumer = world.cluster.consumer("orders", stop="latest", name="billing")
    assert await some(consumer, 99) == [1, 2, 3, 5]
    assert await committed(world) == {0: 6}
    await consumer.commit({0: 2})
    assert await committed(world) == {0: 2}


async def test_given_a_second_one_then_the_first_is_fenced_at_its_commit(world: World) -> None:
    await fill(world)
    async with world.cluster.consumer("orders", name="billing", settings=BY_HAND) as first:
        await some(first, 1)
        async with world.cluster.consumer("orders", name="billing", settings=BY_HAND) as second:
            assert await some(second, 1) == [1]
            # Also where there is no news.
            for _ in range(2):
                with pytest.raises(FencedError, match="opened again by runnel-python"):
                    await first.commit()
            # What it has fetched is given out; more is not.
            with pytest.raises(FencedError):
                await some(first, 99)
            await second.commit()
    assert await committed(world) == {0: 2}


async def test_given_auto_commit_that_is_fenced_then_reading_tells(world: World) -> None:
    await fill(world)
    first = world.cluster.consumer("orders", name="billing", settings=AT_ONCE)
    records = aiter(first)
    await anext(records)
    second = world.cluster.consumer("orders", name="billing", settings=BY_HAND)
    await second.start()
    with pytest.raises(FencedError, match="read again by whoever"):
        await some(first, 99)
    # It was told once.
    await first.close()
    await second.commit({0: 1})


async def test_given_a_close_that_is_fenced_then_it_tells_unless_something_else_went_wrong(
    world: World,
) -> None:
    await fill(world)
    first, second, third = (world.cluster.consumer("orders", name="billing") for _ in range(3))
    await some(first, 1)
    await second.start()
    with pytest.raises(FencedError):
        await first.close()

    async def process() -> None:
        async with second:
            await third.start()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as got:
        await process()
    assert "'orders' could not commit: consumer 'billing'" in got.value.__notes__[0]


async def test_given_trouble_then_auto_commit_tries_again_later(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(world)
    short = ConsumerSettings(max_wait_ms=50, auto_commit_ms=1, give_up_ms=50)
    async with world.cluster.consumer("orders", name="billing", settings=short) as consumer:
        world.spu.produce_script.extend([Step.DROP] * 1000)
        await some(consumer, 2)
        await eventually(lambda: "tried again later" in caplog.text)
        world.spu.produce_script.clear()

        async def done() -> bool:
            return await committed(world) == {0: 2}

        await eventually(done)


async def test_given_latest_then_the_start_is_kept_though_nothing_was_committed(
    world: World,
) -> None:
    await fill(world)
    first = world.cluster.consumer("orders", "latest", name="billing", settings=BY_HAND)
    await first.start()
    first.abandon()
    world.log().put(batch(6, 2))
    consumer = world.cluster.consumer("orders", "latest", "latest", name="billing")
    assert await some(consumer, 99) == [6, 7]


async def test_given_a_time_then_the_same_records_come_after_a_crash(world: World) -> None:
    await fill(world)
    world.log().put(batch(6, 3, time_us=10**15))
    start = datetime.fromtimestamp(10**9, UTC).replace(microsecond=1)
    for _ in range(2):
        first = world.cluster.consumer("orders", start, "latest", name="billing", settings=BY_HAND)
        assert await some(first, 99) == [7, 8]
        first.abandon()


@pytest.mark.parametrize("by_hand", [True, False], ids=["given-commit", "given-close"])
@pytest.mark.parametrize("seeks", [True, False], ids=["given-a-seek", "given-a-start"])
@pytest.mark.parametrize("taken", [0, 1])
async def test_given_a_time_then_no_record_before_it_is_committed(
    world: World, taken: int, seeks: bool, by_hand: bool
) -> None:
    await fill(world, 2)
    for index in range(2):
        world.log(index=index).put(batch(6, 4, time_us=1_000_006))
    at = datetime.fromtimestamp(1, UTC).replace(microsecond=8)
    start = None if seeks else at
    async with world.cluster.consumer("orders", start, name="billing") as consumer:
        if seeks:
            await consumer.seek(at)
        assert consumer.position() == {0: 8, 1: 8}
        first = await some(consumer, taken) if taken else []
        if by_hand:
            await consumer.commit()
    assert first == [8][:taken]
    async with world.cluster.consumer("orders", start, "latest", name="billing") as consumer:
        assert sorted(first + await some(consumer, 99)) == [8, 8, 9, 9]


async def test_given_a_time_to_come_then_it_is_looked_for_until_it_has_come(world: World) -> None:
    await fill(world)
    at = datetime.fromtimestamp(1, UTC)
    for time_us in (1, 500_000):
        async with world.cluster.consumer(
            "orders", at, "latest", name="billing", settings=AT_ONCE
        ) as consumer:
            assert await some(consumer, 99) == []
        assert await committed(world) == {0: None}
        world.log().put(batch(world.log().end, 1, time_us=time_us))
    world.log().put(batch(8, 1, time_us=1_000_000))
    async with world.cluster.consumer("orders", at, "latest", name="billing") as consumer:
        assert await some(consumer, 99) == [8]
    assert await committed(world) == {0: 9}


async def test_given_a_time_then_a_reset_goes_to_the_record(world: World) -> None:
    await fill(world)
    world.log().put(batch(6, 4, time_us=1_000_006))
    await rest(world)
    at = datetime.fromtimestamp(1, UTC).replace(microsecond=8)
    await world.cluster.reset_consumer("billing", "orders", at)
    assert await rest(world) == [8, 9]


async def test_given_new_partitions_then_they_are_read_from_their_beginning(world: World) -> None:
    await fill(world)
    async with world.cluster.consumer("orders", "latest", name="billing"):
        pass
    topic = world.sc.objects["topics", "orders"]
    world.sc.uids["orders"].append(PartitionUid(str(uuid.uuid4())))
    spec = topic.spec.model_copy(update={"partitions": 2})
    world.sc.change(topic.model_copy(update={"spec": spec}))
    world.cluster._leaders.forget("orders")
    world.log(index=1).put(build_control("term", 0))
    world.log(index=1).put(batch(1, 2))
    consumer = world.cluster.consumer("orders", "latest", "latest", name="billing")
    assert await some(consumer, 99) == [1, 2]


async def test_given_a_topic_that_was_made_again_then_it_starts_afresh(world: World) -> None:
    await fill(world)
    assert await rest(world) == [1, 2, 3, 5]
    world.sc.remove_topic("orders")
    world.sc.add_topic("orders")
    world.cluster._leaders.forget("orders")
    world.log().put(build_control("term", 0))
    world.log().put(batch(1, 2))
    assert (await only(world)).topic_gone
    assert await rest(world) == [1, 2]
    assert not (await only(world)).topic_gone


async def test_given_truncated_records_then_an_error_or_on_with_the_first(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(world)
    async with world.cluster.consumer("orders", name="billing") as consumer:
        await some(consumer, 1)
    world.log().start = 4
    with pytest.raises(OffsetOutOfRangeError, match=r"offset 2 .* first available one is 4"):
        await rest(world)
    forgiving = ConsumerSettings(on_truncated="earliest")
    for name, start in (("billing", None), (None, 1)):
        consumer = world.cluster.consumer("orders", start, "latest", name=name, settings=forgiving)
        assert await some(consumer, 99) == [5]
    assert "orders/0: offsets 2 to 3 were truncated; reading continues from 4" in caplog.text


async def test_given_a_log_that_ends_before_what_was_read_then_an_error(world: World) -> None:
    await fill(world)
    assert await rest(world) == [1, 2, 3, 5]
    world.log().confirmed = 3
    with pytest.raises(DivergedError, match="--topic orders --offset 4 -p 0") as got:
        await rest(world)
    assert got.value.diverged_at == 4


@pytest.mark.parametrize(
    ("to", "partitions", "expected"),
    [
        pytest.param("earliest", None, [1, 2, 3, 5], id="given-earliest-then-all"),
        pytest.param("latest", None, [], id="given-latest-then-none"),
        pytest.param(3, None, [3, 5], id="given-an-offset-then-from-there-on"),
        pytest.param({0: 5}, None, [5], id="given-a-map-then-from-there-on"),
    ],
)
async def test_reset(
    world: World, to: object, partitions: list[int] | None, expected: list[int]
) -> None:
    await fill(world)
    await rest(world)
    active = world.cluster.consumer("orders", name="billing")
    await active.start()
    done = await world.cluster.reset_consumer("billing", "orders", to, partitions)  # type: ignore[arg-type]
    assert done.fenced is not None
    assert done.fenced.startswith("runnel-python (pid ")
    with pytest.raises(FencedError, match="opened again or reset by runnel-python"):
        await active.commit()
    assert await rest(world) == expected
    assert (await world.cluster.reset_consumer("billing", "orders", "latest")).fenced is None


async def test_reset_refused(world: World) -> None:
    await fill(world)
    await rest(world)
    with pytest.raises(NotFoundError, match="did you mean 'billing'"):
        await world.cluster.reset_consumer("biling", "orders", "latest")
    with pytest.raises(NotFoundError, match="topic 'order' does not exist"):
        await world.cluster.reset_consumer("billing", "order", "latest")
    with pytest.raises(InvalidRequestError, match="cannot be read from offset 7"):
        await world.cluster.reset_consumer("billing", "orders", 7)


async def test_delete(world: World) -> None:
    await fill(world)
    await rest(world)
    active = world.cluster.consumer("orders", name="billing")
    await active.start()
    assert await world.cluster.delete_consumer("billing") == ("orders",)
    with pytest.raises(FencedError, match="was deleted"):
        await active.commit()
    for call in (world.cluster.delete_consumer, world.cluster.consumers):
        with pytest.raises(NotFoundError, match="'billing' does not exist"):
            await call("billing")
    assert await rest(world) == [1, 2, 3, 5]


async def test_given_no_positions_then_looking_does_not_make_them(world: World) -> None:
    assert await world.cluster.consumers() == ()
    for call in (world.cluster.consumers, world.cluster.delete_consumer):
        with pytest.raises(NotFoundError, match="'billing' does not exist"):
            await call("billing")
    assert ("topics", POSITIONS) not in world.sc.objects


async def test_given_no_bounds_are_wanted_then_no_leader_is_asked_for_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(world, partitions=2)
    assert len(await rest(world)) == 8
    whole = await only(world)

    async def asked(*_: object) -> NoReturn:
        raise AssertionError("a leader was asked for bounds")

    monkeypatch.setattr(admin, "list_offsets", asked)
    with pytest.raises(AssertionError, match="was asked"):
        await only(world)
    (found,) = await world.cluster.consumers("billing", bounds=False)
    assert [p.committed for p in found.partitions] == [p.committed for p in whole.partitions]
    assert [(p.end, p.lag) for p in found.partitions] == [(None, None)] * 2
    assert not found.topic_gone


async def test_given_no_positions_then_opening_makes_them(world: World) -> None:
    await fill(world)
    world.sc.remove_topic(POSITIONS)
    assert await rest(world) == [1, 2, 3, 5]
    assert ("topics", POSITIONS) in world.sc.objects


@pytest.mark.parametrize(
    ("committed_", "end", "lag"),
    [
        pytest.param(3, 10, 7, id="given-both-then-the-difference"),
        pytest.param(12, 10, 0, id="given-an-end-that-went-back-then-none"),
        pytest.param(None, 10, None, id="given-no-commit-then-unknown"),
        pytest.param(3, None, None, id="given-no-end-then-unknown"),
    ],
)
def test_lag(committed_: int | None, end: int | None, lag: int | None) -> None:
    progress = PartitionProgress(0, committed_, None, 0, end)
    assert progress.lag == lag
    when = datetime.fromtimestamp(0, UTC)
    other = PartitionProgress(1, 1, when, 0, 3)
    consumer = NamedConsumer("a", "t", True, "ann", when, False, (progress, other))
    assert (consumer.lag, consumer.committed_at) == ((lag or 0) + 2, when)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("", id="given-an-empty-name"),
        pytest.param("_mine", id="given-a-name-of-the-system"),
        pytest.param("a b", id="given-a-space"),
    ],
)
async def test_names_refused(world: World, name: str) -> None:
    with pytest.raises(InvalidRequestError, match="name of a consumer"):
        world.cluster.consumer("orders", name=name)


async def test_given_no_name_then_there_is_nothing_to_commit(world: World) -> None:
    await fill(world)
    async with world.cluster.consumer("orders") as consumer:
        assert consumer.name is None
        with pytest.raises(InvalidRequestError, match="name='…'"):
            await consumer.commit()


async def test_given_a_topic_of_the_system_then_users_do_not_write_to_it(world: World) -> None:
    await fill(world)
    for call in (world.cluster.producer(POSITIONS), world.cluster.truncate(POSITIONS, "latest")):
        with pytest.raises(InvalidRequestError, match="is a system topic"):
            await call


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"on_truncated": "latest"}, id="given-an-unknown-word"),
        pytest.param({"auto_commit_ms": 0}, id="given-no-time"),
    ],
)
def test_settings_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidRequestError):
        ConsumerSettings(**wrong)  # type: ignore[arg-type]
