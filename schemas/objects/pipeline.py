"""`Pipeline`: a Spark streaming query from topics into a topic or into files, run by a process
outside of the cluster (``runnel pipeline run``), and what that process last reported."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from schemas.model import CaselessEnum, Model
from schemas.objects.metadata import Object, Status
from schemas.objects.quantities import DurationMs, Name, is_number, short

#: Most characters of an error that a status holds.
MAX_ERROR: Final = 1024
MAX_QUERY: Final = 64 << 10
MAX_OPTIONS: Final = 100
MAX_TOPICS: Final = 100
#: The view of a source that is a pattern: which topics it is of changes while the query runs.
PATTERN_VIEW: Final = "source"

_ENTRY: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/.+")


def _option_text(value: Any) -> Any:
    """Options of Spark are texts; YAML's ``true`` and ``100`` are meant as such."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if is_number(value) else value


def check_python(value: str) -> str:
    """The name of a function, ``module:function``. Raises ValueError."""
    if not _ENTRY.fullmatch(value):
        raise ValueError(f"{short(value)} names no function; write module:function")
    return value


def check_location(value: str) -> str:
    """A place that means the same wherever the runner is started. Raises ValueError."""
    if not (value.startswith(("/", "~/")) or _URI.fullmatch(value)):
        raise ValueError(
            f"{short(value)} depends on where the runner is started; write a path that begins with"
            " / or ~/, or a URI such as s3a://bucket/path"
        )
    return value


def check_pattern(value: str) -> str:
    """A regular expression. Raises ValueError that says what is wrong with it."""
    try:
        re.compile(value)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"{short(value)} is no regular expression: {error}") from error
    return value


Options = Annotated[
    dict[str, Annotated[str, BeforeValidator(_option_text)]], Field(max_length=MAX_OPTIONS)
]
Location = Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(check_location)]


class PipelineSource(Model):
    """What is read as streams: exactly one of ``topic``, ``topics`` and ``pattern``."""

    topic: Name | None = None
    """The topic to read; its view has the same name."""
    topics: Annotated[tuple[Name, ...], Field(min_length=1, max_length=MAX_TOPICS)] | None = None
    """Topics to read; each has a view of its name."""
    pattern: Annotated[str, Field(max_length=1000), AfterValidator(check_pattern)] | None = None
    """A regular expression over whole names of topics; their rows are in one view, `source`, and
    its column `topic` tells them apart."""
    options: Options = Field(default_factory=dict)
    """Options of the format `runnel` for reading, such as `startingOffsets`."""

    @model_validator(mode="after")
    def _check_choice(self) -> PipelineSource:
        given = [n for n in ("topic", "topics", "pattern") if getattr(self, n) is not None]
        if len(given) != 1:
            what = " and ".join(given) or "none"
            raise ValueError(f"give exactly one of topic, topics and pattern, not {what}")
        if self.topics is not None and len(set(self.topics)) < len(self.topics):
            raise ValueError("topics: a topic is there twice")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The topics that are named; none for a pattern."""
        return (self.topic,) if self.topic is not None else self.topics or ()


class OutputMode(CaselessEnum):
    """Which rows of the result a batch writes, as Spark calls it."""

    APPEND = "append"
    UPDATE = "update"
    COMPLETE = "complete"


class FileFormat(CaselessEnum):
    """Formats of files that Spark writes as a stream without more packages."""

    PARQUET = "parquet"
    JSON = "json"
    CSV = "csv"
    ORC = "orc"
    TEXT = "text"


class PipelineSink(Model):
    """Where results go: into a topic, or into files below a path."""

    topic: Name | None = None
    """The topic to write to, at least once. It must exist."""
    path: Location | None = None
    """The directory to write files to, exactly once for readers that are Spark."""
    format: FileFormat | None = None
    """Format of the files; null: parquet. Only with `path`."""
    output_mode: OutputMode = OutputMode.APPEND
    """Which rows a batch writes: append, update or complete, as in Spark. Files take append."""
    options: Options = Field(default_factory=dict)
    """Options of the format `runnel` for writing, or of the files' format."""

    @model_validator(mode="after")
    def _check_choice(self) -> PipelineSink:
        if (self.topic is None) == (self.path is None):
            both = "both" if self.topic is not None else "none"
            raise ValueError(f"give exactly one of topic and path, not {both}")
        if self.path is None and self.format is not None:
            raise ValueError("format: only with path; a topic has none")
        if self.path is not None and self.output_mode is not OutputMode.APPEND:
            raise ValueError(
                f"outputMode: Spark writes files with append only, not {self.output_mode.value};"
                " write to a topic, or aggregate with a watermark"
            )
        return self


class Trigger(Model):
    """When micro-batches run; with nothing given, each as soon as the one before has ended."""

    interval: DurationMs | None = None
    """Time between the beginnings of two micro-batches."""
    available_now: bool = False
    """Process the records that exist, in as many batches as the limits ask for, then end."""
    once: bool = False
    """Process the records that exist in one batch, then end."""

    @model_validator(mode="after")
    def _check_choice(self) -> Trigger:
        given = [
            name
            for name, value in (
                ("interval", self.interval is not None),
                ("availableNow", self.available_now),
                ("once", self.once),
            )
            if value
        ]
        if len(given) > 1:
            raise ValueError(
                f"give one of interval, availableNow and once, not {' and '.join(given)}"
            )
        return self

    @property
    def ends(self) -> bool:
        """Whether the query ends by itself."""
        return self.available_now or self.once


class Desired(CaselessEnum):
    """Whether the query is to run."""

    RUNNING = "running"
    STOPPED = "stopped"


class SparkSettings(Model):
    conf: Options = Field(default_factory=dict)
    """Settings of the Spark session, by their names."""


class PipelineSpec(Model):
    source: PipelineSource
    """Where records come from."""
    query: Annotated[str, Field(min_length=1, max_length=MAX_QUERY)] | None = None
    """SQL over the views of the source. Give this or `python`."""
    python: Annotated[str, Field(max_length=1000), AfterValidator(check_python)] | None = None
    """`module:function`, called as `function(spark, frames)` with a DataFrame for each view by its
    name; gives the DataFrame of the result. Give this or `query`."""
    sink: PipelineSink
    """Where results go."""
    trigger: Trigger = Trigger()
    """When micro-batches run."""
    checkpoint: Location
    """The directory in which Spark keeps how far the query is. Every runner must reach the same."""
    desired: Desired = Desired.RUNNING
    """running, or stopped: a runner then ends its query after the batch, and none starts."""
    spark: SparkSettings = SparkSettings()
    """The Spark session."""

    @model_validator(mode="after")
    def _check_choice(self) -> PipelineSpec:
        if (self.query is None) == (self.python is None):
            both = "both" if self.query is not None else "none"
            raise ValueError(f"give exactly one of query and python, not {both}")
        return self


class PipelineState(CaselessEnum):
    INIT = "init"
    RUNNING = "running"
    STOPPED = "stopped"
    FAILED = "failed"
    UNKNOWN = "unknown"


class PipelineProgress(Model):
    """What a run has done so far. Numbers are null where Spark does not tell them."""

    last_batch: int | None = Field(default=None, ge=0)
    """The number of the last batch that ended, as in the checkpoint."""
    rows_in: int | None = Field(default=None, ge=0)
    """Rows that the last batch read."""
    rows_out: int | None = Field(default=None, ge=0)
    """Rows that the last batch wrote."""
    total_rows_in: int = Field(default=0, ge=0)
    """Rows that this run read."""
    total_rows_out: int | None = Field(default=None, ge=0)
    """Rows that this run wrote."""
    rows_per_second: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Rows read a second, over the last ten seconds."""
    lag: int | None = Field(default=None, ge=0)
    """Records at the ends of the topics that the last batch had not read."""
    last_error: Annotated[str, Field(max_length=MAX_ERROR)] | None = None
    """The first line of the last error of this run."""
    restarts: int = Field(default=0, ge=0)
    """How often this run has started its query again after a failure."""


class PipelineStatus(Status, PipelineProgress):
    state: PipelineState = PipelineState.INIT
    """init until a query runs; unknown: its runner has not reported for 30 s."""
    run_id: str | None = None
    """The runner that runs it, or did last."""
    host: str | None = None
    """The host of that runner."""
    last_seen: str | None = None
    """When that runner reported last."""


class ReportedState(CaselessEnum):
    """What a runner says of itself."""

    INIT = "init"
    RUNNING = "running"
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def live(self) -> bool:
        """Whether the runner goes on."""
        return self in (ReportedState.INIT, ReportedState.RUNNING)


class PipelineReport(PipelineProgress):
    """What a runner tells the SC, at least every few seconds: so it keeps its lease.

    The first report of a run has the state `init`: it asks for the lease.
    """

    run_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{8,64}$")]
    """Chosen by the runner when it starts."""
    host: Annotated[str, Field(min_length=1, max_length=253)]
    """The host it runs on."""
    state: ReportedState
    """What the query does."""
    generation: int = Field(default=0, ge=0)
    """The generation of the spec that it runs."""
    take_over: bool = False
    """With `init`: take the lease although another run has it. That one ends its query."""


class Pipeline(Object):
    PLURAL: ClassVar[str] = "pipelines"

    kind: Literal["Pipeline"] = "Pipeline"
    spec: PipelineSpec
    status: PipelineStatus = PipelineStatus()
