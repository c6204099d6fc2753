"""Deletes replicas that the SC has deleted.

A replica is deleted only for a tombstone that names its storage id. A directory whose meta cannot
be read is set aside, for an operator to look at. A deletion that was interrupted is done again when
the SC repeats its tombstone. Neighbours: `spu.host.assigning`, `spu.storage.data_dir`.
"""

from __future__ import annotations

import asyncio
import time

from schemas.control.messages import DeleteReplicas, Tombstone
from schemas.daemon.logs import get_logger
from schemas.errors import StorageFailedError
from schemas.ids import PartitionUid, StorageId
from spu.host.held_replicas import HeldReplicas
from spu.host.links import parts_of
from spu.host.recovery import ReplicaRecovery
from spu.storage.journal import JournalChange

_log = get_logger(__name__)


class Deleter:
    """Deletes replicas. The caller passes one message at a time."""

    def __init__(self, held: HeldReplicas, recovery: ReplicaRecovery) -> None:
        self._held = held
        self._recovery = recovery

    async def delete(self, message: DeleteReplicas) -> list[Tombstone]:
        """Delete the replicas that the tombstones name; returns the tombstones that are done.

        A tombstone for another SPU is not done here. One is done if its replica was deleted before,
        or if it names another storage id than the replica here: that storage is not here. One that
        fails does not stop the others; raises StorageFailedError if none is done.
        """
        done: list[Tombstone] = []
        failures: dict[PartitionUid, StorageFailedError] = {}
        mine = [t for t in message.tombstones if t.spu_id == self._held.spu_id]
        unknown = {t.uid for t in mine if not self._held.knows(t.uid)}
        if unknown:
            on_disk = await self._held.on_disk(self._held.directory.partition_uids)
            await self._recovery.recover(sorted(unknown & set(on_disk)))
        readable = list[Tombstone]()
        for tombstone in mine:
            if tombstone.uid not in self._held.unreadable:
                readable.append(tombstone)
                continue
            try:
                await self._set_aside(tombstone)
            except StorageFailedError as error:
                failures[tombstone.uid] = error
            else:
                done.append(tombstone)
        for some in parts_of(readable):
            failed = await self._delete({t.uid for t in some if self._is_named(t)})
            failures |= failed
            done.extend(t for t in some if t.uid not in failed)
            for uid in {t.uid for t in some} & self._held.replicas.keys() - failed.keys():
                # It has another storage than the one that is gone: the SC decides about that.
                self._held.changed(self._held.replicas[uid])
        for uid, failure in failures.items():
            _log.error("cannot delete", partition=uid, error=failure.message)
        if failures and not done:
            raise next(iter(failures.values()))
        return done

    # How

    def _is_named(self, tombstone: Tombstone) -> bool:
        """Whether a tombstone names a storage that is here, or the remains of one."""
        replica = self._held.replicas.get(tombstone.uid)
        entry = self._held.entry(tombstone.uid)
        if replica is not None:
            # While a replica changes its storage id, it has two.
            held = {replica.meta.storage_id, replica.report().storage_id}
        elif entry is not None:
            held = {StorageId(entry.hard_state.storage)}
        else:
            return False
        return tombstone.storage_id is None or tombstone.storage_id in held

    async def _set_aside(self, tombstone: Tombstone) -> None:
        """Move a directory out of the way whose meta cannot be read.

        Raises StorageFailedError also if the tombstone names a storage, and not the one that the SC
        was told of: nobody knows whether that is the one here.
        """
        uid, directory = tombstone.uid, self._held.directory
        unreadable = self._held.unreadable[uid]
        if directory.partition_path(uid).exists():
            if tombstone.storage_id not in (None, unreadable.storage_id):
                raise StorageFailedError(
                    f"{unreadable.reason}; so nobody knows whether storage {tombstone.storage_id}"
                    " is there; move the directory away"
                )
            place = await self._held.on_disk(directory.set_aside, uid, time.time_ns() // 1000)
            _log.error(
                "set aside a directory that cannot be read, of a deleted replica",
                partition=uid,
                path=str(place),
                reason=unreadable.reason,
            )
        del self._held.unreadable[uid]
        await self._held.record(JournalChange(removed=(uid,)))

    async def _delete(self, uids: set[PartitionUid]) -> dict[PartitionUid, StorageFailedError]:
        """Delete directories, then journal entries; returns the errors of those that failed.

        May be repeated wherever it ended: an entry without a directory is a deletion half done.
        """
        if not uids:
            return {}
        directory = self._held.directory
        here = [replica for uid in uids if (replica := self._held.replicas.get(uid)) is not None]
        await asyncio.gather(*(replica.abandon() for replica in here))
        try:
            errors = await self._held.on_disk(directory.remove_partitions, sorted(uids))
            failed = {uid: self._held.storage_failed(error) for uid, error in errors.items()}
        except StorageFailedError as error:
            failed = dict.fromkeys(uids, error)
        finally:
            # Also if it was cancelled, or failed after the rename: a replica without a directory
            # must not stay.
            for uid in uids:
                if not directory.partition_path(uid).exists():
                    self._held.replicas.pop(uid, None)
        if gone := uids - failed.keys():
            await self._held.record(JournalChange(removed=tuple(sorted(gone))))
            _log.info("deleted replicas", count=len(gone), first=min(gone))
        return failed
