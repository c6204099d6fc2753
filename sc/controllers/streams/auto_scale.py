"""Which segments are split, and which are merged, because of their load. Pure.

The leaders of segments measure, and say what their load asks for (`spu.load.verdict`). Nothing of
that is stored: a leader tells it again to each SC that it connects to, and takes it back when it is
no longer so. So what was asked for is looked at again whenever the stream has time for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Final

from sc.store.view import View
from schemas.control.messages import LoadReport
from schemas.objects.stream import Scaling, Stream
from schemas.streams.epochs import MAX_SEGMENTS, Epoch, Segment
from schemas.streams.key_space import KeyRange

MERGED: Final = 3
"""Cold neighbours that become one segment, at most."""

Scale = tuple[tuple[int, ...], tuple[KeyRange, ...]]
"""Ids of the segments that go, and the ranges that replace them."""


def loads_of(view: View, stream: Stream) -> dict[int, LoadReport]:
    """What the loads of a stream's segments ask for, by the segments' ids, as their leaders say it
    of the limits that the stream has now. Only who leads an open log measures it."""
    if (limits := stream.spec.scaling.limits) is None:
        return {}
    found = {}
    for partition in view.store.partitions_of("Stream", stream.name):
        spec, leader = partition.spec, partition.status.leader
        report = None if leader is None else view.report(leader, partition.uid)
        if (
            report is not None
            and report.load is not None
            and spec.owner.uid == stream.uid
            and spec.segment_id is not None
            and spec.log.load == limits
        ):
            found[spec.segment_id] = report.load
    return found


def wanted(now: Epoch, loads: Mapping[int, LoadReport], scaling: Scaling) -> Scale | None:
    """How the current segments are to be divided anew because of their loads; None: not at all.

    All hot segments are split at once, into equal ranges. Only where none is hot, cold neighbours
    are merged.
    """
    splits = _splits(now.segments, loads, scaling)
    merges = [] if splits else _merges(now.segments, loads, scaling)
    if not splits and not merges:
        return None
    seal = [one.id for one, _ in splits] + [one.id for some in merges for one in some]
    into = [keys for one, parts in splits for keys in one.keys.split(parts)]
    into += [KeyRange(some[0].keys.low, some[-1].keys.high) for some in merges]
    return tuple(seal), tuple(into)


def _splits(
    segments: Sequence[Segment], loads: Mapping[int, LoadReport], scaling: Scaling
) -> list[tuple[Segment, int]]:
    """The hottest segments first: a stream has only so many."""
    hot = [(one, load) for one in segments if (load := loads.get(one.id)) and load.is_hot]
    room = MAX_SEGMENTS - len(segments)
    found = []
    for one, load in sorted(hot, key=lambda each: (-each[1].parts, each[0].keys)):
        parts = min(load.parts, scaling.scale_factor, one.keys.width, room + 1)
        if parts >= 2:
            found.append((one, parts))
            room -= parts - 1
    return found


def _merges(
    segments: Sequence[Segment], loads: Mapping[int, LoadReport], scaling: Scaling
) -> list[list[Segment]]:
    """Runs of cold neighbours, from the lowest key on, as long as enough segments are left."""
    spare = len(segments) - scaling.min_segments
    found = []
    for cold, some in groupby(segments, lambda one: _is_cold(loads.get(one.id))):
        run = list(some) if cold else []
        while len(run) >= 2 and spare >= 1:
            size = min(MERGED, spare + 1)
            found.append(run[:size])
            spare -= len(run[:size]) - 1
            run = run[size:]
    return found


def _is_cold(load: LoadReport | None) -> bool:
    return load is not None and not load.is_hot
