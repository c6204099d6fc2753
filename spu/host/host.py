"""All replicas of one SPU: opens, closes, looks up and ticks them.

The host owns the log directory and its journal. It handles the SC's messages one at a time, in
order. Without the SC, replicas that led lead again by themselves, each in a new term, and look for
their followers at the addresses that were last known.

Neighbours: `spu.host.assigning`, `spu.host.deleting` and `spu.host.recovery` change what
`spu.host.held_replicas` holds; `spu.replica.replica` is one partition; `spu.host.links` connects
replicas, peers and the SC. The control session passes messages in and sends reports and requests;
the listener looks replicas up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from schemas.control.messages import (
    MAX_STALLED,
    AssignPartitions,
    DeleteReplicas,
    LeadPartitions,
    Obstacles,
    Peer,
    ReplicaReport,
    Stamp,
    Tombstone,
)
from schemas.control.statistics import ReplicaNumbers
from schemas.daemon.logs import get_logger
from schemas.errors import NotFoundError
from schemas.ids import PartitionUid
from spu.host.assigning import Assigner
from spu.host.deleting import Deleter
from spu.host.held_replicas import HeldReplicas
from spu.host.links import ReplicaNetwork, ScLink, parts_of
from spu.host.numbers import ChangedNumbers
from spu.host.recovery import ReplicaRecovery
from spu.host.scrubber import Scrubber
from spu.replica.catch_up import CatchUpRate
from spu.replica.context import ReplicaContext
from spu.replica.counters import ReplicaCounters
from spu.replica.replica import Replica
from spu.storage.checkpoint_queue import IdleCheckpoints
from spu.storage.disk_space import SpaceWatch
from spu.storage.file_pool import DEFAULT_CAPACITY, FilePool
from spu.storage.journal import JournalChange, Seen

_log = get_logger(__name__)

TICK_S: Final = 1.0
_STORAGE_THREADS: Final = 16
_READ_THREADS: Final = 4
_CLIENT_READ_THREADS: Final = 3
#: Idle replicas are ticked this rarely, a share of them each time: nothing of theirs is urgent.
_IDLE_TICKS: Final = 10


class ReplicaHost:
    """``link`` leads to the SC; ``clock_us`` is wall time.

    ``data_dir`` is a path; `open` locks it, `close` releases it. ``cluster_uid``, if the
    configuration names it, must match the directory's. ``storage_size``: bytes that all replicas
    together may use; None for the whole disk except for a reserve. ``open_files``: how many files
    the logs may have open at once. ``scrub_period_s``: within this time all records are verified;
    None: never. ``catch_up_rate``: most bytes per second that are sent to replicas which are not
    live; None: no limit.
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
        scrub_period_s: float | None = None,
        catch_up_rate: int | None = None,
    ) -> None:
        self.spu_id = spu_id
        self._wanted_cluster_uid = cluster_uid
        self._link = link
        #: What keeps records of its replicas from being committed, as of the last tick.
        self.obstacles = Obstacles()
        #: What changed about its replicas, as of their last ticks.
        self.numbers = ChangedNumbers()
        self._clock_us = clock_us
        self._storage = ThreadPoolExecutor(_STORAGE_THREADS, "runnel-storage")
        self.read_threads = ThreadPoolExecutor(_READ_THREADS, "runnel-read")
        # Threads of their own: reads for followers that catch up must not wait for clients.
        self.client_reads = ThreadPoolExecutor(_CLIENT_READ_THREADS, "runnel-client-read")
        self._held = HeldReplicas(data_dir, spu_id, self._storage, link.report)
        self._replicas = self._held.replicas
        self.network = ReplicaNetwork(spu_id, self._replicas, link, lambda: self.cluster_uid)
        self.peers = self.network.peers
        self._files = FilePool(open_files)
        self._checkpoints = IdleCheckpoints()
        self.space = SpaceWatch(data_dir, storage_size, self._replicas)
        self.counters = ReplicaCounters()
        self._catch_up = CatchUpRate(catch_up_rate)
        self._lock = asyncio.Lock()
        self._recovery = ReplicaRecovery(self._held, self.network, self.space, self._lock, clock_us)
        self._assigner = Assigner(self._held, self._recovery, self.network)
        self._deleter = Deleter(self._held, self._recovery)
        self._ticker: asyncio.Task[None] | None = None
        self.scrubber = Scrubber(self._replicas, self.read_threads, scrub_period_s)
        self._scrubbing: asyncio.Task[None] | None = None

    # Open and close

    async def open(self) -> None:
        """Lock the directory, recover every replica, and lead again where the SC need not agree.

        Raises StorageFailedError if the directory is in use, belongs to another SPU or cluster, or
        if its journal is damaged. A damaged replica does not fail the others.
        """
        try:
            journal, writer = await self._held.open(self._wanted_cluster_uid)
        except BaseException:
            await self.close()
            raise
        self._held.context = ReplicaContext(
            spu_id=self.spu_id,
            files=self._files,
            storage=self._storage,
            reads=self.read_threads,
            journal=writer,
            clock_us=self._clock_us,
            clock_ms=self._clock_ms,
            peers=self.network,
            space=self.space,
            checkpoints=self._checkpoints,
            counters=self.counters,
            record_storage=self._held.record_storage,
            catch_up=self._catch_up,
        )
        self.peers.found(journal.peers.values())
        directory = self._held.directory
        unclean = await self._held.on_disk(directory.went_down_uncleanly)
        await self._recovery.recover(directory.partition_uids(), unclean_boot=unclean)
        for replica in self._replicas.values():
            await replica.recorded()
        # Only now: the journal now says which replicas an unclean boot has made unfit.
        await self._held.on_disk(directory.record_start)
        self.network.keep(self._replicas.values(), others=False)
        self._ticker = asyncio.create_task(self._tick_for_ever())
        self._scrubbing = asyncio.create_task(self.scrubber.run(), name="scrub")

    async def close(self) -> None:
        """Make everything durable, write checkpoints, release the directory."""
        await self.network.close()
        for task in (self._ticker, self._scrubbing):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        self._ticker = self._scrubbing = None
        await self._checkpoints.close()
        async with self._lock:
            replicas = tuple(self._replicas.values())
            await asyncio.gather(*(replica.close() for replica in replicas))
            await self._held.close_journal(lambda: all(replica.is_kept for replica in replicas))
            self.read_threads.shutdown()
            self.client_reads.shutdown()
            self._storage.shutdown()
            self._files.close()
            self._held.close_directory()

    # What it knows

    @property
    def free_bytes(self) -> int:
        """Bytes that may still be written to the log directory."""
        return self.space.seen.available

    @property
    def cluster_uid(self) -> str | None:
        """The cluster the directory belongs to; None before the first welcome."""
        return self._held.directory.cluster_uid

    @property
    def seen(self) -> Seen | None:
        """See `HeldReplicas.seen`."""
        return self._held.seen

    def reports(self) -> list[ReplicaReport]:
        """The state of every replica, for hello."""
        found = [replica.report() for replica in self._replicas.values()]
        return found + list(self._held.unreadable.values())

    def changed_numbers(self, at_most: int) -> tuple[ReplicaNumbers, ...]:
        """The numbers of replicas that changed since they were told; they count as told now."""
        return self.numbers.take(at_most, self._replicas)

    def replicas(self) -> list[Replica]:
        return list(self._replicas.values())

    @property
    def unreadable_replicas(self) -> int:
        """How many replicas could not be opened."""
        return len(self._held.unreadable)

    def replica(self, uid: PartitionUid) -> Replica:
        """The replica of a partition. Raises NotFoundError."""
        try:
            return self._replicas[uid]
        except KeyError:
            raise NotFoundError(
                f"SPU {self.spu_id} has no replica of partition {uid}; ask the SC which SPU leads"
                " it, or whether it was deleted"
            ) from None

    # Messages and time

    async def join_cluster(self, cluster_uid: str) -> None:
        """Durably note the cluster of the SC's welcome. Raises StorageFailedError for another."""
        if cluster_uid == self.cluster_uid:
            # The session is there already, and heartbeats begin after this.
            return
        async with self._lock:
            await self._held.on_disk(self._held.directory.record_cluster_uid, cluster_uid)

    def heed(self, stamp: Stamp) -> None:
        """See `HeldReplicas.heed`; `assign`, `lead` and `delete` do this, too."""
        self._held.heed(stamp)

    async def assign(self, message: AssignPartitions) -> None:
        """See `Assigner.assign`."""
        async with self._lock:
            self.heed(message.stamp)
            await self._assigner.assign(message)

    async def lead(self, message: LeadPartitions) -> None:
        """See `Assigner.lead`."""
        async with self._lock:
            self.heed(message.stamp)
            await self._assigner.lead(message)

    async def delete(self, message: DeleteReplicas) -> list[Tombstone]:
        """See `Deleter.delete`."""
        async with self._lock:
            self.heed(message.stamp)
            return await self._deleter.delete(message)

    async def peers_found(self, peers: tuple[Peer, ...]) -> None:
        """Take note of where peers listen, as the SC says. Kept across restarts."""
        self.peers.found(peers)
        async with self._lock:
            journal = self._held.journal
            news = [p for p in peers if journal is None or journal.peers.get(p.spu_id) != p]
            await self._held.record(JournalChange(peers=tuple(news)))

    def tick(self, now_us: int) -> None:
        """Let time pass: retention, ``segment.time``, background fsyncs, room on the disk. `open`
        starts a clock that does the same."""
        self.space.tick()
        for replica in self._replicas.values():
            replica.tick(now_us)

    async def reopen_halted(self) -> None:
        """See `ReplicaRecovery.reopen_halted`."""
        await self._recovery.reopen_halted()

    # How

    async def _tick_for_ever(self) -> None:
        turn = 0
        while True:
            turn = (turn + 1) % _IDLE_TICKS
            await self._tick_all(turn)
            try:
                self.space.tick(await self._stored_bytes())
            except OSError as error:
                _log.error("cannot see how much room there is", error=str(error))
            await self.reopen_halted()

    async def _tick_all(self, turn: int) -> None:
        """Tick the replicas whose turn it is, and look at all, within `TICK_S`.

        One part follows another, spread over that time: to look at 10,000 replicas at once takes
        longer than a record may wait.
        """
        stalled = list[PartitionUid]()
        parts = tuple(parts_of(tuple(self._replicas.values()))) or ((),)
        for part in parts:
            await asyncio.sleep(TICK_S / len(parts))
            for number, replica in enumerate(part):
                if self._replicas.get(replica.meta.uid) is not replica:
                    # It was deleted, or opened again, since this round began.
                    continue
                if not replica.is_idle or number % _IDLE_TICKS == turn:
                    self._tick(replica)
                if replica.is_stalled and len(stalled) < MAX_STALLED:
                    stalled.append(replica.meta.uid)
        self._watch_obstacles(tuple(stalled))

    async def _stored_bytes(self) -> int:
        """How many bytes all replicas store."""
        written_before, stored = self.space.written, 0
        for part in parts_of(tuple(self._replicas.values())):
            stored += sum(replica.stored_bytes for replica in part)
            await asyncio.sleep(0)
        # What was written to replicas that were counted before counts twice until the next tick.
        return stored + self.space.written - written_before

    def _watch_obstacles(self, stalled: tuple[PartitionUid, ...]) -> None:
        found = Obstacles(unreachable=self.peers.unreachable, stalled=stalled)
        if found != self.obstacles:
            self.obstacles = found
            self._link.obstacles_changed()

    def _tick(self, replica: Replica) -> None:
        try:
            replica.tick(self._clock_us())
            self.numbers.note(replica.numbers())
        except Exception as error:
            # The others get their ticks all the same.
            _log.error("a tick failed", partition=replica.meta.name, exc_info=error)

    @staticmethod
    def _clock_ms() -> int:
        return int(asyncio.get_running_loop().time() * 1000)
