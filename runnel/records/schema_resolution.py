"""What a consumer of a typed topic hands out: columns as they were when reading began.

Batches may be of any version of the topic's schema, older or newer. Columns that an older batch
lacks are null; columns that were added after reading began are left out, so that all
batches of one consumer have the same columns. Pure: `runnel.consume.schema_follower` asks
the SC for unknown versions before their batches are decoded.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import numpy as np
import pyarrow as pa

from runnel.records.arrow_schema import TIMESTAMP, arrow_schema, decode_rows, timestamps
from runnel.records.tables import timestamp_array
from schemas.columns.topic_schema import TopicSchema, column_count
from schemas.errors import CorruptBatchError, UnsupportedError
from schemas.wire.batch import BatchHeader, Buffer
from schemas.wire.payload import TRANSACTION_ID

_PLACE: Final = (pa.field("partition", pa.int32()), pa.field("offset", pa.int64()))
_TIME: Final = pa.field("timestamp", TIMESTAMP)


def read_schema(rows: TopicSchema) -> pa.Schema:
    """What consumers of a typed topic hand out: partition and offset of a record, time, columns."""
    return pa.schema([*_PLACE, _TIME, *arrow_schema(rows.columns)])


class ReadColumns:
    """Decodes batches of all versions that are known into the columns of ``rows``."""

    def __init__(self, rows: TopicSchema) -> None:
        self.rows = rows
        self.schema = read_schema(rows)
        self._newest = rows
        self._decoded = pa.schema([_TIME, *arrow_schema(rows.columns)])

    def knows(self, header: BatchHeader) -> bool:
        """Whether a batch with this header can be decoded."""
        return header.schema_id in self._newest.versions

    def learn(self, rows: TopicSchema) -> None:
        """Take note of the schema as it is now."""
        if len(rows.columns) > len(self._newest.columns):
            self._newest = rows

    def decode(
        self, header: BatchHeader, batch: Buffer, wanted: Collection[str] | None = None
    ) -> pa.RecordBatch:
        """The records of one verified batch: timestamp, then the columns, then transaction ids
        if they have some. ``wanted``: other columns than these may be null.

        Raises CorruptBatchError, UnsupportedError for a version that is not known.
        """
        count = self._newest.versions.get(header.schema_id)
        if count is None:
            raise UnsupportedError(
                f"the batch has {column_count(header.schema_id)} columns (schema id"
                f" {header.schema_id:#010x}), and no version of the topic's schema is that"
            )
        if wanted is not None and self.rows.timestamp_column is not None:
            wanted = {*wanted, self.rows.timestamp_column}
        found = decode_rows(header, batch, arrow_schema(self._newest.columns[:count]), wanted)
        columns = found.columns[: min(count, len(self.rows.columns))]
        missing = list(self._decoded)[1 + len(columns) :]
        columns += [pa.nulls(found.num_rows, field.type) for field in missing]
        columns.insert(0, self._timestamps(header, found))
        if not header.has_transaction_ids:
            return pa.RecordBatch.from_arrays(columns, schema=self._decoded)
        columns.append(found.column(count))
        return pa.RecordBatch.from_arrays(columns, schema=self._decoded.append(TRANSACTION_ID))

    def _timestamps(self, header: BatchHeader, found: pa.RecordBatch) -> pa.Array:
        if self.rows.timestamp_column is None:
            return timestamp_array(np.full(found.num_rows, header.last_timestamp_us, np.int64))
        try:
            return timestamps(found.column(self.rows.timestamp_column))
        except pa.ArrowException as error:
            raise CorruptBatchError(f"column {self.rows.timestamp_column}: {error}") from error
