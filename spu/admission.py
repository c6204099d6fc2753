"""What a client may append: checks of one batch that need no state. Per batch, never per record."""

from __future__ import annotations

from typing import Final

from schemas.batch import HEADER_SIZE, BatchHeader, verify_client_part
from schemas.errors import InvalidRequestError, RecordTooLargeError
from schemas.topic import MAX_BATCH_BYTES

#: What an Arrow message and a record's headers may add to the bytes of one record.
RECORD_OVERHEAD_BYTES: Final = 16 << 10


def admit(batch: memoryview, max_record_bytes: int, partition: str) -> BatchHeader:
    """The header of a batch that may be appended to ``partition``.

    Raises CorruptBatchError, RecordTooLargeError for a batch of one record that cannot hold
    it within ``max_record_bytes``, InvalidRequestError for a batch above `MAX_BATCH_BYTES` or
    with flags that are the leader's.
    """
    if len(batch) > MAX_BATCH_BYTES:
        raise InvalidRequestError(
            f"a batch of {len(batch)} bytes is more than the {MAX_BATCH_BYTES} that any SPU"
            " takes; send smaller batches"
        )
    header = verify_client_part(batch)
    payload = len(batch) - HEADER_SIZE
    if header.record_count == 1 and payload > max_record_bytes + RECORD_OVERHEAD_BYTES:
        raise RecordTooLargeError(
            f"a record of {payload} bytes is more than maxRecordSize {max_record_bytes} of"
            f" {partition}; send smaller records or raise maxRecordSize"
        )
    if header.flags:
        raise InvalidRequestError(
            f"batch flags are {header.flags:#x}; clients send 0, control records are the leader's"
        )
    return header
