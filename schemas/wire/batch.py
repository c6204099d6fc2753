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
                                bit 1: its records have application transaction ids;
                                bit 2: the control batch that seals the log
        32    4 schema id       0: `RECORD_SCHEMA` of `schemas.wire.payload`
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
Batches are padded to 8 bytes. Nothing in this module looks into the payload: `schemas.wire.payload`
encodes and decodes it, for clients. The broker never does, and so needs neither Arrow nor numpy.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple, Required, TypedDict, Unpack

import crc32c as _crc32c

from schemas.errors import CorruptBatchError

Buffer = bytes | bytearray | memoryview

HEADER: Final = struct.Struct("<IIqQIHBBIIqqQIIqqQ")
HEADER_SIZE: Final = 96
MAGIC: Final = 0x4252
CONTROL_FLAG: Final = 1
TRANSACTION_IDS_FLAG: Final = 2
SEAL_FLAG: Final = 4
NO_TRANSACTION: Final = -1
MAX_TRANSACTION_ID: Final = (1 << 63) - 1
MAX_OFFSET: Final = (1 << 63) - 1
"""Of a record, and of the next one to read: offsets are signed numbers of 64 bits."""
_CRC: Final = struct.Struct("<I")
_LEADER_PART: Final = struct.Struct("<IIqQ")
_LEADER_BODY: Final = struct.Struct("<IqQ")
_CLIENT_START: Final = 24

CODECS: Final[dict[str, int]] = {"none": 0, "lz4": 1, "zstd": 2}
_CODEC_NAMES: Final = {number: name for name, number in CODECS.items()}

if HEADER.size != HEADER_SIZE:
    raise AssertionError("the header layout and its documented size disagree")


def crc32c(data: Buffer, value: int = 0) -> int:
    """CRC32C (Castagnoli) of ``data``, continuing from ``value``."""
    return int(_crc32c.crc32c(data, value))


class BatchHeader(NamedTuple):
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
    def is_seal(self) -> bool:
        """Whether it ends the records of its log: only control batches follow."""
        return bool(self.flags & SEAL_FLAG)

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
    (stored,) = _CRC.unpack_from(data, at)
    found = crc32c(memoryview(data)[at + 4 : at + _CLIENT_START])
    if found != stored:
        raise CorruptBatchError(f"leader CRC32C is {found:#010x}, the header says {stored:#010x}")


def verify(batch: Buffer, header: BatchHeader | None = None) -> BatchHeader:
    """Check both CRCs of a stored batch, and its offsets. ``header`` is the batch's, if it was
    read already. Raises CorruptBatchError."""
    verify_leader_part(batch)
    header = verify_client_part(batch, header)
    if not 0 <= header.base_offset <= header.next_offset <= MAX_OFFSET:
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


def build_control(kind: str, timestamp_us: int, flags: int = CONTROL_FLAG) -> bytearray:
    """A control batch: one offset, never delivered. ``kind`` says why it exists: ``term``."""
    return build(
        kind.encode(),
        record_count=1,
        first_timestamp_us=timestamp_us,
        last_timestamp_us=timestamp_us,
        flags=flags,
    )


def build_seal(timestamp_us: int) -> bytearray:
    """The control batch that seals a log."""
    return build_control("seal", timestamp_us, CONTROL_FLAG | SEAL_FLAG)


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
