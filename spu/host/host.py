"""All replicas of one SPU: what the SC assigns, lets lead and has deleted.

The host owns the log directory and its journal. Messages are handled one at a time, in order;
within one, directories are made together and journal entries share a write. Nothing is ever
deleted but on a tombstone that names this storage: what the SC does not list is stopped, kept and
reported. With the SC away, replicas that led lead again by themselves, each in a term of its own,
and find their followers where these were last known to listen.

Storage work once begun is waited for, cancelled or not, so no thread works on a directory behind
the next message. What a cancellation or a crash leaves between a directory and the journal is
read from the disk and taken up when the SC repeats the message.

Neighbours: `spu.replica.replica` (one partition), `spu.storage.*`, `spu.host.links` (how replicas,
peers and the SC reach one another), the control session that feeds messages in and sends reports
and requests out, the listener that looks replicas up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar, TypeVarTuple, Unpack

from schemas.control.messages import (
    Assignment,
    AssignPartitions,
    DeleteReplicas,
    Lead,
    LeadPartitions,
    Peer,
    ReplicaReport,
    ReplicaRole,
    Stamp,
    Tombstone,
)
from schemas.daemon.logs import get_logger
from schemas.errors import NotFoundError, OverloadedError, RunnelError, StorageFailedError
from schemas.ids import PartitionUid, StorageId
from spu.host.links import ReplicaLinks, ScLink, parts_of, sliced
from spu.host.recovery import Found, recovered
from spu.replica.context import ReplicaHome
from spu.replica.replica import Replica
from spu.replication.state import Member, Promise
from spu.storage.checkpoint_queue import IdleCheckpoints
from spu.storage.data_dir import Creation, DataDir, PartitionMeta
from spu.storage.disk_space import Room, SpaceWatch
from spu.storage.file_pool import DEFAULT_CAPACITY, FilePool
from spu.storage.journal import Journal, JournalChange, JournalEntry, Seen
from spu.storage.journal_writer import JournalWriter
from spu.storage.recovery import RecoveredLog

_log = get_logger(__name__)

ArgsT = TypeVarTuple("ArgsT")
ResultT = TypeVar("ResultT")

#: How often replicas that a full disk halted are opened again: where there is room, and where not.
_REOPEN_S: Final = 5.0
_RETRY_S: Final = 60.0
TICK_S: Final = 1.0
#: A bound far above what one SPU is meant to hold.
MAX_REPLICAS: Final = 100_000
_STORAGE_THREADS: Final = 16
_READ_THREADS: Final = 4
_CLIENT_READ_THREADS: Final = 3
#: Idle replicas are ticked so seldom, a share of them each time: nothing of theirs is urgent.
_IDLE_TICKS: Final = 10


class ReplicaHost:
    """``link`` leads to the SC; ``clock_us`` is wall time.

    ``data_dir`` is a path; `open` locks it, `close` releases it. ``cluster_uid``, where it is
    known by configuration, must match the directory's. ``storage_size``: bytes that all
    replicas may take, None for the disk but for a reserve. ``open_files``: how many files its logs
    have open at once.
    """

    def __init__(
        self,
        data_dir: Path,
        spu_id: int,
        link: ScLink,
        clock_us: Callable[[], int],
        cluster_uid: str | None = None,
        storage_size: int | None = None,
        open_files: int = DEFAULT_CAPACITY,
    ) -> None:
        self.spu_id = spu_id
        self._path = data_dir
        self._wanted_cluster_uid = cluster_uid
        self._link = link
        self._clock_us = clock_us
        self._replicas: dict[PartitionUid, Replica] = {}
        self.links = ReplicaLinks(spu_id, self._replicas, link, lambda: self.cluster_uid)
        self.peers = self.links.peers
        # Directories whose meta cannot be read: reported as unfit, never touched.
        self._unreadable: dict[PartitionUid, ReplicaReport] = {}
        self._storage = ThreadPoolExecutor(_STORAGE_THREADS, "runnel-storage")
        self.read_threads = ThreadPoolExecutor(_READ_THREADS, "runnel-read")
        # Apart: however many clients read old data, followers that catch up are read for.
        self.client_reads = ThreadPoolExecutor(_CLIENT_READ_THREADS, "runnel-client-read")
        self._files = FilePool(open_files)
        self._checkpoints = IdleCheckpoints()
        self.space = SpaceWatch(data_dir, storage_size, self._replicas)
        self._lock = asyncio.Lock()
        self._ticker: asyncio.Task[None] | None = None
        self._directory: DataDir | None = None
        self._journal: Journal | None = None
        self._writer: JournalWriter | None = None
        self._home: ReplicaHome | None = None
        self._looked_s = -_REOPEN_S
        self._reopened_s = -_RETRY_S

    # Life

    async def open(self) -> None:
        """Lock the directory, recover every replica, lead again where nobody need be asked.

        Raises StorageFailedError where the directory is in use, belongs to another SPU or
        cluster, or its journal is damaged. A damaged replica does not fail the others.
        """
        try:
            self._directory = await self._on_disk(
                DataDir.open, self._path, self.spu_id, self._wanted_cluster_uid
            )
            self._journal = await self._on_disk(Journal.open, self._directory.journal_path)
        except BaseException:
            await self.close()
            raise
        self._writer = JournalWriter(self._journal, self._storage)
        self._home = ReplicaHome(
            spu_id=self.spu_id,
            files=self._files,
            storage=self._storage,
            reads=self.read_threads,
            journal=self._writer,
            clock_us=self._clock_us,
            clock_ms=self._clock_ms,
            around=self.links,
            space=self.space,
            checkpoints=self._checkpoints,
            record_storage=lambda meta: self._opened().record_storage(meta),
        )
        self.peers.found(self._journal.peers.values())
        unclean = await self._on_disk(self._directory.went_down_uncleanly)
        await self._recover(self._directory.partition_uids(), unclean_boot=unclean)
        for replica in self._replicas.values():
            await replica.recorded()
        # Not before: what an unclean boot makes of replicas is in the journal now.
        await self._on_disk(self._directory.record_start)
        self.links.keep(self._replicas.values(), others=False)
        self._ticker = asyncio.create_task(self._tick_for_ever())

    async def close(self) -> None:
        """Make everything durable, write checkpoints, release the directory."""
        await self.links.close()
        if self._ticker is not None:
            self._ticker.cancel()
            await asyncio.wait([self._ticker])
            self._ticker = None
        await self._checkpoints.close()
        async with self._lock:
            replicas = self._replicas.values()
            clean = not any(replica.is_halted for replica in replicas)
            await asyncio.gather(*(replica.close() for replica in replicas))
            if self._writer is not None:
                await self._writer.close()
                self._writer = None
                if self._directory is not None and clean:
                    await self._on_disk(self._directory.record_stop)
            self.read_threads.shutdown()
            self.client_reads.shutdown()
            self._storage.shutdown()
            self._files.close()
            if self._directory is not None:
                self._directory.close()
                self._directory = None

    # What it knows

    @property
    def free_bytes(self) -> int:
        """What there is room for in the log directory."""
        return self.space.seen.available

    @property
    def cluster_uid(self) -> str | None:
        """The cluster the directory belongs to; None before the first welcome."""
        return self._opened().cluster_uid

    @property
    def seen(self) -> Seen | None:
        """The highest KV revision this SPU has durably noted, with its stamp."""
        return self._journal.seen if self._journal is not None else None

    def reports(self) -> list[ReplicaReport]:
        """The state of every replica, for hello."""
        found = [replica.report() for replica in self._replicas.values()]
        return found + list(self._unreadable.values())

    def replicas(self) -> list[Replica]:
        return list(self._replicas.values())

    def replica(self, uid: PartitionUid) -> Replica:
        """The replica of a partition. Raises NotFoundError."""
        try:
            return self._replicas[uid]
        except KeyError:
            raise NotFoundError(
                f"SPU {self.spu_id} has no replica of partition {uid}; ask the SC who leads it,"
                " or whether it was deleted"
            ) from None

    # What it is told

    async def join_cluster(self, cluster_uid: str) -> None:
        """Durably note the cluster of the SC's welcome. Raises StorageFailedError for another."""
        async with self._lock:
            await self._on_disk(self._opened().record_cluster_uid, cluster_uid)

    async def assign(self, message: AssignPartitions) -> None:
        """Hold the replicas of ``message`` as it says; durable when this returns.

        Older revisions than a replica knows are ignored. What a complete list, or ``removed``,
        takes away is stopped and kept. A directory that is here already is taken up; one that
        cannot be read makes its replica unfit. Raises StorageFailedError if the journal cannot be
        written, OverloadedError beyond the bound on replicas; the first error of replicas that
        cannot be made, when all others are held.
        """
        async with self._lock:
            newest = {
                assignment.uid: assignment
                for assignment in sorted(message.assignments, key=lambda one: one.revision)
            }
            created, present, failures = await self._create(
                [a for uid, a in newest.items() if not self._knows(uid)],
                message.stamp.incarnation,
            )
            told: list[Replica] = []
            async for uid in sliced(newest):
                if (replica := self._replicas.get(uid)) is not None:
                    replica.assign(newest[uid], message.stamp.incarnation)
                    told.append(replica)
            gone = set(message.removed)
            if message.complete:
                gone |= self._replicas.keys() - newest.keys()
            for uid in gone & self._replicas.keys() - newest.keys():
                replica = self._replicas[uid]
                replica.assign(None, message.stamp.incarnation)
                told.append(replica)
            entries = tuple(replica.entry for replica in created)
            await self._record(JournalChange(entries, (), self._newer(message)))
            await self._take_up(created)
            for replica in told:
                await replica.recorded()
            complete = message.complete
            held = self._replicas.values() if complete else (*created, *told)
            self.links.keep(held, others=not complete)
            for replica in (*created, *told):
                self.links.tell_connected(replica)
            for uid in present:
                found = self._replicas.get(uid)
                self._link.report(found.report() if found else self._unreadable[uid])
            if failures:
                raise failures[0]

    async def lead(self, message: LeadPartitions) -> None:
        """Let replicas lead. One that cannot says so in its report; the others go on.

        Raises NotFoundError when all are tried, if some are not held here.
        """
        async with self._lock:
            newest = max((lead.revision for lead in message.leads), default=0)
            await self._record(JournalChange(seen=self._newer_than(newest, message.stamp)))
            known = [lead for lead in message.leads if lead.uid in self._replicas]
            incarnation = message.stamp.incarnation
            for some in parts_of(known):
                await asyncio.gather(
                    *(self._lead(self._replicas[lead.uid], lead, incarnation) for lead in some)
                )
            unknown = [lead.uid for lead in message.leads if lead.uid not in self._replicas]
            if unknown:
                raise NotFoundError(
                    f"SPU {self.spu_id} was told to lead {len(unknown)} partitions that it was"
                    f" not assigned: {', '.join(unknown[:5])}"
                )

    async def delete(self, message: DeleteReplicas) -> list[Tombstone]:
        """Delete what the tombstones name; gives those that are done, gone before included.

        A tombstone for another SPU is not done here. One for another storage than the one held
        is done: that storage is not here. One that fails does not keep the others from being
        done; raises StorageFailedError where none is.
        """
        done: list[Tombstone] = []
        failure: StorageFailedError | None = None
        async with self._lock:
            mine = [t for t in message.tombstones if t.spu_id == self.spu_id]
            unknown = {t.uid for t in mine if not self._knows(t.uid)}
            if unknown:
                on_disk = await self._on_disk(self._opened().partition_uids)
                await self._recover(sorted(unknown & set(on_disk)))
            # Where it cannot be read whose one is, no tombstone is known to name it.
            readable = [t for t in mine if t.uid not in self._unreadable]
            for some in parts_of(readable):
                failed = await self._delete({t.uid for t in some if self._is_named(t)})
                for uid, error in failed.items():
                    _log.error("cannot delete", partition=uid, error=error.message)
                    failure = failure or error
                done.extend(t for t in some if t.uid not in failed)
        if failure is not None and not done:
            raise failure
        return done

    async def peers_found(self, peers: tuple[Peer, ...]) -> None:
        """The SC says where peers listen. Kept over restarts."""
        self.peers.found(peers)
        async with self._lock:
            journal = self._journal
            news = [p for p in peers if journal is None or journal.peers.get(p.spu_id) != p]
            await self._record(JournalChange(peers=tuple(news)))

    def tick(self, now_us: int) -> None:
        """Let time pass: retention, ``segment.time``, background fsyncs, room on the disk. `open`
        starts a clock that does the same."""
        self.space.tick()
        for replica in self._replicas.values():
            replica.tick(now_us)

    async def reopen_halted(self) -> None:
        """Open replicas again that a full disk halted, as after a restart of this SPU.

        Every `_REOPEN_S` where there is room (a quota may say otherwise), and every `_RETRY_S`
        where there is none: only a replica that takes part follows retention and truncation, which
        may be what makes room.
        """
        now_s = asyncio.get_running_loop().time()
        if now_s < self._looked_s + _REOPEN_S:
            return
        self._looked_s = now_s
        waiting = [uid for uid, replica in self._replicas.items() if replica.awaits_room]
        full = self.space.room is Room.NONE
        if not waiting or (full and now_s < self._reopened_s + _RETRY_S):
            return
        self._reopened_s = now_s
        for uid in waiting:
            try:
                await self._reopen(uid)
            except (RunnelError, OSError) as error:
                # It stays halted, and is tried again; the others are not kept waiting.
                _log.warning("cannot open a replica again", uid=uid, error=str(error))

    # How

    async def _reopen(self, uid: PartitionUid) -> None:
        async with self._lock:
            replica = self._replicas.get(uid)
            if replica is None or not replica.awaits_room:
                return
            # The journal has what it was told last before its entry is read.
            await replica.recorded()
            await replica.close()
            await self._recover([uid])
            # If it could not be read, the one that is halted stays, and is tried again.
            self._unreadable.pop(uid, None)
            if (again := self._replicas[uid]) is not replica:
                _log.info("opened a replica again", partition=again.meta.name)
                self.links.tell_connected(again)
                self._changed(again)

    async def _take_up(self, replicas: list[Replica]) -> None:
        """Hold replicas that were made just now, and say that they are there."""
        async for replica in sliced(replicas):
            self._replicas[replica.meta.uid] = replica
            replica.begin(unclean_boot=False)
            self._changed(replica)

    async def _recover(self, uids: Sequence[PartitionUid], *, unclean_boot: bool = False) -> None:
        """Hold what the disk has of these, or know it as unreadable."""
        on_disk = recovered(self._opened(), uids, self._clock_us(), self._on_disk)
        async for uid, found in on_disk:
            self._recovered(uid, found, unclean_boot=unclean_boot)

    def _recovered(
        self, uid: PartitionUid, found: Found | RunnelError, *, unclean_boot: bool
    ) -> None:
        entry = self._journal.entries.get(uid) if self._journal else None
        if isinstance(found, RunnelError):
            error = found
            _log.error("cannot read a partition directory", partition=uid, error=error.message)
            self._unreadable[uid] = ReplicaReport(
                uid=uid,
                storage_id=StorageId(entry.promise.storage if entry else ""),
                role=ReplicaRole.STOPPED,
                fit=False,
                assigned=entry.assigned if entry else False,
                reason=error.message,
            )
            return
        meta = found.meta
        if entry is None:
            entry = JournalEntry(uid, Promise(meta.storage_id), assigned=False)
        elif entry.promise.storage != meta.storage_id:
            # Another storage under the same name: what the old one promised is not on it.
            promise = replace(entry.promise, storage=meta.storage_id, leading=False)
            entry = replace(entry, promise=promise)
        replica = self._replicas[uid] = self._replica(meta, entry, found.log)
        replica.begin(unclean_boot=unclean_boot)

    async def _create(
        self, assignments: list[Assignment], incarnation: int
    ) -> tuple[list[Replica], tuple[PartitionUid, ...], list[RunnelError]]:
        """New replicas, not yet known to the host; uids whose directories were here and are known
        now, as replicas or unreadable; errors of those that are neither."""
        if not assignments:
            return [], (), []
        if len(self._replicas) + len(assignments) > MAX_REPLICAS:
            raise OverloadedError(
                f"SPU {self.spu_id} holds {len(self._replicas)} replicas and takes at most"
                f" {MAX_REPLICAS}; add SPUs"
            )
        directory, journal = self._opened(), self._journal
        wanted: list[tuple[PartitionMeta, Assignment]] = []
        failures: list[RunnelError] = []
        for a in assignments:
            try:
                wanted.append((directory.new_meta(a.uid, a.name, a.topic, a.index, a.log), a))
            except RunnelError as error:
                failures.append(error)
        outcome = await self._make_directories([meta for meta, _ in wanted])
        failures.extend(map(self._storage_failed, outcome.failed.values()))
        for failure in failures:
            _log.error("cannot make a replica", error=failure.message)
        await self._recover(outcome.present)
        not_made = {*outcome.present, *outcome.failed}
        replicas = []
        async for meta, assignment in sliced(wanted):
            if meta.uid in not_made:
                continue
            before = journal.entries.get(meta.uid) if journal else None
            promise = Promise(
                meta.storage_id,
                # A lost directory does not give its terms back.
                term=before.promise.term if before else 0,
                revision=assignment.revision,
                replicas=assignment.replicas,
                lrs=tuple(Member(one.spu_id, one.storage_id) for one in assignment.lrs),
                min_in_sync=assignment.log.min_in_sync_replicas,
                incarnation=incarnation,
            )
            entry = JournalEntry(meta.uid, promise, assignment=assignment)
            replicas.append(self._replica(meta, entry, RecoveredLog()))
        return replicas, outcome.present, failures

    async def _make_directories(self, metas: Sequence[PartitionMeta]) -> Creation:
        """Make them in several threads, as each waits for the disk. Raises StorageFailedError."""
        create = self._opened().create_partitions
        made = await asyncio.gather(
            *(self._on_disk(create, part) for part in parts_of(metas)), return_exceptions=True
        )
        present: list[PartitionUid] = []
        failed: dict[PartitionUid, OSError] = {}
        for outcome in made:
            # Not before all have ended.
            if isinstance(outcome, BaseException):
                raise outcome
            present.extend(outcome.present)
            failed |= outcome.failed
        return Creation(tuple(present), failed)

    def _replica(self, meta: PartitionMeta, entry: JournalEntry, found: RecoveredLog) -> Replica:
        path = self._opened().partition_path(meta.uid)
        return Replica(self._required_home(), meta, entry, path, found, self._changed)

    async def _lead(self, replica: Replica, lead: Lead, incarnation: int) -> None:
        try:
            await replica.lead(lead, incarnation)
        except RunnelError as error:
            _log.warning("cannot lead", partition=replica.meta.name, error=error.message)
            self._changed(replica)

    def _is_named(self, tombstone: Tombstone) -> bool:
        """Whether a tombstone names a storage that is here, or what is left of one."""
        replica = self._replicas.get(tombstone.uid)
        entry = self._journal.entries.get(tombstone.uid) if self._journal else None
        if replica is not None:
            # While it takes another storage id it has two.
            held = {replica.meta.storage_id, replica.report().storage_id}
        elif entry is not None:
            held = {StorageId(entry.promise.storage)}
        else:
            return False
        return tombstone.storage_id is None or tombstone.storage_id in held

    async def _delete(self, uids: set[PartitionUid]) -> dict[PartitionUid, StorageFailedError]:
        """Delete directories, then the journal's entries; gives those that could not be deleted.

        May be repeated wherever it ended: an entry without a directory is a deletion half done.
        """
        if not uids:
            return {}
        directory = self._opened()
        here = [replica for uid in uids if (replica := self._replicas.get(uid)) is not None]
        await asyncio.gather(*(replica.abandon() for replica in here))
        try:
            errors = await self._on_disk(directory.remove_partitions, sorted(uids))
            failed = {uid: self._storage_failed(error) for uid, error in errors.items()}
        except StorageFailedError as error:
            failed = dict.fromkeys(uids, error)
        finally:
            # Cancelled, or failed after the rename: a replica without a directory must not stay.
            for uid in uids:
                if not directory.partition_path(uid).exists():
                    self._replicas.pop(uid, None)
        if gone := uids - failed.keys():
            await self._record(JournalChange(removed=tuple(sorted(gone))))
            _log.info("deleted replicas", count=len(gone), first=min(gone))
        return failed

    def _knows(self, uid: PartitionUid) -> bool:
        return uid in self._replicas or uid in self._unreadable

    async def _on_disk(self, work: Callable[[Unpack[ArgsT]], ResultT], *args: *ArgsT) -> ResultT:
        """Run blocking ``work`` in a storage thread. An OSError becomes a StorageFailedError.

        A thread cannot be stopped: who is cancelled leaves when the work is done.
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
            raise self._storage_failed(failure) from failure
        return future.result()

    def _storage_failed(self, error: OSError) -> StorageFailedError:
        return StorageFailedError(
            f"{error.filename or self._path}: {error.strerror}; free or repair the disk"
        )

    async def _record(self, change: JournalChange) -> None:
        if self._writer is None:
            raise AssertionError("the host is not open")
        await self._writer.record(change)

    def _newer(self, message: AssignPartitions) -> Seen | None:
        newest = max((one.revision for one in message.assignments), default=0)
        return self._newer_than(newest, message.stamp)

    def _newer_than(self, revision: int, stamp: Stamp) -> Seen | None:
        seen = self.seen
        revision = max(revision, stamp.revision)
        newer = seen is None or (stamp.incarnation, revision) > (
            seen.stamp.incarnation,
            seen.revision,
        )
        return Seen(revision, stamp) if newer else None

    def _changed(self, replica: Replica) -> None:
        self._link.report(replica.report())

    async def _tick_for_ever(self) -> None:
        turn = 0
        while True:
            await asyncio.sleep(TICK_S)
            self.space.tick()
            await self.reopen_halted()
            turn = (turn + 1) % _IDLE_TICKS
            for part in parts_of(tuple(self._replicas.values())):
                for number, replica in enumerate(part):
                    if not replica.is_idle or number % _IDLE_TICKS == turn:
                        self._tick(replica)
                await asyncio.sleep(0)

    def _tick(self, replica: Replica) -> None:
        try:
            replica.tick(self._clock_us())
        except Exception as error:
            # Time goes on for the others.
            _log.error("a tick failed", partition=replica.meta.name, exc_info=error)

    @staticmethod
    def _clock_ms() -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    def _opened(self) -> DataDir:
        if self._directory is None:
            raise AssertionError("the host is not open")
        return self._directory

    def _required_home(self) -> ReplicaHome:
        if self._home is None:
            raise AssertionError("the host is not open")
        return self._home
