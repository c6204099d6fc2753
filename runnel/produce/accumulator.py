"""Gathering records into batches: the pure core of the producer.

`Accumulator` keeps one open batch per partition that has any records. A batch is *sealed*, and then
ready to be sent, when the next record would not fit ``batch_bytes``, when it has been open for
``linger_s``, when a table comes for its partition, or on a flush. An *eager* one also seals open
batches while no batch is in flight, but not more often than `runnel.produce.linger` says. A
producer that sends rarely then does not wait, and one that sends all the time gathers records for
as long as the batches before take.

While ``max_in_flight`` batches of its partition are in flight, a batch could not be sent anyway: it
is *held* open beyond its age, and grows, until one of them has an outcome. If commits are slow,
batches become larger instead of more. The records of a batch share its deadline, so it is held for
at most ``hold_s``. Laws:

- The records of a partition leave in the order in which they came, whether they came one by one
  or in tables; with a key, that is the order of the key.
- Every record is in exactly one batch; a batch exceeds ``batch_bytes`` only if it is one record.
- Records without a key fill one partition's batch, then move on to the next partition; when that
  batch is held, they move on to a partition that has room, if there is one.
- The age of a batch alone never brings more than ``max_in_flight`` batches of a partition into
  flight within ``hold_s``.
- All records of a batch have transaction ids, which do not fall, or none has.

`append` is the hottest code of the library: it appends to plain lists, and allocates nothing but
what the lists need. The clock and the ``outcome`` that a batch carries for its sender are
arguments. Nothing here is thread-safe; the producer holds a lock around every call.

Neighbours: `runnel.produce.batch` is one batch, `runnel.produce.partitioned_rows` are many records
that become batches.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from typing import Final, Generic

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from runnel.produce.batch import O, ProducerBatch
from runnel.produce.linger import LingerPacer
from runnel.produce.partitioned_rows import (
    Rows,
    few_sorted_rows,
    slices_of,
    sorted_rows,
    split_by_partition,
)
from runnel.records.record import Headers
from runnel.records.tables import HEADER_OVERHEAD_BYTES, ROW_OVERHEAD_BYTES, SizedRows
from schemas.errors import InvalidRequestError, RecordTooLargeError
from schemas.wire.partitioner import partition_for, partitions_for, partitions_of

_KNOWN_KEYS: Final = 1 << 16


class Accumulator(Generic[O]):
    """See the module's text.

    ``clock`` gives seconds; ``new_outcome`` makes the outcome that each batch carries for its
    sender. A batch is in flight from when it is sealed until it is given to `release`. Without
    ``max_in_flight`` no batch is held.
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
        max_in_flight: int | None = None,
        hold_s: float = math.inf,
    ) -> None:
        self.buffered_bytes = 0
        self.under_way = 0
        self.eager = eager
        self._pacer = LingerPacer()
        self._topic = topic
        self._partitions = partitions
        self._max_record_bytes = max_record_bytes
        self._batch_bytes = batch_bytes
        self._linger_s = linger_s
        self._clock = clock
        self._new_outcome = new_outcome
        self._sticky = first_sticky % partitions
        self._open: dict[int, ProducerBatch[O]] = {}
        # Looking a key up costs a fraction of hashing it again.
        self._known_keys: dict[bytes, int] = {}
        self._lingering: deque[ProducerBatch[O]] = deque()
        self._max_in_flight = math.inf if max_in_flight is None else max_in_flight
        self._hold_s = hold_s
        self._in_flight = [0] * partitions
        # Open batches that are past their age, the oldest first.
        self._held: dict[int, ProducerBatch[O]] = {}
        # Partitions with a held batch, of which a batch got an outcome since `take`.
        self._freed: list[int] = []
        self._ready: deque[ProducerBatch[O]] = deque()
        #: Set when `take` has new work.
        self.wake = False

    def grow(self, partitions: int) -> None:
        """The topic has more partitions now: later records are spread over all of them.

        A key may go to another partition from now on. Records that were added before stay where
        they are.
        """
        self._in_flight += [0] * (partitions - self._partitions)
        self._partitions = partitions
        self._known_keys.clear()

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        timestamp_us: int,
        headers: Headers = (),
        partition: int | None = None,
        transaction_id: int | None = None,
    ) -> ProducerBatch[O]:
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
        """Sort records by partition, for `append_rows`. They have no headers and no chosen
        partition; ``opened_at`` is the time of the first one.
        """
        count, keyless = len(keys), self._partitions
        sizes = value_bytes + ROW_OVERHEAD_BYTES
        if keys[0] is None and keys.count(None) == count:
            partitions = np.full(count, keyless)
            return sorted_rows(keys, values, sizes, partitions, keyless, timestamp_us, opened_at)
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
        return sorted_rows(keys, values, sizes, partitions, keyless, timestamp_us, opened_at)

    def arrange_few(
        self,
        keys: list[bytes | None],
        values: list[bytes | None],
        value_bytes: list[int],
        timestamp_us: int,
        opened_at: float,
    ) -> Rows[O]:
        """As `arrange`, for so few records that numpy costs more than it saves."""
        keyless = self._partitions
        sizes = [size + ROW_OVERHEAD_BYTES for size in value_bytes]
        partitions = [keyless] * len(keys)
        if keys.count(None) < len(keys):
            known = self._known_keys
            for row, key in enumerate(keys):
                if key is not None:
                    sizes[row] += len(key)
                    found = known.get(key)
                    partitions[row] = self._partition_of(key) if found is None else found
            if keyless == 1:
                # All go to the one partition, in the order in which they came.
                partitions = [0] * len(keys)
        return few_sorted_rows(keys, values, sizes, partitions, keyless, timestamp_us, opened_at)

    def append_rows(self, rows: Rows[O]) -> None:
        """Add records, none longer than ``max_record_bytes``. After an interrupt, call it again."""
        for end, partition in rows.bounds:
            while rows.done < end:
                self._append_run(rows, end, partition)
        rows.finish()

    def append_table(
        self, table: SizedRows, *, with_ids: bool = False, partition: int | None = None
    ) -> list[ProducerBatch[O]]:
        """Add the rows of `RECORD_SCHEMA`, split by key and sliced by size.

        ``with_ids``: the last column holds transaction ids, which do not fall. ``partition``: where
        all of them go, whatever their keys. Open batches of their partitions are sealed first. The
        caller has checked the sizes of the records. Raises InvalidRequestError for a partition that
        does not exist.
        """
        rows, sizes = table.rows, table.sizes + ROW_OVERHEAD_BYTES
        if rows.num_rows == 0:
            return []
        if partition is None:
            partitions = self._assign(rows, sizes)
        else:
            self._check_partition(partition)
            partitions = np.full(len(sizes), partition, np.int64)
        made: list[ProducerBatch[O]] = []
        for index, part, part_sizes in split_by_partition(rows, sizes, partitions):
            opened = self._open.get(index)
            if opened is not None:
                self._seal(opened)
            for start, end, size in slices_of(part_sizes, self._batch_bytes):
                records = part.slice(start, end - start)
                batch = self._new_batch(index, self._clock(), records, size)
                batch.with_ids = with_ids
                self.buffered_bytes += size
                self._make_ready(batch)
                made.append(batch)
        self.wake = True
        return made

    @property
    def awaits_outcome(self) -> bool:
        """Whether open batches wait until others are delivered or fail."""
        return bool(self._held) or (self.eager and self.under_way > 0)

    def seal_all(self) -> None:
        """Seal all open batches: a flush."""
        for batch in list(self._open.values()):
            self._seal(batch)

    def take(self, now: float) -> tuple[list[ProducerBatch[O]], float | None]:
        """The batches that are ready, in order, and when the next open one will be ready."""
        idle = self.eager and not self.under_way
        paced = idle and now < self._pacer.next_at
        if idle and not paced and self._open:
            self.seal_all()
            self._pacer.began(now)
        self._seal_held(now)
        while self._lingering:
            oldest = self._lingering[0]
            if not oldest.sealed:
                if now < oldest.opened_at + self._linger_s:
                    break
                if self._has_room(oldest.partition) or now >= oldest.opened_at + self._hold_s:
                    self._seal(oldest)
                else:
                    self._held[oldest.partition] = oldest
            self._lingering.popleft()
        if self._sticky in self._held:
            self._leave_held()
        ready = list(self._ready)
        self._ready.clear()
        self.wake = False
        due = self._lingering[0].opened_at + self._linger_s if self._lingering else None
        if self._held:
            hold_ends = next(iter(self._held.values())).opened_at + self._hold_s
            due = hold_ends if due is None else min(due, hold_ends)
        if paced:
            due = self._pacer.next_at if due is None else min(due, self._pacer.next_at)
        return ready, due

    def release(self, batch: ProducerBatch[O]) -> None:
        """A batch was delivered or failed."""
        self.buffered_bytes -= batch.size
        self.under_way -= 1
        self._in_flight[batch.partition] -= 1
        if batch.partition in self._held and self._has_room(batch.partition):
            self._freed.append(batch.partition)
            self.wake = True
        if self.eager and not self.under_way:
            self._pacer.ended(self._clock())
            self.wake = True

    def _has_room(self, partition: int) -> bool:
        return self._in_flight[partition] < self._max_in_flight

    def _seal_held(self, now: float) -> None:
        """Seal the held batches that can be sent, or that were held for long enough."""
        freed, self._freed = self._freed, []
        for partition in freed:
            held = self._held.get(partition)
            if held is not None and self._has_room(partition):
                self._seal(held)
        while self._held:
            oldest = next(iter(self._held.values()))
            if now < oldest.opened_at + self._hold_s:
                break
            self._seal(oldest)

    def _leave_held(self) -> None:
        """Put keyless records into the next partition that has room; leave them if none has."""
        for step in range(1, self._partitions):
            partition = (self._sticky + step) % self._partitions
            if self._has_room(partition):
                self._sticky = partition
                return

    def _partition_of(self, key: bytes) -> int:
        partition = partition_for(key, self._partitions)
        if len(self._known_keys) >= _KNOWN_KEYS:
            self._known_keys.clear()
        self._known_keys[key] = partition
        return partition

    def _append_run(self, rows: Rows[O], end: int, partition: int | None) -> None:
        """Fill one batch with rows of one partition, or seal it if not one fits."""
        where = self._sticky if partition is None else partition
        batch = self._open.get(where)
        if batch is not None and batch.with_ids:
            self._seal(batch)
            return
        before = int(rows.ends[rows.done - 1]) if rows.done else 0
        room = self._batch_bytes - (batch.size if batch is not None else 0)
        stop = min(bisect_right(rows.ends, before + room, rows.done), end)
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
    ) -> ProducerBatch[O]:
        """A batch with room for ``size`` bytes; a keyless record goes to the partition of the
        others.
        """
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

    def _check_partition(self, partition: int) -> None:
        if not 0 <= partition < self._partitions:
            raise InvalidRequestError(
                f"topic {self._topic!r} has the partitions 0 to {self._partitions - 1},"
                f" not {partition}"
            )

    def _begin(self, partition: int, opened_at: float) -> ProducerBatch[O]:
        self._check_partition(partition)
        batch = self._new_batch(partition, opened_at)
        self._open[partition] = batch
        if not self._lingering:
            self.wake = True
        self._lingering.append(batch)
        return batch

    # The parts that depend on the form of records

    def _new_batch(
        self,
        partition: int,
        opened_at: float,
        records: pa.RecordBatch | None = None,
        size: int = 0,
    ) -> ProducerBatch[O]:
        return ProducerBatch(partition, self._new_outcome(), opened_at, records, size)

    def _keys(self, rows: pa.RecordBatch) -> pa.Array:
        return rows.column("key")

    def _seal(self, batch: ProducerBatch[O]) -> None:
        del self._open[batch.partition]
        self._held.pop(batch.partition, None)
        batch.sealed = True
        if batch.count:
            self._make_ready(batch)
            self.wake = True
        if batch.partition == self._sticky:
            self._sticky = (self._sticky + 1) % self._partitions

    def _make_ready(self, batch: ProducerBatch[O]) -> None:
        self._ready.append(batch)
        self.under_way += 1
        self._in_flight[batch.partition] += 1

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
        lengths = [end - start for start, end, _ in slices_of(sizes, self._batch_bytes)]
        runs = np.repeat(np.arange(len(lengths)), lengths)
        chosen = (self._sticky + runs) % self._partitions
        self._sticky = int(chosen[-1] + 1) % self._partitions
        return chosen


def _headers_size(headers: Headers) -> int:
    return sum(
        len(name.encode()) + (len(value) if value is not None else 0) + HEADER_OVERHEAD_BYTES
        for name, value in headers
    )
