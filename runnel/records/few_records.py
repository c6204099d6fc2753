"""The payload of a batch of few plain records, without Arrow arrays. Pure.

Arrow takes about a tenth of a millisecond to make a batch, however few records are in it, and most
batches of a producer at a steady rate hold ten or twenty. What they need is little: the message in
front of the columns (Message.fbs of Arrow, a flatbuffer) is the same for all of them but for some
numbers at fixed places. So one such message that Arrow wrote is the template; this module writes
its numbers, and the columns behind it. The result is, byte for byte, what Arrow would have written
(`schemas.wire.payload.encode_records`).
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from itertools import accumulate
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from runnel.records.tables import null_headers, timestamp_array
from schemas.wire.payload import RECORD_SCHEMA, encode_records

#: Up to so many records this is faster than Arrow.
FEW: Final = 128
#: Every buffer begins at a multiple of this many bytes.
_ALIGNMENT: Final = 8
_NUMBER: Final = struct.Struct("<q")
#: Length and null count of each column, nested ones included.
_NODES: Final = struct.Struct("<14q")
#: Offset and length of each buffer.
_BUFFERS: Final = struct.Struct("<34q")
_PADDING: Final = bytes(_ALIGNMENT)
#: What the columns within the lists of headers take if there are none.
_NESTED_BYTES: Final = 16
#: Row counts of the template and of its proof. No other number of their messages is the same.
_SAMPLE_ROWS: Final = 77
_PROOF_ROWS: Final = 5


class _Columns(NamedTuple):
    """The numbers in front of the columns, and the columns: pieces of ``body_bytes`` in all."""

    nodes: tuple[int, ...]
    buffers: Sequence[int]
    body_bytes: int
    pieces: list[bytes]


class _Template(NamedTuple):
    """All in front of the columns, and where the numbers stand in it."""

    message: bytes
    rows_at: int
    body_bytes_at: int
    nodes_at: int
    buffers_at: int


def encode_few(
    times_us: Sequence[int], keys: Sequence[bytes | None], values: Sequence[bytes | None]
) -> bytes | None:
    """The payload of at least one record without headers and transaction ids, not compressed.

    ``times_us`` are microseconds since the epoch. None if this version of Arrow writes another
    message than is known here.
    """
    template = _template()
    return None if template is None else _encoded(template, times_us, keys, values)


def _encoded(
    template: _Template,
    times_us: Sequence[int],
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
) -> bytes:
    columns = _columns(times_us, keys, values)
    message = bytearray(template.message)
    _NUMBER.pack_into(message, template.rows_at, len(times_us))
    _NUMBER.pack_into(message, template.body_bytes_at, columns.body_bytes)
    _NODES.pack_into(message, template.nodes_at, *columns.nodes)
    _BUFFERS.pack_into(message, template.buffers_at, *columns.buffers)
    return b"".join((message, *columns.pieces))


def _columns(
    times_us: Sequence[int], keys: Sequence[bytes | None], values: Sequence[bytes | None]
) -> _Columns:
    rows = len(times_us)
    key_nulls, *key_buffers = _binary_column(keys)
    value_nulls, *value_buffers = _binary_column(values)
    contents = (
        b"",
        struct.pack(f"<{rows}q", *times_us),
        *key_buffers,
        *value_buffers,
        # No headers: a bitmap that says null, and the offsets of empty lists.
        bytes((rows + 7) // 8),
        bytes(4 * (rows + 1)),
    )
    pieces: list[bytes] = []
    buffers: list[int] = []
    at = 0
    for content in contents:
        size = len(content)
        padded = (size + 7) & -_ALIGNMENT
        buffers += (at, size)
        pieces.append(content)
        if padded != size:
            pieces.append(_PADDING[: padded - size])
        at += padded
    # Without headers the columns within their lists have no rows: of the buffers of these, only
    # offsets have an entry.
    buffers += (at, 0, at, 0, at, 4, at + 8, 0, at + 8, 0, at + 8, 4, at + 16, 0)
    pieces.append(bytes(_NESTED_BYTES))
    nodes = (rows, 0, rows, key_nulls, rows, value_nulls, rows, rows, 0, 0, 0, 0, 0, 0)
    return _Columns(nodes, buffers, at + _NESTED_BYTES, pieces)


def _binary_column(items: Sequence[bytes | None]) -> tuple[int, bytes, bytes, bytes]:
    """How many items are null; a bitmap of those that are not, where each item ends, and all."""
    rows, nulls = len(items), items.count(None)
    if nulls == rows:
        return nulls, bytes((rows + 7) // 8), bytes(4 * (rows + 1)), b""
    bitmap = b""
    if nulls:
        present = sum(1 << row for row, item in enumerate(items) if item is not None)
        bitmap = present.to_bytes((rows + 7) // 8, "little")
    filled: Sequence[bytes] = [item or b"" for item in items] if nulls else items  # type: ignore[assignment]
    offsets = struct.pack(f"<{rows + 1}i", *accumulate(map(len, filled), initial=0))
    return nulls, bitmap, offsets, b"".join(filled)


@functools.cache
def _template() -> _Template | None:
    """A message that Arrow wrote, if it is as this module expects it."""
    message, columns = _sample(_SAMPLE_ROWS)
    head = message[: -columns.body_bytes]
    nodes, buffers = _NODES.pack(*columns.nodes), _BUFFERS.pack(*columns.buffers)
    if head.count(nodes) != 1 or head.count(buffers) != 1:
        return None
    nodes_at, buffers_at = head.index(nodes), head.index(buffers)
    # The rows and the size of the body stand alone; the nodes hold the rows, too.
    others = head.replace(nodes, bytes(len(nodes))).replace(buffers, bytes(len(buffers)))
    rows, body_bytes = _NUMBER.pack(_SAMPLE_ROWS), _NUMBER.pack(columns.body_bytes)
    if others.count(rows) != 1 or others.count(body_bytes) != 1:
        return None
    found = _Template(head, others.index(rows), others.index(body_bytes), nodes_at, buffers_at)
    proof, _columns_of_proof = _sample(_PROOF_ROWS)
    return found if _encoded(found, *_sample_records(_PROOF_ROWS)) == proof else None


def _sample(rows: int) -> tuple[bytes, _Columns]:
    """What Arrow writes for some records, and what this module writes behind the message."""
    times_us, keys, values = _sample_records(rows)
    columns = [
        timestamp_array(np.array(times_us, np.int64)),
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        null_headers(rows),
    ]
    records = pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)
    return bytes(encode_records(records)), _columns(times_us, keys, values)


def _sample_records(rows: int) -> tuple[list[int], list[bytes | None], list[bytes | None]]:
    keys: list[bytes | None] = [None if row % 3 else b"key" for row in range(rows)]
    return [1_000_000 + row for row in range(rows)], keys, [b"value"] * rows
