"""Columns of typed topics in Arrow: types, schemas, payloads of batches. Pure.

The payload of a typed batch is one Arrow IPC message of exactly the columns that its schema id
stands for. The key and the timestamp of a record follow from the columns.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.ipc

from runnel.records.tables import binary_lengths
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
from schemas.errors import CorruptBatchError
from schemas.wire.batch import BatchHeader, Buffer
from schemas.wire.payload import TRANSACTION_ID, fields_of, read_payload, require_transaction_ids

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_END_OF_STREAM_LENGTH: Final = 8
#: Bytes that offsets and validity add to a value of variable width.
_VALUE_OVERHEAD_BYTES: Final = 5


def arrow_type(type_: ColumnType) -> pa.DataType:
    """The Arrow type of a column type."""
    match type_:
        case Scalar(name=name):
            return _SCALARS[name]
        case Decimal(precision=precision, scale=scale):
            return pa.decimal128(precision, scale)
        case Timestamp(unit=unit, zone=zone):
            return pa.timestamp(unit, tz=zone)
        case ListOf(item=item):
            return pa.list_(arrow_type(item))
        case Struct(fields=fields):
            return pa.struct([pa.field(name, arrow_type(inner)) for name, inner in fields])
        case MapOf(value=value):
            return pa.map_(pa.string(), arrow_type(value))


_SCALARS: Final = {
    "bool": pa.bool_(), "int8": pa.int8(), "int16": pa.int16(), "int32": pa.int32(),
    "int64": pa.int64(), "uint8": pa.uint8(), "uint16": pa.uint16(), "uint32": pa.uint32(),
    "uint64": pa.uint64(), "float32": pa.float32(), "float64": pa.float64(),
    "string": pa.string(), "binary": pa.binary(), "date32": pa.date32(),
}  # fmt: skip


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """The Arrow schema of batches that hold these columns."""
    return _arrow_schema(tuple(columns))


@lru_cache(maxsize=1024)
def _arrow_schema(columns: tuple[Column, ...]) -> pa.Schema:
    return pa.schema([pa.field(c.name, arrow_type(c.parsed), c.nullable) for c in columns])


def rows_batch(rows: Sequence[tuple[Any, ...]], columns: Sequence[Column]) -> pa.RecordBatch:
    """Rows from `runnel.records.row_values`, each with a value for every column, as Arrow."""
    schema = arrow_schema(columns)
    values = zip(*rows, strict=True) if rows else ((),) * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(values, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def encode_rows(rows: pa.RecordBatch, codec: str = "none") -> pa.Buffer:
    """The payload of a batch: one Arrow IPC message, its buffers compressed by ``codec``."""
    if codec == "none":
        return rows.serialize()
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=codec)
    # Only streams take options: write one and leave its schema message out.
    with pa.ipc.new_stream(sink, rows.schema, options=options) as stream:
        stream.write_batch(rows)
    return sink.getvalue()[len(rows.schema.serialize()) : -_END_OF_STREAM_LENGTH]


def decode_rows(
    header: BatchHeader,
    batch: Buffer,
    schema: pa.Schema,
    wanted: Collection[str] | None = None,
) -> pa.RecordBatch:
    """The rows of one verified batch whose schema id stands for ``schema``, with `TRANSACTION_ID`
    as the last column if they have ids; copies nothing if the codec is none. ``wanted``: other
    columns than these, and ids, may be left out.

    Raises CorruptBatchError as `read_payload` does, and if a required value is missing.
    """
    if header.has_transaction_ids:
        schema = schema.append(TRANSACTION_ID)
    fields = None if wanted is None else fields_of(schema, frozenset(wanted))
    rows = read_payload(header, batch, schema, fields)
    if header.has_transaction_ids:
        require_transaction_ids(header, rows)
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if not field.nullable and column.null_count:
            raise CorruptBatchError(f"column {field.name} has nulls, and must not have any")
    return rows


def key_bytes(column: pa.Array) -> pa.Array:
    """Values of a key column as the bytes that are hashed: numbers become their digits."""
    if pa.types.is_binary(column.type):
        return column
    if pa.types.is_integer(column.type):
        column = column.cast(pa.string())
    return column.cast(pa.binary())


def timestamps(column: pa.Array) -> pa.Array:
    """Values of a timestamp column as timestamps of records: microseconds, in UTC.

    Wall clocks without a zone are taken as UTC. Raises ArrowInvalid beyond the year 294,000.
    """
    return column.cast(TIMESTAMP)


def row_sizes(rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Bytes of each row, about as they are in a batch before compression."""
    sizes = np.zeros(rows.num_rows, np.int64)
    for column in rows.columns:
        sizes += _value_sizes(column)
    return sizes


def _value_sizes(column: pa.Array) -> npt.NDArray[np.int64]:
    type_ = column.type
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        return binary_lengths(column) + _VALUE_OVERHEAD_BYTES
    if pa.types.is_list(type_) or pa.types.is_map(type_):
        ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(_value_sizes(column.values))))
        offsets = column.offsets.to_numpy()
        return np.asarray(ends[offsets[1:]] - ends[offsets[:-1]]) + _VALUE_OVERHEAD_BYTES
    if pa.types.is_struct(type_):
        sizes = np.ones(len(column), np.int64)
        for part in column.flatten():
            sizes += _value_sizes(part)
        return sizes
    return np.full(len(column), -(-type_.bit_width // 8), np.int64)
