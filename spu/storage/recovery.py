"""Opens a log after a stop or crash of its process or host.

The checkpoint says what was durable and where to scan from. From there, every batch is verified.
The scan can find three things at the end:

- a clean end: everything is kept;
- damage above the durable end: a torn tail. It is cut. If a whole valid batch follows the damage,
  the bytes are first copied to a ``cut-…`` file, in case an operator wants them;
- damage below the durable end, or less log than was durable: the disk lost durable records.
  Nothing is cut or deleted; the log is unfit, with a reason that names file and position.

A cut that was in progress when the process ended is finished first, as its checkpoint says.

Data beyond the checkpoint is fsynced before the log is used, because a crash of the process alone
leaves bytes that were never on the disk; so is the name of a checkpoint before what it leaves out
is removed. A log that ends where its checkpoint says is on the disk:
the checkpoint was written after the fsyncs of everything that it covers. A short stretch beyond it
gets no new checkpoint here: an SPU that opens ten thousand logs would wait for ten thousand
checkpoints. Each log gets one later, once it is idle.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from schemas.daemon.logs import get_logger
from schemas.wire.batch import NO_TRANSACTION
from spu.replication.history import History, extended, forgotten, last_term
from spu.replication.producer_state import (
    NO_PRODUCERS,
    ProducerSnapshot,
    ProducerTable,
    newest_snapshot,
)
from spu.storage.checkpoint import (
    CHECKPOINT_NAME,
    VERIFY_AGAIN_BYTES,
    Checkpoint,
    checkpoint_of,
    read_checkpoint,
    write_checkpoint,
)
from spu.storage.durable import (
    UNFINISHED,
    is_shortage,
    sync_file,
    sync_log_directory,
    sync_log_file,
)
from spu.storage.index import IndexSummary, SparseIndex, read_index, read_summary, write_index
from spu.storage.segment import INDEX_SUFFIX, Damage, Segment, bases_of, find_batch, scan
from spu.storage.truncated_segments import (
    TRUNCATED_SUFFIX,
    TruncatedSegment,
    find_truncated,
    retire,
)
from spu.storage.truncation import finish_cut

_log = get_logger(__name__)


class UnfitError(Exception):
    """The log has lost durable records; the text names file and position."""


@dataclass(slots=True)
class RecoveredLog:
    """A log as it was found. All of it is durable. ``unfit`` says what is wrong, if anything.

    ``beyond_checkpoint`` is how many bytes the checkpoint on the disk does not cover; ``settled``
    is the producer table at a committed offset, to start from after a cut; ``id_before_start`` is
    the last transaction id below the log start. ``sealed`` is the offset of the control record that
    seals it, if there is one.
    """

    segments: list[Segment] = field(default_factory=list)
    log_start: int = 0
    leo: int = 0
    lac: int = -1
    id_before_start: int = NO_TRANSACTION
    history: History = ()
    producers: ProducerTable = field(default_factory=ProducerTable)
    settled: ProducerSnapshot = NO_PRODUCERS
    cut_bytes: int = 0
    beyond_checkpoint: int = 0
    set_aside: list[str] = field(default_factory=list)
    truncated: tuple[TruncatedSegment, ...] = ()
    unfit: str | None = None
    sealed: int | None = None


class Recovery:
    """The recovery of the log in ``directory``, in two steps, each of which blocks: reading, which
    is mostly computing, and fsyncs, which are needed only if ``is_durable`` is False.

    ``log`` is the result; it may be used when both steps are done. Neither step raises for what
    the disk holds: see ``unfit``. Each raises OSError if the disk is full, or if the process has no
    file descriptor or memory left: that says nothing about the log, and another recovery may
    follow."""

    def __init__(self, directory: Path, now_us: int) -> None:
        self.log = RecoveredLog()
        self.is_durable = False
        self._directory = directory
        self._now_us = now_us
        self._trusted = True
        self._checkpoint = Checkpoint()
        # The last term that the scan has met; terms never fall along a log.
        self._term = 0
        self._retired = False

    def read(self) -> None:
        """Read and verify the log, and cut a torn tail."""
        self._guarded(self._read)

    def make_durable(self) -> None:
        """Fsync what was kept, and write a new checkpoint for it."""
        if not self.is_durable:
            self._guarded(self._make_durable)
            self.is_durable = True

    def _guarded(self, step: Callable[[], None]) -> None:
        log = self.log
        try:
            step()
        except (UnfitError, Damage) as error:
            log.unfit = str(error)
        except OSError as error:
            if is_shortage(error):
                raise
            log.unfit = f"{error.filename or self._directory}: {error.strerror}"
        if log.unfit is not None:
            # Nothing of an unfit log is used.
            self.is_durable = True
            _log.error("log is unfit", directory=str(self._directory), reason=log.unfit)

    def _read(self) -> None:
        checkpoint = read_checkpoint(self._directory)
        if checkpoint is None:
            self._trusted = False
        else:
            self._checkpoint = checkpoint
        # Listed only once, because there may be ten thousand directories.
        names = os.listdir(self._directory)
        for name in names:
            if name.endswith(UNFINISHED):
                # A reader of a log that was closed a moment ago may still write an index.
                (self._directory / name).unlink(missing_ok=True)
        self._recover(names)
        if self._retired or any(name.endswith(TRUNCATED_SUFFIX) for name in names):
            self.log.truncated = find_truncated(self._directory)
        self.is_durable = self._is_as_checkpointed

    def _recover(self, names: list[str]) -> None:
        checkpoint, log = self._checkpoint, self.log
        log.producers = ProducerTable(checkpoint.producers)
        log.settled = newest_snapshot(
            (
                checkpoint.settled,
                ProducerSnapshot(checkpoint.durable_leo, checkpoint.producers),
            ),
            checkpoint.lac + 1,
        )
        log.history, log.lac = checkpoint.history, checkpoint.lac
        log.log_start, log.id_before_start = checkpoint.log_start, checkpoint.id_before_start
        log.leo, log.sealed = checkpoint.durable_leo, checkpoint.sealed
        if checkpoint.cut_at is not None:
            self._make_checkpoint_durable()
            checkpoint = self._checkpoint = finish_cut(self._directory, checkpoint)
            names = os.listdir(self._directory)
        bases = bases_of(names)
        self._remove_orphans(bases, names)
        if not self._trusted:
            self._without_checkpoint(bases)
        elif bases:
            self._require_start(bases)
            bases = self._drop_truncated(bases)
            if not checkpoint.history_known:
                log.history = self._read_history(bases) or log.history
            self._completed([base for base in bases if base < checkpoint.segment], bases)
            self._scan([base for base in bases if base >= checkpoint.segment])
        elif checkpoint.durable_leo:
            raise UnfitError(
                f"{self._directory} holds no segment, but offset {checkpoint.durable_leo - 1}"
                " was durable"
            )
        if log.leo < checkpoint.durable_leo:
            end = log.segments[-1] if log.segments else None
            place = f"{end.path} at byte {end.size}" if end is not None else str(self._directory)
            raise UnfitError(
                f"{place}: the log ends at offset {log.leo}, but offset"
                f" {checkpoint.durable_leo - 1} was durable"
            )
        if log.leo <= checkpoint.lac:
            raise UnfitError(
                f"{self._directory} ends at offset {log.leo}, but offset {checkpoint.lac} was"
                " committed"
            )

    def _make_checkpoint_durable(self) -> None:
        """Before anything is removed that only an older checkpoint needs: the process that wrote
        this one may have ended before its name was on the disk."""
        sync_log_directory(self._directory)

    def _without_checkpoint(self, bases: list[int]) -> None:
        """Recover without a checkpoint. Nobody knows what was durable, so only a log that is whole
        from end to end is fit."""
        log = self.log
        log.log_start = log.leo = bases[0] if bases else 0
        try:
            self._scan_from(bases, bases[0] if bases else 0, 0)
        except Damage as error:
            raise UnfitError(
                f"{self._directory / CHECKPOINT_NAME} is missing or damaged, and so is the log: "
                f"{error}"
            ) from error
        if not bases:
            raise UnfitError(f"{self._directory / CHECKPOINT_NAME} is missing or damaged")

    def _require_start(self, bases: list[int]) -> None:
        if bases[0] > self._checkpoint.log_start:
            raise UnfitError(
                f"the files in {self._directory} begin at offset {bases[0]}, but the log at"
                f" {self._checkpoint.log_start}: segments are missing"
            )
        if self._checkpoint.durable_leo and self._checkpoint.segment not in bases:
            raise UnfitError(f"{self._segment(self._checkpoint.segment).path} is missing")

    def _drop_truncated(self, bases: list[int]) -> list[int]:
        """Finish a truncation: remove whole segments below the log start, up to the one that the
        checkpoint names, where the scan begins."""
        kept = list(bases)
        while kept[0] < self._checkpoint.segment and kept[1] <= self._checkpoint.log_start:
            if not self._retired:
                self._make_checkpoint_durable()
            segment = self._segment(kept.pop(0))
            segment.end_offset = kept[0]
            retire(segment, self._now_us)
            self._retired = True
        return kept

    def _remove_orphans(self, bases: list[int], names: list[str]) -> None:
        """Remove indexes of segments that are gone: another segment may get their name."""
        ours = {self._segment(base).index_path.name for base in bases}
        for name in names:
            if name.endswith(INDEX_SUFFIX) and name not in ours:
                (self._directory / name).unlink(missing_ok=True)

    def _read_history(self, bases: list[int]) -> History:
        """The terms of the durable records, read from the log itself."""
        history: History = ()
        for base in bases:
            path = self._segment(base).path
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                for _position, header in scan(fd, path, 0, base, last_term(history)):
                    if header.base_offset >= self._checkpoint.durable_leo:
                        break
                    history = extended(history, header.term, header.base_offset)
            finally:
                os.close(fd)
        return forgotten(history, self._checkpoint.log_start)

    def _completed(self, completed: list[int], bases: list[int]) -> None:
        """Add segments below the checkpoint by their indexes; rebuild missing indexes."""
        for number, base in enumerate(completed):
            segment = self._segment(base)
            size = os.stat(segment.path).st_size
            summary = read_summary(segment.index_path)
            following = bases[number + 1]
            if summary is None or summary.covered != size or summary.end_offset != following:
                summary = self._rebuild(segment)
            if summary.end_offset != following:
                raise UnfitError(
                    f"{segment.path} at byte {size}: it ends at offset {summary.end_offset}, the"
                    f" next segment begins at {following}"
                )
            segment.end_offset, segment.size = summary.end_offset, size
            segment.max_timestamp_us = summary.max_timestamp_us
            segment.max_transaction_id = summary.max_transaction_id
            segment.opened_us = summary.opened_us
            segment.written_us = segment.completed_us = summary.completed_us
            segment.index = None
            self.log.segments.append(segment)

    def _rebuild(self, segment: Segment) -> IndexSummary:
        self._date_from_file(segment)
        self._scan_segment(segment, 0, segment.base_offset, learn=False)
        segment.completed_us = segment.written_us
        if segment.index is not None:
            write_index(segment.index_path, segment.summary(), segment.index.to_bytes())
        return segment.summary()

    def _scan(self, bases: list[int]) -> None:
        checkpoint, log = self._checkpoint, self.log
        if not bases:
            return
        try:
            self._scan_from(bases, checkpoint.scan_offset, checkpoint.scan_position)
        except Damage as error:
            if log.leo < checkpoint.durable_leo:
                raise UnfitError(
                    f"{error}; damage at offset {log.leo}, but offset"
                    f" {checkpoint.durable_leo - 1} was durable"
                ) from error
            self._cut(error, [base for base in bases if base > log.segments[-1].base_offset])

    def _scan_from(self, bases: list[int], offset: int, position: int) -> None:
        """Verify and add segments; the first one from ``position`` on."""
        log = self.log
        log.leo = offset
        for number, base in enumerate(bases):
            segment = self._segment(base)
            if number == 0 and position and not self._restore_index(segment, position, offset):
                offset, position = base, 0
            start, start_offset = (position, offset) if number == 0 else (0, base)
            if start_offset != log.leo and number:
                log_end = log.segments[-1]
                raise Damage(
                    log_end.path, log_end.size, f"ends at offset {log.leo}, {base} follows"
                )
            log.leo = start_offset
            self._date_from_file(segment)
            if base == self._checkpoint.segment and self._checkpoint.opened_us:
                segment.opened_us = self._checkpoint.opened_us
            if log.segments:
                log.segments[-1].completed_us = log.segments[-1].written_us
            segment.end_offset, segment.size = start_offset, start
            log.segments.append(segment)
            self._scan_segment(segment, start, start_offset, learn=True)

    def _restore_index(self, segment: Segment, position: int, offset: int) -> bool:
        """Load the part of the index below ``position``, where the batch with ``offset`` begins;
        False means: scan from the start."""
        found = read_index(segment.index_path)
        if found is None or found[0].base_offset != segment.base_offset:
            return False
        index = found[1]
        if found[0].covered < position or index.entry_before(position) != (offset, position):
            return False
        segment.max_timestamp_us, segment.max_transaction_id = index.cut(position)
        segment.index = index
        return True

    def _scan_segment(self, segment: Segment, position: int, offset: int, *, learn: bool) -> None:
        """Scan one segment; with ``learn``, update the log's end, terms and producers."""
        log, durable_leo = self.log, self._checkpoint.durable_leo
        fd = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for at, header in scan(fd, segment.path, position, offset, self._term):
                new = learn and header.base_offset >= durable_leo
                if new and header.term < (before := last_term(log.history)):
                    raise Damage(segment.path, at, f"term {header.term} follows {before}")
                self._term = header.term
                segment.note(header, header.base_offset)
                if learn:
                    log.leo = header.next_offset
                    log.sealed = header.base_offset if header.is_seal else log.sealed
                if new:
                    log.beyond_checkpoint += header.length
                    log.producers.record(header, header.base_offset)
                    log.history = extended(log.history, header.term, header.base_offset)
        finally:
            os.close(fd)

    def _cut(self, damage: Damage, later: list[int]) -> None:
        """Cut the tail of the last segment that was added, and remove every later segment."""
        log = self.log
        segment = log.segments[-1]
        tails: list[tuple[str, bytes]] = []
        for path, start in [
            (segment.path, segment.size),
            *((self._segment(base).path, 0) for base in later),
        ]:
            with open(path, "rb") as file:
                file.seek(start)
                tails.append((path, file.read()))
        log.cut_bytes = sum(len(tail) for _, tail in tails)
        if any(find_batch(tail) is not None for _, tail in tails):
            name = f"cut-{log.leo:020d}-{self._now_us}"
            aside = self._directory / name
            with aside.open("wb") as file:
                file.writelines(tail for _, tail in tails)
                file.flush()
                sync_file(file.fileno())
            sync_log_directory(self._directory)
            log.set_aside.append(name)
            _log.error(
                "set aside valid batches behind damage above the durable point",
                damage=str(damage),
                file=str(aside),
                bytes=log.cut_bytes,
            )
        else:
            _log.warning("cut a torn tail", damage=str(damage), bytes=log.cut_bytes)
        # The last file goes first: a crash in between leaves a shorter tail, never a gap.
        for base in reversed(later):
            self._segment(base).remove()
        # An index may have been written for more than is left.
        segment.index_path.unlink(missing_ok=True)
        os.truncate(segment.path, segment.size)

    def _make_durable(self) -> None:
        log = self.log
        for segment in log.segments:
            if segment.base_offset >= self._checkpoint.segment:
                fd = os.open(segment.path, os.O_RDWR | os.O_CLOEXEC)
                try:
                    sync_log_file(fd)
                finally:
                    os.close(fd)
                if segment is not log.segments[-1] and segment.index is not None:
                    write_index(segment.index_path, segment.summary(), segment.index.to_bytes())
                    segment.index = None
        sync_log_directory(self._directory)
        known = self._trusted and self._checkpoint.history_known
        if log.beyond_checkpoint >= VERIFY_AGAIN_BYTES or log.cut_bytes or not known:
            active = log.segments[-1] if log.segments else None
            checkpoint = checkpoint_of(
                active,
                log_start=log.log_start,
                id_before_start=log.id_before_start,
                lac=log.lac,
                history=log.history,
                producers=log.producers.dump(),
                settled=log.settled,
                sealed=log.sealed,
            )
            # Only useful to a scan that begins inside the segment, or if one was deleted.
            wanted = checkpoint.scan_position or log.cut_bytes
            if active is not None and active.index is not None and wanted:
                write_index(active.index_path, active.summary(), active.index.to_bytes())
            write_checkpoint(self._directory, checkpoint)
            log.beyond_checkpoint = 0

    @property
    def _is_as_checkpointed(self) -> bool:
        """Whether the log holds exactly what the checkpoint covers, and nothing was cut."""
        log, checkpoint = self.log, self._checkpoint
        last = log.segments[-1].base_offset if log.segments else checkpoint.segment
        return (
            self._trusted
            and checkpoint.history_known
            and log.leo == checkpoint.durable_leo
            # A segment that began after the checkpoint is empty, and its name may be lost.
            and last == checkpoint.segment
            and not log.cut_bytes
        )

    def _date_from_file(self, segment: Segment) -> None:
        segment.written_us = segment.opened_us = os.stat(segment.path).st_mtime_ns // 1000

    def _segment(self, base: int) -> Segment:
        return Segment(str(self._directory), base, base, index=SparseIndex())
