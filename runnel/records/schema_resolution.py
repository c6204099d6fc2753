"""What a consumer of a typed topic hands out: columns as they were when reading began.

Batches may be of any version of the topic's schema, older or newer. Columns that an older batch
lacks are null; columns that were added after reading began are left out, so that all
batches of one consumer have the same columns. Pure: `runnel.consume.schema_follower` asks
the SC for unknown versions before their batches are decoded.
"""

from __future__ import annotations

from collections.abc import Mapping
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
        self._given = pa.schema([_TIME, *arrow_schema(rows.columns)])
        self._narrow: dict[frozenset[str], pa.Schema] = {}

    def knows(self, header: BatchHeader) -> bool:
        """Whether a batch with this header can be decoded."""
        return header.schema_id in self._newest.versions

    def learn(self, rows: TopicSchema) -> None:
        """Take note of the schema as it is now."""
        if len(rows.columns) > len(self._newest.columns):
            self._newest = rows

    def decode(
        self, header: BatchHeader, batch: Buffer, wanted: frozenset[str] | None = None
    ) -> pa.RecordBatch:
        """The records of one verified batch: timestamp, then the columns, then transaction ids
        if they have some. ``wanted``: other columns than these are left out.

        Raises CorruptBatchError, UnsupportedError for a version that is not known.
        """
        count = self._newest.versions.get(header.schema_id)
        if count is None:
            raise UnsupportedError(
                f"the batch has {column_count(header.schema_id)} columns (schema id"
                f" {header.schema_id:#010x}), and no version of the topic's schema is that"
            )
        schema = self._given if wanted is None else self._narrowed(wanted)
        if wanted is not None and self.rows.timestamp_column is not None:
            wanted |= {self.rows.timestamp_column}
        found = decode_rows(header, batch, arrow_schema(self._newest.columns[:count]), wanted)
        names, decoded = found.schema.names, found.columns
        # A column of the topic may have the same name as the last one.
        ids = [decoded.pop()] if header.has_transaction_ids else []
        there = dict(zip(names, decoded, strict=False))
        columns = [self._timestamps(header, there)]
        for field in list(schema)[1:]:
            column = there.get(field.name)
            columns.append(pa.nulls(found.num_rows, field.type) if column is None else column)
        if ids:
            schema = schema.append(TRANSACTION_ID)
        return pa.RecordBatch.from_arrays([*columns, *ids], schema=schema)

    def _narrowed(self, wanted: frozenset[str]) -> pa.Schema:
        """The schema of what is given if only these columns are wanted."""
        if (schema := self._narrow.get(wanted)) is None:
            kept = [_TIME, *(field for field in list(self._given)[1:] if field.name in wanted)]
            schema = self._narrow[wanted] = pa.schema(kept)
        return schema

    def _timestamps(self, header: BatchHeader, there: Mapping[str, pa.Array]) -> pa.Array:
        if self.rows.timestamp_column is None:
            return timestamp_array(np.full(header.record_count, header.last_timestamp_us, np.int64))
        try:
            return timestamps(there[self.rows.timestamp_column])
        except pa.ArrowException as error:
            raise CorruptBatchError(f"column {self.rows.timestamp_column}: {error}") from error
