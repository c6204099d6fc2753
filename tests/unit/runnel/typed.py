"""Strategies for values of columns, as Python has them."""

from __future__ import annotations

import decimal
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from hypothesis import strategies as st

from schemas.columns.column_types import (
    ColumnType,
    Decimal,
    ListOf,
    MapOf,
    Scalar,
    Struct,
    Timestamp,
)
from schemas.columns.topic_schema import Column

texts = st.text(max_size=6)
_FLOAT32 = st.floats(width=32, allow_nan=False)
_SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "float32": _FLOAT32,
    "float64": st.floats(allow_nan=False),
    "string": texts,
    "binary": st.binary(max_size=6),
    "date32": st.dates(),
}
_TICK = {"s": 1_000_000, "ms": 1_000, "us": 1}


def values(type_: ColumnType) -> st.SearchStrategy[Any]:
    """Values that fit, as they are read back; None is not among them."""
    match type_:
        case Scalar(name=name) if type_.is_integer:
            bits = int(name.lstrip("uint"))
            if name.startswith("u"):
                return st.integers(0, 2**bits - 1)
            return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        case Scalar(name=name):
            return _SCALARS[name]
        case Decimal(precision=precision, scale=scale):
            digits = st.integers(-(10**precision) + 1, 10**precision - 1)
            return digits.map(lambda n: decimal.Decimal(n).scaleb(-scale, _EXACT))
        case Timestamp(unit=unit, zone=zone):
            return st.integers(-(2**50), 2**50).map(lambda n: _time(n, _TICK[unit], zone))
        case ListOf(item=item):
            return st.lists(st.none() | values(item), max_size=3)
        case Struct(fields=fields):
            return st.fixed_dictionaries({n: st.none() | values(inner) for n, inner in fields})
        case MapOf(value=value):
            return st.dictionaries(texts, st.none() | values(value), max_size=3)


_EXACT = decimal.Context(prec=60)


def _time(number: int, tick_us: int, zone: str | None) -> datetime:
    found = datetime(1970, 1, 1) + timedelta(microseconds=number // tick_us * tick_us)  # noqa: DTZ001
    if zone is None:
        return found
    at = found.replace(tzinfo=UTC)
    return at if zone == "UTC" else at.astimezone(timezone(timedelta(hours=2)))


def rows(columns: tuple[Column, ...]) -> st.SearchStrategy[dict[str, Any]]:
    """Rows of a schema, with None where a column may be null."""
    return st.fixed_dictionaries(
        {c.name: st.none() | values(c.parsed) if c.nullable else values(c.parsed) for c in columns}
    )
