"""How much is unread: of each segment, and in what a group says of itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.groups.group import NewGroup
from runnel.groups.unread import Extent, unread_bytes
from schemas.errors import UnreachableError
from schemas.streams.epochs import even, first_epoch
from tests.integration.groups.stream_world import RECORD_BYTES, STREAM, group_of
from tests.integration.groups.test_reader import EACH, PARTITIONS, SETTINGS, fill
from tests.unit.runnel.conftest import World
from tests.unit.runnel.streams.test_consumer import KEYS, Stream

OFFSETS = st.integers(0, 1 << 40)


@pytest.mark.parametrize(
    ("position", "extent", "unread"),
    [
        (0, Extent(0, 10, 1_000), 1_000),
        (4, Extent(0, 10, 1_000), 600),
        (10, Extent(0, 10, 1_000), 0),
        # Less than one byte for each offset is not nothing.
        (9, Extent(0, 10, 5), 1),
        # What retention removed is not there any more.
        (0, Extent(6, 10, 1_000), 1_000),
        (8, Extent(6, 10, 1_000), 500),
        # A leader that was asked before the position was committed.
        (12, Extent(0, 10, 1_000), 0),
        (0, Extent(0, 0, 0), 0),
        (7, Extent(7, 7, 64), 0),
    ],
)
def test_unread_bytes(position: int, extent: Extent, unread: int) -> None:
    assert unread_bytes(position, extent, extent.end) == unread


@given(OFFSETS, OFFSETS, OFFSETS, OFFSETS, st.integers(0, 1 << 50), OFFSETS)
def test_given_any_position_then_within_the_log_and_less_the_further_it_is(
    position: int, further: int, begin: int, records: int, size: int, end: int
) -> None:
    extent = Extent(begin, begin + records, size)
    unread = unread_bytes(position, extent, extent.end)
    assert 0 <= unread <= size
    assert unread_bytes(position + further, extent, extent.end) <= unread
    assert unread_bytes(position, extent, end) <= unread


async def test_given_a_topic_then_a_group_says_what_is_unread(world: World) -> None:
    world.sc.add_topic("orders", partitions=PARTITIONS)
    for index in range(PARTITIONS):
        fill(world, index)
    group = await world.cluster.reader_group("g", topics=["orders"], lease=1.0)
    sizes = [sum(map(len, world.log(index=index).batches)) for index in range(PARTITIONS)]
    info = await group.describe()
    assert [one.unread_bytes for one in info.segments] == sizes
    assert info.unread_bytes == sum(sizes)
    async with group.reader(timeout=0.5, settings=SETTINGS) as reader:
        assert len([record async for record in reader]) == PARTITIONS * EACH
    assert (await group.describe()).unread_bytes == 0
    (listed,) = await world.cluster.reader_groups()
    assert listed.unread_bytes is None, "no leader was asked"
    await group.delete()


async def test_given_a_stream_then_a_group_says_what_is_unread(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = even(0, 2, 0, 0)
    stream = Stream([(first_epoch(change), change)], 4, sealed=False)
    group = group_of(world, stream)
    await group.create(NewGroup(streams=[STREAM]))
    info = await group.describe()
    assert info.unread_bytes == 4 * KEYS * RECORD_BYTES
    assert info.lag == 4 * KEYS

    async def away(_numbers: object) -> dict[int, int]:
        raise UnreachableError("no leader answers")

    monkeypatch.setattr(stream, "ends", away)
    info = await group.describe()
    assert (info.unread_bytes, info.lag) == (None, None)
    await group.delete()
