"""The columns of a topic from what users have: an Arrow schema, a table, a dict of types. Pure.

`declared_columns` takes what ``runnel.Topic(schema=…)`` takes, `columns_of_table` the rows that are
about to be written. Both give columns as manifests have them. A column gets the type that keeps
every value: text is string however Arrow lays it out, categories become what they stand for, and
decimals that were Python's get all 38 digits, because their Arrow type only fits the values at
hand. Nanoseconds become microseconds, the finest that a column holds; `runnel.records.row_tables`
refuses a value that this would cut.

Every column may be null unless it says otherwise: ``pa.field(…, nullable=False)``, or ``not null``
after the name of a type. ``required`` names the column that may not be null in any case: the
timestamp column.
"""

from __future__ import annotations

import decimal
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from typing import Any, Final

import pyarrow as pa

from runnel.records.sources import as_table
from schemas.columns.column_types import (
    MAX_PRECISION,
    ColumnType,
    Decimal,
    ListOf,
    MapOf,
    Scalar,
    Struct,
    Timestamp,
    parse_type,
)
from schemas.columns.topic_schema import Column
from schemas.errors import InvalidRequestError

#: A column as a manifest has it: name, type and nullable.
ColumnFields = dict[str, Any]

_NOT_NULL: Final = " not null"
_TAKEN: Final = (
    "give a pyarrow schema, a table (of pyarrow, pandas, polars or duckdb), or a dict of column"
    " names and types"
)
_OF_PYTHON: Final[dict[Any, str]] = {
    bool: "bool", int: "int64", float: "float64", str: "string", bytes: "binary",
    date: "date32", datetime: "timestamp(us, UTC)",
}  # fmt: skip
#: Python's types that no single column type stands for, with what to write instead.
_INSTEAD: Final[dict[Any, str]] = {
    decimal.Decimal: "say how many digits it has: 'decimal(12, 2)'",
    time: "write int64, and store microseconds since midnight",
    timedelta: "write int64, and store microseconds",
    list: "say of what: list[str]",
    tuple: "say of what: list[str]",
    dict: "say of what: dict[str, float], or give a dict of fields for a struct",
}


def declared_columns(source: Any, required: str | None = None) -> list[ColumnFields]:
    """The columns that ``source`` declares.

    ``source`` is a pyarrow Schema, something with one (a table of pyarrow, pandas, polars, duckdb),
    a dict of names and types, or a list of columns as in a manifest. A type is one of Runnel's
    names, of Python's types, of pyarrow's types, or a dict of fields. Raises InvalidRequestError
    with a line for every column at fault.
    """
    if isinstance(source, Mapping):
        return _each(source.items(), _declared, required)
    if isinstance(source, Sequence) and not isinstance(source, str):
        return [_manifest_column(column) for column in source]
    if hasattr(source, "__arrow_c_stream__") and not isinstance(source, _WITH_SCHEMA):
        return columns_of_table(source, required)
    if type(source).__module__.partition(".")[0] == "polars" and hasattr(source, "collect"):
        # The columns of a query do not need its rows.
        return columns_of_table(source.head(0), required)
    if isinstance(source, _WITH_SCHEMA):
        source = source.schema
    if not isinstance(source, pa.Schema):
        raise InvalidRequestError(f"{_TAKEN}; not {_type_name(source)}")
    return _each(((field.name, field) for field in source), _declared, required)


_WITH_SCHEMA: Final = (pa.Table, pa.RecordBatch, pa.RecordBatchReader)


def columns_of_table(data: Any, required: str | None = None) -> list[ColumnFields]:
    """The columns of a topic that takes these rows: all that ``send_table`` takes. An iterator
    is consumed.

    Raises InvalidRequestError as `declared_columns` does.
    """
    table = as_table(data)
    declare = _inferred if _holds_values_of_python(data) else _declared
    return _each(((field.name, field) for field in table.schema), declare, required)


def column_type_of(type_: pa.DataType) -> ColumnType:
    """The column type that keeps every value of an Arrow type.

    Raises ValueError that says what to do for types that no column has.
    """
    is_ = pa.types
    if is_.is_dictionary(type_):
        return column_type_of(type_.value_type)
    if is_.is_decimal(type_):
        return Decimal(type_.precision, type_.scale)
    if is_.is_timestamp(type_):
        return Timestamp("us" if type_.unit == "ns" else type_.unit, type_.tz)
    if is_.is_struct(type_):
        return Struct(tuple((field.name, _field_type(field)) for field in type_))
    if is_.is_map(type_):
        if column_type_of(type_.key_type) != Scalar("string"):
            raise ValueError(f"keys of maps are strings, not {type_.key_type}; cast them")
        return MapOf(column_type_of(type_.item_type))
    if any(is_list(type_) for is_list in _LISTS):
        return ListOf(column_type_of(type_.value_type))
    for name, checks in _SCALARS.items():
        if any(is_it(type_) for is_it in checks):
            return Scalar(name)
    if is_.is_null(type_):
        raise ValueError(
            "holds nothing but nulls, so its type is not known; cast it, or declare the topic with"
            " a dict of names and types"
        )
    if is_.is_time(type_) or is_.is_duration(type_):
        raise ValueError(f"there is no column type for {type_}; cast it to int64")
    if isinstance(type_, pa.BaseExtensionType):
        raise ValueError(f"there is no column type for {type_}; cast it to {type_.storage_type}")
    # The names of types are listed there.
    return parse_type(str(type_))


def _field_type(field: pa.Field) -> ColumnType:
    try:
        return column_type_of(field.type)
    except ValueError as error:
        raise ValueError(f"field {field.name}: {error}") from error


_LISTS: Final = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
_SCALARS: Final[dict[str, tuple[Callable[[pa.DataType], bool], ...]]] = {
    "string": (pa.types.is_large_string, pa.types.is_string_view, pa.types.is_string),
    "binary": (
        pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view,
        pa.types.is_fixed_size_binary,
    ),
    "date32": (pa.types.is_date,),
}  # fmt: skip


def _each(
    declared: Any, declare: Callable[[Any], tuple[ColumnType, bool]], required: str | None
) -> list[ColumnFields]:
    """The columns of names and declarations, or an error with a line for each that is wrong."""
    found: list[ColumnFields] = []
    problems: list[str] = []
    for name, declaration in declared:
        try:
            if not isinstance(name, str):
                raise ValueError(f"names of columns are text, not {_type_name(name)}")
            type_, nullable = declare(declaration)
            # Checks what only the text says: how deep it is nested, and names of fields.
            text = str(parse_type(str(type_)))
        except ValueError as error:
            problems.append(f"column {name}: {error}")
        else:
            found.append({"name": name, "type": text, "nullable": nullable and name != required})
    if problems:
        raise InvalidRequestError("\n".join(problems))
    if not found:
        raise InvalidRequestError(f"there are no columns; {_TAKEN}")
    return found


def _declared(declaration: Any) -> tuple[ColumnType, bool]:
    """The type of a declaration, and whether values may be null. Raises ValueError."""
    if isinstance(declaration, pa.Field):
        return column_type_of(declaration.type), declaration.nullable
    if isinstance(declaration, str):
        text = declaration.strip()
        nullable = not text.lower().endswith(_NOT_NULL)
        return parse_type(text if nullable else text[: -len(_NOT_NULL)]), nullable
    return _value_type(declaration), True


def _inferred(field: pa.Field) -> tuple[ColumnType, bool]:
    """As `_declared`, of a column whose values were Python's."""
    return _widest(column_type_of(field.type)), field.nullable


def _widest(type_: ColumnType) -> ColumnType:
    match type_:
        case Decimal(scale=scale):
            return Decimal(MAX_PRECISION, scale)
        case ListOf(item=item):
            return ListOf(_widest(item))
        case MapOf(value=value):
            return MapOf(_widest(value))
        case Struct(fields=fields):
            return Struct(tuple((name, _widest(inner)) for name, inner in fields))
        case _:
            return type_


def _value_type(declaration: Any) -> ColumnType:
    """The type that Python's type, Arrow's or a text stands for. Raises ValueError."""
    if isinstance(declaration, str):
        return parse_type(declaration)
    if isinstance(declaration, pa.DataType):
        return column_type_of(declaration)
    if isinstance(declaration, Mapping):
        return Struct(tuple((str(name), _value_type(of)) for name, of in declaration.items()))
    if isinstance(declaration, type) and declaration in _OF_PYTHON:
        return parse_type(_OF_PYTHON[declaration])
    origin, arguments = typing.get_origin(declaration), typing.get_args(declaration)
    if origin in (types.UnionType, typing.Union):
        inner = [each for each in arguments if each is not type(None)]
        if len(inner) == 1:
            # Every column may be null already.
            return _value_type(inner[0])
    if origin is list or (origin is tuple and arguments[1:] == (...,)):
        return ListOf(_value_type(arguments[0]))
    if origin is dict:
        if arguments[0] is not str:
            raise ValueError(f"keys of maps are strings, not {_type_name(arguments[0])}")
        return MapOf(_value_type(arguments[1]))
    if isinstance(declaration, type) and declaration in _INSTEAD:
        raise ValueError(f"{declaration.__name__} is no column type; {_INSTEAD[declaration]}")
    raise ValueError(
        f"{_type_name(declaration)} is no column type; give one of Python's (int, float, str,"
        " bytes, bool, date, datetime, list[…], dict[str, …]), of pyarrow's, or a name such as"
        " 'decimal(12, 2)'"
    )


def _manifest_column(column: Any) -> ColumnFields:
    """A column of a list: as in a manifest. What is in it is checked with the topic."""
    if isinstance(column, Column):
        return column.model_dump()
    if isinstance(column, Mapping):
        return dict(column)
    if isinstance(column, pa.Field):
        return declared_columns(pa.schema([column]))[0]
    raise InvalidRequestError(
        f"a list has columns such as {{'name': 'id', 'type': 'int64'}}, not {_type_name(column)};"
        f" or {_TAKEN}"
    )


def _holds_values_of_python(data: Any) -> bool:
    """Whether Arrow's types of these values only fit the values at hand."""
    of_pandas = type(data).__module__.partition(".")[0] == "pandas"
    return of_pandas or isinstance(data, (Mapping, list, tuple))


def _type_name(value: Any) -> str:
    return value.__name__ if isinstance(value, type) else type(value).__name__
