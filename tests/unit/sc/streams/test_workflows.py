"""Workflows of streams: what they do undisturbed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sc.controllers.membership.resize import BEGINNING
from sc.controllers.streams.records import (
    Outcome,
    Request,
    SealedSegment,
    SegmentSize,
    TruncationRecord,
    decode,
)
from schemas.objects.partition import PartitionStatus, taking_over
from schemas.objects.stream import StreamState
from schemas.streams.epochs import creation_epoch, segment_id, segment_text
from schemas.streams.key_space import SPACE, WHOLE
from tests.unit.sc.streams.courses import (
    HALF,
    Course,
    behind_a_seal,
    created,
    deleted,
    merged,
    more_wanted,
    sealed,
    split,
    truncated,
    truncated_again,
    truncated_behind_a_scale,
    truncated_between,
    two_at_once,
    undisturbed,
)
from tests.unit.sc.streams.world import World, run, scale, seal, stream_of, truncation


def test_given_a_new_stream_then_its_segments_and_first_epoch_exist() -> None:
    async def story() -> None:
        world, _ = await undisturbed(created, segments=3)
        stream, state = await world.stream(), await world.state()
        assert stream is not None
        assert state is not None
        assert (stream.status.state, stream.status.segments) == (StreamState.ACTIVE, 3)
        assert (stream.status.current_epoch, stream.status.observed_generation) == (0, 1)
        epoch = await world.epoch(0)
        assert [segment.id for segment in epoch.segments] == [0, 1, 2]
        there = await world.partitions()
        assert {p.spec.segment_id for p in there} == {0, 1, 2}
        assert all(p.spec.owner.name == "shop/orders" for p in there)

    run(story())


def test_given_segments_out_of_use_then_the_stream_says_so_and_no_more_once_they_are_back() -> None:
    async def story() -> None:
        world, _ = await undisturbed(created, segments=3)
        first, second, third = await world.partitions()
        lost = PartitionStatus(leader=1, reason="its leader, SPU 1, is offline")
        blocked = first.status.model_copy(update={"writable": False})
        taken_over = PartitionStatus(leader=2, reason=taking_over(2))
        for one, status in ((first, lost), (second, blocked), (third, taken_over)):
            await world.put(one.with_status(status))
        await world.owner.sync()
        while await world.owner.act():
            pass
        stream = await world.stream()
        assert stream is not None
        assert stream.status.reason == (
            "1 of 3 segments has no leader: 0.0; 1 of 3 segments commits nothing: 0.1"
        )
        for one in (first, second, third):
            await world.put(one)
        await world.settle()
        stream = await world.stream()
        assert stream is not None
        assert (stream.status.state, stream.status.reason) == (StreamState.ACTIVE, None)

    run(story())


def test_given_a_split_then_successors_are_known_before_the_seal() -> None:
    async def story() -> None:
        world = await World.begin()
        await split(world)
        world.leaderless = True
        await world.settle()
        assert [p.spec.desired for p in await world.partitions()] == ["open"] * 3
        stream = await world.stream()
        assert stream is not None
        assert stream.status.reason == "waiting for live replicas of segment 1.1; segment 1.2"
        assert await world.record(world.paths.sealed(0)) is None, "nobody goes there yet"
        world.leaderless = False
        while not any(p.spec.desired == "sealed" for p in await world.partitions()):
            assert await world.move(world.owner)
        record = await world.record(world.paths.sealed(0))
        assert record is not None
        assert decode(SealedSegment, record).epoch == 1
        assert [one.number for one in (await world.epoch(1)).segments] == [1, 2]
        while await world.owner.act():
            pass
        state = await world.state()
        assert state is not None
        assert state.epoch == 0, "writers go on in the old epoch"
        stream = await world.stream()
        assert stream is not None
        assert stream.status.reason == "waiting for the seal of segment 0.0"
        await world.settle()
        state, size = await world.state(), await world.record(world.paths.size(0))
        assert state is not None
        assert (state.epoch, state.segments) == (1, 2)
        assert size is not None
        assert decode(SegmentSize, size).end == 10

    run(story())


def test_given_a_merge_then_ids_are_new_and_grow() -> None:
    async def story() -> None:
        world, _ = await undisturbed(merged)
        (only,) = (await world.epoch(2)).segments
        assert only.id == segment_id(2, 3)
        assert (only.keys.low, only.keys.high) == (0, SPACE)
        done = await world.record(world.paths.outcome("scale-2"))
        assert done is not None
        assert decode(Outcome, done).epoch == 2
        assert await world.record(world.paths.plan) is None
        assert await world.record(world.paths.request("scale-2")) is None

    run(story())


@pytest.mark.parametrize(
    ("course", "cut", "left", "starts"),
    [
        (truncated, {"1.1": 3, "1.2": 0}, ["1.1", "1.2"], {"1.1": 3}),
        (
            truncated_between,
            {"1.1": 11, "1.2": 5, "2.3": -1},
            ["1.1", "1.2", "2.3"],
            {"1.1": 11, "1.2": 5},
        ),
        (truncated_behind_a_scale, {"1.1": 0, "1.2": 7}, ["1.1", "1.2"], {"1.2": 7}),
        (
            truncated_again,
            {"2.3": 1, "1.2": 9, "3.5": -1},
            ["1.2", "2.3", "3.5", "4.6"],
            {"1.2": 9, "2.3": 1},
        ),
    ],
)
def test_given_a_truncation_then_what_is_before_the_cut_is_gone(
    course: Course, cut: dict[str, int], left: list[str], starts: dict[str, int]
) -> None:
    async def story() -> None:
        world, _ = await undisturbed(course)
        there = {segment_text(p.spec.segment_id or 0): p for p in await world.partitions()}
        assert sorted(there) == left
        begin = {name: p.status.start_offset for name, p in there.items() if p.status.start_offset}
        assert begin == starts
        record = await world.record(world.paths.truncation)
        assert record is not None
        stored = decode(TruncationRecord, record)
        assert (stored.cut, stored.updating) == (truncation(cut).cut, False)
        done = await world.record(world.paths.outcome("truncate-1"))
        assert done is not None
        assert decode(Outcome, done).done

    run(story())


def test_given_many_segments_before_the_cut_then_all_go_and_no_write_is_too_large() -> None:
    async def story() -> None:
        world, _ = await undisturbed(created)
        many = [(keys.low, keys.high) for keys in WHOLE.split(70)]
        await world.submit(scale([0], many))
        await world.settle()
        ids = [segment.id for segment in (await world.epoch(1)).segments]
        await world.submit(scale(ids[:69], [(0, many[68][1])], "scale-2"))
        await world.settle()
        await world.submit(truncation({"2.71": 1, segment_text(ids[69]): 4}))
        await world.settle()
        assert {p.spec.segment_id for p in await world.partitions()} == {
            ids[69],
            segment_id(2, 71),
        }

    run(story())


def test_given_a_log_that_keeps_its_records_then_the_truncation_waits_and_says_for_what() -> None:
    async def story() -> None:
        world = await World.begin()
        world.away = True
        await truncated(world)
        await world.settle()
        stream = await world.stream()
        assert stream is not None
        assert stream.status.state is StreamState.TRUNCATING
        assert stream.status.reason == "waiting for the truncation of segment 1.1"
        assert len(await world.partitions()) == 3, "the order is that of the records"
        # The leader knows, and has no record below the cut: those to come are not waited for.
        (late,) = [p for p in await world.partitions() if p.spec.truncate_before]
        await world.put(late.with_status(late.status.model_copy(update={"leader": 1})))
        await world.owner.sync()
        (late,) = [p for p in await world.partitions() if p.spec.truncate_before]
        world.owner.report(1, late)
        await world.settle()
        stream = await world.stream()
        assert stream is not None
        assert stream.status.state is StreamState.ACTIVE
        assert len(await world.partitions()) == 2

    run(story())


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (truncation({"1.1": 2, "1.2": 0}), "begins behind the cut already: from key 0 on"),
        (truncation({"0.0": 4}), "begins behind the cut already"),
        (truncation({"1.1": 5}), "it names no segment for the keys 0.5 to 1"),
        (truncation({"1.1": 5, "1.7": 5}), "has no segment 1.7"),
        (truncation({"7.7": 5}), "has no segment 7.7"),
        (truncation({"1.1": 5, "1.2": 5}, uid="other"), "an earlier stream shop/orders"),
        (truncation({"1.1": 5, "1.2": 5}, stream="a/b"), "of stream a/b, not of shop/orders"),
    ],
)
def test_given_a_wrong_cut_in_its_turn_then_the_request_fails_and_nothing_changes(
    request_: Request, reason: str
) -> None:
    async def story() -> None:
        world, _ = await undisturbed(truncated)
        before = await world.partitions()
        other = request_.model_copy(update={"id": "another"})
        await world.submit(other)
        await world.settle()
        record = await world.record(world.paths.outcome("another"))
        assert record is not None
        outcome = decode(Outcome, record)
        assert not outcome.done
        assert reason in (outcome.reason or "")
        assert await world.partitions() == before

    run(story())


def test_given_a_cut_beyond_the_end_of_a_replaced_segment_then_it_fails() -> None:
    async def story() -> None:
        world, _ = await undisturbed(merged)
        await world.submit(truncation({"1.1": 12, "1.2": 0}))
        await world.settle()
        record = await world.record(world.paths.outcome("truncate-1"))
        assert record is not None
        reason = decode(Outcome, record).reason or ""
        assert "beyond the end of segment 1.1: offset 12, and it ends at 11" in reason

    run(story())


@pytest.mark.parametrize(
    ("course", "request_id", "reason"),
    [
        (two_at_once, "scale-2", "segment 0.0 is not among the current segments"),
        (behind_a_seal, "scale-1", "stream shop/orders was sealed meanwhile"),
    ],
)
def test_given_a_request_that_another_forestalled_then_it_fails(
    course: Course, request_id: str, reason: str
) -> None:
    async def story() -> None:
        world, _ = await undisturbed(course)
        record = await world.record(world.paths.outcome(request_id))
        assert record is not None
        outcome = decode(Outcome, record)
        assert not outcome.done
        assert outcome.reason is not None
        assert reason in outcome.reason

    run(story())


def test_given_a_sealed_stream_then_all_segments_are_and_stay() -> None:
    async def story() -> None:
        world, _ = await undisturbed(sealed)
        stream = await world.stream()
        assert stream is not None
        assert stream.status.state is StreamState.SEALED
        there = await world.partitions()
        assert len(there) == 3
        assert all(p.status.sealed_offset is not None for p in there)

    run(story())


@pytest.mark.parametrize("incarnation", [1, 0], ids=["restored", "never restored"])
def test_given_logs_that_a_forgotten_scale_sealed_then_the_stream_stands_still(
    incarnation: int,
) -> None:
    """New segments would get the numbers, and the logs, of those that the backup does not know."""

    async def story() -> None:
        world = await World.begin(segments=2)
        await world.settle()
        for partition in await world.partitions():
            sealed = partition.status.model_copy(update={"sealed_offset": 7})
            await world.put(partition.with_status(sealed))
        await world.submit(scale([0], [(0, HALF // 2), (HALF // 2, HALF)]))
        owner = world.another()
        owner.view = replace(owner.view, incarnation=incarnation)
        await world.settle(owner)
        stream, state = await world.stream(), await world.state()
        assert stream is not None
        assert state is not None
        if not incarnation:
            assert state.epoch == 1
            return
        assert (state.epoch, state.state) == (0, StreamState.ACTIVE)
        assert "restored from a backup of before the stream was scaled" in str(stream.status.reason)
        await world.mark_deleting()
        await world.settle(owner)
        assert await world.stream() is None

    run(story())


def test_given_a_deleted_stream_then_nothing_of_it_is_left() -> None:
    async def story() -> None:
        world, _ = await undisturbed(deleted)
        assert [key for key in await world.everything() if "tombstones" not in key] == [
            f"/runnel/c/objects/spus/spu-{i}" for i in (1, 2)
        ]

    run(story())


def test_given_a_stream_deleted_before_it_had_records_then_it_is_gone() -> None:
    async def story() -> None:
        world = await World.begin()
        await world.mark_deleting()
        await world.settle()
        assert await world.stream() is None
        assert await world.state() is None

    run(story())


def test_given_more_segments_in_the_spec_then_the_widest_are_split() -> None:
    async def story() -> None:
        world, _ = await undisturbed(more_wanted)
        state, stream = await world.state(), await world.stream()
        assert state is not None
        assert state.segments == 3
        assert stream is not None
        assert stream.status.observed_generation == 2
        open_ones = [p for p in await world.partitions() if p.spec.desired == "open"]
        assert all(p.spec.log.max_record_size == 1 << 10 for p in open_ones)
        assert all(creation_epoch(p.spec.segment_id or 0) == 1 for p in open_ones)

    run(story())


def test_given_other_replicas_in_the_spec_then_told_before_they_move() -> None:
    async def story() -> None:
        world = await World.begin()
        await world.settle()
        stream = await world.stream()
        assert stream is not None
        spec = stream.spec.model_copy(update={"replication_factor": 3})
        await world.put(stream.model_copy(update={"spec": spec}).with_metadata(generation=2))
        await world.settle()
        stream = await world.stream()
        assert stream is not None
        assert (stream.status.observed_generation, stream.status.moves) == (2, BEGINNING)
        # Two of three would have to be live: they rise when newcomers are.
        assert [p.spec.log.min_in_sync_replicas for p in await world.partitions()] == [1]
        # Who moves them says when that is over, and it is not told again.
        ended = stream.with_status(stream.status.model_copy(update={"moves": None}))
        await world.put(ended)
        await world.settle()
        stream = await world.stream()
        assert stream is not None
        assert stream.status == ended.status

    run(story())


def test_given_a_sealed_stream_and_another_spec_then_it_is_noted() -> None:
    async def story() -> None:
        world = await World.begin()
        await sealed(world)
        await world.settle()
        stream = await world.stream()
        assert stream is not None
        spec = stream.spec.model_copy(update={"replication_factor": 2})
        await world.put(stream.model_copy(update={"spec": spec}).with_metadata(generation=2))
        await world.settle()
        stream = await world.stream()
        assert stream is not None
        assert (stream.status.state, stream.status.observed_generation) == ("sealed", 2)
        assert stream.status.moves == BEGINNING

    run(story())


def test_given_no_spus_then_it_says_so_and_goes_on_when_they_come() -> None:
    async def story() -> None:
        world = await World.begin(spus=())
        await world.settle()
        stream = await world.stream()
        assert stream is not None
        assert stream.status.state is StreamState.CREATING
        assert stream.status.reason is not None
        assert "0 of 1 segments are created" in stream.status.reason

    run(story())


def test_given_very_many_segments_then_no_write_is_too_large() -> None:
    async def story() -> None:
        world, _ = await undisturbed(created)
        many = [(keys.low, keys.high) for keys in WHOLE.split(70)]
        await world.submit(scale([0], many))
        await world.settle()
        ids = [segment.id for segment in (await world.epoch(1)).segments]
        assert len(ids) == 70
        await world.submit(scale(ids, [(0, SPACE)], "scale-2"))
        await world.settle()
        await world.submit(seal())
        await world.settle()
        state = await world.state()
        assert state is not None
        assert (state.state, state.segments) == (StreamState.SEALED, 1)

    run(story())


def test_given_nothing_to_do_then_a_look_reads_nothing() -> None:
    async def story() -> None:
        world, _ = await undisturbed(split)
        read = world.owner.records.read
        reads = 0

        async def counted(*args: object) -> object:
            nonlocal reads
            reads += 1
            return await read(*args)  # type: ignore[arg-type]

        world.owner.records.read = counted  # type: ignore[method-assign,assignment]
        for _ in range(3):
            assert not await world.owner.act()
        assert reads == 0
        await world.submit(seal())
        await world.settle()
        assert reads > 0

    run(story())


def test_given_a_request_that_comes_while_records_are_read_then_it_is_not_forgotten() -> None:
    """The mirror shows its bell by the time of the decision, and the records are from before."""

    async def story() -> None:
        world, _ = await undisturbed(created)
        await world.put((await world.stream() or stream_of()).with_metadata(labels={"a": "b"}))
        owner = world.another()
        read = owner.records.read
        submitted = False

        async def slowly(*args: Any) -> Any:
            nonlocal submitted
            found = await read(*args)
            if not submitted:
                submitted = True
                await world.submit(seal())
                await owner.sync()
            return found

        owner.records.read = slowly  # type: ignore[method-assign,assignment]
        await owner.sync()
        for action in await owner.look():
            await owner.carry_out(action)
        assert submitted
        await world.settle(owner)
        state = await world.state()
        assert state is not None
        assert state.state is StreamState.SEALED

    run(story())
