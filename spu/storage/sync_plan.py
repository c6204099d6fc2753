"""One run of group commit: a snapshot of a log, taken on the event loop, to be made durable.

It runs in a storage thread while appends go on. Order on the disk: completed segments first, then
the directory, then the active segment, then the index and checkpoint that cover them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from schemas.replacing import replace
from spu.storage.checkpoint import Checkpoint, write_checkpoint
from spu.storage.durable import FsyncFailedError, sync_log_directory
from spu.storage.file_pool import FilePool
from spu.storage.index import IndexSummary, write_index
from spu.storage.reader import LogReader
from spu.storage.segment import Damage, Segment


class CheckpointFailedError(OSError):
    """A checkpoint or an index could not be written, on a full disk for example; ``errno`` says
    why."""


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
    #: Segments with records below the log start of the checkpoint, where that is a new one.
    left_behind: tuple[Segment, ...]
    reader: LogReader

    def run(self) -> None:
        """Make it durable. Blocks. Raises OSError; nothing of the plan is known to be durable then.

        CheckpointFailedError: the records are durable, but the index or checkpoint, which speed up
        the next start, is not.
        """
        for segment in self.completed:
            self.files.sync(segment.path)
        if self.new_names:
            sync_log_directory(self.directory)
        if self.active is not None:
            self.files.sync(self.active.path)
        try:
            for path, summary, entries in self.indexes:
                write_index(path, summary, entries)
            if self.checkpoint is not None:
                last_id = self._id_before(self.checkpoint)
                self.checkpoint = replace(self.checkpoint, id_before_start=last_id)
                write_checkpoint(self.directory, self.checkpoint)
        except FsyncFailedError:
            # Of the directory: the name of a segment that was begun meanwhile may be lost with it.
            raise
        except OSError as error:
            raise CheckpointFailedError(error.errno, error.strerror, error.filename) from error

    def _id_before(self, checkpoint: Checkpoint) -> int:
        """The last transaction id below the log start of ``checkpoint``. Raises OSError."""
        last_id = checkpoint.id_before_start
        for segment in self.left_behind:
            if segment.max_transaction_id > last_id:
                try:
                    found = self.reader.id_before(segment, checkpoint.log_start)
                except Damage:
                    # A reader of that segment will get the error. Its ids are not above this one.
                    found = segment.max_transaction_id
                last_id = max(last_id, found)
        return last_id
