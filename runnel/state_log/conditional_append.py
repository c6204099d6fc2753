"""Appending one record to a partition, only at the offset that the writer expects next."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from runnel.net.routing import TopicRoute
from schemas.wire.batch import CODECS, build
from schemas.wire.payload import RECORD_SCHEMA, encode_records
from schemas.wire.protocol import Api
from schemas.wire.record_requests import Acks, ProduceRequest

#: Longer values are compressed.
_COMPRESSED_FROM_BYTES: Final = 4 << 10
#: How much longer than the leader the client waits, so that the leader's own answer can arrive.
_ANSWER_SLACK_S: Final = 2.0


def record_batch(value: bytes, at_us: int) -> bytearray:
    """A batch of one record without key and headers."""
    codec = "zstd" if len(value) >= _COMPRESSED_FROM_BYTES else "none"
    rows = pa.RecordBatch.from_pylist(
        [{"timestamp": at_us, "key": None, "value": value, "headers": None}], schema=RECORD_SCHEMA
    )
    return build(
        encode_records(rows, codec),
        record_count=1,
        first_timestamp_us=at_us,
        last_timestamp_us=at_us,
        codec=CODECS[codec],
    )


async def append_at(
    route: TopicRoute, partition: int, batch: bytearray, expected_offset: int, timeout_s: float
) -> None:
    """One attempt to append a batch at ``expected_offset``; it is committed when this returns.

    Raises ConflictError once something else is committed there, or if the log does not reach so
    far. After any RetryableError the outcome is unknown: the batch may be in the log, or may still
    be appended, at this offset. Repeating the attempt is safe: it cannot be appended twice.
    """
    await route.request(
        partition,
        Api.PRODUCE,
        lambda uid: ProduceRequest(
            uid, Acks.COMMITTED, round(timeout_s * 1000), expected_offset
        ).pack(),
        batch,
        timeout_s=timeout_s + _ANSWER_SLACK_S,
    )
