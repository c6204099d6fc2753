"""What users get back: records that were read, and the position of a sent record."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Final, NamedTuple, Protocol

from schemas.errors import InvalidRequestError
from schemas.wire.batch import MAX_TRANSACTION_ID


class DataclassInstance(Protocol):
    """An instance of any dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


Headers = tuple[tuple[str, bytes | None], ...]
#: The value to send: bytes or text; for a typed topic, a row of its columns.
Value = bytes | str | Mapping[str, Any] | DataclassInstance

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_of(timestamp_us: int) -> datetime:
    """Microseconds since the epoch as a datetime in UTC."""
    return _EPOCH + timedelta(microseconds=timestamp_us)


def timestamp_us_of(when: datetime) -> int:
    """A datetime as microseconds since the epoch. Raises ValueError without a time zone."""
    if when.tzinfo is None:
        raise ValueError(f"{when!r} has no time zone; write for example tzinfo=timezone.utc")
    return (when - _EPOCH) // timedelta(microseconds=1)


def as_transaction_id(transaction_id: Any) -> int:
    """A transaction id that a user gave. Raises InvalidRequestError if it is none."""
    if (
        not isinstance(transaction_id, int)
        or isinstance(transaction_id, bool)
        or not 0 <= transaction_id <= MAX_TRANSACTION_ID
    ):
        raise InvalidRequestError(
            f"transaction_id is {transaction_id!r}; give a whole number from 0 to"
            f" {MAX_TRANSACTION_ID}"
        )
    return transaction_id


#: The last moment that a datetime can hold.
MAX_TIME_US: Final = timestamp_us_of(datetime.max.replace(tzinfo=UTC))


class Record(NamedTuple):
    """One record as a consumer reads it. ``timestamp`` is in microseconds since the epoch.

    ``value`` is bytes or None; in a typed topic, a dict of its columns. ``key`` is the key's bytes;
    in a typed topic, those of its key column. ``transaction_id`` is the one that the producer gave.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: Any
    headers: Headers = ()
    transaction_id: int | None = None

    @property
    def time(self) -> datetime:
        """The timestamp as a datetime in UTC."""
        return time_of(self.timestamp)


class RecordMetadata(NamedTuple):
    """The position of a sent record. ``offset`` is -1 when nothing was acknowledged (acks none)."""

    topic: str
    partition: int
    offset: int
    timestamp: int

    @property
    def time(self) -> datetime:
        """The timestamp as a datetime in UTC."""
        return time_of(self.timestamp)


class BatchMetadata(NamedTuple):
    """The position of a batch of a sent table: ``records`` offsets from ``base_offset`` on."""

    topic: str
    partition: int
    base_offset: int
    records: int
