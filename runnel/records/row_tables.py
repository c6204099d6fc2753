"""Rows of a typed topic from tables: columns are found by name and cast without loss. Pure.

A column may have another type than the topic's if it is of the same kind (numbers, text, bytes,
times, lists, …) and the cast keeps every value: Arrow's safe casts, and a cast back to check
those that round. A nullable column may be missing. Values that do not fit are named by row
and column; a table is accepted as a whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from runnel.records.arrow_schema import arrow_schema, rows_batch
from runnel.records.converters import shown
from runnel.records.python_values import far_time
from runnel.records.row_values import Misfit, MisfitError, Row, RowReader
from runnel.records.sources import as_rows, as_table
from runnel.records.tables import ZONE_HINT, decode_dictionary
from runnel.records.text_checks import bad_text_rows
from schemas.columns.topic_schema import Column, names
from schemas.errors import InvalidRequestError
from schemas.objects.spelling import nearest

#: How many misfits an error lists, and the most that are searched for in one column.
MAX_MISFITS: Final = 20
#: Offsets of text and lists are 32 bits: larger chunks are split before they are cast.
_MAX_CHUNK_BYTES: Final = 1 << 30
_ROWS_AT_ONCE: Final = 16_384


def fit_table(data: Any, columns: Sequence[Column], topic: str) -> pa.Table:
    """``data`` as a table of exactly these columns, in their order.

    Takes what `runnel.records.sources.as_table` takes. Rows may have the values that ``send``
    takes. Raises MisfitError that names rows and columns.
    """
    if (rows := as_rows(data)) is not None:
        fitted, misfits = _try_rows(rows, columns)
    else:
        fitted, misfits = try_table(as_table(data), columns)
    if fitted is None:
        listed = "; ".join(map(str, misfits[:MAX_MISFITS]))
        raise MisfitError(
            f"the table does not fit the schema of topic {topic!r}, nothing of it was sent:"
            f" {listed}",
            misfits,
        )
    return fitted


def try_table(
    table: pa.Table, columns: Sequence[Column], limit: int = MAX_MISFITS
) -> tuple[pa.Table | None, tuple[Misfit, ...]]:
    """The table of these columns, or the misfits: at most ``limit`` of a column."""
    misfits = list(_misnamed(table, columns))
    schema = arrow_schema(columns)
    found: list[pa.ChunkedArray] = []
    for field, column in zip(schema, columns, strict=True):
        if table.column_names.count(field.name) == 1:
            fitting = _Fitting(column, field.type, limit).fit(table[field.name])
            misfits.extend(fitting.misfits)
            found.extend(fitting.fitted)
        elif field.name not in table.column_names and field.nullable:
            found.append(pa.chunked_array([pa.nulls(table.num_rows, field.type)]))
    if misfits:
        return None, tuple(sorted(misfits, key=lambda m: -1 if m.row is None else m.row))
    return pa.Table.from_arrays(found, schema=schema), ()


def _try_rows(
    rows: Sequence[Any], columns: Sequence[Column]
) -> tuple[pa.Table | None, tuple[Misfit, ...]]:
    """As `try_table`, of dicts and dataclass instances."""
    reader = RowReader(columns)
    found: list[Row] = []
    misfits: list[Misfit] = []
    for number, row in enumerate(rows):
        try:
            found.append(reader.read(row))
        except MisfitError as error:
            misfits.extend(Misfit(number, m.column, m.reason) for m in error.misfits)
            if len(misfits) >= MAX_MISFITS:
                break
        except InvalidRequestError as error:
            misfits.append(Misfit(number, None, error.message))
            break
    if misfits:
        return None, tuple(misfits)
    batches = [
        rows_batch(found[start : start + _ROWS_AT_ONCE], columns)
        for start in range(0, len(found), _ROWS_AT_ONCE)
    ]
    return pa.Table.from_batches(batches, arrow_schema(columns)), ()


def _misnamed(table: pa.Table, columns: Sequence[Column]) -> Iterator[Misfit]:
    there, known = table.column_names, [c.name for c in columns]
    for name in dict.fromkeys(there):
        if name not in known:
            meant = nearest(name, known)
            hint = f"did you mean {meant}?" if meant else f"there are {names(columns)}"
            yield Misfit(None, name, f"there is no such column; {hint}")
        elif there.count(name) > 1:
            yield Misfit(None, name, "appears twice")
    for column in columns:
        if column.name not in there and not column.nullable:
            yield Misfit(None, column.name, "is missing, and must not be null")


class _Fitting:
    """The cast of one column to ``type_``, the Arrow type of ``column``.

    ``fitted`` holds it in the end, unless there are ``misfits``.
    """

    def __init__(self, column: Column, type_: pa.DataType, limit: int) -> None:
        self.fitted: list[pa.ChunkedArray] = []
        self.misfits: list[Misfit] = []
        self._column = column
        self._type = type_
        self._limit = limit

    def fit(self, values: pa.ChunkedArray) -> _Fitting:
        wanted = self._column
        if values.type != self._type and not castable(values.type, self._type):
            hint = ZONE_HINT if _lacks_zone(values.type, self._type) else "convert it first"
            self._say(None, f"is {values.type}, and the topic has {wanted.type}; {hint}")
            return self
        for row in bad_text_rows(values, self._limit):
            self._say(row, "is not UTF-8; decode it first, or give the topic a column of binary")
        if self.misfits:
            return self
        if not wanted.nullable and values.null_count:
            for row in np.flatnonzero(values.is_null().to_numpy())[: self._limit]:
                self._say(int(row), "must not be null")
            return self
        if values.type == self._type:
            self.fitted.append(values)
            return self
        parts: list[pa.Array] = []
        row = 0
        for chunk in values.chunks:
            parts.extend(self._cast(chunk, row))
            row += len(chunk)
        if not self.misfits:
            self.fitted.append(pa.chunked_array(parts, self._type))
        return self

    def _cast(self, chunk: pa.Array, row: int) -> Iterator[pa.Array]:
        """The chunk cast, or the rows that do not fit, found by halving chunks that fail."""
        if chunk.nbytes > _MAX_CHUNK_BYTES and len(chunk) > 1:
            yield from self._halves(chunk, row)
            return
        try:
            yield cast(chunk, self._type)
        except (pa.ArrowException, ValueError):
            if len(chunk) > 1:
                yield from self._halves(chunk, row)
            else:
                self._say(row, f"{shown(_plain(chunk[0]))} does not fit {self._column.type}")

    def _halves(self, chunk: pa.Array, row: int) -> Iterator[pa.Array]:
        half = len(chunk) // 2
        for start, end in ((0, half), (half, len(chunk))):
            if len(self.misfits) < self._limit:
                # Taken, not sliced: a cast would check all list elements, also outside a slice.
                yield from self._cast(chunk.take(pa.array(range(start, end))), row + start)

    def _say(self, row: int | None, reason: str) -> None:
        self.misfits.append(Misfit(row, self._column.name, reason))


def _plain(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except (ValueError, OverflowError):
        # Python's datetime holds fewer digits and years than Arrow's timestamps.
        if isinstance(value, pa.TimestampScalar):
            return far_time(value.value, value.type.unit, utc=value.type.tz is not None)
        return str(value)


def castable(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether the types are of one kind, so that values of one can be values of the other."""
    types = pa.types
    if types.is_dictionary(source):
        return castable(source.value_type, target)
    if types.is_null(source):
        return True
    if types.is_timestamp(source) and types.is_timestamp(target):
        # Local times are not shifted in silence, nor is a zone thrown away.
        return (source.tz is None) == (target.tz is None)
    if _is_list(source) and types.is_list(target):
        return castable(source.value_type, target.value_type)
    if types.is_map(source) and types.is_map(target):
        return castable(source.key_type, target.key_type) and castable(
            source.item_type, target.item_type
        )
    if types.is_struct(source) and types.is_struct(target):
        return all(
            target.get_field_index(field.name) >= 0
            and castable(field.type, target.field(field.name).type)
            for field in source
        )
    return _kind(source) is not None and _kind(source) == _kind(target)


def _lacks_zone(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether times without a zone are all that keeps values of one from the other."""
    types = pa.types
    if types.is_timestamp(source) and types.is_timestamp(target):
        return source.tz is None and target.tz is not None
    return bool(_is_list(source) and types.is_list(target)) and _lacks_zone(
        source.value_type, target.value_type
    )


def _is_list(type_: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_list(type_) or types.is_large_list(type_) or types.is_fixed_size_list(type_)
    )


def _kind(type_: pa.DataType) -> str | None:
    types = pa.types
    checks: Iterable[tuple[str, tuple[Any, ...]]] = (
        ("bool", (types.is_boolean,)),
        ("number", (types.is_integer, types.is_floating, types.is_decimal)),
        (
            "bytes",
            (
                types.is_string, types.is_large_string, types.is_string_view, types.is_binary,
                types.is_large_binary, types.is_binary_view, types.is_fixed_size_binary,
            ),
        ),
        ("date", (types.is_date,)),
    )  # fmt: skip
    return next((kind for kind, those in checks if any(is_it(type_) for is_it in those)), None)


def cast(array: pa.Array, target: pa.DataType) -> pa.Array:
    """The same values in another type of their kind. Raises ArrowException, ValueError."""
    if pa.types.is_dictionary(array.type):
        array = decode_dictionary(array)
    if array.type == target:
        return array
    found = array.cast(target)
    if _may_round(array.type) or _may_round(target):
        back = found.cast(array.type, safe=False)
        if not _same(back, array):
            raise ValueError("digits would be lost")
    return found


def _may_round(type_: pa.DataType) -> bool:
    """Whether the type contains floats: Arrow's safe casts from and to floats round."""
    if pa.types.is_floating(type_) or pa.types.is_date64(type_):
        return True
    return any(_may_round(type_.field(i).type) for i in range(type_.num_fields))


def _same(one: pa.Array, other: pa.Array) -> bool:
    """Whether they are equal, with NaN equal to itself."""
    if one.null_count != other.null_count or not pc.is_null(one).equals(pc.is_null(other)):
        return False
    if pa.types.is_floating(one.type):
        both = pc.or_(pc.equal(one, other), pc.and_(pc.is_nan(one), pc.is_nan(other)))
        return bool(pc.all(both, min_count=0).as_py())
    if pa.types.is_struct(one.type):
        return all(map(_same, one.flatten(), other.flatten()))
    if _is_list(one.type):
        lengths = pc.list_value_length(one).equals(pc.list_value_length(other))
        return bool(lengths) and _same(one.flatten(), other.flatten())
    return bool(one.equals(other))
