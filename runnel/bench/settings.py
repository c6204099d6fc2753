"""The settings of a measurement. Pure.

Values are checked here, and errors name the option of the command that gave them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final, Literal

from runnel.bench.schedule import Goal
from runnel.produce.settings import MAX_CONFIGURED_BATCH_BYTES
from schemas.errors import InvalidRequestError
from schemas.objects.topic import MAX_BATCH_BYTES, MAX_PARTITIONS, MAX_REPLICATION_FACTOR

Acks = Literal["committed", "leader", "none"]
Durability = Literal["fsync", "replicated"]
Codec = Literal["none", "lz4", "zstd"]

MAX_RECORD_SIZE: Final = MAX_BATCH_BYTES // 2
MAX_LINGER_MS: Final = 60_000
DEFAULT_E2E_SECONDS: Final = 10.0
DEFAULT_RATE: Final = 5_000
#: Enough for a steady state of some seconds, not for a coffee.
_DEFAULT_BYTES: Final = 256 << 20
_DEFAULT_MOST: Final = 2_000_000
_DEFAULT_MOST_SINGLY: Final = 500_000


class Mode(StrEnum):
    """What is measured."""

    PRODUCE = "produce"
    CONSUME = "consume"
    E2E = "e2e"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What to measure.

    ``topic`` None: a topic is created for the run with ``partitions``, ``replication_factor`` and
    ``durability``. With a topic these must be None, and are filled in from it. One of ``records``
    and ``seconds`` may be given; ``rate`` is for e2e alone. ``columnar``: tables, rather than
    records one by one. ``compression`` None: the topic's. ``linger_ms`` None: the default of
    producers.
    """

    mode: Mode
    topic: str | None = None
    records: int | None = None
    seconds: float | None = None
    record_size: int = 1024
    partitions: int | None = None
    replication_factor: int | None = None
    durability: Durability | None = None
    acks: Acks = "committed"
    compression: Codec | None = None
    batch_bytes: int = 1 << 20
    linger_ms: float | None = None
    columnar: bool = True
    rate: int | None = None

    def __post_init__(self) -> None:
        """Raises InvalidRequestError that names the option at fault."""
        if self.records is not None and self.seconds is not None:
            raise InvalidRequestError("give --records or --seconds, not both")
        bounds: tuple[tuple[str, float | None, float, float], ...] = (
            ("--records", self.records, 1, 1 << 40),
            ("--seconds", self.seconds, 0.001, 86_400),
            ("--record-size", self.record_size, 1, MAX_RECORD_SIZE),
            ("--partitions", self.partitions, 1, MAX_PARTITIONS),
            ("--replication-factor", self.replication_factor, 1, MAX_REPLICATION_FACTOR),
            ("--batch-bytes", self.batch_bytes, 1, MAX_CONFIGURED_BATCH_BYTES),
            ("--linger-ms", self.linger_ms, 0, MAX_LINGER_MS),
            ("--rate", self.rate, 1, 100_000_000),
        )
        for option, value, low, high in bounds:
            # Written so that NaN is refused as well.
            if value is not None and not low <= value <= high:
                raise InvalidRequestError(f"{option} is {value}; {low} to {high} is possible")

    def require_own_topic(self) -> None:
        """Raise InvalidRequestError if settings for a new topic are given with an existing one."""
        given = {
            "--partitions": self.partitions,
            "--replication-factor": self.replication_factor,
            "--durability": self.durability,
        }
        if self.topic is not None and (named := [k for k, v in given.items() if v is not None]):
            raise InvalidRequestError(
                f"{', '.join(named)}: topic {self.topic!r} has its own; without --topic, bench"
                f" creates a topic with these options and deletes it at the end"
            )

    @property
    def default_records(self) -> int:
        """The default number of records."""
        if self.rate is not None:
            return int(self.rate * DEFAULT_E2E_SECONDS)
        most = _DEFAULT_MOST if self.columnar else _DEFAULT_MOST_SINGLY
        return max(1, min(_DEFAULT_BYTES // self.record_size, most))

    @property
    def goal(self) -> Goal:
        """When the measurement is over. A rate turns seconds into a number of records."""
        if self.rate is not None and self.seconds is not None:
            return Goal(records=max(1, round(self.rate * self.seconds)))
        if self.seconds is not None:
            return Goal(seconds=self.seconds)
        return Goal(records=self.records or self.default_records)

    def to_json(self) -> dict[str, Any]:
        """The settings for the JSON of a result, with the actual number of records."""
        data = asdict(self)
        if self.seconds is None:
            data["records"] = self.records or self.default_records
        return data
