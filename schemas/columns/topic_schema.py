"""The columns of a typed topic: what may be declared, how it may change, and its schema id. Pure.

A schema only ever grows, by nullable columns at its end. So every version of a topic's schema is
a *prefix* of the current one, and a reader of an older batch takes the missing columns as null.
The reverse holds as well: a prefix after which only nullable columns follow is a version that a
producer may write. Old versions need not be stored anywhere.

A batch names its version by the *schema id* of its columns (see `schema_id`): their number in the
upper 10 bits, and 22 bits of the CRC32C of their names, types and nullability. So an SPU refuses
a batch with other columns without reading its payload, and an SPU that has not received the new
columns yet recognises them by the larger number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Final

import crc32c
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from schemas.columns.column_types import ColumnType, Scalar, Timestamp, parse_type
from schemas.model import Model

MAX_COLUMNS: Final = 1_000
MAX_COLUMN_NAME: Final = 249
#: What readers get in addition to the columns of a schema.
READER_COLUMNS: Final = ("partition", "offset", "timestamp")
_HASH_BITS: Final = 22
_MAX_LISTED: Final = 20


def _canonical(value: Any) -> Any:
    return str(parse_type(value)) if isinstance(value, str) else value


def _usable_name(name: str) -> str:
    if not name.strip() or name != name.strip() or not name.isprintable():
        raise ValueError(
            f"{name!r} is not a column name: it is empty, unprintable or padded with spaces"
        )
    if len(name) > MAX_COLUMN_NAME:
        raise ValueError(f"a column name has at most {MAX_COLUMN_NAME} characters")
    if name.lower() in READER_COLUMNS:
        also = ", and name that in timestampColumn" if name.lower() == "timestamp" else ""
        raise ValueError(
            f"readers get columns {', '.join(READER_COLUMNS)} anyway; choose another name{also}"
        )
    return name


class Column(Model):
    """One column of a topic's records."""

    name: Annotated[str, AfterValidator(_usable_name)]
    """As in a table. Names are case-sensitive, but two may not differ by case only."""
    type: Annotated[str, BeforeValidator(_canonical)]
    """For example int64, string, decimal(12, 2) or timestamp(us, UTC); or a list, struct or map."""
    nullable: bool = True
    """Whether values may be missing."""

    @cached_property
    def parsed(self) -> ColumnType:
        """The type, parsed."""
        return parse_type(self.type)

    def __str__(self) -> str:
        return f"{self.name} {self.type}{'' if self.nullable else ' not null'}"


def check_columns(columns: tuple[Column, ...] | None) -> tuple[Column, ...] | None:
    """The columns, if their names do not collide. Raises ValueError."""
    seen: dict[str, str] = {}
    for column in columns or ():
        first = seen.get(column.name.lower())
        seen[column.name.lower()] = column.name
        if first is not None:
            twice = (
                "appears twice" if first == column.name else f"differs from {first} only by case"
            )
            raise ValueError(f"column {column.name} {twice}")
    return columns


def check_key_column(name: str, columns: Sequence[Column] | None) -> None:
    """Raise ValueError unless records can have their key in the column ``name``."""
    type_ = _column(name, columns).parsed
    if not (isinstance(type_, Scalar) and (type_.is_integer or type_.name in {"string", "binary"})):
        raise ValueError(f"column {name} is {type_}; keys are string, binary or whole numbers")


def check_timestamp_column(name: str, columns: Sequence[Column] | None) -> None:
    """Raise ValueError unless records can have their timestamp in the column ``name``."""
    column = _column(name, columns)
    if not isinstance(column.parsed, Timestamp):
        raise ValueError(f"column {name} is {column.type}, not a timestamp(…)")
    if column.nullable:
        raise ValueError(f"every record needs a timestamp: write nullable: false for column {name}")


def _column(name: str, columns: Sequence[Column] | None) -> Column:
    if columns is None:
        raise ValueError("it must name a column of spec.schema, but there is no schema")
    for column in columns:
        if column.name == name:
            return column
    raise ValueError(f"there is no column {name}; the columns are {names(columns)}")


def names(columns: Sequence[Column]) -> str:
    """The names of columns, for an error message."""
    listed = ", ".join(column.name for column in columns[:_MAX_LISTED])
    more = len(columns) - _MAX_LISTED
    return f"{listed} and {more} more" if more > 0 else listed


class TopicSchema(Model):
    """What records of a typed topic look like; see the module's docstring."""

    columns: tuple[Column, ...] = Field(min_length=1, max_length=MAX_COLUMNS)
    """Columns of the records, in order."""
    key_column: str | None = None
    """The column whose value is the key."""
    timestamp_column: str | None = None
    """The column that is the time of a record."""

    @model_validator(mode="after")
    def _fits_together(self) -> TopicSchema:
        check_columns(self.columns)
        if self.key_column is not None:
            check_key_column(self.key_column, self.columns)
        if self.timestamp_column is not None:
            check_timestamp_column(self.timestamp_column, self.columns)
        return self

    @cached_property
    def schema_id(self) -> int:
        """The id of batches that hold all columns."""
        return schema_id(self.columns)

    @cached_property
    def versions(self) -> Mapping[int, int]:
        """The ids that batches may have, each with the number of columns that they hold."""
        required = [i for i, column in enumerate(self.columns) if not column.nullable]
        needed = self._position(self.key_column), self._position(self.timestamp_column)
        least = max([*(i + 1 for i in required), *needed, 1])
        counts = range(least, len(self.columns) + 1)
        return {schema_id(self.columns[:count]): count for count in counts}

    def _position(self, name: str | None) -> int:
        return 1 + [c.name for c in self.columns].index(name) if name is not None else 0


def schema_id(columns: Sequence[Column]) -> int:
    """The schema id of batches that hold these columns: never 0, 32 bits.

    ``count << 22 | crc32c(text) & 0x3fffff``, where the text has a line for each column: name,
    canonical type, ``null`` or ``not null``, between tabs, in UTF-8.
    """
    text = "".join(
        f"{column.name}\t{column.type}\t{'null' if column.nullable else 'not null'}\n"
        for column in columns
    )
    return len(columns) << _HASH_BITS | crc32c.crc32c(text.encode()) & (1 << _HASH_BITS) - 1


def column_count(id_: int) -> int:
    """The number of columns that batches of a schema id hold; 0 for records without columns."""
    return id_ >> _HASH_BITS


def incompatibility(old: TopicSchema | None, new: TopicSchema | None) -> str | None:
    """Why a topic's schema may not change like this, with the field at fault, or None.

    The only change that is allowed adds nullable columns at the end.
    """
    if old is None or new is None:
        return _between_typed_and_plain(old, new)
    for what, before, after in (
        ("keyColumn", old.key_column, new.key_column),
        ("timestampColumn", old.timestamp_column, new.timestamp_column),
    ):
        if before != after:
            return (
                f"spec.{what}: cannot change from {before or 'none'} to {after or 'none'}:"
                " existing records were sent with it; create another topic"
            )
    known = {column.name for column in old.columns}
    there = {column.name for column in new.columns}
    for i, (column, changed) in enumerate(zip(old.columns, new.columns, strict=False)):
        if reason := _changed(column, changed, known, there):
            return f"spec.schema[{i}]{reason}"
    if len(new.columns) < len(old.columns):
        gone = old.columns[len(new.columns)]
        return f"spec.schema: {_removed(gone)}"
    for i, column in enumerate(new.columns[len(old.columns) :], len(old.columns)):
        if not column.nullable:
            return (
                f"spec.schema[{i}].nullable: the new column {column.name} must be nullable:"
                " existing records have no value for it"
            )
    return None


def _between_typed_and_plain(old: TopicSchema | None, new: TopicSchema | None) -> str | None:
    if old is None and new is not None:
        return (
            "spec.schema: cannot be added: records of this topic were sent without columns; create"
            " another topic with the schema"
        )
    if old is not None and new is None:
        return (
            "spec.schema: cannot be removed: records of this topic have columns; create another"
            " topic without a schema"
        )
    return None


def _changed(before: Column, after: Column, known: set[str], there: set[str]) -> str | None:
    """What is wrong with ``after`` in place of ``before``: the rest of the path, and the reason."""
    if after.name != before.name:
        if before.name in there:
            added = after.name not in known
            why = "is new; new columns come last" if added else "cannot move"
            return f": column {after.name} {why}"
        if after.name in known:
            return f": {_removed(before)}"
        return (
            f".name: column {before.name} cannot become {after.name}, or be removed; {_AT_THE_END}"
        )
    if after.type != before.type:
        return f".type: column {before.name} cannot change from {before.type} to {after.type}"
    if after.nullable != before.nullable:
        now = "nullable" if after.nullable else "not nullable"
        return f".nullable: column {before.name} cannot become {now}"
    return None


_AT_THE_END: Final = "only nullable columns can be added, at the end"


def _removed(column: Column) -> str:
    return f"column {column.name} cannot be removed: existing records have it"
