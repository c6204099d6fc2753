"""Converters: from a value of Python, of JSON or of a CSV cell to a column's value. Pure.

`converter_of` gives the converter of a column type. A converter refuses with a ValueError that
shows the value and says why. The rules, and rows as a whole: `runnel.records.row_values`.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import decimal
import json
import math
import re
from collections.abc import Callable, Mapping
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
from schemas.errors import InvalidRequestError

Convert = Callable[[Any], Any]
_DIGITS: Final = re.compile(r"[+-]?\d{1,40}", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)
_TOO_FINE: Final = re.compile(r"[.,]\d{6}\d*[1-9]")
_NOT_FINITE: Final = {"nan": math.nan, "infinity": math.inf, "-infinity": -math.inf}
_UNIT_US: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}
_MAX_SHOWN: Final = 60


class Source(Enum):
    """Where values come from."""

    PYTHON = "python"
    JSON = "json"
    CSV = "csv"


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


def shown(value: Any) -> str:
    """A value as an error shows it."""
    text = str(value) if isinstance(value, decimal.Decimal) else repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


def _misfit(value: Any, type_: ColumnType | str) -> ValueError:
    return ValueError(f"{shown(value)} is no {type_}")


def converter_of(type_: ColumnType, source: Source) -> Convert:
    """The converter of a column type. It raises ValueError with the reason for a value that does
    not fit."""
    nested = isinstance(type_, ListOf | Struct | MapOf)
    if nested and source is Source.CSV:
        return _from_json_cell(converter_of(type_, Source.JSON), type_)
    match type_:
        case Scalar():
            return _scalar(type_, source)
        case Decimal():
            return _decimal(type_, source)
        case Timestamp():
            return _timestamp(type_, source)
        case ListOf(item=item):
            return _list(type_, converter_of(item, source))
        case Struct(fields=fields):
            return _struct(type_, {name: converter_of(inner, source) for name, inner in fields})
        case MapOf(value=value):
            return _map(type_, converter_of(value, source))


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
        """The digits, shifted so that the last one is the last after the decimal point."""
        if shift < 0:
            if any(digits[shift:]) or (-shift > len(digits) and any(digits)):
                raise ValueError(
                    f"{shown(value)} is no {type_}; it has more than {type_.scale} digits behind"
                    " the point"
                )
            digits = digits[:shift]
        elif any(digits):
            # Check the bound before writing it out: 1e999999 is a short text.
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
