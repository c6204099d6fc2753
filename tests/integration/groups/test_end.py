"""Groups that end at a cut: what their readers get, and that they end."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest

from runnel.consume.settings import ConsumerSettings
from runnel.groups.cut import GroupCut, TopicCut
from runnel.groups.group import NewGroup, ReaderGroup
from runnel.groups.places import Places, SourceSegment
from runnel.groups.reader import GroupReader
from runnel.groups.state import GroupConfig
from runnel.records.offset_and_term import OffsetAndTerm
from schemas.errors import ConflictError, InvalidRequestError, NotFoundError
from schemas.streams.cuts import StreamCut
from schemas.streams.epochs import Segment, even, first_epoch
from schemas.streams.key_space import WHOLE, KeyRange
from schemas.streams.scaling import scaled
from tests.integration.groups.stream_world import STREAM, group_of
from tests.integration.groups.test_reader import EACH, fill
from tests.unit.runnel.conftest import World
from tests.unit.runnel.streams.test_consumer import Stream, cut, read, some

PER_EPOCH = 3
SETTINGS = ConsumerSettings(max_wait_ms=50)


@pytest.fixture
def stream() -> Stream:
    """Two segments, of which the first is split, and then all are merged."""
    change = even(0, 2, 0, 0)
    history = [(first_epoch(change), change)]

    def scale(seal: Sequence[Segment], into: Sequence[KeyRange], next_number: int) -> None:
        now, ids = history[-1][0], [one.id for one in seal]
        change = scaled(now, ids, into, next_number=next_number, min_segments=1, time_ms=0)
        history.append((change.applied_to(now), change))

    low = history[0][0].segments[0]
    scale([low], low.keys.split(2), 2)
    scale(history[1][0].segments, [WHOLE], 4)
    return Stream(history, PER_EPOCH, sealed=False)


async def all_read(group: ReaderGroup, readers: int) -> Counter[tuple[int, int]]:
    """What so many readers get until all of them end."""

    async def of(one: GroupReader) -> list[tuple[int, int]]:
        async with one:
            return [(record.partition, record.offset) async for record in one]

    made = [group.reader(f"r{n}", settings=SETTINGS) for n in range(readers)]
    async with asyncio.timeout(30):
        found = await asyncio.gather(*map(of, made))
    return Counter(place for places in found for place in places)


@pytest.mark.parametrize("seed", range(6))
async def test_given_a_cut_then_readers_end_there_with_what_a_consumer_gets(
    world: World, stream: Stream, seed: int
) -> None:
    world.sc.subscribers[STREAM] = {}
    random = Random(seed)
    _, end = await some(stream.consumer(), random.randint(0, 44))
    wanted = sum(map(len, (await read(stream.consumer("earliest", end))).values()))
    group = group_of(world, stream)
    place = GroupCut({STREAM: end})
    await group.create(NewGroup(streams=[STREAM], lease=1.0, end=place, retention="manual"))
    assert (await group.describe()).end == place
    found = await all_read(group, 2)
    assert max(found.values(), default=1) == 1
    assert found.total() == wanted
    info = await group.describe()
    assert (info.segments, info.lag, info.unread_bytes) == ((), 0, 0)
    assert await group.checkpoint() == place
    assert await all_read(group, 1) == Counter()
    await group.reset("earliest")
    assert await all_read(group, 1) == found
    await group.delete()


async def test_given_an_end_then_progress_is_up_to_it(world: World, stream: Stream) -> None:
    group = group_of(world, stream)
    end = GroupCut({STREAM: cut({"0.0": 2, "0.1": 1})})
    await group.create(NewGroup(streams=[STREAM], end=end))
    info = await group.describe()
    assert [(one.segment, one.end) for one in info.segments] == [("0.0", 2), ("0.1", 1)]
    assert (info.lag, info.unread_bytes) == (3, 30)
    await group.delete()


async def test_refusals(world: World, stream: Stream) -> None:
    group = group_of(world, stream)
    for end, message in (
        ("latest", "end is 'latest'; give a GroupCut"),
        (GroupCut(), f"the cut says nothing of stream {STREAM}"),
        (GroupCut({STREAM: cut({"0.0": 1})}), "it names no segment for the keys"),
        (GroupCut({STREAM: StreamCut(STREAM, "old", {})}), "the cut is of an earlier stream"),
    ):
        with pytest.raises(InvalidRequestError, match=message):
            await group.create(NewGroup(streams=[STREAM], end=end))  # type: ignore[arg-type]
    start, end = (GroupCut({STREAM: cut({"0.0": n, "0.1": n})}) for n in (2, 1))
    with pytest.raises(InvalidRequestError, match="the end lies before the start in stream s/t: f"):
        await group.create(NewGroup(streams=[STREAM], start=start, end=end))
    await group.create(NewGroup(streams=[STREAM], end=end))
    await group.create(NewGroup(streams=[STREAM], end=end))
    with pytest.raises(InvalidRequestError, match="the end lies before the start in stream s/t: f"):
        await group.reset("latest")
    for other in (None, start):
        with pytest.raises(ConflictError, match="is there, and it ends at a place, which is anoth"):
            await group.create(NewGroup(streams=[STREAM], end=other))
    await group.delete()
    await group.create(NewGroup(streams=[STREAM]))
    with pytest.raises(ConflictError, match="is there, and it has no end"):
        await group.create(NewGroup(streams=[STREAM], end=end))
    await group.delete()


# -- topics ---------------------------------------------------------------------------------------


@pytest.fixture
def topic(world: World) -> str:
    """Of two partitions with six records each; gives its uid."""
    made = world.sc.add_topic("orders", partitions=2)
    for index in range(2):
        fill(world, index)
    return made.uid


def topic_cut(uid: str, *offsets: int) -> GroupCut:
    return GroupCut(topics={"orders": TopicCut(uid, dict(enumerate(map(OffsetAndTerm, offsets))))})


async def test_given_a_topic_then_readers_end_at_the_offsets(world: World, topic: str) -> None:
    end = topic_cut(topic, 2, EACH + 1)
    group = await world.cluster.reader_group("g", topics=["orders"], lease=1.0, end=end)
    reading = asyncio.create_task(all_read(group, 2))
    await asyncio.sleep(0.3)
    # A partition that is added lies behind the end; a record that the end has is waited for.
    world.sc.grow("orders", 3)
    assert not reading.done()
    for index in range(3):
        fill(world, index, 3)
    await world.spu.grown()
    assert await reading == Counter([(0, 0), (0, 1), *((1, n) for n in range(EACH + 1))])
    assert (await group.describe()).segments == ()
    again = await world.cluster.reader_group("g", topics=["orders"], lease=1.0, end=end)
    await again.reset("earliest")
    assert (await all_read(again, 1)).total() == 2 + EACH + 1
    await group.delete()


async def test_refusals_of_topics(world: World, topic: str) -> None:
    for start, end, message in (
        ("latest", topic_cut(topic, 2, 3), "orders/0 begins at 6 and ends at 2; give an earlier"),
        ("earliest", topic_cut(topic, 1, 1, 1), "the end names orders/2, which is not there"),
        ("earliest", topic_cut("old", 1), "the cut is of an earlier topic orders"),
        ("earliest", GroupCut(), "the cut says nothing of topic orders"),
    ):
        with pytest.raises(InvalidRequestError, match=message):
            await world.cluster.reader_group("g", topics=["orders"], start=start, end=end)  # type: ignore[arg-type]
    with pytest.raises(NotFoundError):
        await world.cluster.reader_group("g")


# -- pure -----------------------------------------------------------------------------------------


def test_given_an_end_then_only_what_it_names_of_topics_is_read() -> None:
    named, added = SourceSegment("orders", 0), SourceSegment("orders", 1)
    of_stream = SourceSegment(STREAM, 7)
    config = GroupConfig({}, 1, 0, "none", {named: 5, SourceSegment(STREAM, 3): -1})
    assert [config.stop_of(one) for one in (named, added, SourceSegment(STREAM, 3))] == [5, None, 0]
    assert config.behind_end([named, added, of_stream]) == [added]
    assert GroupConfig({}, 1, 0).behind_end([named, added, of_stream]) == []
    places = Places()
    for one in (named, added, of_stream):
        places.add(one)
    assert set(places.without([added]).keys) == {named, of_stream}
