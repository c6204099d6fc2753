"""`Pipeline`: a Spark job that the cluster runs: source, query, sink, trigger."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from schemas.model import CaselessEnum, Model
from schemas.objects.metadata import Object, Status
from schemas.objects.quantities import DurationMs, Name


class PipelineEnd(Model):
    """A source or a sink: a topic of this cluster, with options of the Spark data source."""

    topic: Name
    """Topic that is read or written."""
    options: dict[str, str] = Field(default_factory=dict)
    """Options of the Spark data source."""


class Trigger(Model):
    """Micro-batches at an interval, or one run over the records that exist."""

    interval: DurationMs | None = None
    """Time between micro-batches."""
    available_now: bool = False
    """Process the records that exist, then end."""


class PipelineSpec(Model):
    source: PipelineEnd
    """Where records come from."""
    query: str
    """The SQL query over the source."""
    sink: PipelineEnd
    """Where results go."""
    trigger: Trigger = Trigger()
    """When micro-batches run."""


class PipelineState(CaselessEnum):
    INIT = "init"
    RUNNING = "running"
    STOPPED = "stopped"
    FAILED = "failed"


class PipelineStatus(Status):
    state: PipelineState = PipelineState.INIT
    last_batch: int | None = None
    lag: int | None = None


class Pipeline(Object):
    PLURAL: ClassVar[str] = "pipelines"
    NOT_SERVED: ClassVar[str | None] = (
        "pipelines are not run by this version; submit the Spark job yourself"
    )

    kind: Literal["Pipeline"] = "Pipeline"
    spec: PipelineSpec
    status: PipelineStatus = PipelineStatus()
