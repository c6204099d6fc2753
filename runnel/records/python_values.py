"""Values of columns as Python's own, for people to look at: also those that Python cannot express.

Another writer may send a time after the year 9999, or a map with a key twice. One such value must
not keep anybody from seeing the records around it, so it becomes text, or a list of pairs.
"""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from typing import Any, cast

import numpy as np
import pyarrow as pa


def rows_of(batch: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    """The rows as dicts, as Arrow's ``to_pylist`` makes them; what that cannot make is as
    `values_of` says."""
    columns = [values_of(column) for column in batch.columns]
    names = batch.schema.names
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def values_of(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of a column. A time that Python cannot express is text in ISO 8601, in UTC if it
    is a point in time; a map with a key twice is a list of pairs."""
    try:
        found: list[Any] = column.to_pylist(maps_as_pydicts="strict")
    except (ValueError, OverflowError, KeyError):
        return [_value(scalar) for scalar in column]
    return found


def utc_text(time: datetime | str) -> str:
    """A time as `values_of` gives it, in ISO 8601 with microseconds."""
    if isinstance(time, str):
        return time
    # Within a day of the years 1 or 9999, a time in a zone may have none in UTC.
    with contextlib.suppress(OverflowError):
        time = time.astimezone(UTC)
    return time.isoformat(timespec="microseconds")


def _value(scalar: pa.Scalar) -> Any:
    if not scalar.is_valid:
        return None
    match scalar:
        case pa.ListScalar() | pa.LargeListScalar() | pa.FixedSizeListScalar():
            if not isinstance(scalar, pa.MapScalar):
                return [_value(item) for item in scalar.values]
            pairs = [(_value(pair["key"]), _value(pair["value"])) for pair in scalar.values]
            found = dict(pairs)
            return found if len(found) == len(pairs) else [list(pair) for pair in pairs]
        case pa.StructScalar():
            return {name: _value(part) for name, part in scalar.items()}
        case pa.TimestampScalar() | pa.Date32Scalar():
            return _time(scalar)
        case _:
            return scalar.as_py()


def _time(scalar: pa.TimestampScalar | pa.Date32Scalar) -> Any:
    with contextlib.suppress(ValueError, OverflowError):
        return scalar.as_py()
    if isinstance(scalar, pa.Date32Scalar):
        return str(np.datetime64(scalar.value, "D"))
    return far_time(scalar.value, scalar.type.unit, utc=scalar.type.tz is not None)


def far_time(value: int, unit: str = "us", *, utc: bool = True) -> str:
    """A time in ISO 8601 that may be in any year; ``value`` counts units since 1970."""
    time = np.datetime64(value, cast(Any, unit))
    # One value stands for "no time" in NumPy; in Arrow it is a time as others are.
    return str(value) if np.isnat(time) else f"{time}{'+00:00' if utc else ''}"
