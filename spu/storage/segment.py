"""A segment: one file of batches back to back, named by the offset of its first record.

There is nothing between batches, and a batch never crosses into the next file. This module knows
how a segment is named and described, how to verify it batch by batch, and how to look for a batch
after damage; `spu.storage.recovery` decides what follows from damage.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from schemas.errors import CorruptBatchError
from schemas.objects.topic import MAX_BATCH_BYTES
from schemas.wire.batch import (
    HEADER_SIZE,
    MAGIC,
    MAX_OFFSET,
    NO_TRANSACTION,
    BatchHeader,
    read_header,
    verify,
    verify_leader_part,
)
from spu.storage.index import NO_TIMESTAMP, IndexSummary, SparseIndex

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
_SCAN_BYTES: Final = 4 << 20
_MAGIC_BYTES: Final = struct.pack("<H", MAGIC)
_MAGIC_AT: Final = 28
_NAME: Final = re.compile(f"([0-9]{{20}}){re.escape(LOG_SUFFIX)}")
#: A search for batches stops after checksums over this many times the bytes that it searches.
_SEARCH_FACTOR: Final = 8


class Damage(Exception):  # noqa: N818 - what was found, not yet an error: recovery decides
    """The bytes at ``position`` of ``path`` are not the batch that should be there."""

    def __init__(self, path: str, position: int, why: str) -> None:
        super().__init__(f"{path} at byte {position}: {why}")
        self.position = position


@dataclass(slots=True, eq=False)
class Segment:
    """One segment. ``size`` and ``end_offset`` are the position and offset of its next batch.

    ``completed_us`` is 0 while it is in progress; ``written_us`` is when it got its last batch.
    ``index`` is None for a completed segment: readers load it from its file.
    """

    directory: str
    base_offset: int
    end_offset: int
    size: int = 0
    max_timestamp_us: int = NO_TIMESTAMP
    max_transaction_id: int = NO_TRANSACTION
    opened_us: int = 0
    written_us: int = 0
    completed_us: int = 0
    index: SparseIndex | None = field(default_factory=SparseIndex)

    @property
    def path(self) -> str:
        return f"{self.directory}/{self.base_offset:020d}{LOG_SUFFIX}"

    @property
    def index_path(self) -> Path:
        return Path(f"{self.directory}/{self.base_offset:020d}{INDEX_SUFFIX}")

    def note(self, header: BatchHeader, offset: int) -> None:
        """Count in a batch that was written at the end."""
        if self.index is not None:
            self.index.note(offset, self.size, self.max_timestamp_us, self.max_transaction_id)
        if header.last_timestamp_us > self.max_timestamp_us:
            self.max_timestamp_us = header.last_timestamp_us
        if header.has_transaction_ids and header.last_transaction_id > self.max_transaction_id:
            self.max_transaction_id = header.last_transaction_id
        self.size += header.length
        self.end_offset = offset + header.record_count

    def remove(self) -> None:
        """Delete its files, the index first: an index never outlives its log."""
        self.index_path.unlink(missing_ok=True)
        Path(self.path).unlink(missing_ok=True)

    def summary(self) -> IndexSummary:
        return IndexSummary(
            self.base_offset,
            self.end_offset,
            self.size,
            self.max_timestamp_us,
            self.opened_us,
            self.completed_us,
            self.max_transaction_id,
        )


def segment_bases(directory: Path) -> list[int]:
    """Base offsets of the segment files in a directory, in order."""
    return bases_of(os.listdir(directory))


def bases_of(names: Iterable[str]) -> list[int]:
    """Base offsets of the segment files among ``names``, in order. Other names are ignored."""
    found = (int(name[1]) for name in map(_NAME.fullmatch, names) if name)
    return sorted(base for base in found if base <= MAX_OFFSET)


def scan(
    fd: int, path: str, position: int, offset: int, last_term: int
) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of every batch from ``position`` to the end of the file.

    Each is verified: both CRCs, that it begins where the one before it ends, and that terms do not
    fall. Raises Damage if one does not fit, OSError if the disk fails.
    """
    end = os.fstat(fd).st_size
    chunk = memoryview(b"")
    start = position
    while position < end:
        at = position - start
        length = _claimed_length(chunk, at)
        if length is None or at + length > len(chunk):
            wanted = min(max(_SCAN_BYTES, min(length or 0, MAX_BATCH_BYTES)), end - position)
            chunk, start, at = memoryview(os.pread(fd, wanted, position)), position, 0
            length = _claimed_length(chunk, 0)
        if length is None:
            raise Damage(path, position, f"{end - position} bytes cannot hold a batch header")
        if length > end - position or length > MAX_BATCH_BYTES:
            raise Damage(path, position, f"a batch of {length} bytes does not fit the file")
        if length > len(chunk) - at:
            # The batch is longer than the chunk; read exactly as much as its header says.
            chunk, start, at = memoryview(os.pread(fd, length, position)), position, 0
        try:
            header = verify(chunk[at : at + length])
        except CorruptBatchError as error:
            raise Damage(path, position, error.message) from error
        if header.base_offset != offset:
            raise Damage(path, position, f"offset {header.base_offset} follows {offset - 1}")
        if header.term < last_term:
            raise Damage(path, position, f"term {header.term} follows {last_term}")
        yield position, header
        position += length
        offset = header.next_offset
        last_term = header.term


def find_batch(data: bytes) -> int | None:
    """Where the first whole, valid batch begins in ``data``, if there is one.

    A payload may consist of headers that all claim the rest of the log. If checksums over these
    take too long, the next header counts as a batch.
    """
    view = memoryview(data)
    left = _SEARCH_FACTOR * len(data)
    found = data.find(_MAGIC_BYTES)
    while found >= 0:
        start = found - _MAGIC_AT
        if start >= 0 and len(data) - start >= HEADER_SIZE:
            try:
                length = read_header(view, start).length
                verify_leader_part(view, start)
                left -= length if length <= len(data) - start else 0
                if left < 0:
                    return start
                verify(view[start : start + length])
            except CorruptBatchError:
                pass
            else:
                return start
        found = data.find(_MAGIC_BYTES, found + 1)
    return None


def _claimed_length(chunk: memoryview, at: int) -> int | None:
    if len(chunk) - at < HEADER_SIZE:
        return None
    (length,) = struct.unpack_from("<I", chunk, at + 24)
    return max(int(length), HEADER_SIZE)
