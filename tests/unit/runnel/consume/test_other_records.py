"""Readers that come back to a log that holds other records than they have read.

Only the terms of its batches tell: the log is as long as before, or longer.
"""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.aio import Consumer, ConsumerSettings
from runnel.consume.delivered import FetchedChunk, ReadState
from runnel.net.offsets import Start, Stop
from runnel.records.cursor import Cursor
from runnel.records.offset_and_term import OffsetAndTerm
from schemas.errors import DivergedError, InvalidRequestError
from schemas.ids import Term
from schemas.objects.system_topics import POSITIONS
from schemas.wire.batch import build_control, set_offset_and_term
from tests.unit.runnel.conftest import World
from tests.unit.runnel.records.test_cursor import batch

FIRST, SECOND, OTHER = 1 << 16, 2 << 16, 3 << 16
QUICK = ConsumerSettings(max_wait_ms=50)


@pytest.fixture
async def orders(world: World) -> World:
    """Control record, 1 2 3 of one term; control record, 5 6 of the next one."""
    world.sc.add_topic("orders")
    log = world.log()
    log.put(build_control("term", 0), FIRST)
    log.put(batch(1, 3), FIRST)
    log.put(build_control("term", 0), SECOND)
    world.sc.term = Term(SECOND)
    log.put(batch(5, 2), SECOND)
    world.sc.add_topic(POSITIONS, 1)
    world.log(POSITIONS).put(build_control("term", 0))
    return world


def lose(world: World, kept: int, count: int) -> None:
    """Another leader, which has only the first batches, writes so many records in their place."""
    log = world.log()
    log.go_back(kept)
    log.put(build_control("term", 0), OTHER)
    world.sc.term = Term(OTHER)
    log.put(batch(log.end, count), OTHER)


async def offsets(consumer: Consumer, count: int | None = None) -> list[int]:
    """The offsets of so many records, or of all."""
    found: list[int] = []
    if count == 0:
        await consumer.start()
        return found
    async for record in consumer:
        found.append(record.offset)
        if len(found) == count:
            break
    return found


async def rest(world: World) -> list[int]:
    async with world.cluster.consumer("orders", stop="latest", name="billing") as consumer:
        return await offsets(consumer)


@pytest.mark.parametrize(
    ("start", "read", "kept", "lost_from"),
    [
        pytest.param("earliest", None, 2, 4, id="given-it-had-read-all"),
        pytest.param("earliest", 4, 3, 5, id="given-it-had-read-a-part-of-a-batch"),
        pytest.param("earliest", 2, 2, None, id="given-it-had-read-less-than-was-kept"),
        pytest.param("earliest", 3, 2, None, id="given-it-had-read-just-what-was-kept"),
        pytest.param("latest", 0, 2, 4, id="given-it-was-opened-at-the-end"),
        pytest.param(6, 0, 2, 4, id="given-it-was-opened-in-the-middle"),
        pytest.param(4, 0, 2, None, id="given-it-was-opened-where-the-log-was-cut"),
    ],
)
async def test_a_named_consumer_is_told(
    orders: World, start: Start, read: int | None, kept: int, lost_from: int | None
) -> None:
    stop: Stop = "latest" if read is None else None
    async with orders.cluster.consumer("orders", start, stop, name="billing") as consumer:
        await offsets(consumer, read)
    lose(orders, kept, 9)
    if lost_from is None:
        assert (await rest(orders))[-1] == orders.log().end - 1
        return
    with pytest.raises(DivergedError) as got:
        await rest(orders)
    assert got.value.diverged_at == lost_from
    says = f"and the log holds other records from offset {lost_from} on: acknowledged records were"
    assert says in got.value.message
    reset = f"runnel consumer reset billing --topic orders --offset {lost_from} -p 0"
    assert got.value.message.endswith(reset)
    await orders.cluster.reset_consumer("billing", "orders", {0: lost_from})
    first = lost_from + 1  # A control record comes first.
    assert await rest(orders) == list(range(first, first + 9))


async def test_given_a_reset_then_it_counts_from_there(orders: World) -> None:
    assert await rest(orders) == [1, 2, 3, 5, 6]
    await orders.cluster.reset_consumer("billing", "orders", {0: 6})
    lose(orders, 2, 9)
    with pytest.raises(DivergedError, match="has read up to offset 6, and the log holds other"):
        await rest(orders)


async def test_given_a_commit_by_hand_then_its_term_is_that_of_the_batch_below(
    orders: World,
) -> None:
    async with orders.cluster.consumer("orders", "earliest", name="billing") as consumer:
        await offsets(consumer, 5)
        await consumer.commit({0: 3})
        assert consumer.position_with_terms() == {0: (7, SECOND)}
        await consumer.close(commit=False)
    lose(orders, 2, 9)
    assert await rest(orders) == [3, *range(5, 14)]


@pytest.mark.parametrize("way", ["commit", "seek"])
async def test_given_a_commit_of_what_was_not_read_then_the_leader_tells_its_term(
    orders: World, way: str
) -> None:
    """Below where it began, or where it was moved to."""
    async with orders.cluster.consumer("orders", 6, name="billing") as consumer:
        await offsets(consumer, 1)
        if way == "seek":
            await consumer.seek({0: 5})
            await consumer.commit()
        else:
            await consumer.commit({0: 5})
        await consumer.close(commit=False)
    lose(orders, 2, 9)
    with pytest.raises(DivergedError, match="has read up to offset 5, and the log holds other"):
        await rest(orders)


async def test_given_a_name_that_is_opened_with_what_is_lost_then_it_is_told_each_time(
    orders: World,
) -> None:
    kept = {0: OffsetAndTerm(6, SECOND)}
    lose(orders, 2, 9)
    for _ in range(2):
        with pytest.raises(DivergedError):
            async with orders.cluster.consumer("orders", kept, name="billing") as consumer:
                await offsets(consumer, 1)
    with pytest.raises(DivergedError):
        await orders.cluster.reset_consumer("billing", "orders", kept)
    await orders.cluster.reset_consumer("billing", "orders", {0: OffsetAndTerm(6, OTHER)})
    assert (await rest(orders))[0] == 6


@pytest.mark.parametrize("count", [0, 1, 9], ids=["shorter", "as-long", "longer"])
async def test_given_nothing_left_to_fetch_then_it_is_told_all_the_same(
    orders: World, count: int
) -> None:
    kept = {0: OffsetAndTerm(7, SECOND)}
    lose(orders, 2, 1)
    for _ in range(count):
        orders.log().put(batch(orders.log().end, 1), OTHER)
    with pytest.raises(DivergedError):
        async with orders.cluster.consumer("orders", kept, "latest") as consumer:
            await offsets(consumer)
    with pytest.raises(DivergedError):
        await orders.cluster.read("orders", start=kept)


async def test_given_a_reader_at_the_end_then_its_position_has_a_term(orders: World) -> None:
    async with orders.cluster.consumer("orders", "latest", settings=QUICK) as consumer:
        kept = consumer.position_with_terms()
    assert kept == {0: (7, SECOND)}


@pytest.mark.parametrize(
    ("kept", "says"),
    [
        pytest.param({0: OffsetAndTerm(6, -1)}, "the term of partition 0 is -1", id="negative"),
        pytest.param(
            {0: OffsetAndTerm(6, 1 << 63)}, "the term of partition 0 is 9", id="too-large"
        ),
        pytest.param({0: OffsetAndTerm(6, "x")}, "the term of partition 0 is 'x'", id="a-text"),  # type: ignore[arg-type]
        pytest.param({3: OffsetAndTerm(6, 1)}, "partitions 0 to 0, not 3", id="no-such-partition"),
    ],
)
async def test_positions_that_nobody_gave_are_refused(
    orders: World, kept: dict[int, OffsetAndTerm], says: str
) -> None:
    with pytest.raises(InvalidRequestError, match=says):
        await orders.cluster.offsets("orders", read=kept)
    with pytest.raises(InvalidRequestError, match=says):
        async with orders.cluster.consumer("orders", kept, partitions=list(kept)) as consumer:
            await offsets(consumer, 1)


@pytest.mark.parametrize(
    ("asked", "says"),
    [({3: 1}, "not 3"), ({0: -1}, "offsets of partition 0 is -1")],
    ids=["index", "offset"],
)
async def test_terms_of_no_place_are_refused(
    orders: World, asked: dict[int, int], says: str
) -> None:
    with pytest.raises(InvalidRequestError, match=says):
        await orders.cluster.terms_below("orders", asked)


async def test_given_spus_of_an_earlier_version_then_only_a_shorter_log_shows_it(
    orders: World,
) -> None:
    orders.spu.knows_terms = False
    async with orders.cluster.consumer("orders", "latest", name="billing") as consumer:
        await offsets(consumer, 0)
    lose(orders, 2, 9)
    assert await rest(orders) == list(range(7, 14))


@pytest.mark.parametrize("way", ["open", "seek"])
async def test_who_keeps_positions_is_told(orders: World, way: str) -> None:
    async with orders.cluster.consumer("orders", "earliest", settings=QUICK) as consumer:
        await offsets(consumer, 4)
        kept = consumer.position_with_terms()
    assert kept == {0: OffsetAndTerm(6, SECOND)}
    async with orders.cluster.consumer("orders", kept, "latest") as consumer:
        assert await offsets(consumer) == [6]
    lose(orders, 2, 9)
    start: Start = kept if way == "open" else "latest"
    async with orders.cluster.consumer("orders", start, settings=QUICK) as consumer:
        if way == "seek":
            await consumer.seek(kept)
        with pytest.raises(DivergedError, match="before offset 6") as got:
            await offsets(consumer, 1)
    assert got.value.diverged_at == 4


async def test_bounds_say_where_a_log_differs_from_what_was_read(orders: World) -> None:
    read = {0: OffsetAndTerm(7, SECOND)}
    (before,) = (await orders.cluster.offsets("orders", read=read)).values()
    assert (before.latest, before.term, before.diverged_at) == (7, SECOND, None)
    lose(orders, 2, 9)
    (after,) = (await orders.cluster.offsets("orders", read=read)).values()
    assert (after.latest, after.term, after.diverged_at) == (14, OTHER, 4)
    asked = {0: 4}
    assert await orders.cluster.terms_below("orders", asked) == {0: FIRST}
    assert await orders.cluster.terms_below("orders", {0: 99}) == {0: 0}


BATCHES = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 2), st.booleans()), min_size=1, max_size=8
)


@given(BATCHES, st.data())
def test_law_each_position_has_the_term_of_the_batch_below(
    batches: list[tuple[int, int, bool]], data: st.DataObject
) -> None:
    """Batches of so many records, or control records, in terms that rise by so much; a chunk ends
    after some of them."""
    terms: list[int] = []
    chunks: list[bytearray] = [bytearray()]
    term = 1
    for count, rises, ends in batches:
        term += rises
        made = batch(len(terms), count) if count else build_control("term", 0)
        set_offset_and_term(made, len(terms), term)
        terms += [term] * max(count, 1)
        chunks[-1] += made
        if ends:
            chunks.append(bytearray())
    state, cursor = ReadState("orders"), Cursor("orders", 0, 0)
    state.begin(0, 0, searching=False)
    for chunk in filter(None, chunks):
        rows: list[pa.RecordBatch] = cursor.take(memoryview(chunk))
        state.open(FetchedChunk(0, rows, cursor.position, cursor.term, cursor.term_starts))
        while True:
            at = state.position[0]
            known = {at, *data.draw(st.sets(st.integers(0, at)))}
            for offset in known:
                expected = terms[offset - 1] if offset else 0
                assert state.with_terms({0: offset}) == {0: (offset, expected)}
            if state.rest(max_records=data.draw(st.integers(1, 3))) is None:
                break
        assert state.with_terms(state.position) == {0: (cursor.position, cursor.term)}
    assert state.with_terms({0: len(terms) + 1}) == {0: (len(terms) + 1, 0)}
