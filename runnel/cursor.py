"""Reading one partition: from the bytes of a fetch to the records a reader is due. Pure.

A cursor knows the next offset that it wants. Batches are verified (both checksums), control
batches and whatever lies before the position are stepped over, offsets may have gaps, and
nothing at or beyond ``stop`` is given. The records keep pointing into the fetched bytes where
the codec allows: they are not copied, but for small batches, which are put together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from runnel.columns import int64_values
from runnel.read_columns import ReadColumns
from schemas.batch import RECORD_SCHEMA, BatchHeader, decode_records, split_batches, verify
from schemas.errors import CorruptBatchError, UnsupportedError

#: What consumers of plain topics hand out: where a record stands, then its columns.
READ_SCHEMA: Final = pa.schema(
    [pa.field("partition", pa.int32()), pa.field("offset", pa.int64()), *RECORD_SCHEMA]
)
_PLACE_COLUMNS: Final = 2
#: Behind the other columns in batches whose records have transaction ids.
READ_TRANSACTION_ID: Final = pa.field("transaction_id", pa.int64())
#: Batches of less are put together with their neighbours, as each one that is handed out has its
#: price; to copy larger ones costs more than that.
SMALL_BYTES: Final = 256 << 10
#: Small batches are put together up to about this many bytes.
COALESCE_BYTES: Final = 16 << 20


@dataclass(slots=True)
class Cursor:
    """The position in one partition.

    ``stop``: the first offset not to read, None for never. ``not_before_us``: records before
    the first one with this timestamp or a later one are left out. ``not_before_id``: records before
    the first one with this transaction id or a larger one are. ``term`` is that of the last
    batch that was seen. ``columns``: of a typed topic, how its batches are decoded; records are
    given in its schema then.
    """

    topic: str
    partition: int
    position: int
    stop: int | None = None
    not_before_us: int | None = None
    term: int = 0
    columns: ReadColumns | None = None
    not_before_id: int | None = None

    @property
    def finished(self) -> bool:
        """Is everything before ``stop`` read?"""
        return self.stop is not None and self.position >= self.stop

    def take(self, data: memoryview, lac: int | None = None) -> list[pa.RecordBatch]:
        """The due records of fetched batches, as record batches of `READ_SCHEMA` (of a typed
        topic, of its own schema), those with transaction ids with `READ_TRANSACTION_ID` behind.

        Moves the position behind them. ``lac`` is the last add confirmed that came with them.
        Raises CorruptBatchError that names the place, also for a batch above ``lac``; the
        position is then where it was, and the same records can be read from another replica.
        """
        found: list[pa.RecordBatch] = []
        before = self.position, self.term, self.not_before_us, self.not_before_id
        try:
            batches = split_batches(data)
            if not batches and len(data):
                raise CorruptBatchError(f"{len(data)} bytes are no whole batch")
            for header, raw in batches:
                if self.finished:
                    break
                verify(raw)
                if lac is not None and header.next_offset > lac + 1:
                    raise CorruptBatchError(
                        f"a batch ends at {header.next_offset - 1}, above the last add confirmed"
                        f" {lac}: the SPU sent what is not committed"
                    )
                if header.next_offset > self.position:
                    found.extend(self._due(header, raw))
        except (CorruptBatchError, UnsupportedError) as error:
            place = f"{self.topic}/{self.partition} at offset {self.position}"
            self.position, self.term, self.not_before_us, self.not_before_id = before
            raise type(error)(f"{place}: {error.message}") from error
        return list(_coalesced(found))

    def _due(self, header: BatchHeader, raw: memoryview) -> Iterator[pa.RecordBatch]:
        end = header.next_offset
        if self.stop is not None and end > self.stop:
            end = self.stop
        start = max(self.position, header.base_offset)
        self.position = end
        self.term = header.term
        if header.is_control or start >= end:
            return
        if self.not_before_id is not None and (
            not header.has_transaction_ids or header.last_transaction_id < self.not_before_id
        ):
            return
        decoded = decode_records(raw) if self.columns is None else self.columns.decode(header, raw)
        records = decoded.slice(start - header.base_offset, end - start)
        if self.not_before_us is not None:
            late = np.flatnonzero(int64_values(records.column("timestamp")) >= self.not_before_us)
            if not len(late):
                return
            self.not_before_us = None
            start += int(late[0])
            records = records.slice(int(late[0]))
        if self.not_before_id is not None:
            ids = int64_values(records.column(records.num_columns - 1))
            below = int(np.searchsorted(ids, self.not_before_id))
            if below == len(ids):
                return
            self.not_before_id = None
            start += below
            records = records.slice(below)
        yield self._located(records, start)

    def _located(self, records: pa.RecordBatch, start: int) -> pa.RecordBatch:
        rows = records.num_rows
        schema = READ_SCHEMA if self.columns is None else self.columns.schema
        if records.num_columns > len(schema) - _PLACE_COLUMNS:
            schema = schema.append(READ_TRANSACTION_ID)
        return pa.RecordBatch.from_arrays(
            [
                _numbers(pa.int32(), np.full(rows, self.partition, np.int32)),
                _numbers(pa.int64(), np.arange(start, start + rows, dtype=np.int64)),
                *records.columns,
            ],
            schema=schema,
        )


def _numbers(type_: pa.DataType, values: npt.NDArray[Any]) -> pa.Array:
    # Not `pa.array`: it imports pandas, which can take a second.
    return pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(values)])


def _coalesced(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if len(batches) < 2:
        yield from batches
        return
    together: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        own = batch.nbytes
        if together and (
            own >= SMALL_BYTES
            or size + own > COALESCE_BYTES
            or batch.num_columns != together[0].num_columns
        ):
            yield _joined(together)
            together, size = [], 0
        if own >= SMALL_BYTES:
            yield batch
        else:
            together.append(batch)
            size += own
    if together:
        yield _joined(together)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
