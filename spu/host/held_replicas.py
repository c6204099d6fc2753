"""What an SPU holds: its replicas, its log directory, and the journal of all replicas.

Assigning, deleting and recovery change it, one message at a time (`spu.host.host` ensures that).
Storage work that has begun is always waited for, even if the caller is cancelled, so no thread
still works on a directory when the next message is handled. Neighbours: `spu.storage.data_dir`,
`spu.storage.journal`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import TypeVar, TypeVarTuple, Unpack

from schemas.control.messages import ReplicaReport, Stamp
from schemas.errors import FencedError, StorageFailedError
from schemas.ids import PartitionUid
from spu.replica.context import ReplicaContext
from spu.replica.replica import Replica
from spu.storage.data_dir import DataDir, PartitionMeta
from spu.storage.journal import Journal, JournalChange, JournalEntry, Seen
from spu.storage.journal_writer import JournalWriter
from spu.storage.recovery import RecoveredLog

ArgsT = TypeVarTuple("ArgsT")
ResultT = TypeVar("ResultT")


class HeldReplicas:
    """``path`` is the log directory, ``storage`` runs work on it, and ``report`` tells the SC that
    a replica changed. Set ``context`` before the first replica is made."""

    def __init__(
        self,
        path: Path,
        spu_id: int,
        storage: Executor,
        report: Callable[[ReplicaReport], None],
    ) -> None:
        self.spu_id = spu_id
        self.replicas: dict[PartitionUid, Replica] = {}
        #: Directories whose meta cannot be read: reported as unfit; they may be set aside, and
        #: are never deleted.
        self.unreadable: dict[PartitionUid, ReplicaReport] = {}
        self.context: ReplicaContext | None = None
        self._path = path
        self._storage = storage
        self._report = report
        self._directory: DataDir | None = None
        self._journal: Journal | None = None
        self._writer: JournalWriter | None = None
        #: The latest stamp that this process has heard; a restart forgets it.
        self._heard: Stamp | None = None

    async def open(self, cluster_uid: str | None) -> tuple[Journal, JournalWriter]:
        """Lock the directory and read its journal.

        Raises StorageFailedError if the directory is in use, belongs to another SPU or to another
        cluster than ``cluster_uid``, or if its journal is damaged.
        """
        self._directory = await self.on_disk(DataDir.open, self._path, self.spu_id, cluster_uid)
        self._journal = await self.on_disk(Journal.open, self._directory.journal_path)
        self._writer = JournalWriter(self._journal, self._storage)
        return self._journal, self._writer

    async def close_journal(self, is_clean: Callable[[], bool]) -> None:
        """Write the waiting journal entries. If ``is_clean`` says so then, note a clean stop in the
        directory."""
        if self._writer is not None:
            await self._writer.close()
            self._writer = None
            if self._directory is not None and is_clean():
                await self.on_disk(self._directory.record_stop)

    def close_directory(self) -> None:
        """Let another process lock the directory."""
        if self._directory is not None:
            self._directory.close()
            self._directory = None

    @property
    def directory(self) -> DataDir:
        if self._directory is None:
            raise AssertionError("the host is not open")
        return self._directory

    @property
    def journal(self) -> Journal | None:
        """None before `open`."""
        return self._journal

    @property
    def seen(self) -> Seen | None:
        """The highest KV revision this SPU has seen, with its stamp: what it has durably noted, or
        the stamp of an SC that has led since, which the next assignment notes."""
        noted, heard = self._noted, self._heard
        if heard is None or (noted is not None and heard.version <= noted.stamp.version):
            return noted
        return Seen(heard.revision, heard)

    @property
    def _noted(self) -> Seen | None:
        return self._journal.seen if self._journal is not None else None

    def heed(self, stamp: Stamp) -> None:
        """Listen to the SC with this stamp. Raises FencedError if another one has led since: what
        the earlier one lists as all replicas may lack some."""
        seen = self.seen
        if seen is not None and stamp.version < seen.stamp.version:
            raise FencedError(
                f"the SC that led from KV revision {stamp.revision} on leads no more: SPU"
                f" {self.spu_id} has heard one that leads from revision {seen.stamp.revision} on"
            )
        self._heard = stamp

    def newer_than_noted(self, revision: int, stamp: Stamp) -> Seen | None:
        """What to note of a message of ``revision``, if that is newer than what was noted."""
        noted = self._noted
        revision = max(revision, stamp.revision)
        newer = noted is None or (stamp.incarnation, revision) > (
            noted.stamp.incarnation,
            noted.revision,
        )
        return Seen(revision, stamp) if newer else None

    def knows(self, uid: PartitionUid) -> bool:
        return uid in self.replicas or uid in self.unreadable

    def entry(self, uid: PartitionUid) -> JournalEntry | None:
        """The journal's entry of a replica."""
        return self._journal.entries.get(uid) if self._journal else None

    def make(
        self, meta: PartitionMeta, entry: JournalEntry, found: RecoveredLog, *, fresh: bool = False
    ) -> Replica:
        """The replica of the directory that ``meta`` describes; the caller adds it to
        ``replicas``. ``fresh``: the directory was created just now."""
        if self.context is None:
            raise AssertionError("the host is not open")
        path = self.directory.partition_path(meta.uid)
        return Replica(self.context, meta, entry, path, found, self.changed, fresh=fresh)

    def changed(self, replica: Replica) -> None:
        """Tell the SC of a replica."""
        self._report(replica.report())

    def tell(self, uid: PartitionUid) -> None:
        """Tell the SC of a replica, or of a directory that cannot be read."""
        found = self.replicas.get(uid)
        self._report(found.report() if found else self.unreadable[uid])

    async def record(self, change: JournalChange) -> None:
        """Make a change of the journal durable. Raises StorageFailedError."""
        if self._writer is None:
            raise AssertionError("the host is not open")
        await self._writer.record(change)

    def record_storage(self, meta: PartitionMeta) -> None:
        """Durably note a replica's other storage id in its directory. Blocks. Raises OSError."""
        self.directory.record_storage(meta)

    async def on_disk(self, work: Callable[[Unpack[ArgsT]], ResultT], *args: *ArgsT) -> ResultT:
        """Run blocking ``work`` in a storage thread. An OSError becomes a StorageFailedError.

        A thread cannot be stopped: a caller that is cancelled still waits until the work is done.
        """
        future = asyncio.get_running_loop().run_in_executor(self._storage, work, *args)
        cancelled: asyncio.CancelledError | None = None
        while not future.done():
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError as error:
                cancelled = error
        failure = future.exception()
        if cancelled is not None:
            raise cancelled
        if isinstance(failure, OSError):
            raise self.storage_failed(failure) from failure
        return future.result()

    def storage_failed(self, error: OSError) -> StorageFailedError:
        """The error that callers get for an error of the disk."""
        return StorageFailedError(
            f"{error.filename or self._path}: {error.strerror}; free or repair the disk"
        )
