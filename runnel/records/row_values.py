"""Rows of a typed topic from values: of Python, of JSON, of the cells of a CSV file. Pure.

A value fits a column only if it is there what it was before: whole numbers are not cut, decimals
not rounded, text is not taken for a number. Two things are as everywhere: a float becomes the
nearest one that the column holds, and a number in JSON or CSV the nearest float. Times need a
zone where the column has one, and must not have one where it has none.

What JSON has no type for is text: dates and times in ISO 8601, binary in base64. A decimal may be
a number or text. In CSV an empty cell is null (the empty text, where a text column is not
nullable); lists, structs and maps are JSON. Values that passed are never refused by Arrow.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import decimal
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from enum import Enum
from typing import Any, Final

import numpy as np

from schemas.columns.column_types import (
    ColumnType,
    Decimal,
    ListOf,
    MapOf,
    Scalar,
    Struct,
    Timestamp,
)
from schemas.columns.topic_schema import Column, names
from schemas.errors import InvalidRequestError
from schemas.objects.kinds import nearest

Convert = Callable[[Any], Any]
Row = tuple[Any, ...]
_DIGITS: Final = re.compile(r"[+-]?\d{1,40}", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)
_TOO_FINE: Final = re.compile(r"[.,]\d{6}\d*[1-9]")
_NOT_FINITE: Final = {"nan": math.nan, "infinity": math.inf, "-infinity": -math.inf}
_UNIT_US: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}
_MAX_SHOWN: Final = 60
#: Bytes of a value in a batch, where its type fixes them.
_WIDTHS: Final = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4,
    "float32": 4, "date32": 4, "int64": 8, "uint64": 8, "float64": 8,
}  # fmt: skip
_VALUE_OVERHEAD_BYTES: Final = 5


class Source(Enum):
    """Where values come from."""

    PYTHON = "python"
    JSON = "json"
    CSV = "csv"


@dataclass(frozen=True, slots=True)
class Misfit:
    """A value that does not fit. ``row`` counts from 0; None means the whole column."""

    row: int | None
    column: str | None
    reason: str

    def __str__(self) -> str:
        parts = [f"row {self.row}"] if self.row is not None else []
        parts += [f"column {self.column}"] if self.column is not None else []
        return f"{', '.join(parts)}: {self.reason}" if parts else self.reason


class MisfitError(InvalidRequestError):
    """Rows that do not fit the columns of their topic; ``misfits`` says which and why."""

    def __init__(self, message: str, misfits: Sequence[Misfit]) -> None:
        super().__init__(message)
        self.misfits = tuple(misfits)


class RowReader:
    """Makes rows of mappings (dicts, dataclass instances) with the columns' names as keys."""

    def __init__(self, columns: Sequence[Column], source: Source = Source.PYTHON) -> None:
        self._columns = [
            (c.name, _converter(c.parsed, source), c.nullable, _text_of_empty(c, source))
            for c in columns
        ]
        self._names = frozenset(c.name for c in columns)
        self._listed = names(columns)
        self._source = source
        sizers = [_sizer(c.parsed) for c in columns]
        self._fixed_bytes = sum(size for size in sizers if isinstance(size, int))
        self._sizers = [(i, size) for i, size in enumerate(sizers) if not isinstance(size, int)]

    def read(self, values: Any) -> Row:
        """The row of one mapping or dataclass. Raises MisfitError that names every column."""
        if not isinstance(values, dict):
            values = mapping_of(values)
        misfits: list[Misfit] = []
        row: list[Any] = []
        for name, convert, nullable, empty in self._columns:
            value = values.get(name)
            if self._source is Source.CSV and value == "":
                value = empty
            if value is None:
                if not nullable:
                    missing = "must not be null" if name in values else "is missing"
                    misfits.append(Misfit(None, name, missing))
                row.append(None)
                continue
            try:
                row.append(convert(value))
            except ValueError as error:
                misfits.append(Misfit(None, name, str(error)))
        if not values.keys() <= self._names:
            misfits.extend(self._unknown(values))
        if misfits:
            raise MisfitError("; ".join(map(str, misfits)), misfits)
        return tuple(row)

    def size(self, row: Row) -> int:
        """Bytes of a row, about as they are in a batch before compression."""
        total = self._fixed_bytes
        for index, size in self._sizers:
            total += size(row[index])
        return total

    def _unknown(self, values: Mapping[str, Any]) -> Iterable[Misfit]:
        for name in values:
            if name not in self._names:
                meant = nearest(str(name), self._names)
                hint = f"did you mean {meant}?" if meant else f"there are {self._listed}"
                yield Misfit(None, str(name), f"there is no such column; {hint}")


def mapping_of(values: Any) -> Mapping[str, Any]:
    """The fields of a dataclass instance, or a mapping as it is. Raises InvalidRequestError."""
    if isinstance(values, Mapping):
        return values
    if dataclasses.is_dataclass(values) and not isinstance(values, type):
        return {field.name: getattr(values, field.name) for field in dataclasses.fields(values)}
    raise InvalidRequestError(
        f"the value is {type(values).__name__}; a topic with a schema takes a dict or a dataclass"
        " instance with its columns"
    )


def parse_json_row(text: str | bytes) -> dict[str, Any]:
    """A JSON object whose numbers are exact. Raises MisfitError for anything else."""
    try:
        found = json.loads(text, parse_float=decimal.Decimal)
    except (ValueError, RecursionError) as error:
        raise MisfitError("", [Misfit(None, None, f"not JSON: {error}")]) from error
    if not isinstance(found, dict):
        raise MisfitError("", [Misfit(None, None, f"a row is a JSON object, not {shown(found)}")])
    return found


def shown(value: Any) -> str:
    """A value as an error shows it."""
    text = str(value) if isinstance(value, decimal.Decimal) else repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


def _text_of_empty(column: Column, source: Source) -> str | None:
    is_text = column.parsed == Scalar("string")
    return "" if source is Source.CSV and is_text and not column.nullable else None


def _misfit(value: Any, type_: ColumnType | str) -> ValueError:
    return ValueError(f"{shown(value)} is no {type_}")


# Converters


def _converter(type_: ColumnType, source: Source) -> Convert:
    """What makes a value of a column of any that fits. Raises ValueError with the reason."""
    nested = isinstance(type_, ListOf | Struct | MapOf)
    if nested and source is Source.CSV:
        return _from_json_cell(_converter(type_, Source.JSON), type_)
    match type_:
        case Scalar():
            return _scalar(type_, source)
        case Decimal():
            return _decimal(type_, source)
        case Timestamp():
            return _timestamp(type_, source)
        case ListOf(item=item):
            return _list(type_, _converter(item, source))
        case Struct(fields=fields):
            return _struct(type_, {name: _converter(inner, source) for name, inner in fields})
        case MapOf(value=value):
            return _map(type_, _converter(value, source))


def _scalar(type_: Scalar, source: Source) -> Convert:
    if type_.is_integer:
        return _integer(type_, source)
    if type_.is_float:
        return _float(type_, source)
    match type_.name:
        case "bool":
            return _bool_cell if source is Source.CSV else _bool
        case "string":
            return _string
        case "binary":
            return _binary if source is Source.PYTHON else _base64
        case _:
            return _date if source is Source.PYTHON else _date_text


def _integer(type_: Scalar, source: Source) -> Convert:
    bits = int(type_.name.lstrip("uint"))
    signed = not type_.name.startswith("u")
    low = -(1 << bits - 1) if signed else 0
    high = (1 << bits - signed) - 1

    def convert(value: Any) -> int:
        found: int = value if type(value) is int else whole(value)
        if low <= found <= high:
            return found
        raise ValueError(f"{shown(value)} is no {type_}; it holds {low} to {high}")

    def whole(value: Any) -> int:
        match value:
            case str() if source is Source.CSV and _DIGITS.fullmatch(value):
                return int(value)
            case decimal.Decimal() if source is Source.JSON and value.is_finite():
                # 1.0 is a whole number in JSON, and 1e400 must not become one.
                if value.adjusted() < bits and value == value.to_integral_value():
                    return int(value)
            case int() | np.integer() if not isinstance(value, bool):
                return int(value)
        raise _misfit(value, type_)

    return convert


def _float(type_: Scalar, source: Source) -> Convert:
    most = float(np.finfo(np.float32).max) if type_.name == "float32" else math.inf

    def convert(value: Any) -> float:
        found = value if type(value) is float else number(value)
        if math.isfinite(found) and abs(found) > most:
            raise ValueError(f"{shown(value)} is no {type_}; it is too large")
        return found

    def number(value: Any) -> float:
        match value:
            case str() if source is not Source.PYTHON:
                if (found := _NOT_FINITE.get(value.lower())) is not None:
                    return found
                if source is Source.CSV and _NUMBER.fullmatch(value):
                    return finite(float(value), value)
            case decimal.Decimal() if source is Source.JSON:
                return finite(float(value), value)
            case float() | np.floating():
                return float(value)
            case int() | np.integer() if not isinstance(value, bool):
                exact = int(value)
                if abs(exact) <= 1 << 1023 and int(float(exact)) == exact:
                    return float(exact)
                raise ValueError(f"{shown(value)} is not exact as {type_}")
        raise _misfit(value, type_)

    def finite(found: float, value: Any) -> float:
        if math.isinf(found):
            raise ValueError(f"{shown(value)} is no {type_}; it is too large")
        return found

    return convert


def _decimal(type_: Decimal, source: Source) -> Convert:
    def convert(value: Any) -> decimal.Decimal:
        match value:
            case decimal.Decimal():
                found = value
            case str() if source is not Source.PYTHON and _NUMBER.fullmatch(value):
                found = decimal.Decimal(value)
            case int() | np.integer() if not isinstance(value, bool):
                found = decimal.Decimal(int(value))
            case float():
                raise ValueError(f"{shown(value)} is a float; give decimal.Decimal('{value}')")
            case _:
                raise _misfit(value, type_)
        sign, digits, exponent = found.as_tuple()
        if not isinstance(exponent, int):
            raise _misfit(value, type_)
        return decimal.Decimal((sign, scaled(digits, exponent + type_.scale, value), -type_.scale))

    def scaled(digits: tuple[int, ...], shift: int, value: Any) -> tuple[int, ...]:
        """The digits once the last of them is the last behind the point."""
        if shift < 0:
            if any(digits[shift:]) or (-shift > len(digits) and any(digits)):
                raise ValueError(
                    f"{shown(value)} is no {type_}; it has more than {type_.scale} digits behind"
                    " the point"
                )
            digits = digits[:shift]
        elif any(digits):
            # Bounded before it is written out: 1e999999 is a short text.
            digits += (0,) * min(shift, type_.precision + 1)
        significant = next((i for i, digit in enumerate(digits) if digit), len(digits))
        if len(digits) - significant > type_.precision:
            before = type_.precision - type_.scale
            raise ValueError(
                f"{shown(value)} is no {type_}; it has more than {before} digits before the point"
            )
        return digits[significant:] or (0,)

    return convert


def _timestamp(type_: Timestamp, source: Source) -> Convert:
    unit_us = _UNIT_US[type_.unit]

    def convert(value: Any) -> datetime:
        if isinstance(value, str) and source is not Source.PYTHON:
            found = parsed(value)
        elif isinstance(value, datetime):
            found = value
            if getattr(value, "nanosecond", 0):
                raise ValueError(f"{shown(value)} is no {type_}; it has nanoseconds")
        else:
            raise _misfit(value, type_)
        if type_.zone is not None and found.tzinfo is None:
            raise ValueError(f"{shown(value)} has no time zone, and the column has one")
        if type_.zone is None and found.tzinfo is not None:
            raise ValueError(f"{shown(value)} has a time zone, and the column has none")
        if found.microsecond % unit_us:
            raise ValueError(f"{shown(value)} is no {type_}; it is more exact than that")
        return found

    def parsed(text: str) -> datetime:
        if _TOO_FINE.search(text):
            raise ValueError(f"{shown(text)} is no {type_}; it is more exact than that")
        try:
            return datetime.fromisoformat(text)
        except ValueError:
            raise ValueError(
                f"{shown(text)} is no {type_}; write it as 2026-01-31T12:00:00"
                f"{'Z' if type_.zone else ''}"
            ) from None

    return convert


def _list(type_: ListOf, convert_item: Convert) -> Convert:
    def convert(value: Any) -> list[Any]:
        if isinstance(value, np.ndarray):
            value = value.tolist()
        if not isinstance(value, list | tuple):
            raise _misfit(value, type_)
        return [None if item is None else convert_item(item) for item in value]

    return convert


def _struct(type_: Struct, converters: Mapping[str, Convert]) -> Convert:
    def convert(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            try:
                value = mapping_of(value)
            except InvalidRequestError:
                raise _misfit(value, type_) from None
        if unknown := [name for name in value if name not in converters]:
            raise ValueError(f"{shown(unknown[0])} is no field of {type_}")
        return {
            name: None if (part := value.get(name)) is None else convert_part(part)
            for name, convert_part in converters.items()
        }

    return convert


def _map(type_: MapOf, convert_value: Convert) -> Convert:
    def convert(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise _misfit(value, type_)
        return {
            _string(name): None if part is None else convert_value(part)
            for name, part in value.items()
        }

    return convert


def _from_json_cell(convert: Convert, type_: ColumnType) -> Convert:
    def from_cell(value: Any) -> Any:
        try:
            found = json.loads(value, parse_float=decimal.Decimal)
        except (ValueError, RecursionError):
            raise ValueError(f"{shown(value)} is not JSON; a {type_} is") from None
        return convert(found)

    return from_cell


def _bool(value: Any) -> bool:
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise _misfit(value, "bool")


def _bool_cell(value: Any) -> bool:
    found = {"true": True, "false": False}.get(str(value).lower())
    if found is None:
        raise ValueError(f"{shown(value)} is no bool; write true or false")
    return found


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise _misfit(value, "string")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{shown(value)} holds half of a character") from None
    return value


def _binary(value: Any) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise ValueError(f"{shown(value)} is no binary; give bytes")


def _base64(value: Any) -> bytes:
    try:
        if isinstance(value, str):
            return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        pass
    raise ValueError(f"{shown(value)} is no binary; write it in base64")


def _date(value: Any) -> date:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    raise _misfit(value, "date32")


def _date_text(value: Any) -> date:
    try:
        return date.fromisoformat(value)
    except (ValueError, TypeError):
        raise ValueError(f"{shown(value)} is no date32; write it as 2026-01-31") from None


# Sizes


def _sizer(type_: ColumnType) -> int | Callable[[Any], int]:
    """Bytes of a value: a number where its type fixes them, else what counts them."""
    match type_:
        case Scalar(name="string"):
            return _text_bytes
        case Scalar(name="binary"):
            return _bytes_bytes
        case Scalar(name=name):
            return _WIDTHS[name]
        case Decimal():
            return 16
        case Timestamp():
            return 8
        case ListOf(item=item):
            return _list_sizer(_sizer(item))
        case Struct(fields=fields):
            return _struct_sizer({name: _sizer(inner) for name, inner in fields})
        case MapOf(value=value):
            return _map_sizer(_sizer(value))


def _size_of(size: int | Callable[[Any], int], value: Any) -> int:
    return size if isinstance(size, int) else size(value)


def _text_bytes(value: str | None) -> int:
    if value is None:
        return _VALUE_OVERHEAD_BYTES
    return _VALUE_OVERHEAD_BYTES + (len(value) if value.isascii() else len(value.encode()))


def _bytes_bytes(value: bytes | None) -> int:
    return _VALUE_OVERHEAD_BYTES + (len(value) if value is not None else 0)


def _list_sizer(item: int | Callable[[Any], int]) -> Callable[[Any], int]:
    def size(value: Sequence[Any] | None) -> int:
        return _VALUE_OVERHEAD_BYTES + sum(_size_of(item, part) for part in value or ())

    return size


def _struct_sizer(fields: Mapping[str, int | Callable[[Any], int]]) -> Callable[[Any], int]:
    def size(value: Mapping[str, Any] | None) -> int:
        return 1 + sum(_size_of(part, (value or {}).get(name)) for name, part in fields.items())

    return size


def _map_sizer(value_size: int | Callable[[Any], int]) -> Callable[[Any], int]:
    def size(value: Mapping[str, Any] | None) -> int:
        return _VALUE_OVERHEAD_BYTES + sum(
            # One for the pair, as of any struct.
            1 + _text_bytes(name) + _size_of(value_size, part)
            for name, part in (value or {}).items()
        )

    return size
