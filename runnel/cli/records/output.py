"""Records as text: the outputs of ``runnel consume`` and ``runnel partition dump``."""

from __future__ import annotations

import base64
import json
import math
import sys
from collections.abc import Iterator
from datetime import UTC, date
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa

from schemas.columns.topic_schema import READER_COLUMNS
from schemas.errors import InvalidRequestError
from schemas.wire.payload import TRANSACTION_ID

#: Of columns in a table, by their Arrow types.
_WIDTHS: Final = {"bool": 5, "int8": 4, "int16": 6, "uint8": 3, "uint16": 5, "date32[day]": 10}
_USUAL_WIDTH: Final = 16


class RecordOutput(StrEnum):
    VALUE = "value"
    JSON = "json"
    TABLE = "table"


class RecordWriter:
    """Prints batches; flushes after each, so that a pipe sees records as they come."""

    def __init__(
        self,
        output: RecordOutput,
        topic: str,
        key_separator: bytes | None,
        *,
        typed: bool = False,
        with_ids: bool = False,
    ) -> None:
        if typed and key_separator is not None:
            raise InvalidRequestError("--key-separator: records of a typed topic are JSON objects")
        self._typed = typed
        self._with_ids = with_ids
        self._output = output
        self._topic = topic
        self._separator = key_separator
        self._header_printed = False

    def __call__(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows == 0:
            return
        match self._output:
            case RecordOutput.VALUE if self._typed:
                data = "".join(f"{compact_json(row)}\n" for row in rows_json(batch)).encode()
            case RecordOutput.JSON if self._typed:
                data = "".join(
                    json.dumps(record, ensure_ascii=False) + "\n"
                    for record in typed_json(self._topic, batch, with_ids=self._with_ids)
                ).encode()
            case RecordOutput.TABLE if self._typed:
                data = self._typed_table(batch).encode()
            case RecordOutput.VALUE:
                data = self._values(batch)
            case RecordOutput.JSON:
                data = "".join(
                    json.dumps(record_json(self._topic, row), ensure_ascii=False) + "\n"
                    for row in batch.to_pylist()
                ).encode()
            case RecordOutput.TABLE:
                data = self._table(batch).encode()
        print_bytes(data)

    def _values(self, batch: pa.RecordBatch) -> bytes:
        values = batch.column("value").to_pylist()
        if self._separator is None:
            return b"".join((value or b"") + b"\n" for value in values)
        keys = batch.column("key").to_pylist()
        separator = self._separator
        return b"".join(
            (key or b"") + separator + (value or b"") + b"\n"
            for key, value in zip(keys, values, strict=True)
        )

    def _table(self, batch: pa.RecordBatch) -> str:
        lines = []
        if not self._header_printed:
            lines.append(f"{'PARTITION':>9} {'OFFSET':>10}  {'TIMESTAMP':26}  {'KEY':20}  VALUE")
            self._header_printed = True
        for row in batch.to_pylist():
            when = row["timestamp"].astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
            key, value = shown(row["key"]), shown(row["value"])
            lines.append(f"{row['partition']:>9} {row['offset']:>10}  {when:26}  {key:20}  {value}")
        return "\n".join(lines) + "\n"

    def _typed_table(self, batch: pa.RecordBatch) -> str:
        """Widths follow the columns' names and types: they are the same for every batch."""
        fields = list(batch.schema)[len(READER_COLUMNS) :]
        widths = [max(len(f.name), _WIDTHS.get(str(f.type), _USUAL_WIDTH)) for f in fields]
        place = "{:>9} {:>10}  {:26}  "
        lines = []
        if not self._header_printed:
            columns = "  ".join(f"{f.name:{w}}" for f, w in zip(fields, widths, strict=True))
            lines.append(place.format("PARTITION", "OFFSET", "TIMESTAMP") + columns.rstrip())
            self._header_printed = True
        for row, values in zip(_places(batch), rows_json(batch), strict=True):
            when = row["timestamp"].astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
            cells = (
                f"{_cell(value):{width}}"
                for value, width in zip(values.values(), widths, strict=True)
            )
            line = place.format(row["partition"], row["offset"], when) + "  ".join(cells)
            lines.append(line.rstrip())
        return "\n".join(lines) + "\n"


def print_bytes(data: bytes) -> None:
    """Write to standard output at once."""
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _places(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = batch.select(READER_COLUMNS).to_pylist()
    return found


def rows_json(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The columns of typed records in JSON, in the form that ``runnel produce`` takes.

    Decimals are text, for their digits; so are dates and times, and binary in base64.
    """
    rows = batch.select(range(len(READER_COLUMNS), batch.num_columns))
    return [
        {name: value_json(value) for name, value in row.items()}
        for row in rows.to_pylist(maps_as_pydicts="strict")
    ]


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
    for place, row, transaction_id in zip(_places(batch), rows_json(batch), ids, strict=True):
        yield {
            "topic": topic,
            "partition": place["partition"],
            "offset": place["offset"],
            "timestamp": place["timestamp"].astimezone(UTC).isoformat(timespec="microseconds"),
            **({} if transaction_id is None else {"transactionId": transaction_id}),
            "value": row,
        }


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


def _cell(value: Any) -> str:
    """A value for a line of a table."""
    if value is None:
        return "-"
    text = value if isinstance(value, str) else compact_json(value)
    return shown(text.encode())


def shown(data: bytes | None) -> str:
    """Bytes for a line of a table: nothing in them moves the cursor or begins a new line."""
    if data is None:
        return "-"
    text = data.decode(errors="backslashreplace")
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def record_json(topic: str, row: dict[str, Any]) -> dict[str, Any]:
    """One record as JSON. Bytes that are not UTF-8 come in base64, under ``valueBase64``.

    Headers stay a list: their order counts, and a key may stand there twice.
    """
    found: dict[str, Any] = {
        "topic": topic,
        "partition": row["partition"],
        "offset": row["offset"],
        "timestamp": row["timestamp"].astimezone(UTC).isoformat(timespec="microseconds"),
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


def _bytes_json(name: str, data: bytes | None) -> dict[str, str | None]:
    try:
        return {name: data.decode() if data is not None else None}
    except UnicodeDecodeError:
        return {f"{name}Base64": base64.b64encode(data or b"").decode()}
