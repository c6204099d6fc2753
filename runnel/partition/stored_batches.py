"""Batches as they are stored, also damaged ones: in the answer of an SPU, in a segment file.

A segment file is a run of batches, named after its first offset
(``docs/reference/protocol.md`` says what a batch is).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from schemas.errors import CorruptBatchError
from schemas.objects.topic import MAX_BATCH_BYTES
from schemas.wire.batch import HEADER_SIZE, BatchHeader, read_header, verify

LOG_SUFFIX: Final = ".log"
_NAME: Final = re.compile(f"[0-9]{{20}}{re.escape(LOG_SUFFIX)}")


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch as it was found. ``problem`` says what is wrong; without a ``header`` the start of
    the next batch is unknown. ``file`` and ``position`` are set for a batch from a file."""

    header: BatchHeader | None
    data: memoryview
    problem: str | None = None
    file: str | None = None
    position: int | None = None


def stored_batch(
    data: memoryview, file: str | None = None, position: int | None = None
) -> StoredBatch:
    """One batch with the result of its checksums."""
    header = read_header(data)
    try:
        verify(data)
    except CorruptBatchError as error:
        return StoredBatch(header, data, error.message, file, position)
    return StoredBatch(header, data, None, file, position)


def read_segment(path: Path) -> Iterator[StoredBatch]:
    """The batches of a segment file, also damaged ones; the last one has no header if the
    file continues with bytes that are no batch. Raises OSError."""
    with path.open("rb") as file:
        position, size = 0, path.stat().st_size
        while position < size:
            head = file.read(HEADER_SIZE)
            try:
                header = read_header(head)
            except CorruptBatchError as error:
                yield StoredBatch(None, memoryview(head), error.message, path.name, position)
                return
            if header.length > min(size - position, MAX_BATCH_BYTES):
                problem = f"a batch of {header.length} bytes does not fit the file"
                yield StoredBatch(None, memoryview(head), problem, path.name, position)
                return
            data = memoryview(head + file.read(header.length - HEADER_SIZE))
            yield stored_batch(data, path.name, position)
            position += header.length


def read_segments(paths: list[Path], offset: int) -> Iterator[StoredBatch]:
    """The batches of segments that follow each other, without those that end before ``offset``."""
    for number, path in enumerate(paths):
        if number + 1 < len(paths) and base_of(paths[number + 1]) <= offset:
            continue
        for batch in read_segment(path):
            if batch.header is None or batch.header.next_offset > offset:
                yield batch


def segment_files(directory: Path) -> list[Path]:
    """The segment files of a partition's directory, in order."""
    named = (path for path in directory.glob(f"*{LOG_SUFFIX}") if _NAME.fullmatch(path.name))
    return sorted(named, key=base_of)


def base_of(path: Path) -> int:
    """The offset that a segment file begins with, by its name; 0 for any other name."""
    return int(path.stem) if _NAME.fullmatch(path.name) else 0
