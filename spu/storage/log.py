"""The log of one partition on this SPU: append, sync, truncate at either end.

Appends go to the page cache on the event loop; `plan_sync` takes a picture of what was written,
`SyncPlan.run` makes it durable in a storage thread, and `synced` takes note on the loop again.
One plan runs at a time. `syncable_leo` stops at a segment boundary until what lies before it is
durable; nothing beyond it is acknowledged.

A segment holds records of one term: a change of it begins another, on followers as on the leader.
Which terms there are, and where each begins, is the log's ``history``. Its last transaction id is
the largest of its segments', each of which knows its own, and of the records below the log start.

Nothing here is committed or refused: `spu.replica.replica` decides that. An OSError of a write or
fsync leaves the log unusable, and the caller stops for good.

Neighbours: `spu.storage.readable_log` (reads and look-ups), `spu.storage.retention` (which segments
go), `spu.storage.truncated_segments` (their files), `spu.storage.sync_plan`,
`spu.storage.truncation`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from schemas.errors import (
    CorruptBatchError,
    FencedError,
    OffsetOutOfRangeError,
)
from schemas.objects.topic import MAX_BATCH_BYTES, Durability, LogSettings
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
from spu.storage.durable import sync_directory, sync_file
from spu.storage.file_pool import FilePool
from spu.storage.index import write_index
from spu.storage.lifecycle import segment_infos
from spu.storage.readable_log import ReadableLog, segment_of
from spu.storage.reader import LogReader
from spu.storage.recovery import RecoveredLog
from spu.storage.retention import outlived, retained_from
from spu.storage.segment import Segment
from spu.storage.sync_plan import SyncPlan
from spu.storage.truncated_segments import TruncatedSegments
from spu.storage.truncation import cut_segment, finish_cut, producers_at

#: A checkpoint is due after this much newly durable data.
CHECKPOINT_BYTES: Final = 64 << 20
_BACKGROUND_SYNC_BYTES: Final = 16 << 20
#: Completed segments smaller than this do not ask for a checkpoint of their own.
_ROLL_CHECKPOINT_BYTES: Final = 1 << 20


class PartitionLog(ReadableLog):
    """An open, fit log. Used from the event loop only, but for what `ReadableLog` says."""

    def __init__(
        self, directory: Path, settings: LogSettings, files: FilePool, found: RecoveredLog
    ) -> None:
        self.directory = directory
        self.settings = settings
        self.leo = found.leo
        self.durable_leo = found.leo
        self.log_start = found.log_start
        self.history = found.history
        self.producers = found.producers
        #: The last transaction id below the log start; `NO_TRANSACTION` where there is none.
        self.id_before_start = found.id_before_start
        self.size_bytes = sum(segment.size for segment in found.segments)
        self._files = files
        self._segments = tuple(found.segments)
        #: Segments that are no part of the log any more.
        self.truncated = TruncatedSegments(files, found.truncated)
        # Not what it was before a restart, whatever a watcher has seen then.
        self._version = random.getrandbits(62) | 1
        self._reader = LogReader(files)
        # Whether the active segment has something that waits for its fsync.
        self._holds = False
        self._unsynced: list[Segment] = []
        self._new_names = False
        self._wanted_start = found.log_start
        self._durable_bytes = self.size_bytes
        self._written_bytes = self.size_bytes
        self._checkpoint_bytes = self.size_bytes - found.beyond_checkpoint
        self._checkpoint_due = False
        # The segment that the checkpoint on the disk is about; its file stays until another is.
        self._checkpoint_segment = found.segments[0].base_offset if found.segments else 0
        self._lac = found.lac
        # Producers to roll back from: where all is committed, and at the last checkpoint.
        self._settled = found.settled
        self._latest = ProducerSnapshot(found.leo, found.producers.dump())
        #: The largest transaction id of all records, those below the log start among them; and an
        #: offset at or behind the end of the batch that has it.
        self.last_id, self.last_id_end = NO_TRANSACTION, 0
        self._find_last_id()

    @property
    def last_term(self) -> int:
        """The term of the last record, 0 where there never was one."""
        return last_term(self.history)

    @property
    def version(self) -> int:
        """Another one whenever a segment began, was completed, truncated or deleted."""
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
        """Is there anything that a plan would make durable?"""
        return (
            self.leo > self.durable_leo
            or self._wanted_start > self.log_start
            or self._new_names
            or bool(self._unsynced)
            or self._awaits_checkpoint
        )

    @property
    def is_checkpointed(self) -> bool:
        """Does the checkpoint on the disk speak of all records?"""
        return self._written_bytes == self._checkpoint_bytes

    @property
    def _awaits_checkpoint(self) -> bool:
        """Would the oldest segment go, if the checkpoint were not about it?"""
        return any(
            one.base_offset >= self._checkpoint_segment and one.end_offset <= self.log_start
            for one in self._segments[:-1][:1]
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
        base_offset = self.leo
        set_offset_and_term(batch, base_offset, term)
        self._write(batch, header, base_offset, term, now_us)
        return base_offset

    def append_batches(self, batches: Iterable[Buffer], now_us: int) -> None:
        """Append batches as their leader stamped them. The caller has verified their checksums.

        Raises CorruptBatchError where one is no batch or too long, OffsetOutOfRangeError where one
        does not begin at the end of what is before it, FencedError where a term falls: nothing
        was written then. Raises OSError; the log is unusable then.
        """
        found = [(read_header(batch), batch) for batch in batches]
        leo, term = self.leo, self.last_term
        for header, batch in found:
            if header.length != len(batch):
                raise CorruptBatchError(
                    f"a batch of {len(batch)} bytes says that it has {header.length}"
                )
            if header.length > MAX_BATCH_BYTES:
                raise CorruptBatchError(
                    f"a batch of {header.length} bytes; the limit is {MAX_BATCH_BYTES}"
                )
            if header.base_offset != leo:
                raise OffsetOutOfRangeError(
                    f"a batch begins at offset {header.base_offset}, the log ends at {leo}",
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
        """Take note that ``plan`` has run; gives the segments that are to be retired now."""
        self.durable_leo = max(self.durable_leo, plan.leo)
        self._durable_bytes = plan.size_bytes
        for segment in plan.completed:
            self._unsynced.remove(segment)
            self._files.release(segment.path)
            # Read again from its file, if anybody asks.
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
        """Ask for ``offset`` (at most LEO), where a batch begins, as the log start; it counts once
        a plan has run. A follower that begins anew there is sent whole batches."""
        self._wanted_start = max(self._wanted_start, min(offset, self.leo))

    def apply_retention(self, now_us: int, upto_offset: int) -> None:
        """Ask for the log start that retention by time and size wants, at most ``upto_offset``."""
        start = retained_from(self._segments, self.settings.retention, now_us, upto_offset)
        if start is not None:
            self.truncate_prefix(start)

    def roll_is_due(self, now_us: int) -> bool:
        """Has the active segment been open for ``segment.time``, outlived the retention, or been
        truncated to its end?"""
        active = self._segments[-1] if self._segments else None
        if active is None or active.completed_us or not active.size:
            return False
        return self.log_start >= self.leo or outlived(active, self.settings, now_us)

    def truncate_suffix(self, offset: int) -> None:
        """Let the log end at ``offset``, a batch boundary from the log start to its end.

        Records, index entries, terms and producer state from there on are gone, durably, when
        this returns, and what is left is durable. A crash before leaves the log as it was, or
        cut. A truncation of the prefix that has not run yet stays asked for.

        Blocks on the disk: call it from a storage thread. Until it returns the caller appends
        nothing, rolls nothing, neither makes, runs nor takes note of a sync plan, and has no
        `delete_files` running. Reads may go on; they find the old log or the cut one, or raise
        NotReadyError. That nothing committed is cut is the caller's business, too.

        Raises OffsetOutOfRangeError, or InvalidRequestError inside a batch; then nothing
        happened. Raises Damage, OSError; the log is unusable then.
        """
        segments = self._segments
        if not self.log_start <= offset <= self.leo:
            raise OffsetOutOfRangeError(
                f"{self.directory} holds offsets {self.log_start} to {self.leo - 1}; it cannot end"
                f" at {offset}",
                firstAvailable=self.log_start,
            )
        if not segments:
            return
        at = segments.index(segment_of(segments, offset))
        last = cut_segment(self._reader, self._files, segments[at], offset)
        # What the log start has left behind goes with the cut.
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
        )
        self._replace((*before, last), checkpoint)
        # Not before: what the file said of the removed part is gone durably now.
        if last.index is not None:
            write_index(last.index_path, last.summary(), last.index.to_bytes())

    def rebuild(self, start: int, last_term: int, producers: ProducerDump = ()) -> None:
        """Replace the log by an empty one that begins at ``start``, after a record of
        ``last_term``; 0 and 0 for one that nothing was ever appended to. ``producers`` is what
        another log's `snapshot_before` says of records below ``start``.

        Durable when this returns; a crash before leaves the log as it was, or the new one. Works
        on an unfit log, too. The caller guarantees what `truncate_suffix` asks for. Raises
        OSError; the log is unusable then.
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
        """What another log that begins at ``start``, at most this one's own start, has to know of
        what was before: producers, and the last transaction id.

        The id may be that of a committed record from ``start`` on, which the other log is sent.
        """
        return with_last_id(self.producers.dump_before(start), self.id_before_start)

    def quarantine(self, name: str) -> Path:
        """Move the segments to another directory below the log's, which it gives; durable when
        this returns. What is left is a damaged log, to be rebuilt. Blocks. Raises OSError."""
        place = self.directory / f"aside-{name}"
        place.mkdir(exist_ok=True)
        for segment in self._segments:
            path = Path(segment.path)
            if path.exists():
                os.rename(path, place / path.name)
        sync_directory(place)
        sync_directory(self.directory)
        return place

    def close(self) -> None:
        """Give back the files. Sync first: what is not durable may be lost."""
        self._release()
        for segment in self._segments:
            self._files.forget(segment.path)

    def _write(
        self, batch: Buffer, header: BatchHeader, base_offset: int, term: int, now_us: int
    ) -> None:
        """Write a stamped batch at the end of the log."""
        active = self._room_for(header.length, term, now_us)
        if active.end_offset != base_offset:
            raise AssertionError(f"{active.path} ends at {active.end_offset}, not {base_offset}")
        self._holds = True
        self._files.write(active.path, batch, active.size)
        if not active.size:
            active.opened_us = now_us
        active.note(header, base_offset)
        active.written_us = now_us
        self.producers.record(header, base_offset)
        self.leo = active.end_offset
        self.history = extended(self.history, term, base_offset)
        self.size_bytes += header.length
        self._written_bytes += header.length
        if active.max_transaction_id > self.last_id:
            self.last_id, self.last_id_end = active.max_transaction_id, self.leo

    def _find_last_id(self) -> None:
        """Learn the last transaction id of a log that is opened or was replaced."""
        ids = (one.max_transaction_id for one in self._segments)
        self.last_id, self.last_id_end = max(self.id_before_start, *ids, NO_TRANSACTION), self.leo

    def _room_for(self, length: int, term: int, now_us: int) -> Segment:
        """The segment that a batch of ``term`` goes to, made where there is none."""
        active = self._segments[-1] if self._segments else None
        if active is not None and active.size and not active.completed_us:
            if active.size + length > self.settings.segment.size:
                self._checkpoint_due = True
            elif term == self.last_term:
                return active
            self.roll(now_us)
        if active is None or active.completed_us:
            return self._begin_segment(now_us)
        return active

    def _begin_segment(self, now_us: int) -> Segment:
        segment = Segment(str(self.directory), self.leo, self.leo, opened_us=now_us)
        self._files.create(segment.path)
        self._new_names = True
        self._segments = (*self._segments, segment)
        self._version += 1
        return segment

    def _next_checkpoint(self, last: Segment | None) -> Checkpoint:
        """A checkpoint of the log as it is now, which moves on what producers roll back from."""
        latest = ProducerSnapshot(self.leo, self.producers.dump())
        self._settled = newest_snapshot((self._settled, self._latest, latest), self._lac + 1)
        self._latest = latest
        return checkpoint_of(
            last,
            log_start=self._wanted_start,
            # As of the log start; the plan looks for what was left behind since.
            id_before_start=self.id_before_start,
            lac=self._lac,
            history=forgotten(self.history, self._wanted_start),
            producers=latest.dump,
            settled=self._settled,
        )

    def _sync_remaining(self, segments: tuple[Segment, ...]) -> None:
        """Make ``segments`` durable, which a cut leaves."""
        for segment in segments:
            if segment in self._unsynced or (self._holds and segment is self._segments[-1]):
                with self._files.open(segment.path) as fd:
                    sync_file(fd)
        if self._new_names:
            sync_directory(self.directory)

    def _replace(self, segments: tuple[Segment, ...], checkpoint: Checkpoint) -> None:
        """Become the log that ``checkpoint`` speaks of: ``segments``, the last one cut."""
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
        """Hold no more what waits for its fsync."""
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
