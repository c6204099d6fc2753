"""Where `send` leaves its records: without a lock, in the slots of a chunk.

A *chunk* is two lists of free slots, keys and values, and an iterator of their numbers. `send`
takes the next number, fills that slot, and returns a handle of chunk and number. No record is
hashed, measured or stamped alone: that is done for a whole chunk when it is *gathered* into batches
(`runnel.produce.accumulator`), under the lock. It is gathered when it is full, by the event loop a
few milliseconds after its first record, before a flush, and before anything that does not fit a
slot: tables, large records, and those with a timestamp, headers or a partition.

Assumptions and consequences:

- With the global interpreter lock, taking a number from a ``range`` iterator, and taking all that
  are left, are one step each. So no two records share a slot, a thread's numbers rise with its
  records, and a chunk knows which of its slots are filled or about to be. Between taking a number
  and filling the slot nothing is called, so no signal can get there; another thread can, and
  who gathers waits for it. An interpreter without that lock gets chunks without slots: every record
  then goes through `SendBuffer.put`, under the lock.
- A chunk has no more slots than ``buffer_bytes`` has room for, were they all filled with the
  largest records a slot takes: it needs no count of its own, and the limit holds to the record.
- Records of a chunk have one timestamp, read at its first record. A chunk is open for
  `STAMP_S` while the event loop runs freely.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from operator import length_hint
from time import monotonic, sleep, time_ns
from typing import Any, Final, TypeVar

import numpy as np

from runnel.fork import OpenedIn, tell_forks
from runnel.produce.accumulator import Accumulator
from runnel.produce.delivery import Batch, Delivery, OnDelivery, Outcome
from runnel.produce.partitioned_rows import Rows
from runnel.records.few_records import FEW
from runnel.records.record import Headers, as_transaction_id, timestamp_us_of
from runnel.records.tables import ROW_OVERHEAD_BYTES, SizedRows
from runnel.utf8 import as_utf8
from runnel.waiters import Waiters
from schemas.errors import InvalidRequestError, OverloadedError

#: How long a chunk is open: by how much a timestamp may be older than its record.
STAMP_S: Final = 0.005
#: A record at least this long takes no slot.
SLOT_VALUE_BYTES: Final = 4096
SLOT_KEY_BYTES: Final = 256
_SLOT_BYTES: Final = SLOT_VALUE_BYTES + SLOT_KEY_BYTES + ROW_OVERHEAD_BYTES
_LEAST_SLOTS: Final = 64
_MOST_SLOTS: Final = 4096 if getattr(sys, "_is_gil_enabled", lambda: True)() else 0
#: How long a thread sleeps at most before it looks again whether there is room.
_ROOM_POLL_S: Final = 1.0
#: How long to yield the interpreter to a thread that has taken a slot and not filled it yet.
_STRAGGLER_S: Final = 0.0001

T = TypeVar("T")

Fields = tuple[Iterator[int], list[bytes | None], list[bytes | None], "SendChunk"]


class SendChunk:
    """Slots for records, and where those went once they were gathered."""

    __slots__ = ("_gather", "_rest", "fields", "opened_at", "rows", "size", "timestamp_us")

    def __init__(self, size: int, gather: Callable[[], object]) -> None:
        self._gather = gather
        self._rest: list[int] = []
        #: How many slots there are; how many were taken, once it was gathered.
        self.size = size
        #: Everything that `send` needs, to be read in one step; None once the records are in
        #: batches.
        self.fields: Fields | None = None
        self.rows: Rows[Outcome] | None = None
        self.opened_at: float | None = None
        self.timestamp_us: int | None = None

    def close(self) -> int:
        """Give out no more slots; how many are taken. May be called again."""
        if self.fields is not None:
            # One call, and its result is kept: an interrupt after it changes nothing.
            self._rest.extend(self.fields[0])
        return self._rest[0] if self._rest else self.size

    @property
    def untouched(self) -> bool:
        """Are all slots free, at this moment?"""
        return self.fields is not None and length_hint(self.fields[0]) == self.size

    def gathered(self) -> None:
        """All records are in batches: keep only their places."""
        self.size = self.close()
        self.fields = None
        self._rest = []

    def place(self, index: int) -> tuple[Batch, int]:
        """The batch of a record, and its row there. Gathers the chunk if it is still open."""
        if self.fields is not None:
            self._gather()
        if self.rows is None:
            raise RuntimeError("a record was given a handle and no slot")
        return self.rows.place(index)


def _open_chunk(size: int, gather: Callable[[], object]) -> Fields:
    chunk = SendChunk(size, gather)
    fields: Fields = (iter(range(size)), [None] * size, [None] * size, chunk)
    chunk.fields = fields
    return fields


class SendBuffer:
    """The half of a producer that every thread may enter; see the module's text.

    ``wake`` is called, from any thread, when `take` has new work. ``waits``: while the buffer is
    full, callers wait instead of getting OverloadedError.
    """

    def __init__(
        self,
        topic: str,
        accumulator: Accumulator[Outcome],
        *,
        buffer_bytes: int,
        max_record_bytes: int,
        waits: bool,
        wake: Callable[[], object],
    ) -> None:
        self._topic = topic
        self._accumulator = accumulator
        self._limit_bytes = buffer_bytes
        self._waits = waits
        self._wake = wake
        self._opened_in = OpenedIn()
        self._lock = threading.Lock()
        # Told whenever a batch leaves the buffer.
        self._await_room = Waiters()
        self._most_slots = _MOST_SLOTS if max_record_bytes >= _SLOT_BYTES else 0
        # Whether the event loop gathers within `STAMP_S` without being woken.
        self._awaited = False
        self.closed = False
        #: The thread that makes room, and so never waits for it; None if it is not known.
        self.loop_thread: int | None = None
        self._open(_LEAST_SLOTS)
        tell_forks(self)

    def forked(self) -> None:
        """Take nothing in this process: the parent sends what was taken before."""
        # Another thread of the parent may have held it.
        self._lock = threading.Lock()
        self._wake = lambda: None
        self.closed = True
        self._open(0)

    #: Whether values are rows of a typed topic instead of bytes.
    takes_rows = False

    def begun(self, chunk: SendChunk) -> None:
        """The first record of a chunk has come: stamp it, and schedule the gathering."""
        chunk.opened_at = monotonic()
        chunk.timestamp_us = time_ns() // 1000
        if not self._awaited:
            self._awaited = True
            self._wake()

    def put(
        self,
        value: bytes | None,
        key: bytes | None,
        timestamp: int | datetime | None,
        headers: Any,
        partition: int | None,
        transaction_id: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Delivery:
        """Add a record that has no slot, after all that have one."""
        if transaction_id is not None:
            transaction_id = as_transaction_id(transaction_id)
        when_us = time_ns() // 1000 if timestamp is None else _as_timestamp_us(timestamp)
        pairs = _as_headers(headers) if headers else ()
        accumulator = self._accumulator
        delivery = Delivery()

        def append() -> None:
            batch = accumulator.append(key, value, when_us, pairs, partition, transaction_id)
            delivery._source, delivery._index = batch, batch.count - 1
            if on_delivery is not None:
                # With the lock held the batch cannot be sent yet, so the loop calls it.
                delivery.call(on_delivery)

        self._with_room(append, limited=True)
        return delivery

    def add_table(
        self, piece: SizedRows, *, with_ids: bool = False, partition: int | None = None
    ) -> list[Batch]:
        """Add the rows of a table, whose last column may be transaction ids; all to ``partition``
        if it is given.

        Waits for room only if `put` does; otherwise the caller has drained the buffer. Raises
        InvalidRequestError once closed, and for a partition that does not exist.
        """

        def append() -> list[Batch]:
            return self._accumulator.append_table(piece, with_ids=with_ids, partition=partition)

        return self._with_room(append, limited=self._waits)

    def wait_for_room(self) -> None:
        """Wait, not in the loop, until there may be room, or this is closed."""
        self._await_room.wait(self.has_room, _ROOM_POLL_S)

    def gather(self) -> None:
        """Put all records sent so far into batches. Raises InvalidRequestError in a fork."""
        self._opened_in.require()
        with self._lock:
            self._gather()
            self._open_next()

    def seal_all(self) -> None:
        """Gather, and make every batch ready."""
        with self._lock:
            self._gather()
            self._accumulator.seal_all()
            self._open_next()

    def grow(self, partitions: int) -> None:
        """The topic has so many partitions now; records sent before go where they would have."""
        with self._lock:
            self._gather()
            self._accumulator.grow(partitions)
            self._open_next()

    def take(self, now: float) -> tuple[list[Batch], float | None]:
        """The batches that are ready, in order, and when to call again unless woken before."""
        with self._lock:
            gathered = self._gather_new()
            ready, due = self._accumulator.take(now)
            if self._accumulator.awaits_outcome:
                # Later records wait for the outcome of these: none needs to wake the loop.
                gathered, due = True, now + STAMP_S if due is None else due
            if due is not None and gathered:
                due = min(due, now + STAMP_S)
            self._awaited = due is not None and due <= now + STAMP_S
            self._open_next()
        return ready, due

    def release(self, batch: Batch) -> None:
        """A batch was delivered or failed."""
        with self._lock:
            self._accumulator.release(batch)
            self._tell()
        self._await_room.tell_all()

    def buffered_bytes(self) -> int:
        """The bytes of the accepted records that have no outcome yet."""
        self.gather()
        return self._accumulator.buffered_bytes

    def has_room(self) -> bool:
        """Would `put` take a record now, or raise because this is closed?"""
        return self.closed or self.buffered_bytes() < self._limit_bytes

    def close(self) -> None:
        """Accept nothing more; callers that wait for room get an error."""
        with self._lock:
            self.closed = True
            self._gather()
            self._accumulator.seal_all()
            self._open_next()
        self._await_room.tell_all()

    def _with_room(self, append: Callable[[], T], *, limited: bool) -> T:
        """Append with the lock held, once there is room if that is ``limited``."""
        while True:
            with self._lock:
                try:
                    # While this waited, others may have opened a chunk, and filled it.
                    self._gather_new()
                    if not self._lacks_room(limited=limited):
                        return append()
                finally:
                    self._open_next()
            self.wait_for_room()

    # With the lock held

    def _gather(self) -> bool:
        """Put the records of the open chunk into batches; were there any? The caller wakes the
        loop.

        After an interrupt (Ctrl-C) the next call continues with the chunk.
        """
        chunk = self._chunk
        count = chunk.close()
        if chunk.fields is None or not count:
            return False
        if chunk.rows is None:
            _indices, keys, values, _chunk = chunk.fields
            del keys[count:], values[count:]
            stamp_us = time_ns() // 1000 if chunk.timestamp_us is None else chunk.timestamp_us
            opened_at = monotonic() if chunk.opened_at is None else chunk.opened_at
            if count <= FEW:
                sizes = _lengths(values, list)
                chunk.rows = self._accumulator.arrange_few(keys, values, sizes, stamp_us, opened_at)
            else:
                many = _lengths(values, partial(np.fromiter, dtype=np.int64, count=count))
                chunk.rows = self._accumulator.arrange(keys, values, many, stamp_us, opened_at)
        self._accumulator.append_rows(chunk.rows)
        chunk.gathered()
        return True

    def _gather_new(self) -> bool:
        """Gather, but leave an empty chunk open: closing it would mean to make another."""
        return not self._chunk.untouched and self._gather()

    def _tell(self) -> None:
        """Have the event loop take the batches that have become ready."""
        if self._accumulator.wake:
            self._accumulator.wake = False
            self._wake()

    def _open_next(self) -> None:
        """Wake the loop for ready batches, and make sure that the open chunk has all slots that
        fit.
        """
        self._tell()
        chunk = self._chunk
        free_bytes = self._limit_bytes - self._accumulator.buffered_bytes
        fits = chunk.size and chunk.size * _SLOT_BYTES <= free_bytes and not self.closed
        if not (fits and chunk.untouched):
            self._gather()
            self._open(2 * self._chunk.close())
            self._tell()

    def _free_slots(self) -> int:
        free = self._limit_bytes - self._accumulator.buffered_bytes
        return 0 if self.closed else max(0, min(self._most_slots, free // _SLOT_BYTES))

    def _open(self, wanted: int) -> None:
        size = min(max(wanted, _LEAST_SLOTS), self._free_slots())
        self.fields = _open_chunk(size, self.gather)
        self._chunk = self.fields[3]

    def _lacks_room(self, *, limited: bool) -> bool:
        """Must the caller wait for room? Raises OverloadedError if it may not wait, and
        InvalidRequestError once closed.
        """
        if self.closed:
            self._opened_in.require()
            raise InvalidRequestError(
                f"the producer of {self._topic!r} is closed; open another one"
            )
        if not limited or self._accumulator.buffered_bytes < self._limit_bytes:
            return False
        if not self._waits or threading.get_ident() == self.loop_thread:
            raise OverloadedError(
                f"{self._accumulator.buffered_bytes} bytes for {self._topic!r} wait to be"
                f" acknowledged, the limit is {self._limit_bytes}; await producer.drain(), or"
                " raise buffer_bytes"
            )
        return True


def _lengths(values: list[bytes | None], collect: Callable[[Iterable[int]], T]) -> T:
    """The lengths of the values in a chunk's slots, once all are filled."""
    while True:
        try:
            return collect(map(len, values))  # type: ignore[arg-type]
        except TypeError:
            sleep(_STRAGGLER_S)


def _as_timestamp_us(timestamp: Any) -> int:
    if isinstance(timestamp, datetime):
        try:
            return timestamp_us_of(timestamp)
        except ValueError as error:
            raise InvalidRequestError(f"timestamp: {error}") from error
    if not isinstance(timestamp, int) or not 0 <= timestamp < 1 << 62:
        raise InvalidRequestError(
            f"timestamp {timestamp!r} is neither a datetime nor microseconds since the epoch"
        )
    return timestamp


def _as_headers(headers: Any) -> Headers:
    pairs = tuple(headers.items() if isinstance(headers, Mapping) else headers)
    for pair in pairs:
        if (
            not isinstance(pair, tuple)
            or len(pair) != 2
            or not isinstance(pair[0], str)
            or not isinstance(pair[1], bytes | None)
        ):
            raise InvalidRequestError(f"header {pair!r} is not a pair of a name and bytes")
        as_utf8("the name of a header", pair[0])
    return pairs
