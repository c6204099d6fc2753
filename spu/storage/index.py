"""The sparse index of a segment: where to start looking for an offset, a time, a transaction id.

There is an entry about every 64 KiB: the offset of a batch, its position, and the largest timestamp
and transaction id of all batches before it in the segment. The last two columns never fall, so that
bisection finds the first batch at or after a timestamp, whatever the order of the records' own
timestamps.

The index of the active segment is kept in memory and written with checkpoints; that of a completed
segment is written once and loaded when the segment is read. An index is only a shortcut: its file
carries checksums and the length of the log that it covers, and an index that is missing, stale,
damaged or of an earlier version is rebuilt from the log. So it is never fsynced.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from schemas.wire.batch import NO_TRANSACTION, crc32c
from spu.storage.durable import replace_file

INDEX_INTERVAL_BYTES: Final = 64 << 10
#: Entries that are nearer to each other than this may have many batches between them.
_SMALL_BATCHES_BYTES: Final = INDEX_INTERVAL_BYTES * 5 // 4
NO_TIMESTAMP: Final = -(1 << 63)
_HEADER: Final = struct.Struct("<4sIqqqqqqqI")
_MAGIC: Final = b"RNI2"
#: Magic of index files without transaction ids.
_EARLIER_MAGIC: Final = b"RNLI"
_CRC: Final = struct.Struct("<I")
_COLUMNS: Final = 4
_ENTRY_BYTES: Final = 8 * _COLUMNS


class SparseIndex:
    """Offsets, positions and earlier maxima of timestamps and transaction ids, side by side."""

    __slots__ = ("_next_at", "max_before_us", "max_id_before", "offsets", "positions")

    def __init__(self) -> None:
        self.offsets: array[int] = array("q")
        self.positions: array[int] = array("q")
        self.max_before_us: array[int] = array("q")
        self.max_id_before: array[int] = array("q")
        self._next_at = 0

    def note(self, offset: int, position: int, max_before_us: int, max_id_before: int) -> None:
        """Add an entry for a batch if the last entry is far enough back."""
        if position >= self._next_at:
            self.offsets.append(offset)
            self.positions.append(position)
            self.max_before_us.append(max_before_us)
            self.max_id_before.append(max_id_before)
            self._next_at = position + INDEX_INTERVAL_BYTES

    def worth_reading(self, position: int, most: int, end: int) -> int:
        """How many bytes to read from ``position``, where a batch begins, for whole batches of at
        most ``most`` bytes, or for one that is longer, in a segment that ends at ``end``.

        The part of the last batch that does not fit is read for nothing. With long batches this is
        much, but the index knows where they begin; with small ones it is little, and the index
        does not know all of them.
        """
        at = bisect_right(self.positions, position + most)
        following = self.positions[at] if at < len(self.positions) else end
        near = self.positions[at - 1] if at else 0
        if near <= position:
            return following - position if at < len(self.positions) else most
        return most if following - near < _SMALL_BATCHES_BYTES else near - position

    def position_before(self, offset: int) -> int:
        """Position of a batch that begins at or before ``offset``."""
        at = bisect_right(self.offsets, offset) - 1
        return self.positions[at] if at >= 0 else 0

    def position_before_time(self, timestamp_us: int) -> int:
        """A position before which no record is at or after the timestamp."""
        at = bisect_left(self.max_before_us, timestamp_us) - 1
        return self.positions[at] if at >= 0 else 0

    def position_before_id(self, transaction_id: int) -> int:
        """A position before which no record has that transaction id or a larger one."""
        at = bisect_left(self.max_id_before, transaction_id) - 1
        return self.positions[at] if at >= 0 else 0

    def entry_before(self, position: int) -> tuple[int, int] | None:
        """Offset and position of the last entry at or before ``position``."""
        at = bisect_right(self.positions, position) - 1
        return (self.offsets[at], self.positions[at]) if at >= 0 else None

    def entry_for(self, offset: int) -> tuple[int, int] | None:
        """Offset and position of the last entry at or before ``offset``."""
        at = bisect_right(self.offsets, offset) - 1
        return (self.offsets[at], self.positions[at]) if at >= 0 else None

    def cut(self, position: int) -> tuple[int, int]:
        """Drop entries at or after ``position``; returns the largest timestamp and transaction id
        before the first of them, if there is one."""
        keep = bisect_left(self.positions, position)
        known = NO_TIMESTAMP, NO_TRANSACTION
        if keep < len(self.positions):
            known = self.max_before_us[keep], self.max_id_before[keep]
        for column in self._columns:
            del column[keep:]
        self._next_at = self.positions[-1] + INDEX_INTERVAL_BYTES if self.positions else 0
        return known

    @property
    def _columns(self) -> tuple[array[int], ...]:
        return self.offsets, self.positions, self.max_before_us, self.max_id_before

    def to_bytes(self) -> bytes:
        return b"".join(column.tobytes() for column in self._columns)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        index = cls()
        size = len(data) // _COLUMNS
        for number, column in enumerate(index._columns):
            column.frombytes(data[number * size : (number + 1) * size])
        if index.positions:
            index._next_at = index.positions[-1] + INDEX_INTERVAL_BYTES
        return index


@dataclass(frozen=True, slots=True)
class IndexSummary:
    """What an index file says about its segment; ``covered`` is the length of the log that it
    covers."""

    base_offset: int
    end_offset: int
    covered: int
    max_timestamp_us: int
    opened_us: int
    completed_us: int
    max_transaction_id: int


def write_index(path: Path, summary: IndexSummary, entries: bytes) -> None:
    """Replace an index file. Not durable: a lost one is rebuilt."""
    head = _HEADER.pack(
        _MAGIC,
        len(entries),
        summary.base_offset,
        summary.end_offset,
        summary.covered,
        summary.max_timestamp_us,
        summary.opened_us,
        summary.completed_us,
        summary.max_transaction_id,
        crc32c(entries),
    )
    replace_file(path, head + _CRC.pack(crc32c(head)) + entries, durable=False)


def read_summary(path: Path) -> IndexSummary | None:
    """The summary of an index file; None if it cannot be trusted."""
    try:
        with path.open("rb") as file:
            found = _summary(file.read(_HEADER.size + _CRC.size))
    except OSError:
        return None
    return found[0] if found else None


def read_index(path: Path) -> tuple[IndexSummary, SparseIndex] | None:
    """Summary and entries of an index file; None if they cannot be trusted."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    found = _summary(data)
    entries = data[_HEADER.size + _CRC.size :]
    if found is None or found[1:] != (len(entries), crc32c(entries)) or len(entries) % _ENTRY_BYTES:
        return None
    return found[0], SparseIndex.from_bytes(entries)


def is_of_earlier_version(path: Path) -> bool:
    """Whether a version without transaction ids wrote this index file."""
    try:
        with path.open("rb") as file:
            return file.read(len(_EARLIER_MAGIC)) == _EARLIER_MAGIC
    except OSError:
        return False


def _summary(data: bytes) -> tuple[IndexSummary, int, int] | None:
    if len(data) < _HEADER.size + _CRC.size:
        return None
    head = data[: _HEADER.size]
    magic, length, *numbers, crc = _HEADER.unpack(head)
    if magic != _MAGIC or _CRC.unpack_from(data, _HEADER.size)[0] != crc32c(head):
        return None
    return IndexSummary(*numbers), length, crc
