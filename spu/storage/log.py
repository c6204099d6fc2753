"""The log of one partition on this SPU: append, sync, truncate at either end.

Appends go to the page cache on the event loop; `plan_sync` takes a snapshot of what was written,
`SyncPlan.run` makes it durable in a storage thread, and `synced` takes note on the loop again.
One plan runs at a time. `syncable_leo` stops at a segment boundary until everything before it is
durable; nothing beyond it is acknowledged.

A segment holds records of one term: a change of term begins another segment, on followers as on the
leader. The log's ``history`` says which terms it holds, and where each begins. Its last transaction
id is the largest of its segments and of the records below the log start.

This module does not decide what is committed or refused: `spu.replica.replica` does. An OSError of
a write or fsync leaves the log unusable, and the caller stops for good. There is one exception: a
batch for which the disk has no room leaves the log as it was (`NoRoomError`).

Neighbours: `spu.storage.readable_log` (reads and look-ups), `spu.storage.retention` (which segments
go), `spu.storage.truncated_segments` (their files), `spu.storage.sync_plan`,
`spu.storage.truncation`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from schemas.errors import (
    CorruptBatchError,
    FencedError,
    OffsetOutOfRangeError,
)
from schemas.objects.topic import MAX_BATCH_BYTES, Durability, LogSettings
from schemas.replacing import replace
from schemas.wire.batch import NO_TRANSACTION, BatchHeader, Buffer, read_header, set_offset_and_term
from schemas.wire.log_requests import SegmentInfo
from spu.replication.history import TermStart, cut, extended, forgotten, last_term
from spu.replication.producer_state import (
    ProducerDump,
    ProducerSnapshot,
    ProducerTable,
    newest_snapshot,
    split_last_id,
    with_last_id,
)
from spu.storage.checkpoint import Checkpoint, checkpoint_of, write_checkpoint
from spu.storage.durable import (
    is_no_room,
    sync_directory,
    sync_log_directory,
)
from spu.storage.file_pool import FilePool
from spu.storage.index import write_index
from spu.storage.lifecycle import segment_infos
from spu.storage.readable_log import ReadableLog, segment_of
from spu.storage.reader import LogReader
from spu.storage.recovery import RecoveredLog
from spu.storage.retention import outlived, retained_from
from spu.storage.segment import Segment, segment_bases
from spu.storage.sync_plan import SyncPlan
from spu.storage.truncated_segments import TruncatedSegments
from spu.storage.truncation import cut_segment, finish_cut, producers_at

#: A checkpoint is due after this many newly durable bytes.
CHECKPOINT_BYTES: Final = 64 << 20
_BACKGROUND_SYNC_BYTES: Final = 16 << 20
#: Completed segments smaller than this do not ask for a checkpoint of their own.
_ROLL_CHECKPOINT_BYTES: Final = 1 << 20


class NoRoomError(OSError):
    """The disk has no room for a batch; the log is as it was before, and may be used."""


class PartitionLog(ReadableLog):
    """An open, fit log. Use it from the event loop only, except as `ReadableLog` says."""

    def __init__(
        self, directory: Path, settings: LogSettings, files: FilePool, found: RecoveredLog
    ) -> None:
        self.directory = directory
        self.settings = settings
        self.leo = found.leo
        self.durable_leo = found.leo
        self.log_start = found.log_start
        self.history = found.history
        #: The offset of the control record that seals the log; None while it is open.
        self.sealed = found.sealed
        self.producers = found.producers
        #: The last transaction id below the log start; `NO_TRANSACTION` if there is none.
        self.id_before_start = found.id_before_start
        self.size_bytes = sum(segment.size for segment in found.segments)
        self._files = files
        self._segments = tuple(found.segments)
        #: Segments that are no longer part of the log.
        self.truncated = TruncatedSegments(files, found.truncated)
        # Random, so that it differs from every version that a client saw before a restart.
        self._version = random.getrandbits(62) | 1
        self._reader = LogReader(files)
        # Whether the active segment has data that waits for its fsync.
        self._holds = False
        self._unsynced: list[Segment] = []
        self._new_names = False
        self._wanted_start = found.log_start
        self._durable_bytes = self.size_bytes
        self._written_bytes = self.size_bytes
        self._checkpoint_bytes = self.size_bytes - found.beyond_checkpoint
        self._checkpoint_due = False
        # The segment that the checkpoint on the disk names; its file stays until a later
        # checkpoint names another one.
        self._checkpoint_segment = found.segments[0].base_offset if found.segments else 0
        self._lac = found.lac
        # Producer tables to start from after a cut: one where all is committed, and the one of the
        # last checkpoint.
        self._settled = found.settled
        self._latest = ProducerSnapshot(found.leo, found.producers.dump())
        #: The largest transaction id of all records, also of those below the log start, and an
        #: offset at or after the end of the batch that has it.
        self.last_id, self.last_id_end = NO_TRANSACTION, 0
        self._find_last_id()

    @property
    def last_term(self) -> int:
        """The term of the last record, 0 if there never was one."""
        return last_term(self.history)

    @property
    def version(self) -> int:
        """Changes whenever a segment begins, is completed, truncated or deleted."""
        return self._version + self.truncated.changes

    def segment_infos(self) -> list[SegmentInfo]:
        """Every segment with its state, the truncated ones first."""
        return segment_infos(self._segments, self.truncated.segments, self.log_start)

    @property
    def syncable_leo(self) -> int:
        """The offset up to which no older segment is waiting for its fsync."""
        return self._unsynced[0].end_offset if self._unsynced else self.leo

    @property
    def unsynced_bytes(self) -> int:
        return self._written_bytes - self._durable_bytes

    @property
    def needs_sync(self) -> bool:
        """Whether there is anything that a plan would make durable."""
        return (
            self.leo > self.durable_leo
            or self._wanted_start > self.log_start
            or self._new_names
            or bool(self._unsynced)
            or self._awaits_checkpoint
        )

    @property
    def failed_sync(self) -> OSError | None:
        """Why a file with its records could not be synced, also as the pool of open files made
        room for others."""
        found = (self._files.failure(segment.path) for segment in self._segments)
        return next((error for error in found if error is not None), None)

    @property
    def is_checkpointed(self) -> bool:
        """Whether the checkpoint on the disk covers all records."""
        return self._written_bytes == self._checkpoint_bytes

    @property
    def _awaits_checkpoint(self) -> bool:
        """Whether a segment below the log start stays only because the checkpoint names it."""
        return any(
            one.base_offset >= self._checkpoint_segment and one.end_offset <= self.log_start
            for one in self._segments[:-1][:1]
        )

    @property
    def sync_is_due(self) -> bool:
        """Whether a plan should run now. With ``durability: replicated`` this is rare: the page
        cache counts there, but unsynced data must not grow without bound."""
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
        """A count of bytes, which grows with every append; only its differences mean something."""
        return self._written_bytes

    def append(
        self, batch: bytearray | memoryview, header: BatchHeader, term: int, now_us: int
    ) -> int:
        """Stamp a verified batch with its offset and ``term``, write it, give its base offset.

        ``header`` is the batch's own. Raises NoRoomError; other OSErrors, and the log is unusable
        then.
        """
        if term < self.last_term:
            raise AssertionError(f"term {term} would follow {self.last_term}")
        base_offset = self.leo
        set_offset_and_term(batch, base_offset, term)
        self._write(batch, header, base_offset, term, now_us)
        return base_offset

    def append_batches(self, batches: Iterable[Buffer], now_us: int) -> None:
        """Append a leader's batches unchanged. The caller has verified their checksums.

        Raises CorruptBatchError if one is not a batch or is too long, OffsetOutOfRangeError if one
        does not begin where the one before it ends, FencedError if a term falls: nothing was
        written then. Raises OSError; the log is unusable then.
        """
        found = [(read_header(batch), batch) for batch in batches]
        leo, term = self.leo, self.last_term
        for header, batch in found:
            if header.length != len(batch):
                raise CorruptBatchError(
                    f"a batch of {len(batch)} bytes says that it has {header.length} bytes"
                )
            if header.length > MAX_BATCH_BYTES:
                raise CorruptBatchError(
                    f"a batch of {header.length} bytes; the limit is {MAX_BATCH_BYTES}"
                )
            if header.base_offset != leo:
                raise OffsetOutOfRangeError(
                    f"a batch begins at offset {header.base_offset}, but the log ends at {leo}",
                    expectedOffset=leo,
                )
            if header.term < term:
                raise FencedError(f"a batch of term {header.term} follows one of term {term}")
            leo, term = header.next_offset, header.term
        for header, batch in found:
            self._write(batch, header, header.base_offset, header.term, now_us)

    def roll(self, now_us: int) -> None:
        """Complete the active segment if it holds anything; the next append begins another."""
        active = self._segments[-1] if self._segments else None
        if active is None or active.completed_us or not active.size:
            return
        active.completed_us = max(now_us, 1)
        self._version += 1
        self._unsynced.append(active)
        self._holds = False
        if active.size >= _ROLL_CHECKPOINT_BYTES:
            self._checkpoint_due = True

    def begin_next(self, now_us: int) -> None:
        """Complete the active segment and begin an empty one, so that retention can remove the
        completed one even if nothing more is appended. Raises OSError, and has changed nothing."""
        segment = self._new_segment(now_us)
        self.roll(now_us)
        self._add_segment(segment)

    def plan_sync(self, lac: int, *, checkpoint: bool = False) -> SyncPlan:
        """A snapshot of all that is not durable; ``lac`` goes into a checkpoint if one is due."""
        active = self._segments[-1] if self._segments else None
        if active is not None and active.completed_us:
            active = None
        due = (
            (checkpoint and not self.is_checkpointed)
            or self._checkpoint_due
            or self._wanted_start > self.log_start
            or self._awaits_checkpoint
            or self._written_bytes - self._checkpoint_bytes >= CHECKPOINT_BYTES
        )
        indexed = list(self._unsynced)
        last = self._segments[-1] if self._segments else None
        if due and last is not None and last not in indexed:
            indexed.append(last)
        self._lac = lac
        plan = SyncPlan(
            directory=self.directory,
            files=self._files,
            completed=tuple(self._unsynced),
            active=active if self._holds else None,
            active_size=active.size if active is not None else 0,
            new_names=self._new_names,
            leo=self.leo,
            size_bytes=self._written_bytes,
            indexes=tuple(
                (segment.index_path, segment.summary(), segment.index.to_bytes())
                for segment in indexed
                if segment.index is not None
            ),
            checkpoint=self._next_checkpoint(last) if due else None,
            left_behind=tuple(
                segment
                for segment in self._segments
                if self.log_start < self._wanted_start > segment.base_offset
            ),
            reader=self._reader,
        )
        self._new_names = False
        self._checkpoint_due = False
        return plan

    def synced(self, plan: SyncPlan) -> tuple[Segment, ...]:
        """Take note that ``plan`` has run; returns the segments that are to be retired now."""
        self.durable_leo = max(self.durable_leo, plan.leo)
        self._durable_bytes = plan.size_bytes
        for segment in plan.completed:
            self._unsynced.remove(segment)
            self._files.release(segment.path)
            # A reader loads it again from its file.
            segment.index = None
        active = plan.active
        if (
            active is not None
            and self._holds
            and active is self._segments[-1]
            and active.size == plan.active_size
        ):
            self._files.release(active.path)
            self._holds = False
        if plan.checkpoint is not None:
            self._checkpoint_bytes = plan.size_bytes
            self._checkpoint_segment = plan.checkpoint.segment
            if plan.checkpoint.log_start > self.log_start:
                self.log_start = plan.checkpoint.log_start
                self.id_before_start = plan.checkpoint.id_before_start
                self._version += 1
            self.history = forgotten(self.history, self.log_start)
        return self._drop_below_start()

    def truncate_prefix(self, offset: int) -> None:
        """Ask for ``offset`` as the log start; it takes effect once a plan has run. It is at most
        the LEO, and a batch begins there, so that a follower that is reset to it gets whole
        batches. A sealed log keeps its seal."""
        most = self.leo if self.sealed is None else self.sealed
        self._wanted_start = max(self._wanted_start, min(offset, most))

    def apply_retention(self, now_us: int, upto_offset: int) -> None:
        """Ask for the log start that retention by time and size wants, at most ``upto_offset``."""
        start = retained_from(self._segments, self.settings.retention, now_us, upto_offset)
        if start is not None:
            self.truncate_prefix(start)

    def roll_is_due(self, now_us: int) -> bool:
        """Whether the active segment has been open for ``segment.time``, has outlived the
        retention, or was truncated to its end."""
        active = self._segments[-1] if self._segments else None
        if active is None or active.completed_us or not active.size:
            return False
        return self.log_start >= self.leo or outlived(active, self.settings, now_us)

    def truncate_suffix(self, offset: int) -> None:
        """Cut the log to end at ``offset``, a batch boundary between the log's start and end.

        When this returns, the records, index entries, terms and producer state from there on are
        durably gone, and all that is left is durable. A crash before that leaves the log as it was,
        or cut. A pending truncation of the prefix stays pending.

        Blocks on the disk: call it from a storage thread. Until it returns, the caller must not
        append or roll, must not make, run or note a sync plan, and must have no `delete_files`
        running. Reads may go on; they find the old log or the cut one, or raise NotReadyError. The
        caller also ensures that nothing committed is cut.

        Raises OffsetOutOfRangeError, or InvalidRequestError inside a batch; nothing has changed
        then. Raises Damage, OSError; the log is unusable then.
        """
        segments = self._segments
        if not self.log_start <= offset <= self.leo:
            raise OffsetOutOfRangeError(
                f"{self.directory} holds offsets {self.log_start} to {self.leo - 1}; it cannot be"
                f" cut to end at {offset}",
                firstAvailable=self.log_start,
            )
        if not segments:
            return
        at = segments.index(segment_of(segments, offset))
        last = cut_segment(self._reader, self._files, segments[at], offset)
        # Segments below the log start are removed with the cut.
        before = segments[:at] if last.base_offset > self.log_start else ()
        first = ProducerSnapshot(segments[0].base_offset, ())
        base = newest_snapshot((self._settled, self._latest, first), offset)
        producers = producers_at(self._reader, self._files, segments, base, offset)
        self._sync_remaining(segments[: at + 1])
        settled = self._settled if self._settled.leo <= offset else base
        checkpoint = checkpoint_of(
            last,
            log_start=self.log_start,
            id_before_start=self.id_before_start,
            lac=self._lac,
            history=cut(self.history, offset),
            producers=producers.dump(),
            settled=settled,
            sealed=None if self.sealed is None or self.sealed >= offset else self.sealed,
        )
        self._replace((*before, last), checkpoint)
        # Only now: what the checkpoint said of the removed part is durably gone.
        if last.index is not None:
            write_index(last.index_path, last.summary(), last.index.to_bytes())

    def rebuild(self, start: int, last_term: int, producers: ProducerDump = ()) -> None:
        """Replace the log by an empty one that begins at ``start``, after a record of
        ``last_term``; 0 and 0 if nothing was ever appended. ``producers`` is the result of another
        log's `snapshot_before` for ``start``.

        Durable when this returns; a crash before that leaves the old log or the new one. Works on
        an unfit log, too. The caller guarantees what `truncate_suffix` requires. Raises OSError;
        the log is unusable then.
        """
        producers, last_id = split_last_id(producers)
        checkpoint = Checkpoint(
            log_start=start,
            id_before_start=last_id,
            segment=start,
            scan_offset=start,
            durable_leo=start,
            lac=start - 1,
            history=(TermStart(last_term, start - 1),) if start and last_term else (),
            producers=producers,
            settled=ProducerSnapshot(start, producers),
        )
        self._replace((Segment(str(self.directory), start, start),), checkpoint)

    def snapshot_before(self, start: int) -> ProducerDump:
        """The producer state that another log needs if it begins at ``start``, at most this log's
        own start: producers, and the last transaction id.

        The id may be that of a committed record from ``start`` on, which the other log will get.
        """
        return with_last_id(self.producers.dump_before(start), self.id_before_start)

    def quarantine(self, name: str) -> Path:
        """Move the segments to a directory ``name`` below the log's, and return its path; durable
        when this returns. What is left is a damaged log, to be rebuilt. Blocks. Raises OSError."""
        place = self.directory / f"aside-{name}"
        place.mkdir(mode=0o700, exist_ok=True)
        # Also those behind damage, which the log does not know.
        for base in segment_bases(self.directory):
            path = Path(Segment(str(self.directory), base, base).path)
            os.rename(path, place / path.name)
        sync_directory(place)
        sync_directory(self.directory)
        return place

    def close(self) -> None:
        """Close the files. Sync first: data that is not durable may be lost."""
        self._release()
        for segment in self._segments:
            self._files.forget(segment.path)

    def _write(
        self, batch: Buffer, header: BatchHeader, base_offset: int, term: int, now_us: int
    ) -> None:
        """Write a stamped batch at the end of the log."""
        try:
            active = self._room_for(header.length, term, now_us)
        except OSError as error:
            if is_no_room(error):
                raise NoRoomError(error.errno, error.strerror, error.filename) from error
            raise
        if active.end_offset != base_offset:
            raise AssertionError(f"{active.path} ends at {active.end_offset}, not {base_offset}")
        self._holds = True
        try:
            self._files.write(active.path, batch, active.size)
        except OSError as error:
            if not is_no_room(error):
                raise
            # A shorter batch that is written here next must not have the rest behind it.
            self._files.truncate(active.path, active.size)
            raise NoRoomError(error.errno, error.strerror, error.filename) from error
        if not active.size:
            active.opened_us = now_us
        active.note(header, base_offset)
        active.written_us = now_us
        self.producers.record(header, base_offset)
        self.leo = active.end_offset
        self.history = extended(self.history, term, base_offset)
        if header.is_seal:
            self.sealed = base_offset
        self.size_bytes += header.length
        self._written_bytes += header.length
        if active.max_transaction_id > self.last_id:
            self.last_id, self.last_id_end = active.max_transaction_id, self.leo

    def _find_last_id(self) -> None:
        """Set the last transaction id of a log that was opened or replaced."""
        ids = (one.max_transaction_id for one in self._segments)
        self.last_id, self.last_id_end = max(self.id_before_start, *ids, NO_TRANSACTION), self.leo

    def _room_for(self, length: int, term: int, now_us: int) -> Segment:
        """The segment that a batch of ``term`` goes to, created if there is none."""
        active = self._segments[-1] if self._segments else None
        if active is not None and active.size and not active.completed_us:
            if active.size + length > self.settings.segment.size:
                self._checkpoint_due = True
            elif term == self.last_term:
                return active
            self.roll(now_us)
        if active is None or active.completed_us:
            active = self._new_segment(now_us)
            self._add_segment(active)
        return active

    def _new_segment(self, now_us: int) -> Segment:
        """Create the file of a segment that begins at the end of the log."""
        segment = Segment(str(self.directory), self.leo, self.leo, opened_us=now_us)
        self._files.create(segment.path)
        return segment

    def _add_segment(self, segment: Segment) -> None:
        self._new_names = True
        self._segments = (*self._segments, segment)
        self._version += 1

    def _next_checkpoint(self, last: Segment | None) -> Checkpoint:
        """A checkpoint of the current log; it also advances the committed producer table."""
        latest = ProducerSnapshot(self.leo, self.producers.dump())
        self._settled = newest_snapshot((self._settled, self._latest, latest), self._lac + 1)
        self._latest = latest
        return checkpoint_of(
            last,
            log_start=self._wanted_start,
            # As of the current log start; the plan adds the records between it and the new one.
            id_before_start=self.id_before_start,
            lac=self._lac,
            history=forgotten(self.history, self._wanted_start),
            producers=latest.dump,
            settled=self._settled,
            sealed=self.sealed,
        )

    def _sync_remaining(self, segments: tuple[Segment, ...]) -> None:
        """Make ``segments``, which a cut leaves, durable."""
        for segment in segments:
            if segment in self._unsynced or (self._holds and segment is self._segments[-1]):
                self._files.sync(segment.path)
        if self._new_names:
            sync_log_directory(self.directory)

    def _replace(self, segments: tuple[Segment, ...], checkpoint: Checkpoint) -> None:
        """Become the log that ``checkpoint`` describes: ``segments``, the last one cut."""
        last = segments[-1]
        write_checkpoint(self.directory, replace(checkpoint, cut_at=last.size))
        self._release()
        # For readers in threads: first where the log ends, then its segments, then their reader.
        self.leo = self.durable_leo = checkpoint.durable_leo
        gone = [segment for segment in self._segments if segment not in segments]
        self._segments = segments
        self._version += 1
        self._reader = LogReader(self._files)
        self.log_start = checkpoint.log_start
        self.id_before_start = checkpoint.id_before_start
        self.history = checkpoint.history
        self.sealed = checkpoint.sealed
        self.producers = ProducerTable(checkpoint.producers)
        self.size_bytes = sum(segment.size for segment in segments)
        self._wanted_start = max(self.log_start, min(self._wanted_start, self.leo))
        self._durable_bytes = self._checkpoint_bytes = self._written_bytes
        self._new_names = self._checkpoint_due = False
        self._checkpoint_segment = checkpoint.segment
        self._lac = checkpoint.lac
        self._settled = checkpoint.settled
        self._latest = ProducerSnapshot(self.leo, checkpoint.producers)
        self._find_last_id()
        for segment in gone:
            self._files.forget(segment.path)
        finish_cut(self.directory, replace(checkpoint, cut_at=last.size))

    def _release(self) -> None:
        """Release the files that wait for an fsync."""
        for segment in self._unsynced:
            self._files.release(segment.path)
        self._unsynced.clear()
        if self._holds:
            self._files.release(self._segments[-1].path)
            self._holds = False

    def _drop_below_start(self) -> tuple[Segment, ...]:
        kept = 0
        for segment in self._segments[:-1]:
            about = segment.base_offset >= self._checkpoint_segment
            if about or segment.end_offset > self.log_start or segment in self._unsynced:
                break
            kept += 1
        dropped, self._segments = self._segments[:kept], self._segments[kept:]
        self.size_bytes -= sum(segment.size for segment in dropped)
        return dropped
