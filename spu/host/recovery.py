"""Opens replicas from the disk: all of them at the start, later those that a full disk halted.

Reading a log is mostly computing, and threads that compute wait for each other at Python's
interpreter lock: two readers take longer than one. So one thread reads, one part of the logs after
another, and the logs that must still be made durable wait for the disk in all storage threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from schemas.control.messages import ReplicaReport, ReplicaRole
from schemas.daemon.logs import get_logger
from schemas.errors import RunnelError
from schemas.ids import PartitionUid, StorageId
from spu.host.held_replicas import HeldReplicas
from spu.host.links import ReplicaNetwork, parts_of
from spu.replication.state import HardState
from spu.storage.data_dir import DataDir, PartitionMeta
from spu.storage.disk_space import Room, SpaceWatch
from spu.storage.journal import JournalEntry
from spu.storage.recovery import Recovery

_log = get_logger(__name__)

#: How often replicas that a full disk halted are reopened: with room on the disk, and without.
_REOPEN_S: Final = 5.0
_RETRY_S: Final = 60.0


class ReplicaRecovery:
    """``lock`` is held while a message changes what is held; ``clock_us`` is wall time."""

    def __init__(
        self,
        held: HeldReplicas,
        network: ReplicaNetwork,
        space: SpaceWatch,
        lock: asyncio.Lock,
        clock_us: Callable[[], int],
    ) -> None:
        self._held = held
        self._network = network
        self._space = space
        self._lock = lock
        self._clock_us = clock_us
        self._looked_s = -_REOPEN_S
        self._reopened_s = -_RETRY_S

    async def recover(self, uids: Sequence[PartitionUid], *, unclean_boot: bool = False) -> None:
        """Open the replicas of these partitions from the disk, or note them as unreadable.

        Raises StorageFailedError if the disk is full, or the process short of descriptors or
        memory: that says nothing about the replicas, and those that are not open yet stay so.
        """
        async for uid, found in self._read(uids):
            self._hold(uid, found, unclean_boot=unclean_boot)

    async def reopen_halted(self) -> None:
        """Reopen replicas that a full disk halted, as a restart of this SPU would.

        Tries every `_REOPEN_S` if there seems to be room (a quota may deny it), and every
        `_RETRY_S` if there is none: only an open replica applies retention and truncation, and
        these may be what makes room.
        """
        now_s = asyncio.get_running_loop().time()
        if now_s < self._looked_s + _REOPEN_S:
            return
        self._looked_s = now_s
        waiting = []
        for part in parts_of(tuple(self._held.replicas.items())):
            waiting += [uid for uid, replica in part if replica.awaits_room]
            await asyncio.sleep(0)
        full = self._space.room is Room.NONE
        if not waiting or (full and now_s < self._reopened_s + _RETRY_S):
            return
        self._reopened_s = now_s
        for uid in waiting:
            try:
                await self._reopen(uid)
            except (RunnelError, OSError) as error:
                # It stays halted until the next attempt; the others go on.
                _log.warning("cannot open a replica again", uid=uid, error=str(error))

    async def _reopen(self, uid: PartitionUid) -> None:
        async with self._lock:
            replica = self._held.replicas.get(uid)
            if replica is None or not replica.awaits_room:
                return
            # Its last hard state must be in the journal before the entry is read. It may become
            # unfit as it is closed.
            await replica.recorded()
            await replica.close()
            await replica.recorded()
            await self.recover([uid])
            # If it could not be read, the halted replica stays until the next attempt.
            self._held.unreadable.pop(uid, None)
            if (again := self._held.replicas[uid]) is not replica:
                _log.info("opened a replica again", partition=again.meta.name)
                self._network.tell_connected(again)
                self._held.changed(again)

    async def _read(
        self, uids: Sequence[PartitionUid]
    ) -> AsyncIterator[tuple[PartitionUid, _Found | RunnelError]]:
        """The durable log and meta of each of ``uids``, in order, or why its directory cannot be
        read. A damaged log says so itself. Raises StorageFailedError as `recover`."""
        on_disk, directory = self._held.on_disk, self._held.directory
        now_us = self._clock_us()
        for part in parts_of(uids):
            found = await on_disk(_read, directory, part, now_us)
            read = (one for one in found if isinstance(one, _Found))
            waiting = [one.recovery for one in read if not one.recovery.is_durable]
            synced = await asyncio.gather(
                *(on_disk(one.make_durable) for one in waiting), return_exceptions=True
            )
            for failure in synced:
                # Raised only after all threads have ended.
                if failure is not None:
                    raise failure
            for uid, one in zip(part, found, strict=True):
                yield uid, one

    def _hold(self, uid: PartitionUid, found: _Found | RunnelError, *, unclean_boot: bool) -> None:
        entry = self._held.entry(uid)
        if isinstance(found, RunnelError):
            error = found
            _log.error("cannot read a partition directory", partition=uid, error=error.message)
            self._held.unreadable[uid] = ReplicaReport(
                uid=uid,
                storage_id=StorageId(entry.hard_state.storage if entry else ""),
                role=ReplicaRole.STOPPED,
                fit=False,
                assigned=entry.assigned if entry else False,
                reason=error.message,
            )
            return
        meta = found.meta
        if entry is None:
            entry = JournalEntry(uid, HardState(meta.storage_id), assigned=False)
        elif entry.hard_state.storage != meta.storage_id:
            # Another storage under the same name: it does not hold what the old one acknowledged.
            hard_state = replace(entry.hard_state, storage=meta.storage_id, leading=False)
            entry = replace(entry, hard_state=hard_state)
        replica = self._held.replicas[uid] = self._held.make(meta, entry, found.recovery.log)
        replica.begin(unclean_boot=unclean_boot)


@dataclass(frozen=True, slots=True)
class _Found:
    """The meta of a replica's directory, and the log in it."""

    meta: PartitionMeta
    recovery: Recovery


def _read(
    directory: DataDir, uids: Sequence[PartitionUid], now_us: int
) -> list[_Found | RunnelError]:
    """Read each. Blocks. Raises OSError for a full disk or another shortage."""
    found: list[_Found | RunnelError] = []
    for uid in uids:
        try:
            meta = directory.read_meta(uid)
        except RunnelError as error:
            found.append(error)
            continue
        recovery = Recovery(directory.partition_path(uid), now_us)
        recovery.read()
        found.append(_Found(meta, recovery))
    return found
