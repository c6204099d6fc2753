"""Records as text: the outputs of ``runnel consume`` and ``runnel partition dump``."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa

from runnel.cli.render import printable
from runnel.records.as_json import compact_json, places_of, record_json, rows_json, typed_json
from runnel.records.python_values import rows_of, utc_text
from schemas.columns.topic_schema import READER_COLUMNS
from schemas.errors import InvalidRequestError

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
                    for row in rows_of(batch)
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
        for row in rows_of(batch):
            when = _when(row["timestamp"])
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
        for row, values in zip(places_of(batch), rows_json(batch), strict=True):
            when = _when(row["timestamp"])
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


def _when(time: datetime | str) -> str:
    """A time for a line of a table."""
    return utc_text(time).removesuffix("+00:00").replace("T", " ")


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
    return printable(data.decode(errors="backslashreplace"))
