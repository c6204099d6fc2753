"""An SPU without disks or listeners: it does what the SC asks, over a real session."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from types import TracebackType
from typing import Self

from connection_manager.client import ControllerLink
from connection_manager.session import Session
from schemas.control.messages import (
    Assignment,
    AssignPartitions,
    Controllers,
    DeleteReplicas,
    Hello,
    LeadPartitions,
    Message,
    Peers,
    ReplicaReport,
    ReplicaRole,
    Report,
    Stamp,
    Tombstone,
    Welcome,
)
from schemas.errors import RunnelError
from schemas.ids import PartitionUid, StorageId, Term


class SimulatedSpu:
    """Holds replica reports in memory. Use as a context manager to connect."""

    def __init__(self, spu_id: int, address: str, *, instance: str | None = None) -> None:
        self.spu_id = spu_id
        self.instance = instance or uuid.uuid4().hex
        self.held_secret: str | None = None
        self.cluster_uid: str | None = None
        self.seen_revision = 0
        self.seen_stamp: Stamp | None = None
        self.replicas: dict[str, ReplicaReport] = {}
        self.assignments: dict[str, Assignment] = {}
        #: Whether it seals the logs that are to be sealed.
        self.seals_logs = True
        self.leads: list[tuple[str, int]] = []
        self.deleted: list[str] = []
        self.peers: list[Peers] = []
        #: The SCs that it has heard of, besides the one that it knows.
        self.heard: tuple[str, ...] = ()
        self.link = ControllerLink(lambda: [address, *self.heard], self, rng=lambda: 0.0)
        self.session: Session | None = None
        self._task: asyncio.Task[None] | None = None
        self._background: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self.link.run())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        tasks = [*self._background, *([self._task] if self._task else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._task = None

    def lose_disk(self) -> None:
        """Every replica comes back empty, under a new storage id."""
        self.replicas = {
            uid: ReplicaReport(uid=PartitionUid(uid), storage_id=StorageId(uuid.uuid4().hex))
            for uid in self.replicas
        }

    # -- LinkHandler ------------------------------------------------------------------------

    def hello(self) -> Hello:
        return Hello(
            software="simulated",
            spu_id=self.spu_id,
            instance=self.instance,
            cluster_uid=self.cluster_uid,
            kv_revision=self.seen_revision,
            stamp=self.seen_stamp,
            replicas=tuple(self.replicas.values()),
            seals=True,
        )

    def secret(self) -> str | None:
        return self.held_secret

    async def welcomed(self, welcome: Welcome, session: Session) -> None:
        self.cluster_uid = welcome.cluster_uid
        self.session = session

    async def handle(self, body: Message) -> None:
        match body:
            case AssignPartitions():
                self._see(body.stamp, *(a.revision for a in body.assignments))
                self._report(*self._assign(body))
            case LeadPartitions():
                changed = []
                self._see(body.stamp, *(lead.revision for lead in body.leads))
                for lead in body.leads:
                    self.leads.append((lead.uid, lead.term))
                    old = self.replicas[lead.uid]
                    new = old.model_copy(
                        update={
                            "role": ReplicaRole.LEADER,
                            "term": Term(lead.term + 1),
                            "lrs": lead.lrs,
                            "revision": max(old.revision, lead.revision),
                        }
                    )
                    changed.append(self._kept(new))
                self._report(*changed)
            case DeleteReplicas():
                for tombstone in body.tombstones:
                    self.replicas.pop(tombstone.uid, None)
                    self.deleted.append(tombstone.uid)
                self._report(deleted=body.tombstones)
            case Peers():
                self.peers.append(body)
            case Controllers():
                self.heard = body.addresses
            case _:
                raise AssertionError(f"unexpected {body}")

    def _see(self, stamp: Stamp, *revisions: int) -> None:
        newest = max(stamp.revision, *revisions, 0)
        before = (self.seen_stamp.incarnation if self.seen_stamp else 0, self.seen_revision)
        if (stamp.incarnation, newest) > before:
            self.seen_stamp, self.seen_revision = stamp, newest

    def _assign(self, body: AssignPartitions) -> list[ReplicaReport]:
        changed = []
        for assignment in body.assignments:
            self.assignments[assignment.uid] = assignment
            old = self.replicas.get(assignment.uid) or ReplicaReport(
                uid=assignment.uid, storage_id=StorageId(uuid.uuid4().hex)
            )
            incarnation, revision = body.stamp.incarnation, assignment.revision
            update: dict[str, object] = {"assigned": True}
            if (incarnation, revision) >= (old.incarnation, old.revision):
                update |= {"incarnation": incarnation, "revision": revision}
                if assignment.leader != self.spu_id and old.role is ReplicaRole.LEADER:
                    update["role"] = ReplicaRole.IDLE
            changed.append(self._kept(old.model_copy(update=update)))
        return changed

    def _kept(self, report: ReplicaReport) -> ReplicaReport:
        """Keep a report; that of a leader that is to seal its log, which is empty, as sealed."""
        told = self.seals_logs and self.assignments[report.uid].sealed
        sealed = told and report.role is ReplicaRole.LEADER
        new = report.model_copy(update={"sealed": report.leo}) if sealed else report
        self.replicas[report.uid] = new
        return new

    def _report(self, *replicas: ReplicaReport, deleted: tuple[Tombstone, ...] = ()) -> None:
        session = self.session
        if session is None:
            return

        async def send() -> None:
            with contextlib.suppress(RunnelError):
                await session.request(Report(replicas=replicas, deleted=deleted))

        task = asyncio.create_task(send())
        self._background.add(task)
        task.add_done_callback(self._background.discard)
