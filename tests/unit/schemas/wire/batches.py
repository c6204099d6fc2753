"""Batches of records of plain topics, built as a client builds them."""

from __future__ import annotations

import functools
from typing import Any

import pyarrow as pa

from schemas.wire.batch import (
    CODECS,
    build,
    set_offset_and_term,
)
from schemas.wire.payload import RECORD_SCHEMA, encode_records


def record(
    key: bytes | None = None,
    value: bytes | None = b"v",
    headers: list[dict[str, Any]] | None = None,
    timestamp_us: int = 0,
) -> dict[str, Any]:
    return {"timestamp": timestamp_us, "key": key, "value": value, "headers": headers}


def table_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA)


def batch_of(records: pa.RecordBatch, codec: str = "none", **header: int) -> bytearray:
    return build(
        encode_records(records, codec),
        record_count=records.num_rows,
        first_timestamp_us=0,
        last_timestamp_us=0,
        codec=CODECS[codec],
        **header,
    )


@functools.cache
def stored(codec: str = "none") -> bytes:
    """A small stamped batch."""
    batch = batch_of(table_of([record(b"k", b"v" * 20), record()]), codec, producer_id=7)
    set_offset_and_term(batch, 41, 1 << 48)
    return bytes(batch)
