"""What a consumer has handed out: the chunk in hand, its records, and the position.

Both facades share it: they differ in how they get the next chunk, not in what they do with it.
A loop that is left in the middle of a chunk can be taken up again, by record or by batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat, starmap
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from runnel.records.arrow_schema import key_bytes
from runnel.records.cursor import READ_SCHEMA, READ_TRANSACTION_ID
from runnel.records.record import Headers, Record
from runnel.records.tables import int64_values
from schemas.columns.topic_schema import READER_COLUMNS, TopicSchema
from schemas.errors import UnsupportedError


class FetchedChunk(NamedTuple):
    """Record batches of one partition, and the position once they are handed out.

    The position can lie behind the last record: control records take offsets too.
    """

    partition: int
    batches: Sequence[pa.RecordBatch]
    position_after: int


class ReadState:
    """See the module's text. ``position`` maps partitions to the next offset to hand out.

    What is in the user's hands counts as processed once more is asked for. With the blocking facade
    `processed` is called in another thread than all else; the order of the steps here sees to it
    that it never says too much.

    ``rows``: of a typed topic, the schema of what is handed out; set before the first chunk.
    ``with_ids``: batches have a column of transaction ids, null where a record has none.
    """

    def __init__(self, topic: str, *, with_ids: bool = False) -> None:
        self.position: dict[int, int] = {}
        self.rows: TopicSchema | None = None
        self._topic = topic
        self._with_ids = with_ids
        self._chunk: FetchedChunk | None = None
        # Of the chunk whose records are handed out one by one: its partition, and where it began.
        self._began: tuple[int, int] | None = None
        # Of a batch in the user's hands: its partition and where it begins.
        self._batch: tuple[int, int] | None = None
        # The batches left in the chunk; the records are those of the first.
        self._left: deque[pa.RecordBatch] = deque()
        self._records: Iterator[Record] = iter(())

    def open(self, chunk: FetchedChunk) -> None:
        """Take the next chunk; the one before was handed out in full."""
        self._began = (chunk.partition, self.position.get(chunk.partition, 0))
        self._chunk = chunk
        self._left = deque(chunk.batches)
        self._begin_batch()

    def records(self) -> Iterator[Record]:
        """The records left in the chunk; the position follows each one. Raises as `records_of`,
        each time it is asked."""
        position = self.position
        while self._left:
            try:
                for record in self._records:
                    position[record.partition] = record.offset + 1
                    yield record
            except UnsupportedError:
                # They are not handed out, and whoever asks again is not to step over them.
                self._begin_batch()
                raise
            # Who was given the last record may have asked for the rest in between.
            if self._left:
                self._left.popleft()
                self._begin_batch()
        self._finish()

    def rest(self) -> pa.RecordBatch | None:
        """The next batch of the chunk, or what is left of it; None once there is none."""
        while self._chunk is not None and self._left:
            partition = self._chunk.partition
            batch = self._left.popleft()
            offsets = int64_values(batch.column("offset"))
            # Offsets of one batch rise, but may have gaps: the position is looked up.
            begins = self.position.get(partition, 0)
            done = int(np.searchsorted(offsets, begins))
            self._batch = (partition, begins)
            self.position[partition] = int(offsets[-1]) + 1
            self._begin_batch()
            if not self._left:
                self._finish()
            if done < batch.num_rows:
                return self._as_asked(batch.slice(done))
        self._finish()
        return None

    def _as_asked(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with transaction ids, or without."""
        width = _width(self.rows)
        if (records.num_columns > width) == self._with_ids:
            return records
        if not self._with_ids:
            return records.select(range(width))
        none = pa.nulls(records.num_rows, READ_TRANSACTION_ID.type)
        return records.append_column(READ_TRANSACTION_ID, none)

    def _begin_batch(self) -> None:
        self._records = (
            records_of(self._topic, self._left[0], self.rows) if self._left else iter(())
        )

    def asked(self) -> None:
        """More is asked for: what was handed out is processed."""
        self._batch = None

    def processed(self) -> dict[int, int]:
        """As ``position``, but before the record or batch that is in the user's hands."""
        # Copied first: whatever is in it is processed by now, or still in hand below.
        found = dict(self.position)
        batch, began = self._batch, self._began
        if began is not None:
            partition, start = began
            # The position is the offset after the record in hand; before the first, the start.
            found[partition] = min(found[partition], max(start, found[partition] - 1))
        if batch is not None:
            partition, start = batch
            found[partition] = min(found[partition], start)
        return found

    def _finish(self) -> None:
        if self._chunk is not None:
            self.position[self._chunk.partition] = self._chunk.position_after
            self._chunk = None
            self._began = None


def records_of(
    topic: str, batch: pa.RecordBatch, rows: TopicSchema | None = None
) -> Iterator[Record]:
    """The rows of a batch that a cursor gives as records; ``rows``: of a typed topic.

    Nothing is converted before the first one is asked for: who reads by batch never asks. Raises
    UnsupportedError before the first one where Python has no form for a value of any.
    """
    width = _width(rows)
    ids = (batch.column(width).to_pylist(),) if batch.num_columns > width else ()
    partitions, offsets = batch.column("partition").to_pylist(), batch.column("offset").to_pylist()
    try:
        columns = _plain_columns(batch) if rows is None else _typed_columns(batch, rows)
    except (ValueError, OverflowError, KeyError) as error:
        # A date far from now, say, or a map that has a key twice: valid where others wrote it.
        raise UnsupportedError(
            f"{topic}/{partitions[0]}: among the records at offsets {offsets[0]} to {offsets[-1]}"
            f" is a value that Python has no form for ({error}); read them as Arrow, with batches()"
        ) from error
    times = batch.column("timestamp").cast(pa.int64()).to_pylist()
    yield from starmap(
        Record,
        zip(repeat(topic), partitions, offsets, times, *columns, *ids, strict=False),
    )


def _width(rows: TopicSchema | None) -> int:
    """How many columns there are but transaction ids."""
    return len(READ_SCHEMA) if rows is None else len(READER_COLUMNS) + len(rows.columns)


def _plain_columns(batch: pa.RecordBatch) -> tuple[Iterable[Any], Iterable[Any], Iterable[Headers]]:
    """Keys, values and headers."""
    headers = batch.column("headers")
    return (
        batch.column("key").to_pylist(),
        batch.column("value").to_pylist(),
        repeat(()) if headers.null_count == len(headers) else map(_pairs, headers.to_pylist()),
    )


def _typed_columns(
    batch: pa.RecordBatch, rows: TopicSchema
) -> tuple[Iterable[Any], Iterable[Any], Iterable[Headers]]:
    """Keys, rows as dicts, and no headers: typed records have none."""
    key = rows.key_column
    keys = repeat(None) if key is None else key_bytes(batch.column(key)).to_pylist()
    values = batch.select(range(len(READER_COLUMNS), _width(rows)))
    return keys, values.to_pylist(maps_as_pydicts="strict"), repeat(())


def _pairs(row: list[dict[str, str | bytes | None]] | None) -> Headers:
    if not row:
        return ()
    return tuple((str(pair["key"]), pair["value"]) for pair in row)  # type: ignore[misc]
