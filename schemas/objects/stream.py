"""`Scope` and `Stream`: logs whose set of segments changes, and the namespaces that hold them."""

from __future__ import annotations

from typing import ClassVar, Final, Literal

from pydantic import Field, model_validator

from schemas.model import CaselessEnum, Model
from schemas.objects.load import MIN_WINDOW_MS, LoadLimits, LoadUnit
from schemas.objects.metadata import Metadata, Object, Status
from schemas.objects.quantities import DurationMs, Millis, ScopedName, Size
from schemas.objects.topic import (
    DEFAULT_MAX_RECORD_SIZE,
    MAX_BATCH_BYTES,
    MAX_REPLICATION_FACTOR,
    Compression,
    Durability,
    LogSettings,
    Retention,
    SegmentSettings,
    least_in_sync,
)
from schemas.streams.epochs import MAX_SEGMENTS

MAX_TAGS: Final = 100


class ScopeSpec(Model):
    """A scope says nothing but its name."""


class ScopeState(CaselessEnum):
    ACTIVE = "active"


class ScopeStatus(Status):
    """A scope is there as soon as it is stored."""

    observed_generation: int = 1
    """The generation of the spec that the rest of the status describes."""
    state: ScopeState = ScopeState.ACTIVE
    """Whether streams can be made in it."""


class Scope(Object):
    PLURAL: ClassVar[str] = "scopes"

    kind: Literal["Scope"] = "Scope"
    spec: ScopeSpec = ScopeSpec()
    status: ScopeStatus = ScopeStatus()


class ScalingType(CaselessEnum):
    FIXED = "fixed"
    EVENTS_PER_SECOND = "eventsPerSecond"
    KILOBYTES_PER_SECOND = "kilobytesPerSecond"


_UNITS: Final = {
    ScalingType.EVENTS_PER_SECOND: LoadUnit.EVENTS,
    ScalingType.KILOBYTES_PER_SECOND: LoadUnit.KILOBYTES,
}


class Scaling(Model):
    type: ScalingType = ScalingType.FIXED
    """fixed: only on request; eventsPerSecond, kilobytesPerSecond: by the load, too. Segments that
    get much more than the target are split, and neighbours that get less than half of it are
    merged."""
    target_rate: int | None = Field(default=None, ge=1)
    """Rate of one segment, in events or kilobytes (1,000 bytes) per second; for the types that
    follow the load."""
    scale_factor: int = Field(default=2, ge=2, le=MAX_SEGMENTS)
    """Segments that a hot one is split into, at most; for the types that follow the load."""
    min_segments: int = Field(default=1, ge=1, le=MAX_SEGMENTS)
    """Never fewer than these; a new stream begins with so many."""
    window: DurationMs = Field(default=Millis(120_000), ge=MIN_WINDOW_MS)
    """How fast it reacts: the shortest of the four averages of the load that count, at least 1s;
    for the types that follow the load. The others are over 2.5, 5 and 10 times as long. A new
    segment is left alone for 5 times as long, and is merged only after 10 times as long."""

    @model_validator(mode="after")
    def _target_is_given(self) -> Scaling:
        if self.type is not ScalingType.FIXED and self.target_rate is None:
            raise ValueError(
                f"type {self.type} needs a targetRate: the rate that is right for one segment"
            )
        return self

    @property
    def limits(self) -> LoadLimits | None:
        """What the leaders of segments measure against; None for a fixed number of segments."""
        if (unit := _UNITS.get(self.type)) is None or self.target_rate is None:
            return None
        return LoadLimits(unit=unit, target_rate=self.target_rate, window=Millis(self.window))


class StreamRetention(Model):
    """What a stream keeps: at least so much of its end, by time or by size. Once in a period, a cut
    of its end is noted; the stream is truncated at such a cut, or where the slowest of its
    subscribers is."""

    min_time: DurationMs | None = Field(default=None, ge=1)
    """Keep what is younger. Either this or `minSize` is given."""
    max_time: DurationMs | None = Field(default=None, ge=1)
    """Remove what is older, even if a subscriber has not read it; null: wait for subscribers."""
    min_size: Size | None = Field(default=None, ge=1)
    """Keep so much, over all segments."""
    max_size: Size | None = Field(default=None, ge=1)
    """Remove what is beyond that, even if a subscriber has not read it; null: wait for
    subscribers."""
    period: DurationMs = Field(default=Millis(1_800_000), ge=1_000)
    """How often it is looked at; at least 1s. What is kept is right to one period."""

    @model_validator(mode="after")
    def _time_or_size(self) -> StreamRetention:
        by_time, by_size = self.min_time, self.min_size
        if (by_time is None) == (by_size is None):
            raise ValueError("give minTime or minSize: what is kept, by time or by size")
        names = ("minTime", "maxTime") if by_size is None else ("minSize", "maxSize")
        other = self.max_size if by_size is None else self.max_time
        if other is not None:
            wrong = "maxSize" if by_size is None else "maxTime"
            raise ValueError(f"{wrong} does not go with {names[0]}; give {names[1]}")
        if self.maximum is not None and self.maximum < self.minimum:
            raise ValueError(f"{names[1]} is less than {names[0]}")
        return self

    @property
    def minimum(self) -> int:
        """The least that is kept, in milliseconds or bytes."""
        return self.min_time or self.min_size or 0

    @property
    def maximum(self) -> int | None:
        """The most that is kept for subscribers, in milliseconds or bytes."""
        return self.max_time if self.min_size is None else self.max_size

    @property
    def by_size(self) -> bool:
        return self.min_size is not None


class StreamSpec(Model):
    scaling: Scaling = Scaling()
    """How the number of segments follows the load."""
    retention: StreamRetention | None = None
    """What is kept; null: everything, until somebody truncates the stream."""
    replication_factor: int = Field(default=1, ge=1, le=MAX_REPLICATION_FACTOR)
    """Replicas of each segment."""
    min_in_sync_replicas: int | None = Field(default=None, ge=1, le=MAX_REPLICATION_FACTOR)
    """Replicas that must hold a record before it is acknowledged; null: a majority of three or
    more replicas, else 1."""
    segment: SegmentSettings = SegmentSettings()
    """When a file of a segment's log is completed."""
    compression: Compression = Compression.NONE
    """Codec that producers use."""
    durability: Durability = Durability.FSYNC
    """fsync: acknowledged records survive a power cut; replicated: they are in the page cache."""
    max_record_size: Size = Field(default=DEFAULT_MAX_RECORD_SIZE, ge=1, le=MAX_BATCH_BYTES // 2)
    """The largest record that is accepted; at most 32Mi."""
    tags: tuple[str, ...] = Field(default=(), max_length=MAX_TAGS)
    """Words by which `runnel get streams --tag` finds it."""

    @model_validator(mode="after")
    def _enough_replicas(self) -> StreamSpec:
        least = self.min_in_sync_replicas
        if least is not None and least > self.replication_factor:
            raise ValueError(
                f"minInSyncReplicas {least} is more than the {self.replication_factor} replicas of"
                " a segment"
            )
        return self

    @property
    def log_settings(self) -> LogSettings:
        """Settings as the partitions of its segments carry them. Only a truncation of the stream
        removes records: it knows which segments go together."""
        return LogSettings(
            min_in_sync_replicas=self.min_in_sync_replicas
            or least_in_sync(self.replication_factor),
            durability=self.durability,
            retention=Retention(time=None, size=None),
            segment=self.segment,
            max_record_size=self.max_record_size,
            load=self.scaling.limits,
        )


class StreamState(CaselessEnum):
    """Where a stream is in its life; `sc.controllers.streams.states` says which moves there are."""

    CREATING = "creating"
    ACTIVE = "active"
    UPDATING = "updating"
    SCALING = "scaling"
    TRUNCATING = "truncating"
    SEALING = "sealing"
    SEALED = "sealed"
    DELETING = "deleting"


class StreamStatus(Status):
    """State of the stream."""

    state: StreamState = StreamState.CREATING
    """Where it is in its life."""
    current_epoch: int | None = None
    """The number of its changes so far: writers use the segments of this epoch."""
    segments: int | None = None
    """How many segments the current epoch has."""
    queued: int | None = None
    """Accepted requests that wait for their turn."""
    moves: str | None = None
    """While replicas of its segments are added and removed: how far that is, and what is in the
    way."""

    @property
    def told(self) -> str:
        """All that is told of why it is not as it should be: empty if it is."""
        return "; ".join(filter(None, (self.reason, self.moves)))


class StreamMetadata(Metadata):
    name: ScopedName
    """Unique; SCOPE/NAME, and a name alone stands for default/NAME."""


class Stream(Object):
    PLURAL: ClassVar[str] = "streams"

    kind: Literal["Stream"] = "Stream"
    metadata: StreamMetadata
    spec: StreamSpec = StreamSpec()
    status: StreamStatus = StreamStatus()

    @property
    def scope(self) -> str:
        return self.name.partition("/")[0]


def segment_name(stream_uid: str, segment: int) -> str:
    """The object name of the partition that holds a segment, by the stream's uid."""
    return f"{stream_uid}.{segment:x}"
