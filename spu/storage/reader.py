"""Reading batches out of segments.

An SPU reads only headers: from an index entry it walks to the batch that holds an offset, and it
sends data up to the end of the last whole batch, or says where that data lies. A read first tries
the page cache without waiting (``RWF_NOWAIT``). If the disk is needed, the caller repeats the read
in a thread, so that a reader of old data never stops the loop that serves all other clients.
"""

from __future__ import annotations

import errno
import os
import struct
import threading
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from schemas.daemon.boot import boot_id
from schemas.daemon.page_cache import CAN_REFUSE_TO_WAIT, read_at
from schemas.errors import CorruptBatchError
from schemas.wire.batch import HEADER_SIZE, MAGIC, NO_TRANSACTION, BatchHeader, read_header
from schemas.wire.located_batches import LEAST_LOCATED_BYTES, LocatedBatches, Place
from schemas.wire.memory import unfilled
from spu.storage.durable import is_shortage
from spu.storage.file_pool import FilePool
from spu.storage.index import INDEX_INTERVAL_BYTES, SparseIndex, read_index, write_index
from spu.storage.segment import Damage, Segment, scan

_WALK: Final = struct.Struct("<qQIHBBII8xq")
_WALK_AT: Final = 8
#: The reader asks again after so many bytes, and hears of a truncation or another leader.
_MOST_LOCATED_BYTES: Final = 64 << 20
#: How many positions are remembered at which sequential readers will go on.
_REMEMBERED_ENDS: Final = 32


class IndexNotLoadedError(BlockingIOError):
    """The position is not known without the disk; the data itself may well be in memory."""


@dataclass(frozen=True, slots=True)
class ReadResult:
    """Whole batches, the offset after the last one, and the last one's term, 0 if there is none."""

    data: memoryview
    next_offset: int
    last_term: int = 0


class LogReader:
    """Reads the segments of one log."""

    def __init__(self, files: FilePool) -> None:
        self._files = files
        # The event loop and read threads share the following fields.
        self._lock = threading.Lock()
        self._ends: dict[int, tuple[int, int]] = {}

    def read(
        self, segment: Segment, offset: int, max_bytes: int, upto_offset: int, *, wait: bool
    ) -> ReadResult:
        """See `ReadableLog.read`; ``offset`` is in ``segment`` and below ``upto_offset``."""
        limit = segment.size
        base, position = self._ends.get(offset, (-1, 0))
        if base != segment.base_offset:
            position = self.locate(segment, offset, limit, wait=wait)
        most = max(max_bytes, HEADER_SIZE)
        count = limit - position
        if count > most:
            index = segment.index
            count = most if index is None else index.worth_reading(position, most, limit)
        data = self._pread(segment, position, count, wait=wait)
        end, next_offset, last_term = _whole_batches(data, segment, position, upto_offset, most)
        if not end:
            if len(data) < HEADER_SIZE:
                raise Damage(segment.path, position, "the segment ends inside a batch header")
            length = int(_WALK.unpack_from(data, _WALK_AT)[2])
            if length > limit - position:
                raise Damage(segment.path, position, f"a batch of {length} bytes leaves the file")
            data = self._pread(segment, position, length, wait=wait)
            end, next_offset, last_term = _whole_batches(data, segment, position, upto_offset, most)
        self._remember(next_offset, segment.base_offset, position + end)
        return ReadResult(data[:end], next_offset, last_term)

    def place(self, segment: Segment, offset: int, upto_offset: int, *, wait: bool) -> Place | None:
        """Where the batches lie that `read` would give if it had no limit; None if they are few, or
        if this system does not say which host it is. Raises as `read` does."""
        host = boot_id()
        # First the size: what is appended after it may not be committed.
        size = segment.size
        if host is None or size < LEAST_LOCATED_BYTES:
            return None
        position = self.locate(segment, offset, size, wait=wait)
        end = size
        if segment.end_offset > upto_offset:
            end = self._end_below(segment, upto_offset, size, wait=wait)
        if end - position > _MOST_LOCATED_BYTES:
            near = self.index(segment, wait=wait).entry_before(position + _MOST_LOCATED_BYTES)
            # A batch may be longer than that.
            end = near[1] if near is not None and near[1] > position else end
        if end - position < LEAST_LOCATED_BYTES:
            return None
        term = self._header(segment, position, size, wait=wait)[4]
        with self._files.open(segment.path) as fd:
            file = os.fstat(fd)
        found = LocatedBatches(host, file.st_dev, file.st_ino, position, end - position, term)
        return Place(found, os.path.abspath(segment.path))

    def _end_below(self, segment: Segment, upto_offset: int, limit: int, *, wait: bool) -> int:
        """Where the first batch lies that begins at ``upto_offset`` or above; ``limit`` if none
        does."""
        position = self.index(segment, wait=wait).position_before(upto_offset)
        while position < limit:
            base, length, *_ = self._header(segment, position, limit, wait=wait)
            if base >= upto_offset:
                break
            position += length
        return position

    def _remember(self, next_offset: int, base_offset: int, end: int) -> None:
        """A sequential reader will come back for ``next_offset``: remember its position."""
        with self._lock:
            if len(self._ends) >= _REMEMBERED_ENDS:
                del self._ends[next(iter(self._ends))]
            self._ends[next_offset] = (base_offset, end)

    def find_time(self, segment: Segment, timestamp_us: int, log_start: int) -> int | None:
        """Base offset of the first batch that ends at or after ``log_start`` and has a record
        at or after the time; None if there is none."""
        limit = segment.size
        position = self.index(segment, wait=True).position_before_time(timestamp_us)
        while position < limit:
            base, length, count, last_us, _ = self._header(segment, position, limit, wait=True)
            if last_us >= timestamp_us and base + count > log_start:
                return base
            position += length
        return None

    def find_id(self, segment: Segment, transaction_id: int, log_start: int) -> int | None:
        """Like `find_time`, for the first batch with a record of that transaction id or a larger
        one."""
        position = self.index(segment, wait=True).position_before_id(transaction_id)
        for header in self._headers(segment, position):
            if (
                header.has_transaction_ids
                and header.last_transaction_id >= transaction_id
                and header.next_offset > log_start
            ):
                return header.base_offset
        return None

    def id_before(self, segment: Segment, offset: int) -> int:
        """The largest transaction id in ``segment`` below ``offset``, a batch boundary.

        Blocks on the disk. Raises Damage, OSError.
        """
        if segment.end_offset <= offset:
            return segment.max_transaction_id
        index = self.index(segment, wait=True)
        at = bisect_right(index.offsets, offset) - 1
        if at < 0:
            return NO_TRANSACTION
        found = index.max_id_before[at]
        for header in self._headers(segment, index.positions[at]):
            if header.base_offset >= offset:
                break
            if header.has_transaction_ids:
                found = max(found, header.last_transaction_id)
        return found

    def _headers(self, segment: Segment, position: int) -> Iterator[BatchHeader]:
        """The headers of a segment from the batch at ``position`` on; nothing is verified.

        Blocks on the disk. Raises Damage if the bytes are not a header, OSError.
        """
        limit = segment.size
        while position < limit:
            data = self._pread(segment, position, min(HEADER_SIZE, limit - position), wait=True)
            try:
                header = read_header(data)
            except CorruptBatchError as error:
                raise Damage(segment.path, position, error.message) from error
            yield header
            position += header.length

    def batch_start(self, segment: Segment, offset: int) -> int:
        """Base offset of the batch that holds ``offset``, which is in ``segment``. Blocks."""
        limit = segment.size
        position = self.locate(segment, offset, limit, wait=True)
        return self._header(segment, position, limit, wait=True)[0]

    def locate(self, segment: Segment, offset: int, limit: int, *, wait: bool) -> int:
        """Position of the batch that holds ``offset``, below ``limit``. Raises as `read` does."""
        if offset == segment.base_offset:
            return 0
        position = self.index(segment, wait=wait).position_before(offset)
        chunk, start = memoryview(b""), position
        while position < limit:
            at = position - start
            if len(chunk) - at < HEADER_SIZE:
                count = min(INDEX_INTERVAL_BYTES, limit - position)
                chunk, start, at = self._pread(segment, position, count, wait=wait), position, 0
            base, length, count, _last_us, _term = _header(chunk, at, segment, position)
            if base <= offset < base + count:
                return position
            position += length
        raise Damage(segment.path, limit, f"offset {offset} is not in the segment")

    def _header(
        self, segment: Segment, position: int, limit: int, *, wait: bool
    ) -> tuple[int, int, int, int, int]:
        data = self._pread(segment, position, min(HEADER_SIZE, limit - position), wait=wait)
        return _header(data, 0, segment, position)

    def index(self, segment: Segment, *, wait: bool) -> SparseIndex:
        """The index of a segment, from memory, its file, or its log. Raises as `read` does."""
        index = segment.index
        if index is not None:
            return index
        if not wait and CAN_REFUSE_TO_WAIT:
            raise IndexNotLoadedError(errno.EAGAIN, "the index is on the disk", segment.path)
        found = read_index(segment.index_path)
        if found is not None and found[0].covered == segment.size:
            return found[1]
        return self._rebuild_index(segment)

    def _rebuild_index(self, segment: Segment) -> SparseIndex:
        scratch = Segment(segment.directory, segment.base_offset, segment.base_offset)
        index = scratch.index = SparseIndex()
        with self._files.open(segment.path) as fd:
            for _position, header in scan(fd, segment.path, 0, segment.base_offset, 0):
                scratch.note(header, header.base_offset)
        try:
            write_index(segment.index_path, segment.summary(), index.to_bytes())
        except OSError as error:
            if not is_shortage(error):
                raise
            # The index is only a shortcut: a full disk must not stop readers.
        return index

    def _pread(self, segment: Segment, position: int, count: int, *, wait: bool) -> memoryview:
        """Exactly ``count`` bytes."""
        view = unfilled(count)
        with self._files.open(segment.path) as fd:
            filled = read_at(fd, view, position, wait=wait)
        if filled < count:
            raise Damage(segment.path, position + filled, "the file is shorter than known")
        return view


def _header(
    data: memoryview, at: int, segment: Segment, position: int
) -> tuple[int, int, int, int, int]:
    """Base offset, length, record count, last timestamp and term of a stored batch."""
    if len(data) - at < HEADER_SIZE:
        raise Damage(segment.path, position, "the segment ends inside a batch header")
    fields = _WALK.unpack_from(data, at + _WALK_AT)
    base, term, length, magic, _codec, _flags, _schema, count, last_us = fields
    if magic != MAGIC or length < HEADER_SIZE:
        raise Damage(segment.path, position, "no batch header stands here")
    return base, length, count, last_us, term


def _whole_batches(
    data: memoryview, segment: Segment, position: int, upto_offset: int, most: int
) -> tuple[int, int, int]:
    """Length, next offset and last term of the whole batches below ``upto_offset`` at the start
    of data: the first batch, and all others that end within ``most`` bytes."""
    at, next_offset, last_term = 0, -1, 0
    size = len(data)
    while size - at >= HEADER_SIZE:
        base, length, count, _last_us, term = _header(data, at, segment, position + at)
        if at + length > size or (at and (base >= upto_offset or at + length > most)):
            break
        at += length
        next_offset, last_term = base + count, term
    return at, next_offset, last_term
