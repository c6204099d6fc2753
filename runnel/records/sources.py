"""What `send_table` takes, and how it becomes an Arrow table.

A table is a pyarrow Table or RecordBatch, anything that exports an Arrow stream (pandas, polars,
duckdb, a RecordBatchReader), a polars LazyFrame, or a dict of columns. Rows are a list, a tuple or
a generator of dicts or dataclass instances. Neighbours: `runnel.records.tables` makes records of
any topic from these, `runnel.records.row_tables` those of a typed topic. Pure.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from runnel.records.converters import mapping_of
from runnel.utf8 import as_utf8, half_of_a_character, without_halves
from schemas.errors import InvalidRequestError

_TAKEN: Final = (
    "give a table (of pyarrow, pandas, polars or duckdb), a dict of columns, or rows: a list or a"
    " generator of dicts or dataclass instances"
)
#: What Arrow calls the index of a pandas frame that has no name.
_UNNAMED_INDEX: Final = re.compile(r"__index_level_\d+__")


def as_rows(data: Any) -> list[Any] | None:
    """The rows, if ``data`` is rows or a dict of Python lists of one length; else None."""
    if isinstance(data, dict) and all(isinstance(v, (list, tuple)) for v in data.values()):
        if len({len(values) for values in data.values()}) != 1:
            return None
        return [dict(zip(data, row, strict=True)) for row in zip(*data.values(), strict=True)]
    if not isinstance(data, (list, tuple, Iterator)) or hasattr(data, "__arrow_c_stream__"):
        return None
    return list(data)


def as_table(data: Any) -> pa.Table:
    """``data`` as a pyarrow Table; rows become columns in the order in which their names come.

    The index of a pandas frame is a column if it has a name, and left out if it only counts the
    rows. Raises InvalidRequestError for anything that is neither a table nor rows, and for an index
    that is neither.
    """
    table = _as_table(data)
    if any(map(_UNNAMED_INDEX.fullmatch, table.column_names)):
        raise InvalidRequestError(
            "the index of the pandas frame has no name: frame.reset_index(drop=True) leaves it out,"
            " frame.rename_axis('id') makes it the column id"
        )
    return table


def _as_table(data: Any) -> pa.Table:
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, Mapping):
        return _columns_table(data)
    if (rows := as_rows(data)) is not None:
        return _columns_table(_columns_of(rows))
    if type(data).__module__.partition(".")[0] == "polars" and hasattr(data, "collect"):
        data = data.collect()
    if hasattr(data, "__arrow_c_stream__"):
        try:
            return pa.table(data)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            if hasattr(data, "columns"):
                # It is a table: a column mixes types, or holds what Arrow cannot express.
                raise InvalidRequestError(_why_not(data, error)) from error
            raise InvalidRequestError(
                f"{_TAKEN}, and this {type(data).__name__} is no table; if it is one column, name"
                " it: {'name': it}"
            ) from error
    raise InvalidRequestError(f"{_TAKEN}; not {type(data).__name__}")


def _why_not(data: Any, error: Exception) -> str:
    """Why a table of another library, as a rule of pandas, cannot be taken: at which column."""
    for number, name in enumerate(data.columns):
        _check_name(str(name))
        if not hasattr(data, "iloc"):
            continue
        try:
            pa.array(data.iloc[:, number])
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as found:
            return f"column {name}: {_reason(found)}"
    return _reason(error)


def _check_name(name: str) -> None:
    """Raise InvalidRequestError for a column's name that is not Unicode."""
    as_utf8(f"the name of column {without_halves(name)}", name)


def _reason(error: Exception) -> str:
    """What Arrow found wrong with a column, in words that can be printed."""
    if isinstance(error, UnicodeEncodeError):
        return half_of_a_character(error)
    said = without_halves(". ".join(map(str, error.args)))
    if isinstance(error, OverflowError):
        return f"{said}: numbers have 64 bits; make it a decimal.Decimal, or text"
    return said


def _columns_of(rows: Sequence[Any]) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {}
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping) and not dataclasses.is_dataclass(row):
            raise InvalidRequestError(f"{_TAKEN}; row {number} is {type(row).__name__}")
        values = mapping_of(row)
        for name in values:
            if name not in columns:
                columns[name] = [None] * number
        for name, column in columns.items():
            column.append(values.get(name))
    return columns


def _columns_table(columns: Mapping[str, Any]) -> pa.Table:
    arrays = {}
    for name, values in columns.items():
        _check_name(str(name))
        try:
            arrays[str(name)] = _column(values)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise InvalidRequestError(f"column {name}: {_reason(error)}") from error
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise InvalidRequestError(f"the columns differ in their number of values: {listed}")
    return pa.table(arrays)


def _column(values: Any) -> pa.Array | pa.ChunkedArray:
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values
    if isinstance(values, (list, tuple)) and any(isinstance(v, bytes) for v in values):
        # Arrow takes no text among bytes, and `send` takes both.
        values = [v.encode() if isinstance(v, str) else v for v in values]
    return pa.array(values)
