"""Gathering rows of a typed topic into batches.

Pure, as `runnel.produce.accumulator`, whose laws hold here.

A row is a tuple with a value for each column, made by `runnel.records.row_values`; a table has been
fitted by `runnel.records.row_tables`. The partition follows from the key column, by the same hash
of the same bytes either way. Where the topic has no timestamp column, all records of a batch have
the time at which it was begun.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from runnel.produce.accumulator import Accumulator
from runnel.produce.batch import O, ProducerBatch
from runnel.records.arrow_schema import arrow_schema, encode_rows, key_bytes, rows_batch, timestamps
from runnel.records.record import Headers
from runnel.records.row_tables import fit_table
from runnel.records.row_values import Misfit, MisfitError, Row, RowReader
from runnel.records.tables import ROW_OVERHEAD_BYTES
from schemas.columns.topic_schema import TopicSchema
from schemas.errors import RecordTooLargeError
from schemas.wire.batch import CODECS, Buffer, build_pieces


class RowLayout:
    """The place of key and timestamp in the rows of a typed topic, and the size of rows."""

    def __init__(self, rows: TopicSchema) -> None:
        names = [column.name for column in rows.columns]
        self.rows = rows
        self.schema_id = rows.schema_id
        self.arrow = arrow_schema(rows.columns)
        self.reader = RowReader(rows.columns)
        self._key = None if rows.key_column is None else names.index(rows.key_column)
        self.time = None if rows.timestamp_column is None else names.index(rows.timestamp_column)

    def key_of(self, row: Row) -> bytes | None:
        """The key of a row as bytes, or None."""
        value = None if self._key is None else row[self._key]
        if value is None or isinstance(value, bytes):
            return value
        return value.encode() if isinstance(value, str) else b"%d" % value

    def keys(self, rows: pa.RecordBatch) -> pa.Array:
        """The keys of all rows as bytes."""
        if self._key is None:
            return pa.nulls(rows.num_rows, pa.binary())
        return key_bytes(rows.column(self._key))

    def to_arrow(self, rows: list[Row]) -> pa.RecordBatch:
        """Rows as Arrow columns."""
        return rows_batch(rows, self.rows.columns)

    def table(self, data: Any, topic: str) -> pa.Table:
        """A table of the topic's columns. Raises MisfitError that names rows and columns."""
        fitted = fit_table(data, self.rows.columns, topic)
        if self.time is not None:
            column = fitted.column(self.time)
            try:
                timestamps(column)
            except pa.ArrowException as error:
                name = self.rows.timestamp_column
                misfit = Misfit(None, name, f"holds no times of records: {error}")
                raise MisfitError(
                    f"the table does not fit topic {topic!r}: {misfit}", [misfit]
                ) from error
        return fitted


class TypedBatch(ProducerBatch[O]):
    """The rows of one future batch: ``values`` has tuples while it is open."""

    __slots__ = ("_begun_us", "_layout", "_times")

    def __init__(
        self,
        layout: RowLayout,
        begun_us: int,
        partition: int,
        outcome: O,
        opened_at: float,
        records: pa.RecordBatch | None = None,
        size: int = 0,
    ) -> None:
        super().__init__(partition, outcome, opened_at, records, size)
        self._layout = layout
        self._begun_us = begun_us
        self._times: npt.NDArray[np.int64] | None = None

    def timestamp_us(self, index: int) -> int:
        """The timestamp of one record."""
        if self._layout.time is None:
            return self._begun_us
        if self._times is not None:
            return int(self._times[index])
        return int(self._times_of(self.to_arrow())[index])

    def to_arrow(self) -> pa.RecordBatch:
        """The records as Arrow columns of the topic's schema."""
        if self._records is not None:
            return self._records
        return self._with_ids(self._layout.to_arrow(self.values))  # type: ignore[arg-type]

    def encode(
        self, codec: str, producer_id: int = 0, producer_epoch: int = 0, sequence: int = 0
    ) -> list[Buffer]:
        """The batch as bytes, in pieces: the header first. Drops the records, but not their
        timestamps.
        """
        records = self.to_arrow()
        self._times = times = self._times_of(records)
        encoded = build_pieces(
            [encode_rows(records, codec)],
            record_count=self.count,
            first_timestamp_us=int(times.min()),
            last_timestamp_us=int(times.max()),
            codec=CODECS[codec],
            schema_id=self._layout.schema_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            sequence=sequence,
            **self._ids_part(records),
        )
        self._records, self.values, self.ids = None, [], None
        return encoded

    def _times_of(self, records: pa.RecordBatch) -> npt.NDArray[np.int64]:
        if self._layout.time is None:
            return np.full(1, self._begun_us, np.int64)
        times = timestamps(records.column(self._layout.time)).cast(pa.int64())
        return np.asarray(times, dtype=np.int64)


class TypedAccumulator(Accumulator[O]):
    """As any accumulator, of rows; ``now_us`` gives the time in microseconds since the epoch."""

    def __init__(
        self,
        layout: RowLayout,
        now_us: Callable[[], int],
        topic: str,
        partitions: int,
        *,
        max_record_bytes: int,
        batch_bytes: int,
        linger_s: float,
        clock: Callable[[], float],
        new_outcome: Callable[[], O],
        eager: bool = False,
        first_sticky: int = 0,
        max_in_flight: int | None = None,
        hold_s: float = math.inf,
    ) -> None:
        super().__init__(
            topic,
            partitions,
            max_record_bytes=max_record_bytes,
            batch_bytes=batch_bytes,
            linger_s=linger_s,
            clock=clock,
            new_outcome=new_outcome,
            eager=eager,
            first_sticky=first_sticky,
            max_in_flight=max_in_flight,
            hold_s=hold_s,
        )
        self._layout = layout
        self._now_us = now_us

    def append(
        self,
        key: bytes | None,
        value: Any,
        timestamp_us: int,
        headers: Headers = (),
        partition: int | None = None,
        transaction_id: int | None = None,
    ) -> ProducerBatch[O]:
        """Add one row; its time is in it, or that of its batch. Raises as any accumulator."""
        size = self._layout.reader.size(value)
        if size > self._max_record_bytes:
            raise RecordTooLargeError(
                f"the record has {size} bytes, more than maxRecordSize {self._max_record_bytes}"
                f" of topic {self._topic!r}; make it smaller or raise spec.maxRecordSize"
            )
        size += ROW_OVERHEAD_BYTES
        sticks = key is None and partition is None
        if partition is None:
            partition = self._sticky if key is None else self._partition_of(key)
        with_ids = transaction_id is not None
        batch = self._open.get(partition)
        if batch is None or batch.size + size > self._batch_bytes or batch.with_ids is not with_ids:
            batch = self._make_room(partition, size, sticks=sticks, with_ids=with_ids)
        try:
            if transaction_id is not None:
                batch.take_id(transaction_id, self._topic)
            batch.values.append(value)
            batch.count += 1
        except BaseException:
            # Ctrl-C between these lines must not leave a row that nobody counts.
            batch.truncate()
            raise
        batch.size += size
        self.buffered_bytes += size
        return batch

    def _new_batch(
        self,
        partition: int,
        opened_at: float,
        records: pa.RecordBatch | None = None,
        size: int = 0,
    ) -> ProducerBatch[O]:
        return TypedBatch(
            self._layout,
            self._now_us(),
            partition,
            self._new_outcome(),
            opened_at,
            records,
            size,
        )

    def _keys(self, rows: pa.RecordBatch) -> pa.Array:
        return self._layout.keys(rows)
