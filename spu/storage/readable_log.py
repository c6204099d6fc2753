"""The readable side of a log: its start and end, its segments, and reads and look-ups in them.

The event loop changes a log while threads read it. Two rules keep readers safe. The segments are a
tuple that the log replaces and never changes in place, so a reader keeps the tuple that it saw. And
a reader takes ``_reader`` first and the segments after it, so that ``_reader`` never remembers
positions of an older log than its own; a log that is replaced sets its end first, then its
segments, then its reader.

A read may meet what looks like damage in a segment that the log has cut meanwhile. That is not
damage: the read raises NotReadyError, and the client tries again. Retention, too, may take the file
of a segment from a reader. A look-up raises NotReadyError then, and a read FileNotFoundError: its
caller knows where the log begins by then. Neighbours: `spu.storage.log` changes the log,
`spu.storage.reader` reads one segment.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import NoReturn

from schemas.errors import CorruptBatchError, NotReadyError, OffsetOutOfRangeError
from schemas.wire.batch import split_batches, verify
from schemas.wire.located_batches import Place
from spu.storage.reader import LogReader, ReadResult
from spu.storage.segment import Damage, Segment


class ReadableLog:
    """A log as its readers see it. Threads may call `read` with ``wait``, and all look-ups."""

    leo: int
    log_start: int
    _segments: tuple[Segment, ...]
    _reader: LogReader

    @property
    def segments(self) -> tuple[Segment, ...]:
        return self._segments

    def read(self, offset: int, max_bytes: int, upto_offset: int, *, wait: bool) -> ReadResult:
        """Whole batches from the one that holds ``offset`` on, none at or above ``upto_offset``.

        The first is whole even if it is longer than ``max_bytes``. Reads stop at the end of a
        segment. Without ``wait``, raises BlockingIOError if the disk is needed; with it, call from
        a thread. Raises OffsetOutOfRangeError below the log start, NotReadyError if the log is
        being cut there, Damage, OSError.
        """
        if offset < self.log_start:
            raise self._below_start(offset)
        if offset >= min(upto_offset, self.leo):
            return ReadResult(memoryview(b""), offset)
        reader = self._reader
        segment = segment_of(self._segments, offset)
        try:
            return reader.read(segment, offset, max_bytes, upto_offset, wait=wait)
        except Damage as error:
            self._raise_unless_cut(error, segment, offset)

    def place(self, offset: int, upto_offset: int, *, wait: bool) -> Place | None:
        """Where the batches lie that `read` would give if it had no limit; None if there are few.
        Raises as `read` does."""
        if offset < self.log_start:
            raise self._below_start(offset)
        if offset >= min(upto_offset, self.leo):
            return None
        reader = self._reader
        segment = segment_of(self._segments, offset)
        try:
            return reader.place(segment, offset, upto_offset, wait=wait)
        except Damage as error:
            self._raise_unless_cut(error, segment, offset)

    def read_verified(self, offset: int, max_bytes: int, upto_offset: int) -> ReadResult:
        """As `read` with ``wait``, of batches whose checksums match."""
        reader = self._reader
        # Before the read: if the log is cut after it, this segment is no longer there.
        segment = segment_of(self._segments, offset) if self._segments else None
        found = self.read(offset, max_bytes, upto_offset, wait=True)
        verified = 0
        try:
            for header, batch in split_batches(found.data):
                verify(batch, header)
                verified += header.length
        except CorruptBatchError as error:
            if segment is None:
                raise NotReadyError("the log was replaced meanwhile") from error
            try:
                position = reader.locate(segment, offset, segment.size, wait=True)
                damage = Damage(segment.path, position + verified, error.message)
            except Damage as earlier:
                damage = earlier
            self._raise_unless_cut(damage, segment, offset)
        return found

    def batch_start(self, offset: int) -> int:
        """Base offset of the batch that holds ``offset``; the log's end, if ``offset`` is not below
        it.

        Blocks on the disk. Raises OffsetOutOfRangeError below the log start, NotReadyError if the
        log is being cut there, Damage, OSError.
        """
        if offset < self.log_start:
            raise self._below_start(offset)
        if offset >= self.leo:
            return self.leo
        reader = self._reader
        segment = segment_of(self._segments, offset)
        try:
            return reader.batch_start(segment, offset)
        except Damage as error:
            self._raise_unless_cut(error, segment, offset)

    def offset_for_timestamp(self, timestamp_us: int, upto_offset: int) -> int:
        """Base offset of the first batch with a record at or after a time; else ``upto_offset``.

        Never below the log start. Blocks on the disk. Raises NotReadyError if the log is being
        cut at either end, Damage, OSError.
        """
        reader, log_start = self._reader, self.log_start
        return self._first_batch(
            (one for one in self._segments if one.max_timestamp_us >= timestamp_us),
            lambda segment: reader.find_time(segment, timestamp_us, log_start),
            upto_offset,
        )

    def offset_for_transaction_id(self, transaction_id: int, upto_offset: int) -> int:
        """Base offset of the first batch with a record of an id or a larger one; otherwise as
        `offset_for_timestamp`."""
        reader, log_start = self._reader, self.log_start
        return self._first_batch(
            (one for one in self._segments if one.max_transaction_id >= transaction_id),
            lambda segment: reader.find_id(segment, transaction_id, log_start),
            upto_offset,
        )

    def _first_batch(
        self,
        segments: Iterable[Segment],
        find: Callable[[Segment], int | None],
        upto_offset: int,
    ) -> int:
        """Base offset of the first batch that ``find`` finds in one of ``segments``."""
        log_start = self.log_start
        for segment in segments:
            if segment.end_offset > log_start:
                try:
                    found = find(segment)
                except (Damage, FileNotFoundError) as error:
                    self._raise_unless_cut(error, segment)
                if found is not None:
                    return min(max(found, log_start), upto_offset)
        return upto_offset

    def _below_start(self, offset: int) -> OffsetOutOfRangeError:
        return OffsetOutOfRangeError(
            f"offset {offset} was truncated; the first available offset is {self.log_start}",
            firstAvailable=self.log_start,
        )

    def _raise_unless_cut(
        self, error: Damage | FileNotFoundError, segment: Segment, offset: int | None = None
    ) -> NoReturn:
        """Raise what a read met, or NotReadyError if the log was cut meanwhile."""
        if segment in self._segments and (offset is None or offset < self.leo):
            raise error
        below = "" if offset is None else f" below offset {offset}"
        raise NotReadyError(f"the log was cut{below} meanwhile") from error


def segment_of(segments: tuple[Segment, ...], offset: int) -> Segment:
    """The segment that holds ``offset``, or the first one if ``offset`` is below all of them."""
    at = bisect_right(segments, offset, key=attrgetter("base_offset")) - 1
    return segments[max(at, 0)]
