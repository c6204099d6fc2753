"""Reading one partition: from the bytes of a fetch to the records a reader is due. Pure.

A cursor knows the next offset that it wants. Batches are verified (both checksums), control
batches and records before the position are skipped, offsets may have gaps, and
nothing at or beyond ``stop`` is returned. The records point into the fetched bytes if the
codec allows it: they are not copied, except small batches, which are merged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from runnel.records.schema_resolution import ReadColumns
from runnel.records.tables import int64_values
from schemas.errors import CorruptBatchError, UnsupportedError
from schemas.wire.batch import BatchHeader, split_batches, verify
from schemas.wire.payload import RECORD_SCHEMA, decode_records

#: What consumers of plain topics hand out: a record's partition and offset, then its columns.
READ_SCHEMA: Final = pa.schema(
    [pa.field("partition", pa.int32()), pa.field("offset", pa.int64()), *RECORD_SCHEMA]
)
_PLACE_COLUMNS: Final = 2
#: The last column in batches whose records have transaction ids.
READ_TRANSACTION_ID: Final = pa.field("transaction_id", pa.int64())
#: Smaller batches are merged with their neighbours, because handing out a batch has a fixed cost;
#: copying larger ones would cost more than that.
SMALL_BYTES: Final = 256 << 10
#: Small batches are merged up to about this many bytes.
COALESCE_BYTES: Final = 16 << 20


#: What a cursor knows of its place.
_State = tuple[int, int, int | None, int | None, int | None]


class _Due(NamedTuple):
    """The due part of one batch: its records, the offset of the first, roughly their bytes, and
    whether their last column holds transaction ids."""

    records: pa.RecordBatch
    start: int
    size: int
    with_ids: bool

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        return np.arange(self.start, self.start + self.records.num_rows, dtype=np.int64)


@dataclass(slots=True)
class Cursor:
    """The position in one partition.

    ``stop``: the first offset not to read, None for never; the end of a sealed log becomes it, and
    ``sealed`` says so. ``before_us``: the first record with
    this timestamp or a later one ends the reading, and becomes ``stop``. ``not_before_us``: records
    before the first one with this timestamp or a later one are left out. ``not_before_id``: the
    same for the first record with this transaction id or a larger one. ``term`` is that of the last
    batch that was read, and ``term_starts`` tells the terms of what was taken last: the offset of
    the first batch and its term, and the same of each batch with another term. ``columns``: of a
    typed topic, how its batches are decoded; records are given in its schema then. ``wanted``:
    other columns than these may be null; those that tell what is due are added.
    """

    topic: str
    partition: int
    position: int
    stop: int | None = None
    not_before_us: int | None = None
    term: int = 0
    columns: ReadColumns | None = None
    not_before_id: int | None = None
    before_us: int | None = None
    wanted: frozenset[str] | None = None
    term_starts: tuple[tuple[int, int], ...] = ()
    sealed: bool = False

    def __post_init__(self) -> None:
        if self.not_before_us is not None or self.before_us is not None:
            # Times say what is due. Kept after that: batches that are merged have the same columns.
            self.wanted = None if self.wanted is None else self.wanted | {"timestamp"}

    @property
    def searching(self) -> bool:
        """Is the first record of ``not_before_us`` or ``not_before_id`` still to come?"""
        return self.not_before_us is not None or self.not_before_id is not None

    @property
    def finished(self) -> bool:
        """Whether everything before ``stop`` was read."""
        return self.stop is not None and self.position >= self.stop

    def take(self, data: memoryview, lac: int | None = None) -> list[pa.RecordBatch]:
        """The due records of fetched batches, as record batches of `READ_SCHEMA` (of a typed
        topic, of its own schema), with `READ_TRANSACTION_ID` as a last column if they have
        transaction ids.

        Moves the position past them. ``lac`` is the last add confirmed that came with them.
        Raises CorruptBatchError that names the place, also for a batch above ``lac``; the
        position is then where it was, and the same records can be read from another replica. If a
        batch cannot be decoded whose checksums are right, what comes before it is given first.
        """
        found: list[_Due] = []
        before = self._state()
        self.term_starts = ()
        try:
            batches = split_batches(data)
            if not batches and len(data):
                raise CorruptBatchError(f"{len(data)} bytes are no whole batch")
            for header, raw in batches:
                if self.finished:
                    break
                verify(raw, header)
                if lac is not None and header.next_offset > lac + 1:
                    raise CorruptBatchError(
                        f"a batch ends at {header.next_offset - 1}, above the last add confirmed"
                        f" {lac}: the SPU sent what is not committed"
                    )
                if header.next_offset > self.position:
                    began = self._state()
                    try:
                        due = self._due(header, raw)
                    except (CorruptBatchError, UnsupportedError):
                        # The error names this batch, and not what follows it.
                        self._restore(began)
                        if found:
                            # What comes before is whole; the next call begins with this batch.
                            break
                        raise
                    if due is not None:
                        found.append(due)
        except (CorruptBatchError, UnsupportedError) as error:
            place = f"{self.topic}/{self.partition} at offset {self.position}"
            self._restore(before)
            raise type(error)(f"{place}: {error.message}") from error
        return [self._located(together) for together in _coalesced(found)]

    def take_rows(self, rows: pa.RecordBatch, end: int, term: int) -> list[pa.RecordBatch]:
        """The due records of a batch that has their partitions and offsets already, as `take` gives
        them; there are no others below ``end``. ``term`` is that of the last batch below, 0 if it
        is not known.
        """
        start, stop = self.position, end if self.stop is None else min(end, self.stop)
        self.term_starts = ((start, term),)
        self.position, self.term = stop, term
        rows = _between(rows, start, stop)
        if self.not_before_us is not None:
            rows = _from_first(rows, int64_values(rows.column("timestamp")) >= self.not_before_us)
            self.not_before_us = None if rows.num_rows else self.not_before_us
        if self.not_before_id is not None:
            width = len(READ_SCHEMA if self.columns is None else self.columns.schema)
            if rows.num_columns == width:
                return []
            ids = int64_values(rows.column(width).fill_null(-1))
            rows = _from_first(rows, ids >= self.not_before_id)
            self.not_before_id = None if rows.num_rows else self.not_before_id
        if self.before_us is not None:
            late = np.flatnonzero(int64_values(rows.column("timestamp")) >= self.before_us)
            if len(late):
                self.position = self.stop = int(int64_values(rows.column("offset"))[late[0]])
                rows = rows.slice(0, int(late[0]))
        return [rows] if rows.num_rows else []

    def _state(self) -> _State:
        return self.position, self.term, self.stop, self.not_before_us, self.not_before_id

    def _restore(self, state: _State) -> None:
        self.position, self.term, self.stop, self.not_before_us, self.not_before_id = state

    def _due(self, header: BatchHeader, raw: memoryview) -> _Due | None:
        end = header.next_offset
        if self.stop is not None and end > self.stop:
            end = self.stop
        start = max(self.position, header.base_offset)
        if header.is_seal:
            # The control records that may follow are of no use to anybody.
            self.position = self.stop = start
            self.sealed = True
            return None
        self.position = end
        if header.term != self.term or not self.term_starts:
            self.term = header.term
            self.term_starts += ((header.base_offset, header.term),)
        if header.is_control or start >= end:
            return None
        if self.not_before_id is not None and (
            not header.has_transaction_ids or header.last_transaction_id < self.not_before_id
        ):
            return None
        if self.columns is None:
            records = decode_records(raw, header, self.wanted)
        else:
            records = self.columns.decode(header, raw, self.wanted)
        if end - start < header.record_count:
            records = records.slice(start - header.base_offset, end - start)
        if self.not_before_us is not None:
            late = np.flatnonzero(int64_values(records.column("timestamp")) >= self.not_before_us)
            if not len(late):
                return None
            self.not_before_us = None
            start += int(late[0])
            records = records.slice(int(late[0]))
        if self.not_before_id is not None:
            ids = int64_values(records.column(records.num_columns - 1))
            below = int(np.searchsorted(ids, self.not_before_id))
            if below == len(ids):
                return None
            self.not_before_id = None
            start += below
            records = records.slice(below)
        if self.before_us is not None and header.last_timestamp_us >= self.before_us:
            late = np.flatnonzero(int64_values(records.column("timestamp")) >= self.before_us)
            if len(late):
                records = records.slice(0, int(late[0]))
                self.position = self.stop = start + records.num_rows
                if not records.num_rows:
                    return None
        size = records.nbytes if header.codec else header.length
        return _Due(records, start, size, header.has_transaction_ids)

    def _located(self, together: list[_Due]) -> pa.RecordBatch:
        """The records of neighbours as one batch, with the partition and offset of each record."""
        first, last = together[0], together[-1]
        records = first.records
        if len(together) > 1:
            records = pa.concat_batches([due.records for due in together])
        rows, schema = records.num_rows, READ_SCHEMA
        if last.start + last.records.num_rows == first.start + rows:
            offsets = np.arange(first.start, first.start + rows, dtype=np.int64)
        else:
            offsets = np.concatenate([due.offsets for due in together])
        if self.columns is not None:
            schema = self.columns.schema
        columns = _filled(records, schema, first.with_ids)
        if first.with_ids:
            schema = schema.append(READ_TRANSACTION_ID)
        return pa.RecordBatch.from_arrays(
            [
                _numbers(pa.int32(), np.full(rows, self.partition, np.int32)),
                _numbers(pa.int64(), offsets),
                *columns,
            ],
            schema=schema,
        )


def _filled(records: pa.RecordBatch, schema: pa.Schema, with_ids: bool) -> list[pa.Array]:
    """The columns of ``schema`` without the place, and the ids; null where they were left out."""
    columns: list[pa.Array] = records.columns
    fields = list(schema)[_PLACE_COLUMNS:]
    ids = [columns.pop()] if with_ids else []
    if len(columns) < len(fields):
        there = dict(zip(records.schema.names, columns, strict=False))
        columns = [
            there[field.name] if field.name in there else pa.nulls(records.num_rows, field.type)
            for field in fields
        ]
    return columns + ids


def _between(rows: pa.RecordBatch, start: int, stop: int) -> pa.RecordBatch:
    """The rows with offsets from ``start`` to below ``stop``."""
    first, last = np.searchsorted(int64_values(rows.column("offset")), [start, stop])
    return rows.slice(int(first), int(last - first))


def _from_first(rows: pa.RecordBatch, due: npt.NDArray[np.bool_]) -> pa.RecordBatch:
    """The rows from the first one on that is due; none if no row is."""
    found = np.flatnonzero(due)
    return rows.slice(int(found[0])) if len(found) else rows.slice(rows.num_rows)


def _numbers(type_: pa.DataType, values: npt.NDArray[Any]) -> pa.Array:
    # Not `pa.array`: it imports pandas, which can take a second.
    return pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(values)])


def _coalesced(found: list[_Due]) -> Iterator[list[_Due]]:
    """Groups of small neighbours, all with transaction ids or none; every other batch alone."""
    together: list[_Due] = []
    size = 0
    for due in found:
        if together and (
            due.size >= SMALL_BYTES
            or size + due.size > COALESCE_BYTES
            or due.with_ids != together[0].with_ids
        ):
            yield together
            together, size = [], 0
        if due.size >= SMALL_BYTES:
            yield [due]
        else:
            together.append(due)
            size += due.size
    if together:
        yield together
