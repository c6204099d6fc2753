"""What a consumer has handed out: the current chunk, its records, and the position.

Both facades share it: they differ in how they get the next chunk, not in how they use it. A loop
that is left in the middle of a chunk can be continued, by record or by batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from itertools import repeat, starmap
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from runnel.records.arrow_schema import key_bytes
from runnel.records.cursor import READ_SCHEMA, READ_TRANSACTION_ID
from runnel.records.offset_and_term import OffsetAndTerm
from runnel.records.record import Headers, Record
from runnel.records.tables import int64_values
from schemas.columns.topic_schema import READER_COLUMNS, TopicSchema
from schemas.errors import UnsupportedError

#: How many terms back a reader knows where they began.
_MOST_TERMS: Final = 32


class FetchedChunk(NamedTuple):
    """Record batches of one partition, and the position once they are handed out.

    The position can lie behind the last record: control records take offsets too. ``term`` is that
    of the last batch of the log before the position, 0 if it is not known; ``term_starts``: as
    those of a `runnel.records.cursor.Cursor`.
    """

    partition: int
    batches: Sequence[pa.RecordBatch]
    position_after: int
    term: int = 0
    term_starts: Sequence[tuple[int, int]] = ()


class _Terms(NamedTuple):
    """The terms of what was read of a partition, up to ``end``: the offset where batches of each
    begin, and the term, which is 0 if it is not known."""

    starts: tuple[tuple[int, int], ...]
    end: int

    def read_on(self, chunk: FetchedChunk) -> _Terms:
        starts = list(self.starts)
        for start in chunk.term_starts:
            if not starts or starts[-1][1] != start[1]:
                starts.append(start)
        return _Terms(tuple(starts[-_MOST_TERMS:]), max(self.end, chunk.position_after))

    def below(self, offset: int) -> int:
        """The term of the last batch below an offset."""
        if offset > self.end:
            return 0
        return next((term for start, term in reversed(self.starts) if start < offset), 0)


_NO_TERMS: Final = _Terms((), 0)


class ReadState:
    """See the module's text. ``position`` maps partitions to the next offset to hand out.

    A record counts as processed once the user asks for the next one. The blocking facade calls
    `processed` in another thread than everything else; the order of the steps here makes sure that
    it never reports too much.

    ``rows``: for a typed topic, the schema of its records; set before the first chunk.
    ``with_ids``: batches have a column of transaction ids, null where a record has none.
    """

    def __init__(self, topic: str, *, with_ids: bool = False) -> None:
        self.position: dict[int, int] = {}
        self.rows: TopicSchema | None = None
        self._topic = topic
        self._with_ids = with_ids
        self._chunk: FetchedChunk | None = None
        self._searching: set[int] = set()
        self._terms: dict[int, _Terms] = {}
        # For the chunk whose records are handed out one by one: its partition, and where it began.
        self._began: tuple[int, int] | None = None
        # For a batch that the user is processing: its partition and where it begins.
        self._batch: tuple[int, int] | None = None
        # The batches left in the chunk; the records are those of the first.
        self._left: deque[pa.RecordBatch] = deque()
        self._records: Iterator[Record] = iter(())

    def open(self, chunk: FetchedChunk) -> None:
        """Take the next chunk; the one before was handed out in full."""
        if chunk.batches:
            self._searching.discard(chunk.partition)
        self._began = (chunk.partition, self.position.get(chunk.partition, 0))
        known = self._terms.get(chunk.partition, _NO_TERMS)
        self._terms[chunk.partition] = known.read_on(chunk)
        self._chunk = chunk
        self._left = deque(chunk.batches)
        self._begin_batch()

    def begin(self, partition: int, offset: int, term: int = 0, *, searching: bool) -> None:
        """The next chunk of the partition begins here; ``term``: that of the last batch below, 0 if
        it is not known. ``searching``: the record to begin with is still to come; until it is
        handed out, there is nothing to commit.
        """
        self.position[partition] = offset
        self._terms[partition] = _Terms(((offset - 1, term),) if term else (), offset)
        if searching:
            self._searching.add(partition)
        else:
            self._searching.discard(partition)

    def seek(self, partition: int) -> None:
        """The partition is read on from another place: what is left of its chunk is not handed
        out.
        """
        self.take_rest(partition)
        if self._batch is not None and self._batch[0] == partition:
            self._batch = None

    def take_rest(self, partition: int) -> FetchedChunk | None:
        """Take back what is left of the current chunk; None if it is of another partition.

        A loop over `records` goes on with the next chunk then. The record that the user is
        processing does not count as processed before the user asks for more.
        """
        chunk, began = self._chunk, self._began
        if chunk is None or began is None or chunk.partition != partition:
            return None
        position = self.position[partition]
        if self._batch is None and position > began[1]:
            self._batch = (partition, max(began[1], position - 1))
        rest = list(self._left)
        if rest:
            done = int(np.searchsorted(int64_values(rest[0].column("offset")), position))
            rest[0] = rest[0].slice(done)
        if isinstance(self._records, Generator):
            # The loop that goes through them sees their end.
            self._records.close()
        self._chunk = self._began = None
        self._left.clear()
        self._begin_batch()
        return FetchedChunk(
            partition, [rows for rows in rest if rows.num_rows], chunk.position_after
        )

    def records(self) -> Iterator[Record]:
        """The records left in the chunk; the position follows each one. Raises as `records_of`, at
        each call.
        """
        position = self.position
        while self._left:
            try:
                for record in self._records:
                    position[record.partition] = record.offset + 1
                    yield record
            except UnsupportedError:
                # They are not handed out, and the next call must not skip them.
                self._begin_batch()
                raise
            # A user with the last record may have asked for the rest in between.
            if self._left:
                self._left.popleft()
                self._begin_batch()
        self._finish()

    def rest(self, max_records: int | None = None) -> pa.RecordBatch | None:
        """The next batch of the chunk, or the rest of it, or so many records of that; None at the
        end.
        """
        while self._chunk is not None and self._left:
            partition = self._chunk.partition
            batch = self._left.popleft()
            offsets = int64_values(batch.column("offset"))
            # Offsets of one batch rise, but may have gaps: the position is looked up.
            begins = self.position.get(partition, 0)
            done = int(np.searchsorted(offsets, begins))
            end = batch.num_rows if max_records is None else min(done + max_records, batch.num_rows)
            if end < batch.num_rows:
                self._left.appendleft(batch)
            self._batch = (partition, begins)
            self.position[partition] = int(offsets[end - 1]) + 1
            self._begin_batch()
            if not self._left:
                self._finish()
            if done < end:
                return self._as_asked(batch.slice(done, end - done))
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
        """Begin with the records of the first batch that are left: a part of it may have been
        handed out as a batch."""
        if not self._left or self._chunk is None:
            self._records = iter(())
            return
        rows = self._left[0]
        position = self.position.get(self._chunk.partition, 0)
        if rows.num_rows and rows.column("offset")[0].as_py() < position:
            rows = rows.slice(int(np.searchsorted(int64_values(rows.column("offset")), position)))
        self._records = records_of(self._topic, rows, self.rows)

    def asked(self) -> None:
        """The user asks for more: everything handed out is processed."""
        self._batch = None

    def has_processed(self) -> None:
        """As `asked`, in the middle of a chunk: the record in hand is processed, too. Only for the
        one user of all that is handed out."""
        self.asked()
        if self._began is not None:
            partition, begun = self._began
            self._began = (partition, self.position.get(partition, begun))

    def with_terms(self, offsets: Mapping[int, int]) -> dict[int, OffsetAndTerm]:
        """Offsets up to which was read, with the terms of the batches below them. For any
        thread."""
        return {
            p: OffsetAndTerm(offset, self._terms.get(p, _NO_TERMS).below(offset))
            for p, offset in offsets.items()
        }

    def handed_out(self) -> dict[int, int]:
        """As ``position``, without partitions whose first record is still to come."""
        # A copy first: the loop may add partitions meanwhile.
        return {p: at for p, at in dict(self.position).items() if p not in self._searching}

    def processed(self) -> dict[int, int]:
        """As ``position``, but before the record or batch that the user is processing."""
        # Copied first: everything in it is processed by now, or still current below.
        found = self.handed_out()
        batch, began = self._batch, self._began
        if began is not None:
            partition, start = began
            # The position is the offset after the current record; before the first, the start.
            if partition in found:
                found[partition] = min(found[partition], max(start, found[partition] - 1))
        if batch is not None:
            partition, start = batch
            if partition in found:
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
    """The rows of a batch from a cursor, as records; ``rows``: the schema of a typed topic.

    Nothing is converted before the first record is asked for: a user of batches never asks. Raises
    UnsupportedError before the first record if any record has a value that Python cannot represent.
    """
    width = _width(rows)
    ids = (batch.column(width).to_pylist(),) if batch.num_columns > width else ()
    partitions, offsets = batch.column("partition").to_pylist(), batch.column("offset").to_pylist()
    try:
        columns = _plain_columns(batch) if rows is None else _typed_columns(batch, rows)
    except (ValueError, OverflowError, KeyError) as error:
        # For example a date far from now, or a map with a key twice: other writers may send them.
        raise UnsupportedError(
            f"{topic}/{partitions[0]}: among the records at offsets {offsets[0]} to {offsets[-1]}"
            f" is a value that Python cannot represent ({error}); read them as Arrow, with"
            f" batches()"
        ) from error
    column = batch.column("timestamp")
    times = (
        column.cast(pa.int64()).to_pylist() if column.null_count else int64_values(column).tolist()
    )
    yield from starmap(
        Record,
        zip(repeat(topic), partitions, offsets, times, *columns, *ids, strict=False),
    )


def _width(rows: TopicSchema | None) -> int:
    """The number of columns without the transaction ids."""
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
