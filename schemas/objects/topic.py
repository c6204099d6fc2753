"""`Topic`: a fixed set of partitions and the settings of their logs."""

from __future__ import annotations

import marshal
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
    model_serializer,
    model_validator,
)

from schemas.columns.topic_schema import (
    MAX_COLUMNS,
    Column,
    TopicSchema,
    check_columns,
    check_key_column,
    check_timestamp_column,
)
from schemas.model import CaselessEnum, Model
from schemas.objects.archive import ArchiveSettings
from schemas.objects.html import html_table
from schemas.objects.load import LoadLimits
from schemas.objects.metadata import Object, Status
from schemas.objects.quantities import DurationMs, Millis, Size

DEFAULT_MAX_RECORD_SIZE = 1 << 20
MAX_PARTITIONS = 100_000
MAX_REPLICATION_FACTOR = 32
#: The largest batch that an SPU or a client accepts, header included.
MAX_BATCH_BYTES = 64 << 20


class Durability(CaselessEnum):
    """When a replica counts a record as stored: after fsync, or in the page cache."""

    FSYNC = "fsync"
    REPLICATED = "replicated"


class Compression(CaselessEnum):
    NONE = "none"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Retention(Model):
    """How long and how much a log keeps; null means without limit."""

    time: DurationMs | None = Millis(7 * 86_400_000)
    """How long records are kept; null: for ever."""
    size: Size | None = None
    """How much each partition keeps; null: without limit."""
    grace: DurationMs = Millis(60_000)
    """How long files of removed records stay on the disk, in case of a truncation by mistake."""

    @model_serializer(mode="wrap")
    def _say_unlimited(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # If it were left out, like other fields that are None, a reader would take its default.
        data: dict[str, Any] = handler(self)
        return {"time": None, **data} if self.time is None else data


class SegmentSettings(Model):
    size: Size = Field(default=256 << 20, ge=1 << 10)
    """A segment file is completed at this size; at least 1Ki."""
    time: DurationMs = Millis(86_400_000)
    """A segment file is completed at this age."""


class LogSettings(Model):
    """Settings that the leader of a partition needs for its log."""

    min_in_sync_replicas: int = Field(default=1, ge=1)
    """Replicas that must hold a record before it counts as committed."""
    durability: Durability = Durability.FSYNC
    """fsync: records survive a power cut; replicated: they are in the page cache."""
    retention: Retention = Retention()
    """What is kept."""
    segment: SegmentSettings = SegmentSettings()
    """When a segment file is completed."""
    max_record_size: Size = DEFAULT_MAX_RECORD_SIZE
    """The largest record that is accepted."""
    row_schema: TopicSchema | None = Field(default=None, alias="schema")
    """Columns of a typed topic's records; the leader refuses batches with other columns."""
    load: LoadLimits | None = None
    """The load that a segment of a stream is to bear, where the stream scales by it."""


#: Settings that were parsed before, by mode and content.
_PARSED: Final[dict[tuple[str, bytes], LogSettings]] = {}
_MOST_PARSED: Final = 1_000


def _shared(data: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> LogSettings:
    try:
        # Version 2 gives equal data equal bytes; it refuses what is not plain data.
        key = info.mode, marshal.dumps(data, 2)
    except ValueError:
        return handler(data)  # type: ignore[no-any-return]
    found = _PARSED.get(key)
    if found is None:
        found = handler(data)
        if len(_PARSED) >= _MOST_PARSED:
            _PARSED.clear()
        _PARSED[key] = found
    return found


#: Settings of a partition. Equal ones share one object, because there may be very many.
SharedLogSettings = Annotated[LogSettings, WrapValidator(_shared)]


def least_in_sync(replicas: int) -> int:
    """How many replicas must hold a record, where nobody says so: a majority of three or more."""
    return replicas // 2 + 1 if replicas >= 3 else 1


class PartitionAssignment(Model):
    """One row of a manual assignment: the leader comes first."""

    id: int = Field(ge=0)
    """Number of the partition, from 0."""
    replicas: tuple[int, ...] = Field(min_length=1)
    """SPUs that hold it, the preferred leader first."""


def _assignment_rows(value: Any) -> Any:
    """Accept the rows ``{id: 0, replicas: [1]}`` as well as the short ``{0: [1]}``."""
    if not isinstance(value, list | tuple):
        return value
    rows = []
    for row in value:
        if isinstance(row, dict) and len(row) == 1 and not row.keys() & {"id", "replicas"}:
            ((key, replicas),) = row.items()
            rows.append({"id": key, "replicas": replicas})
        else:
            rows.append(row)
    return rows


class TopicSpec(Model):
    """Placement: computed (``partitions``, ``replication_factor``) or manual (``assignment``)."""

    partitions: int | None = Field(default=None, ge=1, le=MAX_PARTITIONS)
    """How many partitions, if the placement is computed; null: 1."""
    replication_factor: int | None = Field(default=None, ge=1, le=MAX_REPLICATION_FACTOR)
    """Replicas of each partition, if the placement is computed; null: 1."""
    ignore_rack_assignment: bool = False
    """Place replicas without regard to racks."""
    assignment: Annotated[
        tuple[PartitionAssignment, ...] | None, BeforeValidator(_assignment_rows)
    ] = None
    """Manual placement, one row for each partition: `[{id: 0, replicas: [1, 2]}]`, or in
    short `[{0: [1, 2]}]`."""
    min_in_sync_replicas: int | None = Field(default=None, ge=1, le=MAX_REPLICATION_FACTOR)
    """Replicas that must hold a record before it is acknowledged; null: a majority of three or
    more replicas, else 1."""
    retention: Retention = Retention()
    """What is kept."""
    segment: SegmentSettings = SegmentSettings()
    """When a segment file is completed."""
    archive: ArchiveSettings | None = None
    """Cold storage: retention then keeps what is not in the archive yet; null: none."""
    compression: Compression = Compression.NONE
    """Codec that producers use."""
    durability: Durability = Durability.FSYNC
    """fsync: acknowledged records survive a power cut; replicated: they are in the page cache."""
    max_record_size: Size = Field(default=DEFAULT_MAX_RECORD_SIZE, ge=1, le=MAX_BATCH_BYTES // 2)
    """The largest record that is accepted; at most 32Mi."""
    columns: Annotated[tuple[Column, ...] | None, AfterValidator(check_columns)] = Field(
        default=None, alias="schema", min_length=1, max_length=MAX_COLUMNS
    )
    """Columns of the records of a typed topic; null: records are keys, values and headers. After
    the creation of the topic, only nullable columns can be added, at the end."""
    key_column: str | None = None
    """In a typed topic, the column that holds the key, which decides the partition."""
    timestamp_column: str | None = None
    """In a typed topic, the column that holds a record's time; null: the time it was sent."""
    sealed: bool | None = None
    """true: it takes no more records, for good; readers see that they have met its end. Left out
    while it is open."""

    @field_validator("key_column")
    @classmethod
    def _key_is_there(cls, name: str | None, info: ValidationInfo) -> str | None:
        # If the schema itself is wrong, only that is reported.
        if name is not None and "columns" in info.data:
            check_key_column(name, info.data["columns"])
        return name

    @field_validator("timestamp_column")
    @classmethod
    def _timestamp_is_there(cls, name: str | None, info: ValidationInfo) -> str | None:
        if name is not None and "columns" in info.data:
            check_timestamp_column(name, info.data["columns"])
        return name

    @model_validator(mode="after")
    def _computed_or_manual(self) -> TopicSpec:
        if self.assignment is not None:
            if not self.assignment:
                raise ValueError("assignment needs at least one row")
            if self.partitions is not None or self.replication_factor is not None:
                raise ValueError("give partitions and replicationFactor, or assignment, not both")
        if self.min_in_sync_replicas is not None and self.min_in_sync_replicas > self.replica_count:
            raise ValueError(
                f"minInSyncReplicas {self.min_in_sync_replicas} is more than the"
                f" {self.replica_count} replicas of a partition"
            )
        return self

    @property
    def partition_count(self) -> int:
        return len(self.assignment) if self.assignment is not None else self.partitions or 1

    @property
    def replica_count(self) -> int:
        """Replicas of each partition (of the first row, where rows are given)."""
        return len(self.assignment[0].replicas) if self.assignment else self.replication_factor or 1

    @property
    def row_schema(self) -> TopicSchema | None:
        """What records of a typed topic look like; None for a topic without a schema."""
        if self.columns is None:
            return None
        return TopicSchema(
            columns=self.columns,
            key_column=self.key_column,
            timestamp_column=self.timestamp_column,
        )

    @property
    def log_settings(self) -> LogSettings:
        """Settings as partitions carry them.

        The minimum of in-sync replicas defaults to a majority of three or more replicas, else 1.
        """
        minimum = self.min_in_sync_replicas or least_in_sync(self.replica_count)
        return LogSettings(
            min_in_sync_replicas=minimum,
            durability=self.durability,
            retention=self.retention,
            segment=self.segment,
            max_record_size=self.max_record_size,
            row_schema=self.row_schema,
        )


class TopicResolution(CaselessEnum):
    INIT = "init"
    PENDING = "pending"
    INSUFFICIENT_RESOURCES = "insufficientResources"
    INVALID_CONFIG = "invalidConfig"
    PROVISIONED = "provisioned"
    DELETING = "deleting"


class TopicStatus(Status):
    """State of the topic."""

    resolution: TopicResolution = TopicResolution.INIT
    """How far its placement has come."""
    replica_map: tuple[tuple[int, ...], ...] = ()
    """Mirrors the partitions' specs: row i lists the SPUs of partition i."""
    writable: bool | None = None
    """false while some of its partitions take no records: they have lost their leader, or it
    commits none."""
    moving: bool | None = None
    """true while its partitions get other replicas, as its spec asks for."""


class Topic(Object):
    PLURAL: ClassVar[str] = "topics"
    SHORT_NAMES: ClassVar[tuple[str, ...]] = ("t",)

    kind: Literal["Topic"] = "Topic"
    spec: TopicSpec = TopicSpec()
    status: TopicStatus = TopicStatus()

    def _repr_html_(self) -> str:
        """What a notebook shows: asks nobody, so it is as of the moment of the object."""
        spec, status = self.spec, self.status
        state = str(status.resolution)
        shown = {
            "state": f"{state}: {status.reason}" if status.reason else state,
            "writable": "no: some partitions take no records" if status.writable is False else "",
            "partitions": f"{spec.partition_count}, replicas of each: {spec.replica_count}",
            "key column": spec.key_column,
            "timestamp column": spec.timestamp_column,
        }
        rows = [(name, text) for name, text in shown.items() if text]
        rows += [(c.name, str(c).removeprefix(f"{c.name} ")) for c in spec.columns or ()]
        return html_table(f"topic {self.name}", rows)


def partition_name(topic: str, index: int) -> str:
    """The object name of partition ``index`` of a topic."""
    return f"{topic}-{index}"
