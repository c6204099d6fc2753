"""The log of one partition on this SPU: append, sync, read, truncate its beginning.

Appends go to the page cache on the event loop; `plan_sync` takes a picture of what was written,
`SyncPlan.run` makes it durable in a storage thread, and `synced` takes note on the loop again.
One plan runs at a time. Order on the disk: completed segments first, then the directory, then the
active segment, then the index and checkpoint that speak of them. `orderly_leo` stops at a
segment boundary until what lies before it is durable; nothing beyond it is acknowledged.

Nothing here is committed or refused: `spu.replica` decides that. An OSError of a write or fsync
leaves the log unusable, and the caller stops for good.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Final

from schemas.batch import BatchHeader, stamp
from schemas.errors import OffsetOutOfRangeError
from schemas.topic import Durability, LogSettings
from spu.storage.checkpoint import Checkpoint, checkpoint_of, write_checkpoint
from spu.storage.durable import sync_directory, sync_file, write_all
from spu.storage.file_pool import FilePool
from spu.storage.index import IndexSummary, write_index
from spu.storage.reader import LogReader, ReadResult
from spu.storage.recovery import RecoveredLog
from spu.storage.segment import Segment

#: A checkpoint is due after this much newly durable data.
CHECKPOINT_BYTES: Final = 64 << 20
_BACKGROUND_SYNC_BYTES: Final = 16 << 20
#: Completed segments smaller than this do not ask for a checkpoint of their own.
_ROLL_CHECKPOINT_BYTES: Final = 1 << 20


class CheckpointFailedError(OSError):
    """A checkpoint or an index could not be written, on a full disk for example."""


@dataclass(slots=True)
class SyncPlan:
    """What one run makes durable, and what is true once it has."""

    directory: Path
    files: FilePool
    completed: tuple[Segment, ...]
    active: Segment | None
    active_size: int
    new_names: bool
    leo: int
    size_bytes: int
    indexes: tuple[tuple[Path, IndexSummary, bytes], ...]
    checkpoint: Checkpoint | None

    def run(self) -> None:
        """Blocks on the disk. Raises OSError; then nothing of the plan may be relied on.

        CheckpointFailedError: the records are durable, and what speeds up the next start is not.
        """
        for segment in self.completed:
            with self.files.open(segment.path) as fd:
                sync_file(fd)
        if self.new_names:
            sync_directory(self.directory)
        if self.active is not None:
            with self.files.open(self.active.path) as fd:
                sync_file(fd)
        try:
            for path, summary, entries in self.indexes:
                write_index(path, summary, entries)
            if self.checkpoint is not None:
                write_checkpoint(self.directory, self.checkpoint)
        except OSError as error:
            raise CheckpointFailedError(str(error)) from error


class PartitionLog:
    """An open, fit log. Used from the event loop only, but for `read` with ``wait``."""

    def __init__(
        self, directory: Path, settings: LogSettings, files: FilePool, found: RecoveredLog
    ) -> None:
        self.directory = directory
        self.settings = settings
        self.leo = found.leo
        self.durable_leo = found.leo
        self.log_start = found.log_start
        self.last_term = found.last_term
        self.producers = found.producers
        self.size_bytes = sum(segment.size for segment in found.segments)
        self._files = files
        # Replaced, never changed in place: readers in threads hold on to the one they saw.
        self._segments: tuple[Segment, ...] = tuple(found.segments)
        self._reader = LogReader(files)
        self._fd: int | None = None
        self._unsynced: list[Segment] = []
        self._new_names = False
        self._wanted_start = found.log_start
        self._durable_bytes = self.size_bytes
        self._written_bytes = self.size_bytes
        self._checkpoint_bytes = self.size_bytes
        self._checkpoint_due = False

    @property
    def segments(self) -> tuple[Segment, ...]:
        return self._segments

    @property
    def orderly_leo(self) -> int:
        """The offset up to which no older segment is waiting for its fsync."""
        return self._unsynced[0].end_offset if self._unsynced else self.leo

    @property
    def unsynced_bytes(self) -> int:
        return self._written_bytes - self._durable_bytes

    @property
    def needs_sync(self) -> bool:
        """Is there anything that a plan would make durable?"""
        return (
            self.leo > self.durable_leo
            or self._wanted_start > self.log_start
            or self._new_names
            or bool(self._unsynced)
        )

    @property
    def sync_is_due(self) -> bool:
        """Should a plan run now? With ``durability: replicated`` only now and then: the page
        cache is what counts there, but it must not grow without bound."""
        if self.settings.durability is Durability.FSYNC:
            return self.needs_sync
        return (
            self.unsynced_bytes >= _BACKGROUND_SYNC_BYTES
            or self._wanted_start > self.log_start
            or self._new_names
            or bool(self._unsynced)
        )

    @property
    def written_bytes(self) -> int:
        """Bytes appended since ever, as this process counts; differences are what matters."""
        return self._written_bytes

    def append(
        self, batch: bytearray | memoryview, header: BatchHeader, term: int, now_us: int
    ) -> int:
        """Stamp a verified batch with its offset and ``term``, write it, give its base offset.

        ``header`` is the batch's own. Raises OSError; the log is unusable then.
        """
        if term < self.last_term:
            raise AssertionError(f"term {term} would follow {self.last_term}")
        active = self._segments[-1] if self._segments else None
        if active is None or active.completed_us:
            active = self._begin_segment(now_us)
        elif active.size and active.size + header.length > self.settings.segment.size:
            self.roll(now_us)
            self._checkpoint_due = True
            active = self._begin_segment(now_us)
        base_offset = self.leo
        if active.end_offset != base_offset:
            raise AssertionError(f"{active.path} ends at {active.end_offset}, not {base_offset}")
        stamp(batch, base_offset, term)
        if self._fd is None:
            self._fd = self._files.pin(active.path)
        write_all(self._fd, batch, active.size)
        if not active.size:
            active.opened_us = now_us
        active.note(header, base_offset)
        active.written_us = now_us
        self.producers.record(header, base_offset)
        self.leo = active.end_offset
        self.last_term = term
        self.size_bytes += header.length
        self._written_bytes += header.length
        return base_offset

    def roll(self, now_us: int) -> None:
        """Complete the active segment if it holds anything; the next append begins another."""
        active = self._segments[-1] if self._segments else None
        if active is None or active.completed_us or not active.size:
            return
        active.completed_us = max(now_us, 1)
        self._unsynced.append(active)
        if self._fd is None:
            # Every segment waiting for its fsync holds one pin, dropped when it is synced.
            self._files.pin(active.path)
        self._fd = None
        if active.size >= _ROLL_CHECKPOINT_BYTES:
            self._checkpoint_due = True

    def begin_next(self, now_us: int) -> None:
        """Complete the active segment and begin an empty one, so that retention may take the
        completed one though nothing is appended any more. Raises OSError as `append` does."""
        self.roll(now_us)
        self._begin_segment(now_us)

    def plan_sync(self, lac: int, *, checkpoint: bool = False) -> SyncPlan:
        """A picture of all that is not durable; ``lac`` goes into a checkpoint if one is due."""
        active = self._segments[-1] if self._segments else None
        if active is not None and active.completed_us:
            active = None
        due = (
            (checkpoint and self._written_bytes > self._checkpoint_bytes)
            or self._checkpoint_due
            or self._wanted_start > self.log_start
            or self._written_bytes - self._checkpoint_bytes >= CHECKPOINT_BYTES
        )
        indexed = list(self._unsynced)
        last = self._segments[-1] if self._segments else None
        if due and last is not None and last not in indexed:
            indexed.append(last)
        plan = SyncPlan(
            directory=self.directory,
            files=self._files,
            completed=tuple(self._unsynced),
            active=active if active is not None and self._fd is not None else None,
            active_size=active.size if active is not None else 0,
            new_names=self._new_names,
            leo=self.leo,
            size_bytes=self._written_bytes,
            indexes=tuple(
                (segment.index_path, segment.summary(), segment.index.to_bytes())
                for segment in indexed
                if segment.index is not None
            ),
            checkpoint=checkpoint_of(
                last,
                log_start=self._wanted_start,
                lac=lac,
                last_term=self.last_term,
                producers=self.producers,
            )
            if due
            else None,
        )
        self._new_names = False
        self._checkpoint_due = False
        return plan

    def synced(self, plan: SyncPlan) -> tuple[Segment, ...]:
        """Take note that ``plan`` has run; gives the segments whose files can be deleted now."""
        self.durable_leo = max(self.durable_leo, plan.leo)
        self._durable_bytes = plan.size_bytes
        for segment in plan.completed:
            self._unsynced.remove(segment)
            self._files.unpin(segment.path)
            # Read again from its file, if anybody asks.
            segment.index = None
        active = plan.active
        if (
            active is not None
            and self._fd is not None
            and active is self._segments[-1]
            and active.size == plan.active_size
        ):
            self._files.unpin(active.path)
            self._fd = None
        if plan.checkpoint is None:
            return ()
        self._checkpoint_bytes = plan.size_bytes
        self.log_start = max(self.log_start, plan.checkpoint.log_start)
        return self._drop_below_start()

    def read(self, offset: int, max_bytes: int, upto_offset: int, *, wait: bool) -> ReadResult:
        """Whole batches from the one that holds ``offset`` on, none at or above ``upto_offset``.

        The first is whole even if it is longer than ``max_bytes``. Reads stop at the end of a
        segment. Without ``wait`` only what needs no disk is read, else BlockingIOError; with
        it, call from a thread. Raises OffsetOutOfRangeError below the log start, Damage, OSError.
        """
        if offset < self.log_start:
            raise OffsetOutOfRangeError(
                f"offset {offset} is gone; the first one available is {self.log_start}",
                firstAvailable=self.log_start,
            )
        if offset >= min(upto_offset, self.leo):
            return ReadResult(memoryview(b""), offset)
        segment = self._segment_of(self._segments, offset)
        return self._reader.read(segment, offset, max_bytes, upto_offset, wait=wait)

    def offset_for_timestamp(self, timestamp_us: int, upto_offset: int) -> int:
        """Base offset of the first batch with a record at or after a time; else ``upto_offset``.

        Never below the log start. Blocks on the disk. Raises Damage, OSError.
        """
        log_start = self.log_start
        for segment in self._segments:
            if segment.max_timestamp_us >= timestamp_us and segment.end_offset > log_start:
                found = self._reader.find_time(segment, timestamp_us, log_start)
                if found is not None:
                    return min(max(found, log_start), upto_offset)
        return upto_offset

    def truncate_prefix(self, offset: int) -> None:
        """Ask for ``offset`` (at most LEO) as the log start; it counts once a plan has run."""
        self._wanted_start = max(self._wanted_start, min(offset, self.leo))

    def apply_retention(self, now_us: int, upto_offset: int) -> None:
        """Ask for the log start that retention by time and size wants, at most ``upto_offset``.

        Whole completed segments go, the oldest first. Their age counts from their last append
        by this SPU's clock: old records written today are kept as long as any others.
        """
        retention = self.settings.retention
        excess = None if retention.size is None else self.size_bytes - retention.size
        horizon_us = None if retention.time is None else now_us - retention.time * 1000
        for segment in self._segments[:-1]:
            if segment.end_offset > upto_offset:
                return
            too_old = horizon_us is not None and segment.written_us < horizon_us
            if excess is not None and excess >= segment.size:
                excess -= segment.size
            elif not too_old:
                return
            self.truncate_prefix(segment.end_offset)

    def roll_is_due(self, now_us: int) -> bool:
        """Has the active segment been open for ``segment.time``, or outlived the retention?"""
        active = self._segments[-1] if self._segments else None
        if active is None or active.completed_us or not active.size:
            return False
        retention_ms = self.settings.retention.time
        return now_us - active.opened_us >= self.settings.segment.time * 1000 or (
            retention_ms is not None and now_us - active.written_us > retention_ms * 1000
        )

    def delete_files(self, segments: tuple[Segment, ...]) -> None:
        """Delete what `synced` gave. Blocks; a crash half-way is finished by recovery."""
        for segment in segments:
            self._files.forget(segment.path)
            segment.index_path.unlink(missing_ok=True)
            os.unlink(segment.path)

    def close(self) -> None:
        """Give back the files. Sync first: what is not durable may be lost."""
        for segment in self._unsynced:
            self._files.unpin(segment.path)
        self._unsynced.clear()
        if self._fd is not None:
            self._files.unpin(self._segments[-1].path)
            self._fd = None
        for segment in self._segments:
            self._files.forget(segment.path)

    def _begin_segment(self, now_us: int) -> Segment:
        segment = Segment(str(self.directory), self.leo, self.leo, opened_us=now_us)
        os.close(os.open(segment.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))
        self._new_names = True
        self._segments = (*self._segments, segment)
        return segment

    def _drop_below_start(self) -> tuple[Segment, ...]:
        kept = 0
        while kept < len(self._segments) - 1 and (
            self._segments[kept].end_offset <= self.log_start
        ):
            kept += 1
        dropped, self._segments = self._segments[:kept], self._segments[kept:]
        self.size_bytes -= sum(segment.size for segment in dropped)
        return dropped

    @staticmethod
    def _segment_of(segments: tuple[Segment, ...], offset: int) -> Segment:
        at = bisect_right(segments, offset, key=attrgetter("base_offset")) - 1
        return segments[max(at, 0)]
