"""Carries out the SC's assignments: makes and adopts replicas, and lets them lead.

Within one message, directories are created together and journal entries share a write. A replica
that the SC does not list is stopped, kept and reported: nothing is deleted here. If a cancellation
or a crash leaves a directory without its journal entry, the directory is read and adopted when the
SC repeats the message. A directory whose meta cannot be read, or is of another partition, is set
aside as soon as another SPU leads, and a new replica is rebuilt from there: it has another storage
id, so it neither counts nor leads before. Neighbours: `spu.host.recovery` (existing directories),
`spu.host.deleting`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from typing import Final

from schemas.control.messages import (
    Assignment,
    AssignPartitions,
    Lead,
    LeadPartitions,
)
from schemas.daemon.logs import get_logger
from schemas.errors import NotFoundError, OverloadedError, RunnelError
from schemas.ids import PartitionUid
from spu.host.held_replicas import HeldReplicas
from spu.host.links import ReplicaNetwork, parts_of, sliced
from spu.host.recovery import ReplicaRecovery
from spu.replica.replica import Replica
from spu.replication.state import HardState, Member
from spu.storage.data_dir import Creation, PartitionMeta
from spu.storage.journal import JournalChange, JournalEntry
from spu.storage.recovery import RecoveredLog

_log = get_logger(__name__)

#: A bound far above the number of replicas that one SPU is meant to hold.
MAX_REPLICAS: Final = 100_000


class Assigner:
    """Assigns replicas. The caller passes one message at a time."""

    def __init__(
        self,
        held: HeldReplicas,
        recovery: ReplicaRecovery,
        network: ReplicaNetwork,
    ) -> None:
        self._held = held
        self._recovery = recovery
        self._network = network

    async def assign(self, message: AssignPartitions) -> None:
        """Hold the replicas of ``message`` as it says; durable when this returns.

        An assignment of an older revision than the replica knows is ignored. A replica that a
        complete list leaves out, or that ``removed`` names, is stopped and kept. An existing
        directory is adopted; one that cannot be read makes its replica unfit until another SPU
        leads, and is set aside then. Raises
        StorageFailedError if the journal cannot be written, OverloadedError beyond the bound on
        replicas, and the first error of the replicas that could not be created, after all others
        are held.
        """
        newest = {
            assignment.uid: assignment
            for assignment in sorted(message.assignments, key=lambda one: one.revision)
        }
        await self._set_aside(newest.values())
        created, present, failures = await self._create(
            [a for uid, a in newest.items() if not self._held.knows(uid)],
            message.stamp.incarnation,
        )
        changed: list[Replica] = []
        async for uid in sliced(newest):
            if (replica := self._held.replicas.get(uid)) is not None:
                replica.assign(newest[uid], message.stamp.incarnation)
                changed.append(replica)
        gone = set(message.removed)
        if message.complete:
            gone |= self._held.replicas.keys() - newest.keys()
        for uid in gone & self._held.replicas.keys() - newest.keys():
            replica = self._held.replicas[uid]
            replica.assign(None, message.stamp.incarnation)
            changed.append(replica)
        entries = tuple(replica.entry for replica in created)
        revision = max((one.revision for one in message.assignments), default=0)
        seen = self._held.newer_than_noted(revision, message.stamp)
        await self._held.record(JournalChange(entries, seen=seen))
        await self._adopt(created)
        for replica in changed:
            await replica.recorded()
        complete = message.complete
        held = self._held.replicas.values() if complete else (*created, *changed)
        self._network.keep(held, others=not complete)
        for replica in (*created, *changed):
            self._network.tell_connected(replica)
        for uid in present:
            self._held.tell(uid)
        if failures:
            raise failures[0]

    async def lead(self, message: LeadPartitions) -> None:
        """Let replicas lead. One that cannot lead says so in its report; the others go on.

        Raises NotFoundError, after all were tried, if some are not held here.
        """
        revision = max((lead.revision for lead in message.leads), default=0)
        seen = self._held.newer_than_noted(revision, message.stamp)
        known = [lead for lead in message.leads if lead.uid in self._held.replicas]
        incarnation = message.stamp.incarnation
        # The first hard states share its write, and stand behind it.
        noted = asyncio.create_task(self._held.record(JournalChange(seen=seen)))
        for some in parts_of(known):
            await asyncio.gather(
                *(self._lead(self._held.replicas[lead.uid], lead, incarnation) for lead in some)
            )
        await noted
        unknown = [lead.uid for lead in message.leads if lead.uid not in self._held.replicas]
        if unknown:
            raise NotFoundError(
                f"SPU {self._held.spu_id} was told to lead {len(unknown)} partitions that it was"
                f" not assigned: {', '.join(unknown[:5])}"
            )

    # How

    async def _set_aside(self, assignments: Iterable[Assignment]) -> None:
        """Move directories that cannot be read out of the way where another SPU leads."""
        me = self._held.spu_id
        for assignment in assignments:
            uid = assignment.uid
            has_leader = assignment.leader not in (None, me) and any(
                member.spu_id == assignment.leader for member in assignment.lrs
            )
            if uid in self._held.unreadable and has_leader:
                directory, now_us = self._held.directory, time.time_ns() // 1000
                place = await self._held.on_disk(directory.set_aside, uid, now_us)
                unreadable = self._held.unreadable.pop(uid)
                _log.error(
                    "set aside a directory that cannot be read; the replica is rebuilt",
                    partition=uid,
                    path=str(place),
                    reason=unreadable.reason,
                )

    async def _create(
        self, assignments: list[Assignment], incarnation: int
    ) -> tuple[list[Replica], tuple[PartitionUid, ...], list[RunnelError]]:
        """New replicas, which the host does not know yet; uids whose directories existed, which the
        host now knows as replicas or as unreadable; errors of all others."""
        if not assignments:
            return [], (), []
        held = self._held.replicas
        if len(held) + len(assignments) > MAX_REPLICAS:
            raise OverloadedError(
                f"SPU {self._held.spu_id} holds {len(held)} replicas and can hold at most"
                f" {MAX_REPLICAS}; add SPUs"
            )
        directory = self._held.directory
        wanted: list[tuple[PartitionMeta, Assignment]] = []
        failures: list[RunnelError] = []
        for a in assignments:
            try:
                wanted.append((directory.new_meta(a.uid, a.name, a.topic, a.index, a.log), a))
            except RunnelError as error:
                failures.append(error)
        outcome = await self._make_directories([meta for meta, _ in wanted])
        failures.extend(map(self._held.storage_failed, outcome.failed.values()))
        for failure in failures:
            _log.error("cannot make a replica", error=failure.message)
        await self._recovery.recover(outcome.present)
        not_made = {*outcome.present, *outcome.failed}
        replicas = []
        async for meta, assignment in sliced(wanted):
            if meta.uid in not_made:
                continue
            before = self._held.entry(meta.uid)
            hard_state = HardState(
                meta.storage_id,
                # Terms that were used before the directory was lost stay used.
                term=before.hard_state.term if before else 0,
                revision=assignment.revision,
                replicas=assignment.replicas,
                lrs=tuple(Member(one.spu_id, one.storage_id) for one in assignment.lrs),
                min_in_sync=assignment.log.min_in_sync_replicas,
                incarnation=incarnation,
            )
            entry = JournalEntry(meta.uid, hard_state, assignment=assignment)
            replicas.append(self._held.make(meta, entry, RecoveredLog(), fresh=True))
        return replicas, outcome.present, failures

    async def _make_directories(self, metas: Sequence[PartitionMeta]) -> Creation:
        """Create directories in several threads, because each waits for the disk.

        Raises StorageFailedError.
        """
        create = self._held.directory.create_partitions
        made = await asyncio.gather(
            *(self._held.on_disk(create, part) for part in parts_of(metas)), return_exceptions=True
        )
        present: list[PartitionUid] = []
        failed: dict[PartitionUid, OSError] = {}
        for outcome in made:
            # Raised only after all threads have ended.
            if isinstance(outcome, BaseException):
                raise outcome
            present.extend(outcome.present)
            failed |= outcome.failed
        return Creation(tuple(present), failed)

    async def _adopt(self, replicas: list[Replica]) -> None:
        """Hold new replicas, and tell the SC of them."""
        async for replica in sliced(replicas):
            self._held.replicas[replica.meta.uid] = replica
            replica.begin(unclean_boot=False)
            self._held.changed(replica)

    async def _lead(self, replica: Replica, lead: Lead, incarnation: int) -> None:
        try:
            await replica.lead(lead, incarnation)
        except RunnelError as error:
            _log.warning("cannot lead", partition=replica.meta.name, error=error.message)
            self._held.changed(replica)
