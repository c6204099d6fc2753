"""Inputs of ``runnel produce``: lines, NDJSON, CSV, Parquet and Arrow, as columnar chunks.

Lines and NDJSON lines become values unchanged. Rows of CSV, Parquet and Arrow files become JSON
objects, except that a Parquet or Arrow file with a ``value`` column holds records already (columns
``key``, ``value``, ``timestamp``, ``headers``). A key is the text before the key separator, or the
key field of the row; a transaction id is a field of the row. Every problem names the file and the
line or row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, time
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from runnel.records.python_values import values_of
from runnel.records.row_values import not_json
from runnel.utf8 import as_utf8
from schemas.errors import InvalidRequestError, NotFoundError, RunnelError
from schemas.wire.batch import MAX_TRANSACTION_ID

CHUNK_LINES = 10_000
CSV_BLOCK_BYTES = 4 << 20
RECORD_COLUMNS = ("key", "value", "timestamp", "headers")
SUFFIXES = {
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".csv": "csv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}


@dataclass(frozen=True, slots=True)
class KeyRule:
    """Where keys come from (a separator in the line, a field of the row, or nowhere), and the field
    with transaction ids, if any.
    """

    separator: bytes | None = None
    field: str | None = None
    id_field: str | None = None


@dataclass(frozen=True, slots=True)
class InputChunk:
    """Records as a table with ``key`` and ``value``, and how much of the input they took.

    ``transaction_ids`` has one for each record, or is None.
    """

    table: pa.Table
    input_bytes: int
    transaction_ids: list[int] | None = None


class Ids:
    """The transaction ids of an input, which must not fall."""

    def __init__(self, field: str) -> None:
        self._field = field
        self._last = 0

    def take(self, value: Any, place: str) -> int:
        """The id of the next record. Raises InvalidRequestError that names the ``place``."""
        if not isinstance(value, int) or isinstance(value, bool):
            problem = f"is {value!r}, and a transaction id is a whole number"
        elif not 0 <= value <= MAX_TRANSACTION_ID:
            problem = f"is {value}; transaction ids go from 0 to {MAX_TRANSACTION_ID}"
        elif value < self._last:
            problem = f"is {value} after {self._last}: transaction ids never fall, sort by them"
        else:
            self._last = value
            return value
        raise InvalidRequestError(f"{place}: field {self._field!r} {problem}")

    def take_all(self, values: Iterable[Any], source: str, before: int) -> list[int]:
        """The ids of rows, of which ``before`` came before."""
        return [
            self.take(value, f"{source}: row {row}") for row, value in enumerate(values, before)
        ]


def kind_of(path: Path) -> str:
    """A file's kind by its suffix. Raises NotFoundError, InvalidRequestError for a directory."""
    if not path.exists():
        raise NotFoundError(f"{path}: no such file")
    if path.is_dir():
        raise InvalidRequestError(f"{path}: is a directory; name a file")
    return SUFFIXES.get(path.suffix.lower(), "lines")


@contextmanager
def placed(place: str) -> Iterator[None]:
    """An error in the block begins with the place in the input."""
    try:
        yield
    except RunnelError as error:
        error.message = f"{place}: {error.message}"
        error.args = (error.message,)
        raise


def read_chunks(path: Path, rule: KeyRule, nulls: Collection[str] = ()) -> Iterator[InputChunk]:
    """The records of a file in order. Cells of CSV with a text of ``nulls`` are null; if there are
    none, those with a usual one (NA, NULL, …). Raises NotFoundError, InvalidRequestError.
    """
    kind = kind_of(path)
    try:
        if kind in ("lines", "ndjson"):
            with path.open("rb") as file:
                yield from read_lines(file, rule, str(path), ndjson=kind == "ndjson")
        elif kind == "csv":
            yield from _csv_chunks(path, rule, nulls)
        else:
            yield from _columnar_chunks(path, rule, kind)
    except pa.ArrowException as error:
        raise InvalidRequestError(f"{path}: cannot be read as {kind}: {error}") from error


def read_lines(
    file: BinaryIO, rule: KeyRule, source: str, *, ndjson: bool = False
) -> Iterator[InputChunk]:
    """Records of lines, at most `CHUNK_LINES` at a time. Empty lines are empty values."""
    for option, field in (("--key-field", rule.field), ("--transaction-id-field", rule.id_field)):
        if field is not None and not ndjson:
            raise InvalidRequestError(
                f"{source}: {option} needs rows with fields: NDJSON, CSV, Parquet or Arrow"
            )
    split = splitter(rule, source)
    keys: list[bytes | None] = []
    values: list[bytes] = []
    ids: list[int] = []
    size = 0
    for number, line in enumerate(file, 1):
        size += len(line)
        key, value, transaction_id = split(line.rstrip(b"\r\n"), number)
        keys.append(key)
        values.append(value)
        if transaction_id is not None:
            ids.append(transaction_id)
        if len(values) == CHUNK_LINES:
            yield _chunk(keys, values, size, ids)
            keys, values, ids, size = [], [], [], 0
    if values:
        yield _chunk(keys, values, size, ids)


#: Key, value and transaction id.
Line = tuple[bytes | None, bytes, int | None]


def splitter(rule: KeyRule, source: str) -> Callable[[bytes, int], Line]:
    """A function that makes a record from a line and its number, which counts from 1."""
    separator, field = rule.separator, rule.field
    ids = None if rule.id_field is None else Ids(rule.id_field)

    def plain(line: bytes, _number: int) -> Line:
        return None, line, None

    def separated(line: bytes, number: int) -> Line:
        key, found, value = line.partition(separator or b"")
        if not found:
            wanted = (separator or b"").decode(errors="backslashreplace")
            raise InvalidRequestError(f"{source}:{number}: no key separator {wanted!r} in the line")
        return key, value, None

    def by_field(line: bytes, number: int) -> Line:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InvalidRequestError(f"{source}:{number}: {not_json(error)}") from error
        for wanted in (field, rule.id_field):
            if wanted is not None and (not isinstance(row, dict) or wanted not in row):
                raise InvalidRequestError(f"{source}:{number}: no field {wanted!r} in the row")
        key = None if field is None else _key_bytes(row[field])
        if ids is None:
            return key, line, None
        return key, line, ids.take(row[rule.id_field], f"{source}:{number}")

    if separator is not None:
        return separated
    return plain if field is None and ids is None else by_field


def _chunk(
    keys: list[bytes | None], values: list[bytes], size: int, ids: list[int] | None
) -> InputChunk:
    table = pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})
    return InputChunk(table, size, ids or None)


def _csv_chunks(path: Path, rule: KeyRule, nulls: Collection[str]) -> Iterator[InputChunk]:
    _no_separator(rule, path)
    convert = pa.csv.ConvertOptions(strings_can_be_null=True)
    if nulls:
        convert.null_values = ["", *nulls]
    read = pa.csv.ReadOptions(block_size=CSV_BLOCK_BYTES)
    ids = _IdColumn(rule, path)
    with path.open("rb") as file:
        left = path.stat().st_size
        for batch in pa.csv.open_csv(file, read_options=read, convert_options=convert):
            # A batch is a block. Where the file is says how far Arrow has read ahead.
            size = min(left, CSV_BLOCK_BYTES)
            yield _rows_chunk(pa.Table.from_batches([batch]), rule, path, size, ids)
            left -= size


def _columnar_chunks(path: Path, rule: KeyRule, kind: str) -> Iterator[InputChunk]:
    _no_separator(rule, path)
    ids = _IdColumn(rule, path)
    for batch in columnar_batches(path, kind):
        table = pa.Table.from_batches([batch])
        if "value" in table.column_names and rule.field is None:
            names = [name for name in RECORD_COLUMNS if name in table.column_names]
            yield InputChunk(table.select(names), batch.nbytes, ids.of(table))
        else:
            yield _rows_chunk(table, rule, path, batch.nbytes, ids)


class _IdColumn:
    """The transaction ids of a file of columns, table by table."""

    def __init__(self, rule: KeyRule, path: Path) -> None:
        self._field = rule.id_field
        self._ids = Ids(rule.id_field or "")
        self._path = path
        self._rows = 0

    def of(self, table: pa.Table) -> list[int] | None:
        """The ids of the next table; None if the input has no field for them."""
        if self._field is None:
            return None
        column = _column(table, self._field, self._path)
        found = self._ids.take_all(column.to_pylist(), str(self._path), self._rows)
        self._rows += table.num_rows
        return found


def _column(table: pa.Table, name: str, path: Path) -> pa.ChunkedArray:
    if name not in table.column_names:
        known = ", ".join(table.column_names)
        raise InvalidRequestError(f"{path}: no column {name!r}; its columns: {known}")
    return table.column(name)


def columnar_batches(path: Path, kind: str) -> Iterator[pa.RecordBatch]:
    """The batches of a Parquet file, or of an Arrow file or stream. Raises ArrowException."""
    if kind == "parquet":
        with pa.parquet.ParquetFile(path) as file:
            yield from file.iter_batches(batch_size=65_536)
        return
    with pa.memory_map(str(path)) as source:
        try:
            reader = pa.ipc.open_file(source)
        except pa.ArrowInvalid:
            source.seek(0)
            yield from pa.ipc.open_stream(source)
            return
        for i in range(reader.num_record_batches):
            yield reader.get_batch(i)


def _rows_chunk(
    table: pa.Table, rule: KeyRule, path: Path, size: int, ids: _IdColumn
) -> InputChunk:
    """Rows as JSON objects."""
    if rule.field is not None:
        _column(table, rule.field, path)
    names = table.column_names
    columns = [values_of(table.column(name)) for name in names]
    encode = json.JSONEncoder(separators=(",", ":"), default=_json_value).encode
    values = [
        encode(dict(zip(names, row, strict=True))).encode() for row in zip(*columns, strict=True)
    ]
    keys: list[bytes | None] = [None] * len(values)
    if rule.field is not None:
        keys = [_key_bytes(key) for key in columns[names.index(rule.field)]]
    return _chunk(keys, values, size, ids.of(table))


def _no_separator(rule: KeyRule, path: Path) -> None:
    if rule.separator is not None:
        raise InvalidRequestError(f"{path}: --key-separator is for lines; use --key-field COLUMN")


def _key_bytes(value: Any) -> bytes | None:
    match value:
        case None:
            return None
        case bytes():
            return value
        case str():
            return as_utf8("the key", value)
        case _:
            return json.dumps(value, default=_json_value).encode()


def _json_value(value: Any) -> str:
    match value:
        case bytes():
            return value.decode(errors="replace")
        case date() | time():
            return value.isoformat()
        case _:
            return str(value)
