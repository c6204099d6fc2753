"""Checks whether a client may append a batch; it never looks at single records. Pure."""

from __future__ import annotations

from typing import Final

from schemas.columns.topic_schema import TopicSchema, column_count, names
from schemas.errors import InvalidRequestError, NotReadyError, RecordTooLargeError
from schemas.objects.topic import MAX_BATCH_BYTES
from schemas.wire.batch import (
    HEADER_SIZE,
    NO_TRANSACTION,
    TRANSACTION_IDS_FLAG,
    BatchHeader,
    verify_client_part,
)

#: What an Arrow message and a record's headers may add to the bytes of one record.
RECORD_OVERHEAD_BYTES: Final = 16 << 10


def admit(batch: memoryview, max_record_bytes: int, partition: str) -> BatchHeader:
    """The header of a batch that may be appended to ``partition``.

    Raises CorruptBatchError; RecordTooLargeError if the batch has one record, which is longer than
    ``max_record_bytes``; InvalidRequestError for a batch above `MAX_BATCH_BYTES`, with flags that
    only leaders set, or with transaction ids that contradict each other.
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
    if header.flags & ~TRANSACTION_IDS_FLAG:
        raise InvalidRequestError(
            f"batch flags are {header.flags:#x}; clients send 0, or {TRANSACTION_IDS_FLAG} for"
            " records with transaction ids: control records are the leader's"
        )
    _admit_transaction_ids(header)
    return header


def _admit_transaction_ids(header: BatchHeader) -> None:
    first, last = header.first_transaction_id, header.last_transaction_id
    if not header.has_transaction_ids:
        if first != NO_TRANSACTION or last != NO_TRANSACTION:
            raise InvalidRequestError(
                f"the batch says that its transaction ids are {first} to {last}, but its flags say"
                f" that it has none; set flag {TRANSACTION_IDS_FLAG}, or both ids to"
                f" {NO_TRANSACTION}"
            )
    elif not 0 <= first <= last:
        raise InvalidRequestError(
            f"the batch says that its transaction ids are {first} to {last}; the first must be at"
            " least 0 and at most the last"
        )


def admit_schema(header: BatchHeader, rows: TopicSchema | None, partition: str) -> None:
    """Check the schema id of a batch for ``partition``, whose columns are ``rows``.

    Raises NotReadyError for more columns than are known: the SC will soon send the new ones.
    Raises InvalidRequestError for any other id that is not a version of ``rows``.
    """
    found = header.schema_id
    if rows is None:
        if found:
            raise InvalidRequestError(
                f"the batch has columns (schema id {found:#010x}), but {partition} takes plain"
                " records: its topic has no schema"
            )
        return
    if found in rows.versions:
        return
    if column_count(found) > len(rows.columns):
        raise NotReadyError(
            f"the batch has {column_count(found)} columns (schema id {found:#010x}), but"
            f" {partition} knows of {len(rows.columns)} so far"
        )
    what = f"of schema id {found:#010x}" if found else "of plain records"
    raise InvalidRequestError(
        f"the batch is {what}, which is no version of the schema of {partition}; its columns are"
        f" {names(rows.columns)} (schema id {rows.schema_id:#010x})",
        schemaId=rows.schema_id,
    )
