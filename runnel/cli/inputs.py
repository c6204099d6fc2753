"""What ``runnel produce`` reads: lines, NDJSON, CSV, Parquet and Arrow, as columnar chunks.

Lines and NDJSON lines are values as they stand. Rows of CSV, Parquet and Arrow files become JSON
objects, except that a Parquet or Arrow file with a ``value`` column is taken as records already
(columns ``key``, ``value``, ``timestamp``, ``headers``). A key is what stands before the key
separator, or the key field of the row. Every problem names the file and the line or row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, time
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from schemas.errors import InvalidRequestError, NotFoundError

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
    """Where keys come from: a separator in the line, a field of the row, or nowhere."""

    separator: bytes | None = None
    field: str | None = None


@dataclass(frozen=True, slots=True)
class Chunk:
    """Records as a table with ``key`` and ``value``, and how much of the input they took."""

    table: pa.Table
    input_bytes: int


def kind_of(path: Path) -> str:
    """What a file is by its suffix. Raises NotFoundError, InvalidRequestError for a directory."""
    if not path.exists():
        raise NotFoundError(f"{path}: there is no such file")
    if path.is_dir():
        raise InvalidRequestError(f"{path}: is a directory; name a file")
    return SUFFIXES.get(path.suffix.lower(), "lines")


def read_chunks(path: Path, rule: KeyRule) -> Iterator[Chunk]:
    """The records of a file in order. Raises NotFoundError, InvalidRequestError."""
    kind = kind_of(path)
    try:
        if kind in ("lines", "ndjson"):
            with path.open("rb") as file:
                yield from read_lines(file, rule, str(path), ndjson=kind == "ndjson")
        elif kind == "csv":
            yield from _csv_chunks(path, rule)
        else:
            yield from _columnar_chunks(path, rule, kind)
    except pa.ArrowException as error:
        raise InvalidRequestError(f"{path}: cannot be read as {kind}: {error}") from error


def read_lines(
    file: BinaryIO, rule: KeyRule, source: str, *, ndjson: bool = False
) -> Iterator[Chunk]:
    """Records of lines, at most `CHUNK_LINES` at a time. Empty lines are empty values."""
    if rule.field is not None and not ndjson:
        raise InvalidRequestError(
            f"{source}: --key-field needs rows with fields: NDJSON, CSV, Parquet or Arrow"
        )
    split = _splitter(rule, source)
    keys: list[bytes | None] = []
    values: list[bytes] = []
    size = 0
    for number, line in enumerate(file, 1):
        size += len(line)
        key, value = split(line.rstrip(b"\r\n"), number)
        keys.append(key)
        values.append(value)
        if len(values) == CHUNK_LINES:
            yield _chunk(keys, values, size)
            keys, values, size = [], [], 0
    if values:
        yield _chunk(keys, values, size)


def split_line(line: bytes, rule: KeyRule, source: str, number: int) -> tuple[bytes | None, bytes]:
    """Key and value of one line typed or piped in."""
    return _splitter(rule, source)(line, number)


def _splitter(rule: KeyRule, source: str) -> Callable[[bytes, int], tuple[bytes | None, bytes]]:
    separator, field = rule.separator, rule.field

    def plain(line: bytes, _number: int) -> tuple[bytes | None, bytes]:
        return None, line

    def separated(line: bytes, number: int) -> tuple[bytes | None, bytes]:
        key, found, value = line.partition(separator or b"")
        if not found:
            raise InvalidRequestError(
                f"{source}:{number}: no key separator {(separator or b'').decode()!r} in the line"
            )
        return key, value

    def by_field(line: bytes, number: int) -> tuple[bytes | None, bytes]:
        try:
            row = json.loads(line)
        except ValueError as error:
            raise InvalidRequestError(f"{source}:{number}: not JSON: {error}") from error
        if not isinstance(row, dict) or field not in row:
            raise InvalidRequestError(f"{source}:{number}: no field {field!r} in the row")
        return _key_bytes(row[field]), line

    if separator is not None:
        return separated
    return by_field if field is not None else plain


def _chunk(keys: list[bytes | None], values: list[bytes], size: int) -> Chunk:
    table = pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})
    return Chunk(table, size)


def _csv_chunks(path: Path, rule: KeyRule) -> Iterator[Chunk]:
    _no_separator(rule, path)
    convert = pa.csv.ConvertOptions(strings_can_be_null=True)
    read = pa.csv.ReadOptions(block_size=CSV_BLOCK_BYTES)
    with path.open("rb") as file:
        before = 0
        for batch in pa.csv.open_csv(file, read_options=read, convert_options=convert):
            at = file.tell()
            yield _rows_chunk(pa.Table.from_batches([batch]), rule, path, at - before)
            before = at


def _columnar_chunks(path: Path, rule: KeyRule, kind: str) -> Iterator[Chunk]:
    _no_separator(rule, path)
    for batch in columnar_batches(path, kind):
        table = pa.Table.from_batches([batch])
        if "value" in table.column_names and rule.field is None:
            names = [name for name in RECORD_COLUMNS if name in table.column_names]
            yield Chunk(table.select(names), batch.nbytes)
        else:
            yield _rows_chunk(table, rule, path, batch.nbytes)


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


def _rows_chunk(table: pa.Table, rule: KeyRule, path: Path, size: int) -> Chunk:
    """Rows as JSON objects."""
    if rule.field is not None and rule.field not in table.column_names:
        known = ", ".join(table.column_names)
        raise InvalidRequestError(f"{path}: no column {rule.field!r}; its columns: {known}")
    names = table.column_names
    columns = [table.column(name).to_pylist() for name in names]
    encode = json.JSONEncoder(separators=(",", ":"), default=_json_value).encode
    values = [
        encode(dict(zip(names, row, strict=True))).encode() for row in zip(*columns, strict=True)
    ]
    keys: list[bytes | None] = [None] * len(values)
    if rule.field is not None:
        keys = [_key_bytes(key) for key in columns[names.index(rule.field)]]
    return _chunk(keys, values, size)


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
            return value.encode()
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
