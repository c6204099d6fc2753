"""The payload of a batch: its records as an Arrow record batch, encoded and decoded.

The payload is one encapsulated Arrow IPC record-batch message (its buffers compressed by the
codec) of `RECORD_SCHEMA`, or of the columns of a typed topic. Only clients decode payloads: the
header around it (`schemas.wire.batch`) says all that an SPU needs to know, and an SPU imports
neither this module nor Arrow.

Checksums find damage, not lies: any producer can compute them. `read_payload` therefore believes
nothing that a payload says about itself. Its result is safe to read, and takes no more memory than
an uncompressed batch may.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Collection
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.ipc

from schemas.errors import CorruptBatchError, UnsupportedError
from schemas.objects.topic import MAX_BATCH_BYTES
from schemas.wire.batch import HEADER_SIZE, BatchHeader, Buffer, read_header

RECORD_SCHEMA: Final = pa.schema(
    [
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field(
            "headers",
            pa.list_(
                pa.struct(
                    [pa.field("key", pa.utf8(), nullable=False), pa.field("value", pa.binary())]
                )
            ),
        ),
    ]
)

#: The last column in batches with `TRANSACTION_IDS_FLAG`, of plain and typed topics.
TRANSACTION_ID: Final = pa.field("transaction_id", pa.int64(), nullable=False)
_SCHEMA_WITH_IDS: Final = RECORD_SCHEMA.append(TRANSACTION_ID)
_ALL_PLAIN: Final = tuple(range(len(RECORD_SCHEMA)))
_TIMESTAMP: Final = RECORD_SCHEMA.get_field_index("timestamp")
_HEADERS: Final = RECORD_SCHEMA.get_field_index("headers")

#: The most bytes that the buffers of a payload may take when they are decompressed.
MAX_DECODED_BYTES: Final = MAX_BATCH_BYTES
#: More buffers than any schema has.
_MAX_BUFFERS: Final = 1 << 16
# Numbers of fields in Arrow's Message.fbs.
_MESSAGE_HEADER: Final = 2
_RECORD_BATCH_BUFFERS: Final = 2
_RECORD_BATCH_COMPRESSION: Final = 3
_END_OF_STREAM_LENGTH: Final = 8
_INT: Final = struct.Struct("<i")
_UINT: Final = struct.Struct("<I")
_USHORT: Final = struct.Struct("<H")


def encode_records(records: pa.RecordBatch, codec: str = "none") -> pa.Buffer:
    """The payload of a batch: one Arrow IPC message. ``records`` must have `RECORD_SCHEMA`, and
    may have `TRANSACTION_ID` as a last column."""
    if codec == "none":
        return records.serialize()
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=codec)
    # Only streams take options: write one and leave its schema message out.
    with_ids = records.num_columns > len(RECORD_SCHEMA)
    schema = _SCHEMA_WITH_IDS if with_ids else RECORD_SCHEMA
    with pa.ipc.new_stream(sink, schema, options=options) as stream:
        stream.write_batch(records)
    return sink.getvalue()[_schema_message_length(with_ids) : -_END_OF_STREAM_LENGTH]


@functools.cache
def _schema_message_length(with_ids: bool) -> int:
    return len((_SCHEMA_WITH_IDS if with_ids else RECORD_SCHEMA).serialize())


def decode_records(
    batch: Buffer,
    header: BatchHeader | None = None,
    wanted: Collection[str] | None = None,
) -> pa.RecordBatch:
    """The records of one batch, without copying if the codec is none: columns of
    `RECORD_SCHEMA`, then `TRANSACTION_ID` if they have ids. ``header`` is the batch's, if it was
    read already. ``wanted``: other columns than these, and transaction ids, may be left out.

    The caller has verified the batch. Raises CorruptBatchError as `read_payload` does and if a
    record lacks a required value, UnsupportedError for an unknown schema.
    """
    header = header or read_header(batch)
    if header.schema_id != 0:
        raise UnsupportedError(f"this client does not know schema {header.schema_id}; upgrade it")
    with_ids = header.has_transaction_ids
    fields = None if wanted is None else _plain_fields(frozenset(wanted), with_ids)
    records = read_payload(header, batch, _SCHEMA_WITH_IDS if with_ids else RECORD_SCHEMA, fields)
    if with_ids:
        require_transaction_ids(header, records)
    numbers = _ALL_PLAIN if fields is None else fields
    if _TIMESTAMP in numbers and records.column(numbers.index(_TIMESTAMP)).null_count:
        raise CorruptBatchError("payload has a record without a timestamp")
    if _HEADERS in numbers:
        pairs = records.column(numbers.index(_HEADERS)).values
        if pairs.null_count or pairs.field(0).null_count:
            raise CorruptBatchError("payload has a header without a key")
    return records


def read_payload(
    header: BatchHeader,
    batch: Buffer,
    schema: pa.Schema,
    fields: tuple[int, ...] | None = None,
) -> pa.RecordBatch:
    """The rows of a verified batch, read as ``schema``; not copied if the codec is none.

    ``fields``: the numbers of the columns that are read and given, in order; None for all. Raises
    CorruptBatchError if the payload is no record batch of that schema, contradicts itself or the
    header, or would take more than `MAX_DECODED_BYTES`. May hold nulls anywhere.
    """
    payload = pa.py_buffer(memoryview(batch)[HEADER_SIZE : header.length])
    try:
        message = pa.ipc.read_message(payload)
        if message.type != "record batch":
            raise CorruptBatchError(
                f"payload is not an Arrow record batch but a message of type {message.type}"
            )
        decompressed = _decompressed_bytes(message.metadata, message.body)
        if decompressed > MAX_DECODED_BYTES:
            raise CorruptBatchError(
                f"payload claims {decompressed} bytes when decompressed; the limit is"
                f" {MAX_DECODED_BYTES}"
            )
        if fields is None or header.codec == 0 or len(fields) == len(schema):
            # Columns that are not compressed are not copied, so Arrow may look at all of them.
            records = pa.ipc.read_record_batch(message, schema)
            if fields is not None:
                records = records.select(fields)
        else:
            options = pa.ipc.IpcReadOptions(included_fields=list(fields))
            source = pa.PythonFile(_Pieces([schema.serialize(), payload]), mode="r")
            records = pa.ipc.open_stream(source, options=options).read_next_batch()
        # Offsets inside columns too: following a false offset would read outside the buffer.
        records.validate(full=True)
    except (pa.ArrowException, EOFError, OSError, ValueError, struct.error) as error:
        raise CorruptBatchError(f"payload is not an Arrow record batch: {error}") from error
    if records.num_rows != header.record_count:
        raise CorruptBatchError(
            f"payload has {records.num_rows} records, the header says {header.record_count}"
        )
    return records


@functools.lru_cache(maxsize=256)
def fields_of(schema: pa.Schema, wanted: frozenset[str]) -> tuple[int, ...]:
    """The numbers of the columns to look at if only these are wanted: transaction ids, too, and at
    least one, without which Arrow would not say how many rows there are."""
    names = wanted | {TRANSACTION_ID.name} if schema.names[-1:] == [TRANSACTION_ID.name] else wanted
    fields = tuple(number for number, name in enumerate(schema.names) if name in names)
    return fields or (_cheapest(schema),)


@functools.lru_cache(maxsize=256)
def _plain_fields(wanted: frozenset[str], with_ids: bool) -> tuple[int, ...]:
    # Arrow's schemas are slow to hash.
    return fields_of(_SCHEMA_WITH_IDS if with_ids else RECORD_SCHEMA, wanted)


def _cheapest(schema: pa.Schema) -> int:
    """A column of numbers, if there is one."""
    return next((i for i, field in enumerate(schema) if _is_plain(field.type)), 0)


def _is_plain(type_: pa.DataType) -> bool:
    return bool(pa.types.is_primitive(type_))


class _Pieces:
    """Buffers as one file that Arrow reads without copying them."""

    closed = False

    def __init__(self, pieces: list[pa.Buffer]) -> None:
        self._pieces = pieces

    def read_buffer(self, size: int = -1) -> pa.Buffer:
        """The next ``size`` bytes, or those up to the end of a piece."""
        if not self._pieces:
            return pa.py_buffer(b"")
        first = self._pieces[0]
        if 0 <= size < first.size:
            self._pieces[0] = first.slice(size)
            return first.slice(0, size)
        return self._pieces.pop(0)

    read = read_buffer

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        pass


def require_transaction_ids(header: BatchHeader, records: pa.RecordBatch) -> None:
    """Raise CorruptBatchError unless the last column holds the ids that the header announces."""
    column = records.column(records.num_columns - 1)
    if column.null_count:
        raise CorruptBatchError("payload has a record without a transaction id")
    # Not by `to_numpy`: that imports pandas, which can take a second.
    ids = np.frombuffer(column.buffers()[1] or b"", np.int64, len(column), 8 * column.offset)
    if (ids[1:] < ids[:-1]).any():
        raise CorruptBatchError("transaction ids of the payload decrease")
    bounds = header.first_transaction_id, header.last_transaction_id
    if (ids[0], ids[-1]) != bounds:
        raise CorruptBatchError(
            f"transaction ids of the payload go from {ids[0]} to {ids[-1]}, those of the header"
            f" from {bounds[0]} to {bounds[1]}"
        )


def record_schema_json() -> list[dict[str, Any]]:
    """Columns and types of `RECORD_SCHEMA`, for documentation and the API."""
    return [{"name": field.name, "type": str(field.type)} for field in RECORD_SCHEMA]


def _decompressed_bytes(metadata: pa.Buffer, body: pa.Buffer) -> int:
    """How many bytes Arrow will allocate for the buffers of a record-batch message.

    Arrow believes the length in front of each compressed buffer, and a few bytes of
    zstd can become gigabytes; so these lengths are read first. ``metadata`` is a flatbuffer that
    Arrow has verified. Its layout is that of Message.fbs and of
    https://flatbuffers.dev/internals/. Raises struct.error, CorruptBatchError.
    """
    (root,) = _UINT.unpack_from(metadata)
    header_at = _table_field(metadata, root, _MESSAGE_HEADER)
    if not header_at:
        raise CorruptBatchError("payload is an empty Arrow message")
    batch = header_at + _UINT.unpack_from(metadata, header_at)[0]
    if not _table_field(metadata, batch, _RECORD_BATCH_COMPRESSION):
        return 0
    buffers_at = _table_field(metadata, batch, _RECORD_BATCH_BUFFERS)
    if not buffers_at:
        return 0
    vector = buffers_at + _UINT.unpack_from(metadata, buffers_at)[0]
    (count,) = _UINT.unpack_from(metadata, vector)
    if count > _MAX_BUFFERS:
        raise CorruptBatchError(f"payload claims {count} buffers")
    total = 0
    for number in range(count):
        offset, length = struct.unpack_from("<qq", metadata, vector + 4 + 16 * number)
        if length:
            if offset < 0:
                raise CorruptBatchError(f"payload has a buffer at {offset}")
            (decompressed,) = struct.unpack_from("<q", body, offset)
            # -1: this buffer is not compressed, and is not copied.
            total += max(decompressed, 0)
    return total


def _table_field(metadata: pa.Buffer, table: int, number: int) -> int:
    """The position of a field of a flatbuffer's table; 0 if the table does not have it."""
    vtable = table - _INT.unpack_from(metadata, table)[0]
    (size,) = _USHORT.unpack_from(metadata, vtable)
    entry = 4 + 2 * number
    if entry >= size:
        return 0
    (offset,) = _USHORT.unpack_from(metadata, vtable + entry)
    return table + int(offset) if offset else 0
