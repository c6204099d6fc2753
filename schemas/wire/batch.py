"""The record batch: the unit that is produced, stored, replicated and fetched, byte for byte.

A batch is a fixed header of 96 bytes and a payload. All integers are little-endian::

    offset size field
         0    4 leader CRC      CRC32C of bytes 4..24, stamped by the leader
         4    4 client CRC      CRC32C of bytes 24..length, computed by the client
         8    8 base offset     leader: offset of the first record
        16    8 term            leader: the term it appended in
        24    4 length          of the whole batch, header included
        28    2 magic           0x4252, the letters RB
        30    1 codec           0 none, 1 lz4, 2 zstd
        31    1 flags           bit 0: control batch, never delivered to readers;
                                bit 1: its records have application transaction ids
        32    4 schema id       0: the record schema below
        36    4 record count    offsets run from base to base + count - 1
        40    8 first timestamp smallest, in microseconds since the epoch
        48    8 last timestamp  largest
        56    8 producer id     0: no duplicate detection
        64    4 producer epoch
        68    4 sequence        of this batch, per producer epoch and partition
        72    8 first application transaction id   smallest of the records'; -1: none
        80    8 last application transaction id    largest; -1: none
        88    8 zero
        96    … payload

The client CRC is computed once by the producer and verified by every hop and by recovery; the
leader CRC covers the leader's fields and the client CRC, so that neither part can be swapped.
The payload is one encapsulated Arrow IPC record-batch message (its buffers compressed by the
codec) of `RECORD_SCHEMA`; messages are padded to 8 bytes, and so are batches. The broker never
decodes payloads: nothing in this module but `encode_records` and `read_payload` does.

Checksums find damage, not lies: any producer can compute them. `read_payload` therefore believes
nothing that a payload says about itself. Its result is safe to read, and takes no more memory than
an uncompressed batch may.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Required, TypedDict, Unpack

import crc32c as _crc32c
import numpy as np
import pyarrow as pa
import pyarrow.ipc

from schemas.errors import CorruptBatchError, UnsupportedError
from schemas.objects.topic import MAX_BATCH_BYTES

Buffer = bytes | bytearray | memoryview

HEADER: Final = struct.Struct("<IIqQIHBBIIqqQIIqqQ")
HEADER_SIZE: Final = 96
MAGIC: Final = 0x4252
CONTROL_FLAG: Final = 1
TRANSACTION_IDS_FLAG: Final = 2
NO_TRANSACTION: Final = -1
MAX_TRANSACTION_ID: Final = (1 << 63) - 1
_LEADER_PART: Final = struct.Struct("<IIqQ")
_LEADER_BODY: Final = struct.Struct("<IqQ")
_CLIENT_START: Final = 24
_END_OF_STREAM_LENGTH: Final = 8
_MAX_OFFSET: Final = (1 << 63) - 1
#: The most bytes that the buffers of a payload may take when they are decompressed.
MAX_DECODED_BYTES: Final = MAX_BATCH_BYTES
#: More buffers than any schema has.
_MAX_BUFFERS: Final = 1 << 16
# Numbers of fields in Arrow's Message.fbs.
_MESSAGE_HEADER: Final = 2
_RECORD_BATCH_BUFFERS: Final = 2
_RECORD_BATCH_COMPRESSION: Final = 3

CODECS: Final[dict[str, int]] = {"none": 0, "lz4": 1, "zstd": 2}
_CODEC_NAMES: Final = {number: name for name, number in CODECS.items()}

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

if HEADER.size != HEADER_SIZE:
    raise AssertionError("the header layout and its documented size disagree")


def crc32c(data: Buffer, value: int = 0) -> int:
    """CRC32C (Castagnoli) of ``data``, continuing from ``value``."""
    return int(_crc32c.crc32c(data, value))


@dataclass(frozen=True, slots=True)
class BatchHeader:
    """The decoded header of one batch. Timestamps are microseconds since the epoch."""

    base_offset: int
    term: int
    length: int
    codec: int
    flags: int
    schema_id: int
    record_count: int
    first_timestamp_us: int
    last_timestamp_us: int
    producer_id: int
    producer_epoch: int
    sequence: int
    first_transaction_id: int
    last_transaction_id: int
    client_crc: int
    leader_crc: int

    @property
    def is_control(self) -> bool:
        return bool(self.flags & CONTROL_FLAG)

    @property
    def has_transaction_ids(self) -> bool:
        """Whether its records have transaction ids."""
        return bool(self.flags & TRANSACTION_IDS_FLAG)

    @property
    def next_offset(self) -> int:
        """The offset after the last record."""
        return self.base_offset + self.record_count


def read_header(data: Buffer, at: int = 0) -> BatchHeader:
    """Decode the header at ``at``. Raises CorruptBatchError if there is no valid header."""
    if len(data) - at < HEADER_SIZE:
        raise CorruptBatchError(
            f"{len(data) - at} bytes cannot hold a batch header of {HEADER_SIZE}"
        )
    (
        leader_crc, client_crc, base, term, length, magic, codec, flags, schema_id, count,
        first_ts, last_ts, producer, epoch, sequence, first_txn, last_txn, _zero,
    ) = HEADER.unpack_from(data, at)  # fmt: skip
    if magic != MAGIC:
        raise CorruptBatchError(f"batch magic is {magic:#06x}, not {MAGIC:#06x}")
    if length < HEADER_SIZE:
        raise CorruptBatchError(f"batch length {length} is less than its header")
    return BatchHeader(
        base, term, length, codec, flags, schema_id, count, first_ts, last_ts,
        producer, epoch, sequence, first_txn, last_txn, client_crc, leader_crc,
    )  # fmt: skip


def verify_client_part(batch: Buffer, header: BatchHeader | None = None) -> BatchHeader:
    """Check a whole batch as a client sent it: length and client CRC. ``header`` is the batch's,
    if it was read already.

    Raises CorruptBatchError; the message says what is wrong.
    """
    header = header or read_header(batch)
    if header.length != len(batch):
        raise CorruptBatchError(f"batch header says {header.length} bytes, {len(batch)} arrived")
    if header.record_count < 1:
        raise CorruptBatchError("a batch holds at least one record")
    if header.codec not in _CODEC_NAMES:
        raise CorruptBatchError(f"unknown codec {header.codec}")
    found = crc32c(memoryview(batch)[_CLIENT_START:])
    if found != header.client_crc:
        raise CorruptBatchError(
            f"client CRC32C is {found:#010x}, the header says {header.client_crc:#010x}"
        )
    return header


def verify_leader_part(data: Buffer, at: int = 0) -> None:
    """Check the CRC over the fields that the leader assigned. Raises CorruptBatchError."""
    if len(data) - at < HEADER_SIZE:
        raise CorruptBatchError(
            f"{len(data) - at} bytes cannot hold a batch header of {HEADER_SIZE}"
        )
    (stored,) = struct.unpack_from("<I", data, at)
    found = crc32c(memoryview(data)[at + 4 : at + _CLIENT_START])
    if found != stored:
        raise CorruptBatchError(f"leader CRC32C is {found:#010x}, the header says {stored:#010x}")


def verify(batch: Buffer, header: BatchHeader | None = None) -> BatchHeader:
    """Check both CRCs of a stored batch, and its offsets. ``header`` is the batch's, if it was
    read already. Raises CorruptBatchError."""
    verify_leader_part(batch)
    header = verify_client_part(batch, header)
    if not 0 <= header.base_offset <= header.next_offset <= _MAX_OFFSET:
        raise CorruptBatchError(
            f"{header.record_count} records cannot begin at offset {header.base_offset}"
        )
    return header


def set_offset_and_term(batch: bytearray | memoryview, base_offset: int, term: int) -> None:
    """Write the leader's part into a batch in place."""
    (client_crc,) = struct.unpack_from("<I", batch, 4)
    leader_crc = crc32c(_LEADER_BODY.pack(client_crc, base_offset, term))
    _LEADER_PART.pack_into(batch, 0, leader_crc, client_crc, base_offset, term)


class ClientPart(TypedDict, total=False):
    """The client's fields of a header; a field left out is 0, or no transaction id."""

    record_count: Required[int]
    first_timestamp_us: Required[int]
    last_timestamp_us: Required[int]
    codec: int
    flags: int
    schema_id: int
    producer_id: int
    producer_epoch: int
    sequence: int
    first_transaction_id: int
    last_transaction_id: int


def build_pieces(payload: Sequence[Buffer], **says: Unpack[ClientPart]) -> list[Buffer]:
    """A batch around the pieces of a payload, as pieces to write one after the other: the header
    first, then the pieces of the payload, which are not copied. The leader's part is zero.
    """
    size = sum(map(len, payload))
    padding = -size % 8
    header = bytearray(HEADER_SIZE)
    HEADER.pack_into(
        header, 0, 0, 0, 0, 0, HEADER_SIZE + size + padding, MAGIC,
        says.get("codec", 0), says.get("flags", 0), says.get("schema_id", 0),
        says["record_count"], says["first_timestamp_us"],
        says["last_timestamp_us"], says.get("producer_id", 0),
        says.get("producer_epoch", 0), says.get("sequence", 0),
        says.get("first_transaction_id", NO_TRANSACTION),
        says.get("last_transaction_id", NO_TRANSACTION), 0,
    )  # fmt: skip
    pieces: list[Buffer] = [header, *payload]
    if padding:
        pieces.append(bytes(padding))
    client_crc = crc32c(memoryview(header)[_CLIENT_START:])
    for piece in pieces[1:]:
        client_crc = crc32c(piece, client_crc)
    struct.pack_into("<I", header, 4, client_crc)
    return pieces


def build(payload: Buffer, **says: Unpack[ClientPart]) -> bytearray:
    """`build_pieces` of one piece, put together."""
    return bytearray().join(build_pieces([payload], **says))


def build_control(kind: str, timestamp_us: int) -> bytearray:
    """A control batch: one offset, never delivered. ``kind`` says why it exists: ``term``."""
    return build(
        kind.encode(),
        record_count=1,
        first_timestamp_us=timestamp_us,
        last_timestamp_us=timestamp_us,
        flags=CONTROL_FLAG,
    )


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


def decode_records(batch: Buffer, header: BatchHeader | None = None) -> pa.RecordBatch:
    """The records of one batch, without copying if the codec is none: columns of
    `RECORD_SCHEMA`, then `TRANSACTION_ID` if they have ids. ``header`` is the batch's, if it was
    read already.

    The caller has verified the batch. Raises CorruptBatchError as `read_payload` does and if a
    record lacks a required value, UnsupportedError for an unknown schema.
    """
    header = header or read_header(batch)
    if header.schema_id != 0:
        raise UnsupportedError(f"this client does not know schema {header.schema_id}; upgrade it")
    with_ids = header.has_transaction_ids
    records = read_payload(header, batch, _SCHEMA_WITH_IDS if with_ids else RECORD_SCHEMA)
    if with_ids:
        require_transaction_ids(header, records)
    if records.column("timestamp").null_count:
        raise CorruptBatchError("payload has a record without a timestamp")
    pairs = records.column("headers").values
    if pairs.null_count or pairs.field("key").null_count:
        raise CorruptBatchError("payload has a header without a key")
    return records


def read_payload(header: BatchHeader, batch: Buffer, schema: pa.Schema) -> pa.RecordBatch:
    """The rows of a verified batch, read as ``schema``; not copied if the codec is none.

    Raises CorruptBatchError if the payload is no record batch of that schema, contradicts
    itself or the header, or would take more than `MAX_DECODED_BYTES`. May hold nulls anywhere.
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
        records = pa.ipc.read_record_batch(message, schema)
        # Offsets inside columns too: following a false offset would read outside the buffer.
        records.validate(full=True)
    except (pa.ArrowException, EOFError, OSError, ValueError, struct.error) as error:
        raise CorruptBatchError(f"payload is not an Arrow record batch: {error}") from error
    if records.num_rows != header.record_count:
        raise CorruptBatchError(
            f"payload has {records.num_rows} records, the header says {header.record_count}"
        )
    return records


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


def _decompressed_bytes(metadata: pa.Buffer, body: pa.Buffer) -> int:
    """How many bytes Arrow will allocate for the buffers of a record-batch message.

    Arrow believes the length in front of each compressed buffer, and a few bytes of
    zstd can become gigabytes; so these lengths are read first. ``metadata`` is a flatbuffer that
    Arrow has verified. Its layout is that of Message.fbs and of
    https://flatbuffers.dev/internals/. Raises struct.error, CorruptBatchError.
    """
    (root,) = struct.unpack_from("<I", metadata)
    header_at = _table_field(metadata, root, _MESSAGE_HEADER)
    if not header_at:
        raise CorruptBatchError("payload is an empty Arrow message")
    batch = header_at + struct.unpack_from("<I", metadata, header_at)[0]
    buffers_at = _table_field(metadata, batch, _RECORD_BATCH_BUFFERS)
    if not buffers_at or not _table_field(metadata, batch, _RECORD_BATCH_COMPRESSION):
        return 0
    vector = buffers_at + struct.unpack_from("<I", metadata, buffers_at)[0]
    (count,) = struct.unpack_from("<I", metadata, vector)
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
    vtable = table - struct.unpack_from("<i", metadata, table)[0]
    (size,) = struct.unpack_from("<H", metadata, vtable)
    entry = 4 + 2 * number
    if entry >= size:
        return 0
    (offset,) = struct.unpack_from("<H", metadata, vtable + entry)
    return table + int(offset) if offset else 0


def split_batches(data: memoryview) -> list[tuple[BatchHeader, memoryview]]:
    """The whole batches at the start of ``data``; a last incomplete one is left out."""
    found: list[tuple[BatchHeader, memoryview]] = []
    at = 0
    while len(data) - at >= HEADER_SIZE:
        header = read_header(data, at)
        if len(data) - at < header.length:
            break
        found.append((header, data[at : at + header.length]))
        at += header.length
    return found


def record_schema_json() -> list[dict[str, Any]]:
    """Columns and types of `RECORD_SCHEMA`, for documentation and the API."""
    return [{"name": field.name, "type": str(field.type)} for field in RECORD_SCHEMA]
