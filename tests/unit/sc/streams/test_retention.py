"""The retention of a stream as its controller carries it out: cuts, truncations, subscribers."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from sc.controllers.actions import Settle, WakeAt
from sc.controllers.streams.records import TruncationRecord, decode, encode
from sc.controllers.streams.retention.periods import due_after
from sc.controllers.streams.retention.records import (
    CutIndex,
    Subscriber,
    cut_path,
    index_path,
    subscriber_path,
)
from sc.controllers.streams.retention.tails import taken_since
from sc.controllers.streams.steps import Pass
from sc.kv.interface import Delete, Put
from sc.store.buckets import Buckets
from schemas.control.statistics import ReplicaNumbers
from schemas.ids import PartitionUid
from schemas.objects.partition import Partition
from schemas.objects.quantities import Millis
from schemas.objects.stream import StreamRetention
from schemas.streams.cuts import StreamCut

from .world import NAME, UID, Owner, World, run, scale, truncation

PERIOD_MS = 60_000
HALF = 1 << 31


class Kept:
    """A stream with a retention, and SPUs that say how long its segments are."""

    def __init__(self, world: World) -> None:
        self.world = world
        #: By the numbers of segments: records, of ten bytes each.
        self.ends: dict[int, int] = {}
        self.count(world.owner)

    @classmethod
    async def begin(cls, segments: int = 1, **keeps: int) -> Kept:
        world = await World.begin(segments=segments)
        await world.settle()
        stream = await world.stream()
        assert stream is not None
        retention = StreamRetention(
            period=Millis(PERIOD_MS), **{name: Millis(value) for name, value in keeps.items()}
        )
        spec = stream.spec.model_copy(update={"retention": retention})
        await world.put(stream.model_copy(update={"spec": spec}).with_metadata(generation=2))
        kept = cls(world)
        world.owner.at_ms = due_after(10**12, PERIOD_MS, UID)
        return kept

    def count(self, owner: Owner) -> None:
        owner.view.numbers = self.numbers

    def numbers(self, partition: Partition) -> ReplicaNumbers | None:
        start = partition.status.start_offset
        if (end := self.ends.get(partition.spec.index or 0)) is None:
            return None
        return ReplicaNumbers(PartitionUid(partition.uid), start, end, end, 10 * (end - start))

    async def period(self, **ends: int) -> None:
        """A period passes, after which segments have these ends: s0 is segment 0.0."""
        self.ends |= {int(name[1:]): end for name, end in ends.items()}
        await self.world.settle()
        self.later(PERIOD_MS)

    def later(self, passed_ms: int) -> None:
        self.world.owner.at_ms += passed_ms
        self.world.owner.now_ms += passed_ms

    async def begins(self) -> dict[int, int]:
        """Where the stream begins; empty while it was not truncated."""
        found = await self.world.record(self.world.paths.truncation)
        if found is None:
            return {}
        return dict(StreamCut.parse(decode(TruncationRecord, found).cut).offsets)

    async def index(self) -> list[tuple[int, int]]:
        """The numbers and sizes of the cuts that are kept."""
        found = await self.world.record(index_path(self.world.paths))
        assert found is not None
        index = decode(CutIndex, found)
        assert index.last == index.cuts[-1]
        return [(cut.number, cut.size) for cut in index.cuts]

    async def subscribe(self, group: str, offsets: dict[int, int]) -> None:
        world = self.world
        cut = str(StreamCut(NAME, UID, offsets))
        path = world.keys.record(subscriber_path(world.paths, group))
        await world.kv.txn([], [Put(path, encode(Subscriber(group=group, cut=cut, at_ms=0)))])


def test_given_a_time_then_it_begins_at_the_newest_cut_that_is_old_enough() -> None:
    async def story() -> None:
        kept = await Kept.begin(min_time=3 * PERIOD_MS)
        found = []
        for end in (10, 20, 30, 40, 50, 60):
            await kept.period(s0=end)
            found.append(await kept.begins())
        # After the fourth period, the cut of the first one is three periods old.
        assert found == [{}, {}, {}, {0: 10}, {0: 20}, {0: 30}]
        assert await kept.index() == [(2, 300), (3, 400), (4, 500), (5, 600)]
        assert await kept.world.record(cut_path(kept.world.paths, 1)) is None
        assert await kept.world.record(cut_path(kept.world.paths, 2)) is not None
        (partition,) = await kept.world.partitions()
        assert partition.spec.truncate_before == 30

    run(story())


def test_given_a_size_then_it_begins_at_the_newest_cut_that_keeps_it() -> None:
    async def story() -> None:
        kept = await Kept.begin(min_size=250)
        found = []
        for end in (10, 20, 30, 40, 41):
            await kept.period(s0=end)
            found.append(await kept.begins())
        # 300 bytes were kept behind the first cut, and 200 behind the second.
        assert found == [{}, {}, {}, {0: 10}, {0: 10}]

    run(story())


def test_given_scales_then_cuts_count_what_came_to_all_segments() -> None:
    async def story() -> None:
        kept = await Kept.begin(min_time=2 * PERIOD_MS)
        await kept.period(s0=10)
        await kept.world.submit(scale([0], [(0, HALF), (HALF, 2 * HALF)]))
        # SPUs of this world seal at the offset 10 and more.
        await kept.period(s0=10, s1=5, s2=6)
        assert await kept.index() == [(0, 100), (1, 210)]
        await kept.period(s1=7, s2=6)
        assert await kept.begins() == {0: 10}
        await kept.period(s1=7, s2=6)
        assert await kept.begins() == {1 << 32 | 1: 5, 1 << 32 | 2: 6}
        assert [p.spec.index for p in await kept.world.partitions()] == [1, 2]
        assert [size for _, size in await kept.index()] == [210, 230, 230]

    run(story())


def test_given_subscribers_then_the_slowest_of_them_is_waited_for() -> None:
    async def story() -> None:
        kept = await Kept.begin(min_time=PERIOD_MS)
        await kept.subscribe("fast", {0: 35})
        await kept.subscribe("slow", {0: 12})
        found = []
        for end in (10, 20, 30, 40):
            await kept.period(s0=end)
            found.append(await kept.begins())
        assert found == [{}, {0: 10}, {0: 12}, {0: 12}]
        await kept.subscribe("slow", {0: 38})
        await kept.period(s0=50)
        assert await kept.begins() == {0: 35}
        # Both have read all: the minimum stays.
        await kept.subscribe("slow", {0: 60})
        await kept.subscribe("fast", {0: 60})
        await kept.period(s0=60)
        assert await kept.begins() == {0: 50}

    run(story())


def test_given_a_subscriber_that_is_too_slow_then_it_loses_what_is_beyond_the_maximum() -> None:
    async def story() -> None:
        kept = await Kept.begin(min_time=PERIOD_MS, max_time=3 * PERIOD_MS)
        await kept.subscribe("slow", {0: 0})
        found = []
        for end in (10, 20, 30, 40, 50, 60):
            await kept.period(s0=end)
            found.append(await kept.begins())
        assert found == [{}, {}, {}, {}, {0: 20}, {0: 30}]

    run(story())


def test_given_a_truncation_by_hand_then_older_cuts_are_dropped() -> None:
    async def story() -> None:
        kept = await Kept.begin(min_time=2 * PERIOD_MS)
        await kept.period(s0=10)
        await kept.period(s0=20)
        await kept.world.submit(truncation({"0.0": 15}))
        await kept.period(s0=30)
        assert await kept.begins() == {0: 15}
        await kept.period(s0=40)
        assert await kept.begins() == {0: 20}

    run(story())


def test_given_a_shorter_log_after_an_unclean_election_then_nothing_that_comes_is_removed() -> None:
    async def story() -> None:
        kept = await Kept.begin(min_time=PERIOD_MS)
        await kept.period(s0=100)
        await kept.period(s0=60)
        assert await kept.begins() == {0: 60}

    run(story())


def test_given_a_subscriber_behind_the_beginning_then_it_is_waited_for_elsewhere() -> None:
    async def story() -> None:
        kept = await Kept.begin(segments=2, min_time=PERIOD_MS)
        await kept.subscribe("g", {0: 3, 1: 25})
        await kept.period(s0=10, s1=10)
        await kept.world.submit(truncation({"0.0": 8, "0.1": 8}))
        await kept.period(s0=20, s1=20)
        await kept.period(s0=30, s1=30)
        assert await kept.begins() == {0: 8, 1: 25}

    run(story())


def test_given_a_partition_that_is_being_deleted_then_nobody_asks_how_long_it_is() -> None:
    async def story() -> None:
        kept = await Kept.begin(segments=2, min_time=PERIOD_MS)
        await kept.world.owner.sync()
        first, second = await kept.world.partitions()
        kept.ends = {1: 10}
        of = SimpleNamespace(
            view=kept.world.owner.view,
            partitions=lambda: [
                first.with_metadata(deletion_timestamp="2026-01-01T00:00:00Z"),
                second,
            ],
        )
        assert taken_since(cast("Pass", of), None) == 100

    run(story())


def test_given_a_record_that_somebody_removed_then_nothing_is_removed_because_of_that() -> None:
    async def story() -> None:
        kept = await Kept.begin(min_time=2 * PERIOD_MS)
        await kept.period(s0=10)
        await kept.period(s0=20)
        path = kept.world.keys.record(cut_path(kept.world.paths, 0))
        await kept.world.kv.txn([], [Delete(path)])
        await kept.period(s0=30)
        assert await kept.begins() == {}
        await kept.period(s0=40)
        assert await kept.begins() == {0: 20}

    run(story())


def test_given_an_end_that_nobody_told_then_it_waits() -> None:
    async def story() -> None:
        kept = await Kept.begin(segments=2, min_time=PERIOD_MS)
        kept.ends = {0: 10}
        assert await kept.world.settle() > 0
        assert await kept.world.record(index_path(kept.world.paths)) is None
        kept.world.owner.view.settled.clear()
        *_, wake = await kept.world.owner.look()
        assert isinstance(wake, WakeAt)
        await kept.period(s1=10)
        assert await kept.index() == [(0, 200)]

    run(story())


def test_given_a_quiet_stream_then_it_is_looked_at_again_when_its_turn_comes() -> None:
    async def story() -> None:
        kept = await Kept.begin(min_time=PERIOD_MS)
        await kept.period(s0=10)
        owner = kept.world.owner
        kept.later(-PERIOD_MS // 2)
        owner.view.settled.clear()
        settle, wake = await owner.look()
        assert isinstance(settle, Settle)
        assert isinstance(wake, WakeAt)
        assert settle.settled.until_ms == wake.at_ms
        assert owner.at_ms + wake.at_ms - owner.now_ms == due_after(owner.at_ms, PERIOD_MS, UID)
        await owner.carry_out(settle)
        owner.records.read = None  # type: ignore[method-assign,assignment]
        assert await owner.look() == (wake,)

    run(story())


def test_given_a_clock_that_was_set_back_then_it_goes_on() -> None:
    async def story() -> None:
        kept = await Kept.begin(min_time=2 * PERIOD_MS)
        await kept.period(s0=10)
        kept.world.owner.at_ms -= 100 * PERIOD_MS
        for end in (20, 30, 40):
            await kept.period(s0=end)
        assert await kept.begins() == {0: 20}

    run(story())


def test_given_a_bucket_of_another_sc_then_nothing_is_done() -> None:
    async def story() -> None:
        kept = await Kept.begin(min_time=PERIOD_MS)
        kept.ends = {0: 10}
        view = kept.world.owner.view
        mine = view.buckets.bucket_of(UID)
        kept.world.owner.view = replace(view, buckets=Buckets(held=set(range(64)) - {mine}))
        assert await kept.world.settle() == 0
        kept.world.owner.view = replace(view, buckets=Buckets(held={mine}))
        assert await kept.world.settle() > 0

    run(story())


@pytest.mark.parametrize("subscribed", [False, True])
def test_given_a_crash_after_any_write_then_it_ends_the_same(subscribed: bool) -> None:
    async def ended(crash_after: int | None) -> tuple[object, int]:
        kept = await Kept.begin(segments=2, min_time=2 * PERIOD_MS)
        world = kept.world
        if subscribed:
            await kept.subscribe("g", {0: 7, 1: 9})
        writes = 0
        for end in (10, 20, 30, 40):
            kept.ends = {0: end, 1: end + 1}
            while await world.move(world.owner):
                writes += 1
                if writes == crash_after:
                    before, world.owner = world.owner, world.another()
                    world.owner.at_ms, world.owner.now_ms = before.at_ms, before.now_ms
                    kept.count(world.owner)
            kept.later(PERIOD_MS)
        return (await kept.begins(), await kept.index(), await world.state()), writes

    async def story() -> None:
        undisturbed, writes = await ended(None)
        assert writes > 10
        for crash_after in range(1, writes):
            assert (await ended(crash_after))[0] == undisturbed, crash_after

    run(story())
