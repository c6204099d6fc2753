"""Tables as records: any Arrow table of the right columns becomes one of `RECORD_SCHEMA`.

``value`` is required; ``key``, ``timestamp`` and ``headers`` may be left out. Keys and values
are binary or text, or of a type with a text form (numbers become their digits). Everything is
vectorised; nothing here knows of partitions or batches. Pure: the time is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from runnel.records.sources import as_rows, as_table
from runnel.records.text_checks import bad_text_rows
from schemas.errors import InvalidRequestError, RecordTooLargeError
from schemas.wire.batch import MAX_TRANSACTION_ID
from schemas.wire.payload import RECORD_SCHEMA, TRANSACTION_ID

#: Bytes of each row of a batch.
SizesOf = Callable[[pa.RecordBatch], npt.NDArray[np.int64]]

COLUMNS: Final = tuple(RECORD_SCHEMA.names)
#: Bytes of a record in a batch besides its data: timestamp, three offsets, validity bits.
ROW_OVERHEAD_BYTES: Final = 24
HEADER_OVERHEAD_BYTES: Final = 16
_TIMESTAMP: Final = RECORD_SCHEMA.field("timestamp").type
_HEADERS: Final = RECORD_SCHEMA.field("headers").type
#: Offsets of a binary column are 32 bits: larger chunks are split before they are cast.
_MAX_CHUNK_BYTES: Final = 1 << 30
#: What to do about times without a zone. Local times taken for UTC would be shifted in silence.
ZONE_HINT: Final = (
    "say which time zone it is of: pyarrow.compute.assume_timezone(times, 'UTC'), in pandas"
    " .dt.tz_localize('UTC'), in polars .dt.replace_time_zone('UTC')"
)
_WANTED: Final = "a table has the column value, and if you like key, timestamp, headers"


def record_table(data: Any, now_us: int) -> pa.Table:
    """``data`` as a table of `RECORD_SCHEMA`; missing timestamps become ``now_us``.

    Takes what `runnel.records.sources.as_table` takes. Raises InvalidRequestError that names the
    columns at fault.
    """
    if not isinstance(data, Mapping) and (rows := as_rows(data)) is not None:
        if not rows:
            return RECORD_SCHEMA.empty_table()
        data = rows
    table = as_table(data)
    names = table.column_names
    unknown = [name for name in names if name not in COLUMNS]
    if "value" not in names or unknown or len(set(names)) < len(names):
        problem = (
            "has no column value"
            if "value" not in names
            else f"has the columns {', '.join(unknown)}"
            if unknown
            else "has a column twice"
        )
        raise InvalidRequestError(
            f"the table {problem} (its columns: {', '.join(names) or 'none'}); {_WANTED};"
            " rename or drop the others with table.select([...])"
        )
    rows = table.num_rows
    columns = [
        _timestamps(table["timestamp"], now_us)
        if "timestamp" in names
        else pa.chunked_array([_filled(rows, now_us)]),
        _binary("key", table["key"])
        if "key" in names
        else pa.chunked_array([pa.nulls(rows, pa.binary())]),
        _binary("value", table["value"]),
        _headers(table["headers"])
        if "headers" in names
        else pa.chunked_array([null_headers(rows)]),
    ]
    return pa.Table.from_arrays(columns, schema=RECORD_SCHEMA)


def with_transaction_ids(parts: Sequence[SizedRows], ids: Any) -> list[SizedRows]:
    """The rows of a table with `TRANSACTION_ID` as a last column: one id for all, or one for each.

    Takes an int, an Arrow array, or anything that Arrow makes an array of (numpy, lists, pandas).
    Raises InvalidRequestError that names the first row at fault.
    """
    rows = sum(part.rows.num_rows for part in parts)
    if isinstance(ids, int) and not isinstance(ids, bool):
        ids = np.full(rows, ids, np.int64) if abs(ids) <= MAX_TRANSACTION_ID else [ids] * rows
    try:
        column = ids if isinstance(ids, pa.ChunkedArray) else pa.chunked_array([pa.array(ids)])
        if not pa.types.is_integer(column.type) and not pa.types.is_null(column.type):
            raise InvalidRequestError(
                f"transaction_ids is of type {column.type}; give whole numbers, one or one a row"
            )
        column = column.cast(TRANSACTION_ID.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InvalidRequestError(
            f"transaction_ids: give a whole number from 0 to {MAX_TRANSACTION_ID}, or one a row:"
            f" {error}"
        ) from error
    if len(column) != rows:
        raise InvalidRequestError(f"transaction_ids has {len(column)} ids for {rows} rows")
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy())[0])
        raise InvalidRequestError(f"transaction_ids: row {row} has none; all rows have one or none")
    values = column.to_numpy()
    if rows and values[0] < 0:
        raise InvalidRequestError(f"transaction_ids: row 0 has {values[0]}; ids are 0 and up")
    falls = np.flatnonzero(values[1:] < values[:-1])
    if len(falls):
        row = int(falls[0]) + 1
        raise InvalidRequestError(
            f"transaction_ids: row {row} has {values[row]} after {values[row - 1]}; ids never fall:"
            " sort the table by them"
        )
    starts = np.cumsum([0, *(part.rows.num_rows for part in parts)]).tolist()
    return [
        SizedRows(
            part.rows.append_column(
                TRANSACTION_ID, pa.array(values[start : start + part.rows.num_rows])
            ),
            part.sizes,
        )
        for part, start in zip(parts, starts, strict=False)
    ]


def timestamp_array(times_us: npt.NDArray[np.int64]) -> pa.Array:
    """A column of timestamps of these microseconds, not copied."""
    return pa.Array.from_buffers(_TIMESTAMP, len(times_us), [None, pa.py_buffer(times_us)])


def int64_values(column: pa.Array) -> npt.NDArray[np.int64]:
    """The values of a column of 64-bit numbers or timestamps without nulls, not copied.

    Not by ``to_numpy``: that imports pandas, which can take a second.
    """
    return np.frombuffer(column.buffers()[1] or b"", np.int64, len(column), 8 * column.offset)


def null_headers(rows: int) -> pa.Array:
    """A column of no headers at all, in the fewest bytes.

    Arrow's own null arrays share one buffer of zeros as long as the column among all parts of
    a nested type, and all of it would be written into every batch that a slice becomes.
    """
    validity = pa.py_buffer(bytes((rows + 7) // 8))
    offsets = pa.py_buffer(bytes(4 * (rows + 1)))
    nothing = pa.nulls(0, _HEADERS.value_type)
    return pa.Array.from_buffers(_HEADERS, rows, [validity, offsets], children=[nothing])


def record_sizes(rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Bytes of each record: key, value and headers."""
    sizes = binary_lengths(rows.column("value"))
    keys, headers = rows.column("key"), rows.column("headers")
    if keys.null_count < len(keys):
        sizes += binary_lengths(keys)
    if headers.null_count < len(headers):
        pairs = headers.flatten()
        each = (
            binary_lengths(pairs.field("key"))
            + binary_lengths(pairs.field("value"))
            + HEADER_OVERHEAD_BYTES
        )
        total = np.concatenate((np.zeros(1, np.int64), np.cumsum(each)))
        counts = pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False)
        ends = np.cumsum(counts)
        sizes += total[ends] - total[ends - counts]
    return sizes


def binary_lengths(column: pa.Array) -> npt.NDArray[np.int64]:
    """Bytes of each value of a column of binary or text; 0 if it is null.

    Computed from the offsets alone: a call of `pyarrow.compute` takes a hundred times as long for a
    batch, because it releases the interpreter lock and must then wait for it.
    """
    rows = len(column)
    if rows == 0 or column.null_count == rows:
        return np.zeros(rows, np.int64)
    offsets = np.frombuffer(column.buffers()[1], np.int32, rows + 1, 4 * column.offset)
    lengths = np.diff(offsets).astype(np.int64)
    if column.null_count:
        lengths[np.asarray(column.is_null())] = 0
    return lengths


def decode_dictionary(array: pa.DictionaryArray) -> pa.Array:
    """The values that categories stand for.

    Arrow looks nothing up in views of text or bytes, which the categories of polars are, so those
    get another layout first.
    """
    values = array.dictionary
    if pa.types.is_string_view(values.type):
        values = values.cast(pa.large_string())
    elif pa.types.is_binary_view(values.type):
        values = values.cast(pa.large_binary())
    return values.take(array.indices)


class SizedRows(NamedTuple):
    """Rows, and the bytes of each of them: measured once on their way into batches."""

    rows: pa.RecordBatch
    sizes: npt.NDArray[np.int64]


def measured(table: pa.Table, sizes_of: SizesOf = record_sizes) -> list[SizedRows]:
    """The rows of a table, measured."""
    return [SizedRows(rows, sizes_of(rows)) for rows in table.to_batches()]


def check_sizes(parts: Sequence[SizedRows], limit_bytes: int, topic: str) -> None:
    """Raise RecordTooLargeError that names the first row over the limit, its size, the limit."""
    row = 0
    for _rows, sizes in parts:
        over = np.flatnonzero(sizes > limit_bytes)
        if len(over):
            raise RecordTooLargeError(
                f"row {row + int(over[0])} of the table has {int(sizes[over[0]])} bytes, more than"
                f" maxRecordSize {limit_bytes} of topic {topic!r}; nothing of the table was sent."
                " Make the record smaller or raise spec.maxRecordSize"
            )
        row += len(sizes)


def chunks(parts: Sequence[SizedRows], chunk_bytes: int) -> Iterator[SizedRows]:
    """The rows in order, in record batches of about ``chunk_bytes`` (at least one row)."""
    pending: list[SizedRows] = []
    pending_bytes = 0
    for rows, sizes in parts:
        ends = np.cumsum(sizes + ROW_OVERHEAD_BYTES)
        start = 0
        while start < rows.num_rows:
            before = int(ends[start - 1]) if start else 0
            room = max(chunk_bytes - pending_bytes, 0)
            end = int(np.searchsorted(ends, before + room, side="right"))
            if end <= start and not pending:
                end = start + 1
            if end > start:
                pending.append(SizedRows(rows.slice(start, end - start), sizes[start:end]))
                pending_bytes += int(ends[end - 1]) - before
                start = end
            if start < rows.num_rows:
                yield _joined(pending)
                pending, pending_bytes = [], 0
    if pending:
        yield _joined(pending)


def _joined(pending: list[SizedRows]) -> SizedRows:
    if len(pending) == 1:
        return pending[0]
    return SizedRows(
        pa.concat_batches([part.rows for part in pending]),
        np.concatenate([part.sizes for part in pending]),
    )


def _filled(rows: int, timestamp_us: int) -> pa.Array:
    return timestamp_array(np.full(rows, timestamp_us, np.int64))


def _timestamps(column: pa.ChunkedArray, now_us: int) -> pa.ChunkedArray:
    if pa.types.is_timestamp(column.type) and column.type.tz is None:
        raise InvalidRequestError(f"column timestamp has no time zone; {ZONE_HINT}")
    try:
        # Nanoseconds lose digits on purpose: a log keeps microseconds. Coarser units must not
        # become another time because their microseconds are too many.
        finer = pa.types.is_timestamp(column.type) and column.type.unit == "ns"
        found = column.cast(_TIMESTAMP, safe=not finer)
    except pa.ArrowException as error:
        raise InvalidRequestError(
            f"column timestamp has type {column.type}; give timestamps, or whole numbers of"
            " microseconds since the epoch"
        ) from error
    if found.null_count:
        found = pc.fill_null(found, pa.scalar(now_us, pa.int64()).cast(_TIMESTAMP))
    return found


def _binary(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    if column.type == pa.binary():
        return column
    try:
        parts = [part for chunk in column.chunks for part in _cast_parts(chunk)]
    except pa.ArrowException as error:
        raise InvalidRequestError(
            f"column {name} has type {column.type}, which has no form as bytes; cast it to"
            " binary or string, or encode it first"
        ) from error
    return pa.chunked_array(parts, pa.binary())


def _cast_parts(chunk: pa.Array) -> Iterator[pa.Array]:
    if chunk.nbytes > _MAX_CHUNK_BYTES and len(chunk) > 1:
        half = len(chunk) // 2
        yield from _cast_parts(chunk.slice(0, half))
        yield from _cast_parts(chunk.slice(half))
        return
    if pa.types.is_dictionary(chunk.type):
        chunk = decode_dictionary(chunk)
    try:
        yield chunk.cast(pa.binary())
    except pa.ArrowNotImplementedError:
        yield chunk.cast(pa.string()).cast(pa.binary())


def _headers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    for row in bad_text_rows(column, 1):
        raise InvalidRequestError(f"column headers, row {row}: a key is not UTF-8; decode it first")
    try:
        return column.cast(_HEADERS)
    except (pa.ArrowException, ValueError) as error:
        raise InvalidRequestError(
            f"column headers has type {column.type}; give {_HEADERS}, or a map of text to binary"
        ) from error
