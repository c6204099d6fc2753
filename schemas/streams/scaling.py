"""Whether a stream may be scaled as somebody asks, and what comes of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heapreplace

from schemas.errors import ConflictError, InvalidRequestError
from schemas.streams.epochs import (
    MAX_EPOCH,
    MAX_NUMBER,
    MAX_SEGMENTS,
    Change,
    Epoch,
    Segment,
    segment_id,
    segment_text,
)
from schemas.streams.key_space import WHOLE, KeyRange, merged, shown

NAMED = 10
"""Segments that a message names."""


def scaled(
    now: Epoch,
    seal: Sequence[int],
    into: Sequence[KeyRange],
    *,
    next_number: int,
    min_segments: int,
    time_ms: int,
) -> Change:
    """The change that seals some segments of the current epoch, and divides their keys anew.

    Raises ConflictError if a segment is not in the current epoch, InvalidRequestError if the new
    ranges are not the old ones, or there are too few or too many segments.
    """
    if not seal or not into:
        raise InvalidRequestError(
            "seal, into: name the segments to replace, and at least one range that replaces them"
        )
    if len(set(seal)) != len(seal):
        raise InvalidRequestError("seal: a segment is named twice")
    there = now.by_id()
    if gone := [segment for segment in seal if segment not in there]:
        raise ConflictError(
            f"seal: {_named(gone)} not among the current segments, which are"
            f" {_list(list(there))} (epoch {now.number}): another change came first; look again"
        )
    try:
        old = merged(there[segment].keys for segment in seal)
        new = merged(into)
    except ValueError as error:
        raise InvalidRequestError(f"into: {error}") from error
    if old != new:
        raise InvalidRequestError(
            f"into: the ranges cover {shown(new)}, and those of the segments to replace"
            f" {shown(old)}: they must be the same keys"
        )
    count = len(there) - len(seal) + len(into)
    if count < min_segments:
        left = "1 segment" if count == 1 else f"{count:,} segments"
        raise InvalidRequestError(
            f"into: {left} would be left, fewer than spec.scaling.minSegments ({min_segments})"
        )
    if count > MAX_SEGMENTS:
        raise InvalidRequestError(
            f"into: there would be {count:,} segments; a stream has at most {MAX_SEGMENTS:,}"
        )
    epoch = now.number + 1
    if epoch > MAX_EPOCH or next_number + len(into) > MAX_NUMBER:
        raise InvalidRequestError("this stream was scaled as often as one can be; make another")
    created = tuple(
        Segment(segment_id(epoch, next_number + i), keys) for i, keys in enumerate(sorted(into))
    )
    # Times of epochs grow, whatever a clock does.
    return Change(epoch, epoch, max(time_ms, now.time_ms + 1), tuple(sorted(seal)), created)


def evenly(now: Epoch, count: int) -> tuple[tuple[int, ...], tuple[KeyRange, ...]]:
    """Segments to seal, and ranges that replace them, so that there are ``count`` of about equal
    width; those that have such a range already stay.

    Raises InvalidRequestError for a count that no stream can have.
    """
    if not 1 <= count <= MAX_SEGMENTS:
        raise InvalidRequestError(f"a stream has 1 to {MAX_SEGMENTS:,} segments, not {count:,}")
    wanted = set(WHOLE.split(count))
    kept = {segment.keys for segment in now.segments} & wanted
    seal = tuple(one.id for one in now.segments if one.keys not in kept)
    return seal, tuple(sorted(wanted - kept))


def raised(now: Epoch, least: int) -> tuple[tuple[int, ...], tuple[KeyRange, ...]]:
    """The widest segments to seal, and their parts, so that there are ``least`` segments."""
    parts: dict[Segment, int] = dict.fromkeys(now.segments, 1)
    # The segment with the widest parts comes first; of equal ones, that with the lowest keys. No
    # two have the same lowest key, so segments themselves are never compared.
    widest = [(-one.keys.width, one.keys.low, one) for one in now.segments]
    heapify(widest)
    for _ in range(least - len(now.segments)):
        _, low, one = widest[0]
        parts[one] += 1
        heapreplace(widest, (-(one.keys.width // parts[one]), low, one))
    split = {one: count for one, count in parts.items() if count > 1}
    into = tuple(keys for one, count in split.items() for keys in one.keys.split(count))
    return tuple(one.id for one in split), into


def successors(segment: KeyRange, sealed_in: Epoch) -> tuple[Segment, ...]:
    """The segments that took over the keys of one, in the epoch that sealed it."""
    return sealed_in.overlapping(segment)


def predecessors(segment: KeyRange, before: Epoch) -> tuple[Segment, ...]:
    """The segments that had the keys of one, in the epoch before it was created."""
    return before.overlapping(segment)


def _named(segments: Sequence[int]) -> str:
    verb = "segment {} is" if len(segments) == 1 else "segments {} are"
    return verb.format(_list(segments))


def _list(segments: Sequence[int]) -> str:
    more = f" and {len(segments) - NAMED} more" if len(segments) > NAMED else ""
    return ", ".join(map(segment_text, segments[:NAMED])) + more
