"""The types that a column of a topic may have: their text, and what the text means. Pure.

A type is written as in Arrow, and kept in one canonical spelling::

    bool  int8 int16 int32 int64  uint8 uint16 uint32 uint64  float32 float64
    string  binary  date32
    decimal128(12, 2)               also decimal(12, 2)
    timestamp(us, UTC)              s, ms, us; with or without a zone; also timestamp[us, tz=UTC]
    list<int64>                     also list<item: int64>
    struct<city: string, zip: int32>
    map<string, float64>            keys are strings

Values inside lists, structs and maps may always be null. Types that Python's own types or Spark
cannot hold are left out on purpose: nanoseconds, times of day, durations, half floats.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

MAX_DEPTH: Final = 16
MAX_PRECISION: Final = 38
UNITS: Final = ("s", "ms", "us")
SCALARS: Final = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float32", "float64", "string", "binary", "date32",
)  # fmt: skip
#: Arrow's other names of the same types.
ALIASES: Final = {
    "boolean": "bool",
    "utf8": "string",
    "float": "float32",
    "double": "float64",
    "date32[day]": "date32",
}
#: Other systems' names of types, and types that do not exist here, with what to write instead.
_INSTEAD: Final = {
    "tinyint": "int8", "byte": "int8", "smallint": "int16", "short": "int16",
    "int": "int32", "integer": "int32", "bigint": "int64", "long": "int64",
    "real": "float32", "float16": "float32", "halffloat": "float32", "number": "float64",
    "str": "string", "text": "string", "varchar": "string", "char": "string", "json": "string",
    "uuid": "string", "large_string": "string", "large_utf8": "string", "string_view": "string",
    "bytes": "binary", "blob": "binary", "large_binary": "binary", "varbinary": "binary",
    "date": "date32", "date64": "date32", "datetime": "timestamp(us, UTC)",
    "timestamp": "timestamp(us, UTC)", "timestamp_ntz": "timestamp(us)",
    "decimal": "decimal(12, 2)", "decimal128": "decimal128(12, 2)",
    "decimal256": "decimal128(38, 2)", "numeric": "decimal(12, 2)",
    "time32": "int64 and count", "time64": "int64 and count", "time": "int64 and count",
    "duration": "int64 and count", "array": "list<string>", "list": "list<string>",
    "struct": "struct<a: string>", "map": "map<string, string>",
}  # fmt: skip
_ZONE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_+\-/]{0,63}|[+-]\d\d:\d\d", re.ASCII)
_FIELD_NAME: Final = re.compile(r"[^\W\d]\w*")
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)
_PAIRS: Final = {"<": ">", "(": ")", "[": "]"}


@dataclass(frozen=True, slots=True)
class Scalar:
    """One of `SCALARS`."""

    name: str

    def __str__(self) -> str:
        return self.name

    @property
    def is_integer(self) -> bool:
        return self.name.lstrip("u").startswith("int")

    @property
    def is_float(self) -> bool:
        return self.name.startswith("float")


@dataclass(frozen=True, slots=True)
class Decimal:
    """Exact numbers of at most ``precision`` digits, ``scale`` of them after the decimal point."""

    precision: int
    scale: int

    def __str__(self) -> str:
        return f"decimal128({self.precision}, {self.scale})"


@dataclass(frozen=True, slots=True)
class Timestamp:
    """With a ``zone``, points in time, shown in that zone; without one, wall-clock times."""

    unit: str
    zone: str | None

    def __str__(self) -> str:
        return f"timestamp({self.unit}, {self.zone})" if self.zone else f"timestamp({self.unit})"


@dataclass(frozen=True, slots=True)
class ListOf:
    item: ColumnType

    def __str__(self) -> str:
        return f"list<{self.item}>"


@dataclass(frozen=True, slots=True)
class Struct:
    fields: tuple[tuple[str, ColumnType], ...]

    def __str__(self) -> str:
        return f"struct<{', '.join(f'{name}: {type_}' for name, type_ in self.fields)}>"


@dataclass(frozen=True, slots=True)
class MapOf:
    """Keys are strings."""

    value: ColumnType

    def __str__(self) -> str:
        return f"map<string, {self.value}>"


ColumnType = Scalar | Decimal | Timestamp | ListOf | Struct | MapOf


@lru_cache(maxsize=4096)
def parse_type(text: str) -> ColumnType:
    """The type that a text names. Raises ValueError that says what to write."""
    return _parse(text.strip(), MAX_DEPTH)


def zones_of(type_: ColumnType) -> Iterable[str]:
    """The names of all time zones in a type."""
    match type_:
        case Timestamp(zone=str() as zone):
            yield zone
        case ListOf(item=inner) | MapOf(value=inner):
            yield from zones_of(inner)
        case Struct(fields=fields):
            for _, inner in fields:
                yield from zones_of(inner)
        case _:
            pass


def _parse(text: str, depth: int) -> ColumnType:
    if depth == 0:
        raise ValueError(f"types are nested at most {MAX_DEPTH} deep")
    lower = text.lower()
    name = ALIASES.get(lower, lower)
    if name in SCALARS:
        return Scalar(name)
    opening = next((at for at, sign in enumerate(text) if sign in _PAIRS), None)
    if opening is None:
        raise ValueError(_unknown(text))
    word, sign, inside = lower[:opening].strip(), text[opening], text[opening + 1 : -1]
    if text[-1] != _PAIRS[sign]:
        raise ValueError(
            f"{text!r} has no closing {_PAIRS[sign]}; within {{…}} a comma ends a value, so put the"
            " type in quotes there"
        )
    match word, sign:
        case (("decimal" | "decimal128"), "("):
            return _decimal(text, inside)
        case "timestamp", ("(" | "["):
            return _timestamp(text, inside)
        case "list", "<":
            return ListOf(_parse(_unnamed(inside, "item", "element"), depth - 1))
        case "map", "<":
            return _map(text, inside, depth)
        case "struct", "<":
            return _struct(text, inside, depth)
        case _:
            raise ValueError(_unknown(text))


def _decimal(text: str, inside: str) -> Decimal:
    parts = [part.strip() for part in inside.split(",")]
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() for part in parts):
        raise ValueError(f"{text!r}: give precision and scale: decimal(12, 2)")
    precision, scale = (int(part[:4]) for part in parts)
    if not 1 <= precision <= MAX_PRECISION:
        raise ValueError(f"{text!r}: the precision is 1 to {MAX_PRECISION} digits")
    if scale > precision:
        raise ValueError(f"{text!r}: the scale {scale} is above the precision {precision}")
    return Decimal(precision, scale)


def _timestamp(text: str, inside: str) -> Timestamp:
    unit, _, zone = (part.strip() for part in inside.partition(","))
    if unit == "ns":
        raise ValueError(
            f"{text!r}: neither Python's datetime nor Spark holds nanoseconds; write"
            " timestamp(us, UTC)"
        )
    if unit not in UNITS:
        raise ValueError(f"{text!r}: the unit is one of {', '.join(UNITS)}: timestamp(us, UTC)")
    zone = zone.removeprefix("tz=").strip()
    if zone and not _ZONE.fullmatch(zone):
        raise ValueError(
            f"{text!r}: {zone!r} is not a time zone; write for example timestamp(us, UTC)"
        )
    return Timestamp(unit, zone or None)


def _map(text: str, inside: str, depth: int) -> MapOf:
    parts = _split(inside)
    if len(parts) != 2:
        raise ValueError(f"{text!r}: give the types of keys and values: map<string, int64>")
    key = _parse(_unnamed(parts[0], "key"), depth - 1)
    if key != Scalar("string"):
        raise ValueError(f"{text!r}: keys of maps are strings, not {key}")
    return MapOf(_parse(_unnamed(parts[1], "value"), depth - 1))


def _struct(text: str, inside: str, depth: int) -> Struct:
    fields: list[tuple[str, ColumnType]] = []
    for part in _split(inside):
        name, colon, rest = (piece.strip() for piece in part.partition(":"))
        if not colon or not _FIELD_NAME.fullmatch(name):
            raise ValueError(f"{text!r}: {part.strip()!r} is not a field; write name: type")
        if name.lower() in {known.lower() for known, _ in fields}:
            raise ValueError(f"{text!r}: the field {name} appears twice")
        fields.append((name, _parse(rest, depth - 1)))
    return Struct(tuple(fields))


def _unnamed(text: str, *names: str) -> str:
    """The text without the name that Arrow prints for the values inside lists and maps."""
    name, colon, rest = text.partition(":")
    return rest.strip() if colon and name.strip() in names else text.strip()


def _split(text: str) -> list[str]:
    """Split at the commas that are not within brackets."""
    parts, depth, start = [], 0, 0
    for at, sign in enumerate(text):
        if sign in _PAIRS:
            depth += 1
        elif sign in _PAIRS.values():
            depth -= 1
        elif sign == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]


def _unknown(text: str) -> str:
    if text.lower().endswith(" not null"):
        return f"{text!r}: values inside a type may always be null; leave NOT NULL out"
    word = _WORD.match(text)
    instead = _INSTEAD.get(word[0].lower()) if word else None
    known = f"{', '.join(SCALARS)}, decimal(…), timestamp(…), list<…>, struct<…>, map<string, …>"
    hint = f"write {instead}" if instead else f"the types are {known}"
    return f"{text!r} is not a column type; {hint}"
