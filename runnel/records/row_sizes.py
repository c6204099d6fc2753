"""How many bytes a value takes in a batch before compression, by its column's type. Pure.

`runnel.records.row_values` adds them up for a row; the accumulator fills batches by them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from schemas.columns.column_types import (
    ColumnType,
    Decimal,
    ListOf,
    MapOf,
    Scalar,
    Struct,
    Timestamp,
)

#: Bytes of a value in a batch, for types of fixed width.
_WIDTHS: Final = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4,
    "float32": 4, "date32": 4, "int64": 8, "uint64": 8, "float64": 8,
}  # fmt: skip
_VALUE_OVERHEAD_BYTES: Final = 5


def sizer_of(type_: ColumnType) -> int | Callable[[Any], int]:
    """Bytes of a value: a number for types of fixed width, else a function that counts them."""
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
            return _list_sizer(sizer_of(item))
        case Struct(fields=fields):
            return _struct_sizer({name: sizer_of(inner) for name, inner in fields})
        case MapOf(value=value):
            return _map_sizer(sizer_of(value))


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
