"""An SPU without disks or listeners: it does what the SC asks, over a real session."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from types import TracebackType
from typing import Self

from connection_manager.client import ControllerLink
from connection_manager.session import Session
from schemas.errors import RunnelError
from schemas.ids import PartitionUid, StorageId, Term
from schemas.messages import (
    AssignPartitions,
    DeleteReplicas,
    Hello,
    LeadPartitions,
    Message,
    ReplicaReport,
    ReplicaRole,
    Report,
    Tombstone,
    Welcome,
)


class SimulatedSpu:
    """Holds replica reports in memory. Use as a context manager to connect."""

    def __init__(self, spu_id: int, address: str, *, instance: str | None = None) -> None:
        self.spu_id = spu_id
        self.instance = instance or uuid.uuid4().hex
        self.cluster_uid: str | None = None
        self.replicas: dict[str, ReplicaReport] = {}
        self.leads: list[tuple[str, int]] = []
        self.deleted: list[str] = []
        self.link = ControllerLink(address, self, rng=lambda: 0.0)
        self._session: Session | None = None
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
            kv_revision=max((r.revision for r in self.replicas.values()), default=0),
            replicas=tuple(self.replicas.values()),
        )

    async def welcomed(self, welcome: Welcome, session: Session) -> None:
        self.cluster_uid = welcome.cluster_uid
        self._session = session

    async def handle(self, body: Message) -> None:
        match body:
            case AssignPartitions():
                self._report(*self._assign(body))
            case LeadPartitions():
                changed = []
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
                    self.replicas[lead.uid] = new
                    changed.append(new)
                self._report(*changed)
            case DeleteReplicas():
                for tombstone in body.tombstones:
                    self.replicas.pop(tombstone.uid, None)
                    self.deleted.append(tombstone.uid)
                self._report(deleted=body.tombstones)
            case _:
                raise AssertionError(f"unexpected {body}")

    def _assign(self, body: AssignPartitions) -> list[ReplicaReport]:
        changed = []
        for assignment in body.assignments:
            old = self.replicas.get(assignment.uid) or ReplicaReport(
                uid=assignment.uid, storage_id=StorageId(uuid.uuid4().hex)
            )
            new = old.model_copy(
                update={"revision": max(old.revision, assignment.revision), "assigned": True}
            )
            self.replicas[assignment.uid] = new
            changed.append(new)
        return changed

    def _report(self, *replicas: ReplicaReport, deleted: tuple[Tombstone, ...] = ()) -> None:
        session = self._session
        if session is None:
            return

        async def send() -> None:
            with contextlib.suppress(RunnelError):
                await session.request(Report(replicas=replicas, deleted=deleted))

        task = asyncio.create_task(send())
        self._background.add(task)
        task.add_done_callback(self._background.discard)
