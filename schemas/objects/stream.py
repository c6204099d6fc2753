"""`Scope` and `Stream`: logs whose set of segments changes with the load."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from schemas.model import CaselessEnum, Model
from schemas.objects.metadata import Object, Status
from schemas.objects.quantities import DurationMs, Name, Size

_NOT_SERVED = "streams are not served by this version; use a kind: Topic"


class ScopeSpec(Model):
    pass


class Scope(Object):
    PLURAL: ClassVar[str] = "scopes"
    NOT_SERVED: ClassVar[str | None] = _NOT_SERVED

    kind: Literal["Scope"] = "Scope"
    spec: ScopeSpec = ScopeSpec()
    status: Status = Status()


class ScalingType(CaselessEnum):
    FIXED = "fixed"
    EVENTS_PER_SECOND = "eventsPerSecond"
    KILOBYTES_PER_SECOND = "kilobytesPerSecond"


class Scaling(Model):
    type: ScalingType = ScalingType.FIXED
    """fixed, or by the rate of events or kilobytes."""
    target_rate: int | None = Field(default=None, ge=1)
    """Rate of one segment, per second."""
    scale_factor: int = Field(default=2, ge=2)
    """Segments that a hot one is split into."""
    min_segments: int = Field(default=1, ge=1)
    """Never fewer than these."""


class StreamRetention(Model):
    """Keep at least the minimum and at most the maximum, by time or by size."""

    min_time: DurationMs | None = None
    """Kept at least this long."""
    max_time: DurationMs | None = None
    """Kept at most this long."""
    min_size: Size | None = None
    """Kept at least this much."""
    max_size: Size | None = None
    """Kept at most this much."""


class StreamSpec(Model):
    scope: Name
    """The scope that the stream belongs to."""
    scaling: Scaling = Scaling()
    """How the number of segments follows the load."""
    retention: StreamRetention = StreamRetention()
    """What is kept."""
    replication_factor: int = Field(default=1, ge=1)
    """Replicas of each segment."""
    min_in_sync_replicas: int | None = Field(default=None, ge=1)
    """The same as for a topic."""


class StreamState(CaselessEnum):
    CREATING = "creating"
    ACTIVE = "active"
    UPDATING = "updating"
    SCALING = "scaling"
    TRUNCATING = "truncating"
    COMMITTING = "committing"
    SEALING = "sealing"
    SEALED = "sealed"


class StreamStatus(Status):
    state: StreamState = StreamState.CREATING
    current_epoch: int = 0
    truncation: dict[str, int] | None = None


class Stream(Object):
    PLURAL: ClassVar[str] = "streams"
    NOT_SERVED: ClassVar[str | None] = _NOT_SERVED

    kind: Literal["Stream"] = "Stream"
    spec: StreamSpec
    status: StreamStatus = StreamStatus()
