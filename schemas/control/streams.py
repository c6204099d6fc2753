"""What the SC answers about streams besides their objects, and what it is asked to do with them.

Segments are named ``EPOCH.NUMBER``; bounds of keys are numbers from 0 to 1 (`schemas.streams`).
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from schemas.model import CaselessEnum, Model
from schemas.objects.stream import StreamState
from schemas.streams.epochs import MAX_SEGMENTS, Epoch, Segment, parse_segment
from schemas.streams.key_space import KeyRange, place_of

MAX_CUT_TEXT = 1_000_000
"""Characters of a stream cut as text."""
REQUEST_PATTERN = r"^[A-Za-z0-9._-]{1,64}$"


class Bounds(Model):
    """Keys from ``low`` to below ``high``."""

    low: float = Field(ge=0, le=1)
    """The lowest place that belongs to it, of 0 to 1."""
    high: float = Field(ge=0, le=1)
    """The place above its highest one."""


class ScaleRequest(Model):
    """Seal some segments of the current epoch, and divide their keys among new ones."""

    id: str | None = Field(default=None, pattern=REQUEST_PATTERN)
    """Names the request, so that a repetition of it finds the first; by default, a new name."""
    seal: tuple[str, ...] = Field(min_length=1, max_length=MAX_SEGMENTS)
    """Segments to replace."""
    into: tuple[Bounds, ...] = Field(min_length=1, max_length=MAX_SEGMENTS)
    """The ranges that replace theirs; together the same keys."""


class SealRequest(Model):
    """Seal a stream: nothing more is written to it, for good."""

    id: str | None = Field(default=None, pattern=REQUEST_PATTERN)
    """Names the request, so that a repetition of it finds the first; by default, a new name."""


class TruncateRequest(Model):
    """Remove everything that a stream holds before a cut, for good."""

    id: str | None = Field(default=None, pattern=REQUEST_PATTERN)
    """Names the request, so that a repetition of it finds the first; by default, a new name."""
    cut: str = Field(max_length=MAX_CUT_TEXT)
    """The first place that stays: a stream cut as text."""


class Published(Model):
    """How far a reader group is in a stream: its retention keeps what comes after that."""

    cut: str = Field(max_length=MAX_CUT_TEXT)
    """The first place that the group has not read: a stream cut as text."""


class SubscriberInfo(Model):
    """A reader group for which the retention of a stream waits."""

    group: str
    """Its name."""
    cut: str
    """How far it said that it is: a stream cut as text."""


class Subscribers(Model):
    items: tuple[SubscriberInfo, ...]
    """By their names."""


class StreamHead(Model):
    """Where a stream begins."""

    cut: str
    """The first place that is there: a stream cut as text."""


class RequestState(CaselessEnum):
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class StreamRequest(Model):
    """A request and how far it is."""

    id: str
    """Its name."""
    kind: Literal["scale", "seal", "truncate"]
    """What it asks for."""
    state: RequestState
    """How far it is; a failed one has changed nothing."""
    reason: str | None = None
    """Why it failed, or what it waits for."""
    epoch: int | None = None
    """The epoch that a scale began."""


class SegmentInfo(Bounds):
    """A segment and the partition that holds its records."""

    id: str
    """Its name, EPOCH.NUMBER."""
    partition: str
    """Name of the partition."""


class EpochInfo(Model):
    """One division of a stream's keys among segments."""

    stream: str
    """The stream, SCOPE/NAME."""
    uid: str
    """Tells the stream from earlier ones of its name."""
    state: StreamState
    """Where the stream is in its life now."""
    epoch: int
    """Number of the epoch."""
    time_ms: int
    """When it was decided, in milliseconds since 1970."""
    segments: tuple[SegmentInfo, ...]
    """In the order of their keys."""


class SegmentHistory(SegmentInfo):
    """One segment, and those before and after it."""

    sealed_in: int | None = None
    """The epoch that replaced it."""
    end: int | None = None
    """The offset after its last record, once it is sealed."""
    predecessors: tuple[SegmentInfo, ...] = ()
    """The segments that had its keys before."""
    successors: tuple[SegmentInfo, ...] = ()
    """The segments that have its keys now that it is replaced."""


class ScalingEvent(Model):
    """The beginning of an epoch."""

    epoch: int
    """Its number."""
    time_ms: int
    """When it was decided, in milliseconds since 1970."""
    splits: int
    """How many segments it split."""
    merges: int
    """How many of its segments took over the keys of several."""
    by_load: bool | None = None
    """true: because of the load of segments, and not because somebody asked for it."""


class ScalingEvents(Model):
    items: tuple[ScalingEvent, ...]
    """The newest last."""
    complete: bool
    """Whether these are all since the stream was made."""


def segment_of(info: SegmentInfo) -> Segment:
    """A segment in whole numbers, as `schemas.streams` computes with it."""
    return Segment(parse_segment(info.id), KeyRange(place_of(info.low), place_of(info.high)))


def epoch_of(info: EpochInfo) -> Epoch:
    """An epoch in whole numbers."""
    return Epoch(info.epoch, info.epoch, info.time_ms, tuple(map(segment_of, info.segments)))
