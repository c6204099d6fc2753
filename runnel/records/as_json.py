"""Records as JSON: the form that ``runnel consume`` prints and ``runnel produce`` takes. Pure."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa

from runnel.records.python_values import rows_of, utc_text
from schemas.columns.topic_schema import READER_COLUMNS
from schemas.wire.payload import TRANSACTION_ID


def typed_json(
    topic: str, batch: pa.RecordBatch, *, with_ids: bool = False
) -> Iterator[dict[str, Any]]:
    """Typed records as JSON: their place, and their columns under ``value``.

    ``with_ids``: the last column holds transaction ids.
    """
    ids: list[int | None] = [None] * batch.num_rows
    if with_ids:
        width = batch.num_columns - 1
        ids, batch = batch.column(width).to_pylist(), batch.select(range(width))
    for place, row, transaction_id in zip(places_of(batch), rows_json(batch), ids, strict=True):
        yield {
            "topic": topic,
            "partition": place["partition"],
            "offset": place["offset"],
            "timestamp": utc_text(place["timestamp"]),
            **({} if transaction_id is None else {"transactionId": transaction_id}),
            "value": row,
        }


def rows_json(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The columns of typed records in JSON, in the form that ``runnel produce`` takes.

    Decimals are text, for their digits; so are dates and times, and binary in base64.
    """
    rows = batch.select(range(len(READER_COLUMNS), batch.num_columns))
    return [{name: value_json(value) for name, value in row.items()} for row in rows_of(rows)]


def record_json(topic: str, row: dict[str, Any]) -> dict[str, Any]:
    """One record as JSON. Bytes that are not UTF-8 come in base64, under ``valueBase64``.

    Headers stay a list: their order counts, and a key may stand there twice.
    """
    found: dict[str, Any] = {
        "topic": topic,
        "partition": row["partition"],
        "offset": row["offset"],
        "timestamp": utc_text(row["timestamp"]),
    }
    if row.get(TRANSACTION_ID.name) is not None:
        found["transactionId"] = row[TRANSACTION_ID.name]
    for name in ("key", "value"):
        found |= _bytes_json(name, row[name])
    if row["headers"]:
        found["headers"] = [
            {"key": h["key"], **_bytes_json("value", h["value"])} for h in row["headers"]
        ]
    return found


def value_json(value: Any) -> Any:
    """One value of a column for JSON; a value that JSON cannot express becomes text."""
    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case Decimal():
            return format(value, "f")
        case date():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode()
        case list():
            return [value_json(item) for item in value]
        case dict():
            return {name: value_json(part) for name, part in value.items()}
        case _:
            return value


def compact_json(data: Any) -> str:
    """JSON on one line, without spaces."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def places_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Partition, offset and timestamp of typed records."""
    return rows_of(batch.select(READER_COLUMNS))


def _bytes_json(name: str, data: bytes | None) -> dict[str, str | None]:
    try:
        return {name: data.decode() if data is not None else None}
    except UnicodeDecodeError:
        return {f"{name}Base64": base64.b64encode(data or b"").decode()}
