"""Segments follow their load: what is split and merged as tables, a week, and the workflow."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sc.controllers.actions import Settle
from sc.controllers.streams.auto_scale import wanted
from sc.controllers.streams.records import EpochEntry, decode
from schemas.control.messages import LoadReport, ReplicaReport, ReplicaRole
from schemas.ids import PartitionUid, StorageId
from schemas.objects.load import LoadLimits
from schemas.objects.stream import Scaling, ScalingType, Stream
from schemas.streams.epochs import Epoch, even, first_epoch
from schemas.streams.key_space import KeyRange
from schemas.streams.scaling import scaled
from spu.load.verdict import SegmentLoad

from .world import World, run

HOT, COLD = LoadReport(parts=3), LoadReport(parts=0)
MINUTE_MS, HOUR = 60_000, 60


def by_load(**other: int) -> Scaling:
    return Scaling(type=ScalingType.EVENTS_PER_SECOND, target_rate=100, **other)


def epoch_of(count: int) -> Epoch:
    return first_epoch(even(0, count, 0, 0))


@pytest.mark.parametrize(
    ("loads", "scaling", "seal", "into"),
    [
        # One sign for each of four segments: how many parts, 0 for cold, - for nothing.
        ("----", {}, None, None),
        ("-0--", {}, None, None),
        ("2---", {}, [0], ["0 to 0.125", "0.125 to 0.25"]),
        ("9---", {}, [0], ["0 to 0.125", "0.125 to 0.25"]),
        (
            "3---",
            {"scale_factor": 4},
            [0],
            ["0 to 0.0833333", "0.0833333 to 0.166667", "0.166667 to 0.25"],
        ),
        # All that are hot at once, and what is cold waits for that.
        ("2002", {}, [0, 3], ["0 to 0.125", "0.125 to 0.25", "0.75 to 0.875", "0.875 to 1"]),
        ("00--", {}, [0, 1], ["0 to 0.5"]),
        ("0-0-", {}, None, None),
        ("-000", {}, [1, 2, 3], ["0.25 to 1"]),
        ("0000", {}, [0, 1, 2], ["0 to 0.75"]),
        ("00-0", {}, [0, 1], ["0 to 0.5"]),
        # Never fewer than the minimum.
        ("0000", {"min_segments": 3}, [0, 1], ["0 to 0.5"]),
        ("0000", {"min_segments": 4}, None, None),
        ("0000", {"min_segments": 2}, [0, 1, 2], ["0 to 0.75"]),
    ],
)
def test_given_loads_then_segments_are_replaced(
    loads: str, scaling: dict[str, int], seal: list[int] | None, into: list[str] | None
) -> None:
    given = {
        number: LoadReport(parts=int(sign)) for number, sign in enumerate(loads) if sign != "-"
    }
    found = wanted(epoch_of(4), given, by_load(**scaling))
    if seal is None:
        assert found is None
    else:
        assert found is not None
        assert list(found[0]) == seal
        assert [str(keys) for keys in found[1]] == into


def test_given_two_runs_of_cold_segments_then_both_are_merged() -> None:
    loads = {one: COLD for one in range(8) if one != 3}
    found = wanted(epoch_of(8), loads, by_load())
    assert found is not None
    assert found[0] == (0, 1, 2, 4, 5, 6)
    assert [str(keys) for keys in found[1]] == ["0 to 0.375", "0.5 to 0.875"]


def test_given_the_most_segments_then_only_the_hottest_are_split() -> None:
    epoch = epoch_of(32_766)
    loads = {5: LoadReport(parts=2), 9: LoadReport(parts=4), 11: LoadReport(parts=2)}
    found = wanted(epoch, loads, by_load(scale_factor=8))
    assert found is not None
    assert (found[0], len(found[1])) == ((9,), 3)


def test_given_a_segment_of_one_hash_then_it_is_not_split() -> None:
    narrow = replace(
        epoch_of(2),
        segments=(
            replace(epoch_of(2).segments[0], keys=KeyRange(0, 1)),
            replace(epoch_of(2).segments[1], keys=KeyRange(1, 1 << 32)),
        ),
    )
    assert wanted(narrow, {0: HOT}, by_load()) is None


class Week:
    """A stream whose keys are even, so that a segment's load is its part of the keys. It is looked
    at once a minute, and a scale takes no time."""

    def __init__(self, scaling: Scaling, segments: int = 1) -> None:
        self.scaling = scaling
        limits = scaling.limits
        assert limits is not None
        self.limits: LoadLimits = limits
        self.epoch = epoch_of(segments)
        self.next_number = segments
        self.minute = 0
        self.loads: dict[int, SegmentLoad] = {}
        self._begin_segments()

    def until(self, minute: int, rate: int) -> list[tuple[int, int]]:
        """Events come at this rate until a minute; gives the scales: when, how many segments."""
        seen = []
        while self.minute < minute:
            self.minute += 1
            for segment in self.epoch.segments:
                load = self.loads[segment.id]
                events = round(rate * 60 * segment.keys.width / (1 << 32))
                load.took(events, events)
                load.tick(self.minute * MINUTE_MS, self.limits)
            if self._scale():
                seen.append((self.minute, len(self.epoch.segments)))
        return seen

    def _scale(self) -> bool:
        reports = {one: load.report for one, load in self.loads.items() if load.report is not None}
        if (found := wanted(self.epoch, reports, self.scaling)) is None:
            return False
        change = scaled(
            self.epoch,
            *found,
            next_number=self.next_number,
            min_segments=self.scaling.min_segments,
            time_ms=self.minute * MINUTE_MS,
        )
        self.next_number += len(change.created)
        self.epoch = change.applied_to(self.epoch)
        self._begin_segments()
        return True

    def _begin_segments(self) -> None:
        now = {one.id for one in self.epoch.segments}
        self.loads = {one: load for one, load in self.loads.items() if one in now}
        for one in now - self.loads.keys():
            self.loads[one] = SegmentLoad()
            self.loads[one].tick(self.minute * MINUTE_MS, self.limits)


def at(day: int, hour: int, minute: int) -> int:
    return (day * 24 + hour) * HOUR + minute


def test_given_a_week_then_it_scales_as_worked_out_by_hand() -> None:
    """A target of 100 a second, at most four parts: on five days 700 a second from 8 to 20 o'clock,
    and else 40.

    - 8:01. After t minutes the average over w minutes is 700 - 660 e^(-t/w). That over ten is 103
      at 1: more than the target. That over two is 300, so two parts. Two segments of 350 a second.
    - 8:11. They were measured for ten minutes, and 350 is more than the target: three parts each.
      Six segments of 117 a second.
    - 8:21. 117 is still more: two parts each. Twelve segments of 58 a second, which is neither more
      than the target nor less than half of it.
    - 20:04. 3.3 a second each. The average over twenty minutes is 3.3 + 55 e^(-t/20), which is 50.7
      at 3 and 48.4 at 4: less than half of the target. All are cold: four times three become one.
    - 20:24. 10 a second each, measured for twenty minutes: three of the four become one.
    - 20:44. The one of 30 was measured for twenty minutes, too, and the one of 10 stayed cold: one
      segment of 40 a second. It is the last one, so it stays, cold or not.
    """
    scales = [(8, 1, 2), (8, 11, 6), (8, 21, 12), (20, 4, 4), (20, 24, 2), (20, 44, 1)]
    week = Week(by_load(scale_factor=4))
    for day in range(7):
        busy = 700 if day < 5 else 40
        seen = week.until(at(day, 8, 0), 40)
        seen += week.until(at(day, 20, 0), busy)
        seen += week.until(at(day, 24, 0), 40)
        table = [(at(day, hour, minute), count) for hour, minute, count in scales]
        assert seen == (table if day < 5 else [])
    assert week.epoch.number == 5 * len(scales)


def test_given_a_week_of_silence_then_it_comes_down_to_the_minimum_and_stays() -> None:
    """Twelve segments, at least two: cold after twenty minutes, and again twenty minutes later."""
    week = Week(by_load(min_segments=2), segments=12)
    assert week.until(7 * 24 * HOUR, 0) == [(20, 4), (40, 2)]


def test_given_a_short_peak_then_nothing_is_split() -> None:
    """Seven times the target for a minute. The averages are 30 + 670 (1 - e^(-1/w)): 294, 151 and
    94 over 2, 5 and 10 minutes, and the bounds are 500, 200 and 100."""
    week = Week(by_load())
    assert week.until(8 * HOUR, 30) == []
    assert week.until(8 * HOUR + 1, 700) == []
    assert week.until(24 * HOUR, 30) == []


async def scaling_world(segments: int) -> World:
    """A stream that scales by its load, with so many segments, at least one."""
    world = await World.begin(segments=segments)
    await world.settle()
    stream = await _stream(world)
    spec = stream.spec.model_copy(update={"scaling": by_load()})
    await world.put(stream.model_copy(update={"spec": spec}).with_metadata(generation=2))
    await world.settle()
    return world


async def say(world: World, loads: dict[int, LoadReport]) -> None:
    """The leader of all segments says what their loads ask for, by their numbers."""
    reports = {
        partition.uid: ReplicaReport(
            uid=PartitionUid(partition.uid),
            storage_id=StorageId("disk"),
            role=ReplicaRole.LEADER,
            load=loads.get(partition.spec.index or 0),
        )
        for partition in await world.partitions()
    }
    sessions = dict(world.owner.view.sessions)
    sessions[1] = replace(sessions[1], reports=reports)
    world.owner.view = replace(world.owner.view, sessions=sessions)


def shape(epoch: Epoch) -> list[str]:
    return [str(one.keys) for one in epoch.segments]


def test_given_a_hot_segment_then_it_is_split_and_the_history_says_why() -> None:
    async def story() -> None:
        world = await scaling_world(2)
        await say(world, {1: HOT})
        await world.settle()
        assert shape(await world.epoch(1)) == ["0 to 0.5", "0.5 to 0.75", "0.75 to 1"]
        entry = await world.record(world.paths.entry(1))
        assert entry is not None
        assert decode(EpochEntry, entry).by_load
        state = await world.state()
        assert state is not None
        assert (state.segments, state.by_load) == (3, None)
        # The report of the sealed segment stays until its leader hears of the seal.
        assert await world.settle() == 0

    run(story())


def test_given_cold_neighbours_then_they_are_merged() -> None:
    async def story() -> None:
        world = await scaling_world(4)
        await say(world, {1: COLD, 2: COLD})
        await world.settle()
        assert shape(await world.epoch(1)) == ["0 to 0.25", "0.25 to 0.75", "0.75 to 1"]

    run(story())


def test_given_a_load_that_was_taken_back_before_its_turn_then_nothing_happens() -> None:
    async def story() -> None:
        world = await scaling_world(2)
        await say(world, {1: HOT})
        await say(world, {})
        assert await world.settle() == 0

    run(story())


def test_given_loads_by_other_limits_then_they_do_not_count() -> None:
    """The stream has another target now; its leaders have not heard of that."""

    async def story() -> None:
        world = await scaling_world(2)
        stream = await _stream(world)
        scaling = by_load().model_copy(update={"target_rate": 500})
        await world.put(
            stream.model_copy(update={"spec": stream.spec.model_copy(update={"scaling": scaling})})
        )
        await say(world, {1: HOT})
        assert await world.settle() == 0

    run(story())


def test_given_a_lone_cold_segment_then_its_records_are_read_once() -> None:
    async def story() -> None:
        world = await scaling_world(2)
        await say(world, {1: COLD})
        await world.owner.sync()
        first = await world.owner.look()
        assert any(isinstance(action, Settle) for action in first)
        for action in first:
            await world.owner.carry_out(action)
        world.owner.records.read = None  # type: ignore[method-assign,assignment]
        assert await world.owner.look() == ()
        await say(world, {})
        with pytest.raises(TypeError):
            await world.owner.look()

    run(story())


@pytest.mark.parametrize("loads", [{0: HOT, 1: HOT}, {0: COLD, 1: COLD, 2: COLD}])
def test_given_a_crash_after_any_write_then_it_ends_the_same(loads: dict[int, LoadReport]) -> None:
    async def ended(crash_after: int | None) -> tuple[list[str], int]:
        world = await scaling_world(3)
        await say(world, loads)
        writes = 0
        while crash_after is None or writes < crash_after:
            if not await world.move(world.owner):
                break
            writes += 1
        sessions = world.owner.view.sessions
        world.owner = world.another()
        world.owner.view = replace(world.owner.view, sessions=sessions)
        await world.settle()
        state = await world.state()
        assert state is not None
        assert state.epoch is not None
        return shape(await world.epoch(state.epoch)), writes

    async def story() -> None:
        undisturbed, writes = await ended(None)
        assert len(undisturbed) != 3
        assert writes > 5
        for crash_after in range(writes):
            assert (await ended(crash_after))[0] == undisturbed

    run(story())


async def _stream(world: World) -> Stream:
    stream = await world.stream()
    assert stream is not None
    return stream
