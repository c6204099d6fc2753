"""Cutting the end of a log, or all of it, so that a crash leaves the old log or the cut one.

A cut is a checkpoint that says where the log ends now, with ``cut_at`` set to the byte of the
segment at which it ends. Once this checkpoint is durable, the log is cut, whatever its files hold;
before, it is not. Then `finish_cut` removes everything after the end, makes that durable, and only
then replaces the checkpoint by one without ``cut_at``. If recovery finds ``cut_at`` set, it does
the same again, so that no removed record reappears after records that are appended later. A log
that is reset is cut to nothing at its new start.

Indexes follow the log: they are deleted with their segments, and the index of the last segment is
built again from what is left.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from schemas.errors import InvalidRequestError
from schemas.replacing import replace
from spu.replication.producer_state import ProducerSnapshot, ProducerTable
from spu.storage.checkpoint import Checkpoint, write_checkpoint
from spu.storage.durable import sync_log_directory, sync_log_file
from spu.storage.file_pool import FilePool
from spu.storage.index import SparseIndex
from spu.storage.reader import LogReader
from spu.storage.segment import Damage, Segment, scan, segment_bases

_ANY_TERM: Final = 0


def cut_segment(reader: LogReader, files: FilePool, segment: Segment, offset: int) -> Segment:
    """``segment`` as it will be when it ends at ``offset``: in progress, its index in memory.

    Changes nothing. Raises InvalidRequestError if no batch ends there, Damage, OSError.
    """
    index = SparseIndex.from_bytes(reader.index(segment, wait=True).to_bytes())
    start, position = index.entry_for(offset) or (segment.base_offset, 0)
    max_timestamp_us, max_transaction_id = index.cut(position)
    kept = Segment(
        segment.directory,
        segment.base_offset,
        start,
        position,
        max_timestamp_us,
        max_transaction_id,
        opened_us=segment.opened_us,
        written_us=segment.written_us,
        index=index,
    )
    if start == offset:
        return kept
    with files.open(segment.path) as fd:
        for _position, header in scan(fd, segment.path, position, start, _ANY_TERM):
            if header.next_offset > offset:
                raise InvalidRequestError(
                    f"{segment.path} cannot end at offset {offset}: a batch holds"
                    f" {header.base_offset} to {header.next_offset - 1}"
                )
            kept.note(header, header.base_offset)
            if kept.end_offset == offset:
                return kept
    raise Damage(segment.path, kept.size, f"the file ends before offset {offset}")


def producers_at(
    reader: LogReader,
    files: FilePool,
    segments: Iterable[Segment],
    snapshot: ProducerSnapshot,
    offset: int,
) -> ProducerTable:
    """The producer table of a log that ends at ``offset``, a batch boundary: ``snapshot``, and the
    batches in ``segments`` from its end up to ``offset``. Raises Damage, OSError."""
    table = ProducerTable(snapshot.dump)
    at = snapshot.leo
    for segment in segments:
        if segment.end_offset <= at or at >= offset:
            continue
        position = reader.locate(segment, at, segment.size, wait=True)
        with files.open(segment.path) as fd:
            for _position, header in scan(fd, segment.path, position, at, _ANY_TERM):
                if header.base_offset >= offset:
                    break
                table.record(header, header.base_offset)
                at = header.next_offset
    return table


def finish_cut(directory: Path, checkpoint: Checkpoint) -> Checkpoint:
    """Remove everything after the end of the log that ``checkpoint``, which is durable, has cut.

    Returns the checkpoint that holds afterwards, which is durable as well. May be repeated. Blocks.
    Raises Damage if the log itself is missing, before anything is removed; OSError.
    """
    cut_at = checkpoint.cut_at
    if cut_at is None:
        return checkpoint
    last = Segment(str(directory), checkpoint.segment, checkpoint.segment)
    # Only a log that is cut to nothing may have no file yet.
    create = 0 if cut_at else os.O_CREAT
    fd = os.open(last.path, os.O_RDWR | os.O_CLOEXEC | create, 0o644)
    try:
        size = os.fstat(fd).st_size
        if size < cut_at:
            raise Damage(last.path, size, f"the log was cut at byte {cut_at}, the file is shorter")
        for base in reversed(segment_bases(directory)):
            if base > last.base_offset or base < last.base_offset <= checkpoint.log_start:
                Segment(str(directory), base, base).remove()
        last.index_path.unlink(missing_ok=True)
        os.ftruncate(fd, cut_at)
        sync_log_file(fd)
    finally:
        os.close(fd)
    sync_log_directory(directory)
    finished = replace(checkpoint, cut_at=None)
    write_checkpoint(directory, finished)
    return finished
