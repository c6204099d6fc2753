"""Gathering records into batches: the pure core of the producer.

`Accumulator` keeps one open batch per partition that has any records. A batch is *sealed*, and
then ready to be sent, when the next record would not fit ``batch_bytes``, when it has been open
for ``linger_s``, when a table comes for its partition, or on a flush. An *eager* one also seals
whatever is open while no batch is under way, but not more often than every `PACE_S`: who sends
now and then waits for nothing, and who sends all the time gathers for as long as the batches
before take. Laws:

- The records of a partition leave in the order in which they came, whether they came one by one
  or in tables; with a key, that is the order of the key.
- Every record is in exactly one batch; a batch exceeds ``batch_bytes`` only if it is one record.
- Records without a key fill one partition's batch, then move on to the next partition.
- All records of a batch have transaction ids, which do not fall, or none has.

`append` is the hottest code of the library: it appends to plain lists, and allocates nothing
but what the lists need. The clock and what a batch's sender is told by (``outcome``) are
arguments. Nothing here is thread-safe; the producer holds a lock around every call.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, MutableSequence
from itertools import pairwise
from typing import Final, Generic, TypedDict, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from runnel.columns import (
    HEADER_OVERHEAD_BYTES,
    ROW_OVERHEAD_BYTES,
    SizedRows,
    int64_values,
    null_headers,
    timestamp_array,
)
from runnel.record import Headers
from schemas.batch import (
    CODECS,
    RECORD_SCHEMA,
    TRANSACTION_ID,
    TRANSACTION_IDS_FLAG,
    Buffer,
    build_pieces,
    encode_records,
)
from schemas.errors import InvalidRequestError, RecordTooLargeError, TransactionIdTooLowError
from schemas.partitioner import partition_for, partitions_for, partitions_of

O = TypeVar("O")  # noqa: E741 - the type of outcomes

_HEADERS: Final = RECORD_SCHEMA.field("headers").type
_KNOWN_KEYS: Final = 1 << 16
#: How often an eager one seals at most: a batch has its price on the whole way.
PACE_S: Final = 0.004


class IdsPart(TypedDict, total=False):
    """Arguments of `build`."""

    flags: int
    first_transaction_id: int
    last_transaction_id: int


class PendingBatch(Generic[O]):
    """The records of one future batch: lists while it is open, Arrow when they came as a table.

    ``size`` is the estimated bytes in memory and on the wire, before compression. ``with_ids``: all
    records have transaction ids, which are in ``ids``, or in the last column of a table.
    """

    __slots__ = (
        "_records", "count", "headers", "ids", "keys", "opened_at", "outcome", "partition",
        "sealed", "size", "timestamps", "values", "with_ids",
    )  # fmt: skip

    def __init__(
        self,
        partition: int,
        outcome: O,
        opened_at: float,
        records: pa.RecordBatch | None = None,
        size: int = 0,
    ) -> None:
        self.partition = partition
        self.outcome = outcome
        self.opened_at = opened_at
        self.size = size
        self.sealed = records is not None
        self.count = records.num_rows if records is not None else 0
        self._records = records
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.timestamps: MutableSequence[int] | npt.NDArray[np.int64] = array("q")
        self.headers: dict[int, Headers] = {}
        self.with_ids = False
        self.ids: array[int] | None = None

    def truncate(self) -> None:
        """Remove what an interrupted append left of a record."""
        del self.keys[self.count :]
        del self.values[self.count :]
        del self.timestamps[self.count :]  # type: ignore[union-attr]
        self.headers.pop(self.count, None)
        if self.ids is not None:
            del self.ids[self.count :]

    def begin_ids(self) -> None:
        """Have all records come with transaction ids; none has come so far."""
        self.with_ids, self.ids = True, array("q")

    def take_id(self, transaction_id: int, topic: str) -> None:
        """Append the id of the next record. Raises TransactionIdTooLowError where ids fall."""
        ids = self.ids
        if ids is None:
            raise AssertionError("the batch is one of records without transaction ids")
        if self.count and transaction_id < ids[self.count - 1]:
            raise TransactionIdTooLowError(
                f"transaction id {transaction_id} comes after {ids[self.count - 1]} for partition"
                f" {topic}/{self.partition}: ids of a partition never fall",
                last_transaction_id=ids[self.count - 1],
            )
        ids.append(transaction_id)

    def place(self, index: int) -> tuple[PendingBatch[O], int]:
        """Where a record of this batch is, as `Rows.place`."""
        return self, index

    def timestamp_us(self, index: int) -> int:
        """The timestamp of one record."""
        if self._records is not None:
            return int(self._records.column("timestamp")[index].value)
        return int(self.timestamps[index])

    def to_arrow(self) -> pa.RecordBatch:
        """The records as Arrow columns of `RECORD_SCHEMA`, and their transaction ids behind."""
        if self._records is not None:
            return self._records
        headers = (
            pa.array(self._header_rows(), _HEADERS) if self.headers else null_headers(self.count)
        )
        records = pa.RecordBatch.from_arrays(
            [
                timestamp_array(np.array(self.timestamps, np.int64)),
                _binary(self.keys),
                _binary(self.values),
                headers,
            ],
            schema=RECORD_SCHEMA,
        )
        return self._with_ids(records)

    def _with_ids(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """Records that came one by one, with their ids if they have some."""
        if self.ids is None:
            return records
        return records.append_column(TRANSACTION_ID, pa.array(np.array(self.ids, np.int64)))

    def _ids_part(self, records: pa.RecordBatch) -> IdsPart:
        """What the header says of the transaction ids of `to_arrow`."""
        if not self.with_ids:
            return {}
        ids = records.column(records.num_columns - 1)
        return {
            "flags": TRANSACTION_IDS_FLAG,
            "first_transaction_id": ids[0].as_py(),
            "last_transaction_id": ids[-1].as_py(),
        }

    def encode(
        self, codec: str, producer_id: int = 0, producer_epoch: int = 0, sequence: int = 0
    ) -> list[Buffer]:
        """The batch as bytes, in pieces: the header first. Drops the records; their timestamps
        stay."""
        records = self.to_arrow()
        times = int64_values(records.column("timestamp"))
        encoded = build_pieces(
            [encode_records(records, codec)],
            record_count=self.count,
            first_timestamp_us=int(times.min()),
            last_timestamp_us=int(times.max()),
            codec=CODECS[codec],
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            sequence=sequence,
            **self._ids_part(records),
        )
        self.timestamps, self._records = times, None
        self.keys, self.values, self.headers, self.ids = [], [], {}, None
        return encoded

    def _header_rows(self) -> list[list[dict[str, str | bytes | None]] | None]:
        rows: list[list[dict[str, str | bytes | None]] | None] = [None] * self.count
        for index, headers in self.headers.items():
            rows[index] = [{"key": name, "value": value} for name, value in headers]
        return rows


class Rows(Generic[O]):
    """Records on their way into batches, and then where each of them is.

    Order is that of their partitions, and within one that of the records. ``done`` of them are in
    batches.
    """

    __slots__ = (
        "_batches", "_rank", "_starts", "bounds", "done", "ends", "keys", "opened_at",
        "timestamp_us", "values",
    )  # fmt: skip

    def __init__(
        self,
        keys: list[bytes | None],
        values: list[bytes | None],
        sizes: npt.NDArray[np.int64],
        timestamp_us: int,
        opened_at: float,
        partitions: npt.NDArray[np.int64],
        keyless: int,
    ) -> None:
        changes = np.flatnonzero(np.diff(partitions)) + 1
        self._rank: npt.NDArray[np.int64] | None = None
        if len(changes):
            order = _stable_order(partitions)
            self._rank = np.empty(len(order), np.int64)
            self._rank[order] = np.arange(len(order))
            keys, values = _picked(keys, order), _picked(values, order)
            partitions, sizes = partitions[order], sizes[order]
            changes = np.flatnonzero(np.diff(partitions)) + 1
        self.keys, self.values = keys, values
        self.ends = np.cumsum(sizes)
        self.timestamp_us = timestamp_us
        self.opened_at = opened_at
        #: Where the rows of each partition end; None instead of ``keyless``.
        self.bounds: list[tuple[int, int | None]] = [
            (end, None if partitions[end - 1] == keyless else int(partitions[end - 1]))
            for end in [*changes.tolist(), len(partitions)]
        ]
        self.done = 0
        self._starts: list[int] = []
        self._batches: list[tuple[PendingBatch[O], int]] = []

    def moved(self, batch: PendingBatch[O], stop: int, size: int) -> None:
        """Append the rows up to ``stop`` to a batch; all of it, or nothing when interrupted."""
        runs, start = len(self._starts), self.done
        count = batch.count + stop - start
        try:
            self._starts.append(start)
            self._batches.append((batch, batch.count))
            batch.keys.extend(self.keys[start:stop])
            batch.values.extend(self.values[start:stop])
            batch.timestamps.extend(array("q", [self.timestamp_us]) * (stop - start))  # type: ignore[union-attr]
        except BaseException:
            batch.truncate()
            del self._starts[runs:], self._batches[runs:]
            raise
        # No call from here on: no interrupt can get between.
        batch.count = count
        batch.size += size
        self.done = stop

    def finish(self) -> None:
        """Keep nothing but where the rows are."""
        self.keys, self.values = [], []
        self.ends = np.zeros(0, np.int64)

    def place(self, index: int) -> tuple[PendingBatch[O], int]:
        """The batch of a record, and its row there."""
        at = index if self._rank is None else int(self._rank[index])
        run = bisect_right(self._starts, at) - 1
        batch, before = self._batches[run]
        return batch, before + at - self._starts[run]


class Accumulator(Generic[O]):
    """See the module's text.

    ``clock`` gives seconds; ``new_outcome`` makes what each batch carries for its sender. A batch
    is under way from when it is sealed until it is given to `release`.
    """

    def __init__(
        self,
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
    ) -> None:
        self.buffered_bytes = 0
        self.under_way = 0
        self.eager = eager
        self._paced_until = -math.inf
        self._topic = topic
        self._partitions = partitions
        self._max_record_bytes = max_record_bytes
        self._batch_bytes = batch_bytes
        self._linger_s = linger_s
        self._clock = clock
        self._new_outcome = new_outcome
        self._sticky = first_sticky % partitions
        self._open: dict[int, PendingBatch[O]] = {}
        # Looking a key up costs a fraction of hashing it again.
        self._known_keys: dict[bytes, int] = {}
        self._lingering: deque[PendingBatch[O]] = deque()
        self._ready: deque[PendingBatch[O]] = deque()
        #: Set when `take` has something to do that it had not before.
        self.wake = False

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        timestamp_us: int,
        headers: Headers = (),
        partition: int | None = None,
        transaction_id: int | None = None,
    ) -> PendingBatch[O]:
        """Add one record; it is the last of the batch that is returned.

        Raises RecordTooLargeError, InvalidRequestError for a partition that does not exist,
        TransactionIdTooLowError.
        """
        size = len(value) if value is not None else 0
        sticks = False
        if key is not None:
            size += len(key)
            if partition is None:
                partition = self._known_keys.get(key)
                if partition is None:
                    partition = self._partition_of(key)
        elif partition is None:
            partition = self._sticky
            sticks = True
        if headers:
            size += _headers_size(headers)
        if size > self._max_record_bytes:
            raise RecordTooLargeError(
                f"the record has {size} bytes, more than maxRecordSize {self._max_record_bytes}"
                f" of topic {self._topic!r}; make it smaller or raise spec.maxRecordSize"
            )
        size += ROW_OVERHEAD_BYTES
        with_ids = transaction_id is not None
        batch = self._open.get(partition)
        if batch is None or batch.size + size > self._batch_bytes or batch.with_ids is not with_ids:
            batch = self._make_room(partition, size, sticks=sticks, with_ids=with_ids)
        try:
            if transaction_id is not None:
                batch.take_id(transaction_id, self._topic)
            batch.keys.append(key)
            batch.values.append(value)
            batch.timestamps.append(timestamp_us)  # type: ignore[union-attr]
            if headers:
                batch.headers[batch.count] = headers
            batch.count += 1
        except BaseException:
            # Ctrl-C between two of these lines must not shift keys against values.
            batch.truncate()
            raise
        batch.size += size
        self.buffered_bytes += size
        return batch

    def arrange(
        self,
        keys: list[bytes | None],
        values: list[bytes | None],
        value_bytes: npt.NDArray[np.int64],
        timestamp_us: int,
        opened_at: float,
    ) -> Rows[O]:
        """Sort records by partition, to be given to `append_rows`. They have no headers, and no
        partition of their own; ``opened_at`` is when they began to come."""
        count, keyless = len(keys), self._partitions
        sizes = value_bytes + ROW_OVERHEAD_BYTES
        if keys[0] is None and keys.count(None) == count:
            partitions = np.full(count, keyless)
            return Rows(keys, values, sizes, timestamp_us, opened_at, partitions, keyless)
        absent: list[bool] = []
        present = keys
        try:
            sizes += np.fromiter(map(len, keys), np.int64, count)  # type: ignore[arg-type]
        except TypeError:
            absent = [key is None for key in keys]
            present = [key or b"" for key in keys]
            sizes += np.fromiter(map(len, present), np.int64, count)  # type: ignore[arg-type]
        if self._partitions == 1:
            partitions = np.zeros(count, np.int64)
        else:
            partitions = partitions_of(present, self._partitions)  # type: ignore[arg-type]
            if absent:
                partitions[absent] = keyless
        return Rows(keys, values, sizes, timestamp_us, opened_at, partitions, keyless)

    def append_rows(self, rows: Rows[O]) -> None:
        """Add records, none longer than ``max_record_bytes``. After an interrupt, call it again."""
        for end, partition in rows.bounds:
            while rows.done < end:
                self._append_run(rows, end, partition)
        rows.finish()

    def append_table(self, table: SizedRows, *, with_ids: bool = False) -> list[PendingBatch[O]]:
        """Add the rows of `RECORD_SCHEMA`, split by key and sliced by size.

        ``with_ids``: the last column are transaction ids, which do not fall. Whatever was gathered
        for the partitions they go to is sealed first. The caller has checked the sizes of the
        records.
        """
        rows, sizes = table.rows, table.sizes + ROW_OVERHEAD_BYTES
        if rows.num_rows == 0:
            return []
        partitions = self._assign(rows, sizes)
        made: list[PendingBatch[O]] = []
        for partition, part, part_sizes in _split(rows, sizes, partitions):
            opened = self._open.get(partition)
            if opened is not None:
                self._seal(opened)
            for start, end, size in _slices(part_sizes, self._batch_bytes):
                records = part.slice(start, end - start)
                batch = self._new_batch(partition, self._clock(), records, size)
                batch.with_ids = with_ids
                self.buffered_bytes += size
                self._ready.append(batch)
                self.under_way += 1
                made.append(batch)
        self.wake = True
        return made

    def seal_all(self) -> None:
        """Seal whatever is open: a flush."""
        for batch in list(self._open.values()):
            self._seal(batch)

    def take(self, now: float) -> tuple[list[PendingBatch[O]], float | None]:
        """The batches that are ready, in order, and when the next open one will be."""
        idle = self.eager and not self.under_way
        paced = idle and now < self._paced_until
        if idle and not paced and self._open:
            self.seal_all()
            self._paced_until = now + PACE_S
        while self._lingering:
            oldest = self._lingering[0]
            if not oldest.sealed:
                if now < oldest.opened_at + self._linger_s:
                    break
                self._seal(oldest)
            self._lingering.popleft()
        ready = list(self._ready)
        self._ready.clear()
        self.wake = False
        due = self._lingering[0].opened_at + self._linger_s if self._lingering else None
        if paced:
            due = self._paced_until if due is None else min(due, self._paced_until)
        return ready, due

    def release(self, batch: PendingBatch[O]) -> None:
        """A batch was delivered or failed."""
        self.buffered_bytes -= batch.size
        self.under_way -= 1
        if self.eager and not self.under_way:
            self.wake = True

    def _partition_of(self, key: bytes) -> int:
        partition = partition_for(key, self._partitions)
        if len(self._known_keys) >= _KNOWN_KEYS:
            self._known_keys.clear()
        self._known_keys[key] = partition
        return partition

    def _append_run(self, rows: Rows[O], end: int, partition: int | None) -> None:
        """Fill one batch with rows of one partition, or seal it where not one fits."""
        where = self._sticky if partition is None else partition
        batch = self._open.get(where)
        if batch is not None and batch.with_ids:
            self._seal(batch)
            return
        before = int(rows.ends[rows.done - 1]) if rows.done else 0
        room = self._batch_bytes - (batch.size if batch is not None else 0)
        stop = min(int(np.searchsorted(rows.ends, before + room, side="right")), end)
        if stop <= rows.done:
            if batch is not None:
                self._seal(batch)
                return
            stop = rows.done + 1
        size = int(rows.ends[stop - 1]) - before
        rows.moved(batch or self._begin(where, rows.opened_at), stop, size)
        self.buffered_bytes += size

    def _make_room(
        self, partition: int, size: int, *, sticks: bool, with_ids: bool
    ) -> PendingBatch[O]:
        """A batch with room for ``size`` bytes; a keyless record follows where the others go."""
        batch = self._open.get(partition)
        while batch is not None and (
            batch.size + size > self._batch_bytes or batch.with_ids is not with_ids
        ):
            self._seal(batch)
            if sticks:
                partition = self._sticky
            batch = self._open.get(partition)
        if batch is None:
            batch = self._begin(partition, self._clock())
            if with_ids:
                batch.begin_ids()
        return batch

    def _begin(self, partition: int, opened_at: float) -> PendingBatch[O]:
        if not 0 <= partition < self._partitions:
            raise InvalidRequestError(
                f"topic {self._topic!r} has the partitions 0 to {self._partitions - 1},"
                f" not {partition}"
            )
        batch = self._new_batch(partition, opened_at)
        self._open[partition] = batch
        if not self._lingering:
            self.wake = True
        self._lingering.append(batch)
        return batch

    # What depends on what records look like

    def _new_batch(
        self,
        partition: int,
        opened_at: float,
        records: pa.RecordBatch | None = None,
        size: int = 0,
    ) -> PendingBatch[O]:
        return PendingBatch(partition, self._new_outcome(), opened_at, records, size)

    def _keys(self, rows: pa.RecordBatch) -> pa.Array:
        return rows.column("key")

    def _seal(self, batch: PendingBatch[O]) -> None:
        del self._open[batch.partition]
        batch.sealed = True
        if batch.count:
            self._ready.append(batch)
            self.under_way += 1
            self.wake = True
        if batch.partition == self._sticky:
            self._sticky = (self._sticky + 1) % self._partitions

    def _assign(self, rows: pa.RecordBatch, sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The partition of each row; keyless rows fill a batch in one partition, then the next."""
        if self._partitions == 1:
            return np.zeros(len(sizes), np.int64)
        keys = self._keys(rows)
        if keys.null_count == len(keys):
            return self._spread(sizes)
        partitions = partitions_for(keys, self._partitions)
        if keys.null_count:
            keyless = np.asarray(keys.is_null())
            partitions[keyless] = self._spread(sizes[keyless])
        return partitions

    def _spread(self, sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The partitions of keyless rows."""
        lengths = [end - start for start, end, _ in _slices(sizes, self._batch_bytes)]
        runs = np.repeat(np.arange(len(lengths)), lengths)
        chosen = (self._sticky + runs) % self._partitions
        self._sticky = int(chosen[-1] + 1) % self._partitions
        return chosen


def _binary(items: list[bytes | None]) -> pa.Array:
    if items and items[0] is None and items.count(None) == len(items):
        return pa.nulls(len(items), pa.binary())
    return pa.array(items, pa.binary())


def _headers_size(headers: Headers) -> int:
    return sum(
        len(name.encode()) + (len(value) if value is not None else 0) + HEADER_OVERHEAD_BYTES
        for name, value in headers
    )


def _split(
    rows: pa.RecordBatch, sizes: npt.NDArray[np.int64], partitions: npt.NDArray[np.int64]
) -> Iterator[tuple[int, pa.RecordBatch, npt.NDArray[np.int64]]]:
    """The rows of each partition, in their order; rows that lie together are not copied."""
    changes = np.flatnonzero(np.diff(partitions)) + 1
    order: npt.NDArray[np.int64] | None = None
    if len(changes) and len(changes) >= np.count_nonzero(np.bincount(partitions)):
        order = _stable_order(partitions)
        partitions, sizes = partitions[order], sizes[order]
        changes = np.flatnonzero(np.diff(partitions)) + 1
    bounds = [0, *changes.tolist(), len(partitions)]
    for start, end in pairwise(bounds):
        part = (
            rows.slice(start, end - start)
            if order is None
            else rows.take(pa.array(order[start:end]))
        )
        yield int(partitions[start]), part, sizes[start:end]


def _stable_order(partitions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    # A stable sort of 16-bit numbers is a radix sort.
    narrow = partitions.astype(np.uint16) if partitions.max() < 1 << 16 else partitions
    return np.argsort(narrow, kind="stable")


def _picked(items: list[bytes | None], order: npt.NDArray[np.int64]) -> list[bytes | None]:
    """The items in another order: twice as fast as going through a list of numbers."""
    column = np.empty(len(items), object)
    column[:] = items
    picked: list[bytes | None] = column[order].tolist()
    return picked


def _slices(sizes: npt.NDArray[np.int64], limit: int) -> Iterator[tuple[int, int, int]]:
    """(start, end, bytes) of runs of rows that fit the limit; a longer row is a run of its own."""
    ends = np.cumsum(sizes)
    start, before = 0, 0
    while start < len(sizes):
        end = max(int(np.searchsorted(ends, before + limit, side="right")), start + 1)
        yield start, end, int(ends[end - 1]) - before
        start, before = end, int(ends[end - 1])
