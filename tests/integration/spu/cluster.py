"""SPUs of one process with real logs and real connections, and an SC that a test plays."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from pathlib import Path

from schemas.control.messages import (
    Assignment,
    AssignPartitions,
    Lead,
    LeadPartitions,
    Peer,
    ReplicaReport,
)
from schemas.ids import Term, next_election
from schemas.objects.partition import LiveReplica
from schemas.objects.topic import LogSettings
from spu.replica.catch_up import CatchUpRate
from spu.replica.replica import Replica
from spu.replication.events import RequestLrsChange
from tests.unit.spu.builders import (
    DEADLINE_S,
    STAMP,
    TERM,
    UID,
    Spu,
    assignment_of,
    open_spu,
)


@dataclass
class Cluster:
    """SPUs with ids from 0 on, one partition on all of them. The test is the SC."""

    path: Path
    count: int
    log: LogSettings
    revision: int = 10
    term: Term = TERM
    leader: int = 0
    lrs: tuple[LiveReplica, ...] = ()
    unclean_term: Term | None = None
    truncate_before: int = 0
    spus: dict[int, Spu] = field(default_factory=dict)
    ports: dict[int, int] = field(default_factory=dict)
    catch_up: CatchUpRate | None = None

    async def start(self, spu: int) -> Spu:
        """Start an SPU, or start it again at the port it had."""
        opened = await open_spu(self.path / str(spu), spu_id=spu)
        self.spus[spu] = opened
        if self.catch_up is not None:
            held = opened.host._held
            assert held.context is not None
            held.context = replace(held.context, catch_up=self.catch_up)
        port = await opened.host.peers.listen("127.0.0.1", self.ports.get(spu, 0))
        self.ports[spu] = port
        await self._introduce()
        return opened

    async def stop(self, spu: int) -> None:
        await self.spus.pop(spu).host.close()

    async def begin(self) -> Replica:
        """Start all, give all a replica, and let SPU 0 lead with nobody else in the set."""
        for spu in range(self.count):
            await self.start(spu)
        await self.assign()
        self.lrs = (self.member(0),)
        await self.elect(0)
        return self.replica(0)

    async def close(self) -> None:
        for spu in list(self.spus):
            await self.stop(spu)

    def replica(self, spu: int) -> Replica:
        return self.spus[spu].host.replica(UID)

    def report(self, spu: int) -> ReplicaReport:
        return self.replica(spu).report()

    def member(self, spu: int) -> LiveReplica:
        return LiveReplica(spu_id=spu, storage_id=self.report(spu).storage_id)

    @property
    def assignment(self) -> Assignment:
        return assignment_of(
            replicas=tuple(range(self.count)),
            log=self.log,
            leader=self.leader,
            term=self.term,
            lrs=self.lrs,
            unclean_term=self.unclean_term,
            truncate_before=self.truncate_before,
            revision=self.revision,
        )

    async def assign(self) -> None:
        """Tell all of what the partition is now."""
        for spu in self.spus.values():
            message = AssignPartitions(assignments=(self.assignment,), stamp=STAMP)
            await spu.host.assign(message)

    async def truncate(self, before: int) -> None:
        """Tell all that are there that the log begins at an offset."""
        self.truncate_before = before
        self.revision += 1
        await self.assign()

    async def elect(self, spu: int, *, without: int | None = None, unclean: bool = False) -> None:
        """Make another SPU lead, at the next term."""
        self.leader, self.term = spu, next_election(self.term)
        self.revision += 1
        self.lrs = tuple(member for member in self.lrs if member.spu_id != without)
        self.unclean_term = self.term if unclean else self.unclean_term
        await self.assign()
        lead = Lead(
            uid=UID,
            term=self.term,
            lrs=self.lrs,
            revision=self.revision,
            unclean_term=self.unclean_term,
        )
        await self.spus[spu].host.lead(LeadPartitions(leads=(lead,), stamp=STAMP))

    async def whole(self) -> Replica:
        """Answer the leader's requests until all that run are fit, live and alike, and everything
        is committed; gives the leader."""
        async with asyncio.timeout(DEADLINE_S):
            while not self._is_whole():
                await self.answer()
                await asyncio.sleep(0.001)
        return self.replica(self.leader)

    def are_alike(self) -> bool:
        replicas = [spu.host.replica(UID) for spu in self.spus.values()]
        ends = {(replica.leo, replica.lac) for replica in replicas}
        return len(ends) == 1 and replicas[0].lac + 1 == replicas[0].leo

    def _is_whole(self) -> bool:
        reports = [self.report(spu) for spu in self.spus]
        return (
            all(report.fit for report in reports)
            and set(self.lrs) == {self.member(spu) for spu in self.spus}
            and self.replica(self.leader).is_serving
            and self.are_alike()
        )

    async def answer(self) -> None:
        """Grant what the leader asks for, if it asks about the partition as it is now."""
        for _, request in reversed(self.spus[self.leader].link.asked):
            if isinstance(request, RequestLrsChange) and request.revision == self.revision:
                self.lrs = tuple(
                    LiveReplica(spu_id=one.spu, storage_id=one.storage) for one in request.lrs
                )
                self.revision += 1
                await self.assign()
                return

    async def _introduce(self) -> None:
        peers = tuple(Peer(spu_id=i, host="127.0.0.1", port=p) for i, p in self.ports.items())
        for spu in self.spus.values():
            await spu.host.peers_found(peers)
