"""`Scope` and `Stream`: logs whose set of segments changes with the load."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from schemas.metadata import Object, Status
from schemas.model import CaselessEnum, Model
from schemas.quantities import DurationMs, Name, Size

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
    target_rate: int | None = Field(default=None, ge=1)
    scale_factor: int = Field(default=2, ge=2)
    min_segments: int = Field(default=1, ge=1)


class StreamRetention(Model):
    """Keep at least the minimum and at most the maximum, by time or by size."""

    min_time: DurationMs | None = None
    max_time: DurationMs | None = None
    min_size: Size | None = None
    max_size: Size | None = None


class StreamSpec(Model):
    scope: Name
    scaling: Scaling = Scaling()
    retention: StreamRetention = StreamRetention()
    replication_factor: int = Field(default=1, ge=1)
    min_in_sync_replicas: int | None = Field(default=None, ge=1)


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
    truncation: dict[str, Any] | None = None


class Stream(Object):
    PLURAL: ClassVar[str] = "streams"
    NOT_SERVED: ClassVar[str | None] = _NOT_SERVED

    kind: Literal["Stream"] = "Stream"
    spec: StreamSpec
    status: StreamStatus = StreamStatus()
