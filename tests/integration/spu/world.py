"""A random world: three SPUs with real logs and connections, a producer that never rests, faults.

Everything random comes from the seed, but the scheduler of the machine has its say as well, so a
seed says what is done, not exactly when. What is wrong is collected in `World.problems`: a record
that was acknowledged is lost or another, a reader saw what was not committed or changed later, a
record appears twice, a request is never answered, SPUs do not heal or cannot be stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from schemas.control.messages import ReplicaRole
from schemas.errors import FencedError, InvalidRequestError, NotLeaderError, RunnelError
from schemas.ids import election_term
from schemas.objects.topic import Durability
from schemas.wire.batch import read_header, split_batches
from schemas.wire.record_requests import FetchFlags, FetchRequest, ProduceResponse
from spu.replica.replica import Replica
from spu.replication.events import RequestElection
from tests.integration.spu.cluster import Cluster
from tests.unit.spu.builders import (
    DEADLINE_S,
    UID,
    assign,
    batch_of,
    produce_request,
    settings_of,
    until,
)

SPUS: Final = 3
PRODUCER_ID: Final = 9
#: A pause between two faults, at most.
PAUSE_S: Final = 0.25
_OPERATIONS: Final = (
    *("crash",) * 2,
    "stop",
    *("start",) * 3,
    *("cut",) * 2,
    "elect",
    "fail",
    "retain",
    "leave",
)


@dataclass
class World:
    """`run` it once; then `problems` should be empty, and `operations` says what was done."""

    seed: int
    path: Path
    problems: list[str] = field(default_factory=list)
    operations: list[str] = field(default_factory=list)
    #: Sequence and payload of what was acknowledged, by offset.
    acknowledged: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    #: What a reader has seen, by offset.
    visible: dict[int, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        durability = self.random.choice([Durability.FSYNC, Durability.REPLICATED])
        self.minimum = self.random.choice([1, 2])
        log = settings_of(segment=self.random.choice([2_000, 1 << 14]), durability=durability)
        log = log.model_copy(update={"min_in_sync_replicas": self.minimum})
        self.cluster = Cluster(self.path, SPUS, log)
        self._ending = asyncio.Event()
        # The SC says one thing at a time, and not while an SPU starts or stops.
        self._turn = asyncio.Lock()

    async def run(self, operations: int) -> None:
        """Let the world have its faults, heal, and be looked at."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._failed)
        await self.cluster.begin()
        await self.cluster.whole()
        sc = loop.create_task(self._play_the_sc(), name="sc")
        producer = loop.create_task(self._produce(), name="producer")
        for _ in range(operations):
            # Nothing is waited for: what goes on by itself has some time for it.
            await asyncio.sleep(self.random.random() * PAUSE_S)
            await self._operate()
            self._look()
        await self._heal()
        self._ending.set()
        await self._within("the producer does not end", producer)
        await self._within("what was produced does not reach all", until(self._is_whole))
        sc.cancel()
        (outcome,) = await asyncio.gather(sc, return_exceptions=True)
        if not isinstance(outcome, asyncio.CancelledError):
            self.problems.append(f"the SC ended: {outcome!r}")
        self._look()
        self._check()
        await self._within("the SPUs do not stop", self.cluster.close())

    # What is done

    async def _operate(self) -> None:
        operation = self.random.choice(_OPERATIONS)
        spu = self.random.choice(sorted(self.cluster.spus))
        async with self._turn:
            try:
                if await self._within(operation, self._carry_out(operation, spu)):
                    self.operations.append(f"{operation} {spu}")
            except RunnelError as error:
                self.operations.append(f"{operation} {spu}: {error.message}")

    async def _carry_out(self, operation: str, spu: int) -> bool:
        """Whether it could be done now."""
        cluster = self.cluster
        fit = [member.spu_id for member in cluster.lrs if self._is_fit(member.spu_id)]
        match operation:
            case "crash" | "stop" if len(cluster.spus) > 1:
                await (self._crash(spu) if operation == "crash" else cluster.stop(spu))
            case "start" if len(cluster.spus) < SPUS:
                await cluster.start(min(set(range(SPUS)) - cluster.spus.keys()))
                await cluster.assign()
            case "cut":
                peers = cluster.spus[spu].host.peers
                for peer in sorted(peers.connected):
                    connection = peers.connection(peer)
                    if connection is not None and self.random.random() < 0.5:
                        connection.abort("the world cut it")
            case "elect" if fit:
                await cluster.elect(self.random.choice(fit))
            case "fail" if len(cluster.spus) == SPUS and any(one != spu for one in fit):
                cluster.replica(spu).damaged(OSError("the world broke its disk"))
            case "retain" if cluster.leader in cluster.spus:
                return self._retain(cluster.replica(cluster.leader))
            case "leave":
                await cluster.spus[spu].host.assign(assign(complete=True))
                await asyncio.sleep(self.random.random() * PAUSE_S / 5)
                await cluster.assign()
            case _:
                return False
        return True

    def _retain(self, leader: Replica) -> bool:
        log = leader._log
        if not leader.is_serving or len(log.segments) <= 3:
            return False
        committed = [one.base_offset for one in log.segments if one.base_offset <= leader.lac + 1]
        log.truncate_prefix(self.random.choice(committed))
        leader._runner.commit.sync_now()
        return True

    async def _crash(self, spu: int) -> None:
        """Let an SPU end as a killed process does: nothing that waits is written any more. Its
        threads are waited for, as two processes must not work on one directory."""
        host = self.cluster.spus.pop(spu).host
        await host.peers.close()
        if host._ticker is not None:
            host._ticker.cancel()
        for replica in host.replicas():
            runner = replica._runner
            replica._fail_waiters(NotLeaderError("the world killed it"))
            runner.halted = NotLeaderError("the world killed it")
            runner._work.clear()
            runner.commit.stop()
        writer = host._held._writer
        if writer is not None and writer._task is not None:
            writer._pending.clear()
            await writer._task
        for replica in host.replicas():
            await replica._runner.commit.quiet()
            while (working := replica._runner._working) is not None:
                await asyncio.wait([working])
        host._storage.shutdown()
        host.read_threads.shutdown()
        if host._held._journal is not None:
            host._held._journal.close()
        host._files.close()
        if host._held._directory is not None:
            host._held._directory.close()

    async def _heal(self) -> None:
        """Start all; the SC is still there to repair what it can."""
        async with self._turn:
            for spu in range(SPUS):
                if spu not in self.cluster.spus:
                    await self.cluster.start(spu)
            await self.cluster.assign()
        await self._within("the SPUs do not heal", until(self._has_healed))

    # The SC

    async def _play_the_sc(self) -> None:
        while True:
            async with self._turn:
                # What fails is decided again, on what is there then.
                with suppress(RunnelError):
                    await self._decide()
            await asyncio.sleep(0.01)

    async def _decide(self) -> None:
        """Elect where nobody leads, else grant what the leader asks for."""
        cluster, leader = self.cluster, self.cluster.leader
        fit = [member.spu_id for member in cluster.lrs if self._is_fit(member.spu_id)]
        if leader not in fit or self._declined(leader):
            if fit:
                gone = [member.spu_id for member in cluster.lrs if member.spu_id not in fit]
                may_drop = gone and len(cluster.lrs) - 1 >= self.minimum
                await cluster.elect(self.random.choice(fit), without=gone[0] if may_drop else None)
        elif leader in cluster.spus:
            others = [spu for spu in fit if spu != leader]
            if others and self._asks_for_another(leader):
                await cluster.elect(max(others, key=lambda spu: cluster.replica(spu).leo))
            else:
                await cluster.answer()

    def _asks_for_another(self, leader: int) -> bool:
        """Whether it has asked for another leader in the term that it was elected in."""
        return any(
            isinstance(request, RequestElection)
            and election_term(request.term) == self.cluster.term
            for _, request in self.cluster.spus[leader].link.asked
        )

    def _declined(self, spu: int) -> bool:
        """Whether it does not lead, and is not about to."""
        state = self.cluster.replica(spu)._runner.state
        idle = state.leading is None and state.becoming is None and state.unpersisted is None
        return idle and self.cluster.report(spu).role is not ReplicaRole.LEADER

    def _is_fit(self, spu: int) -> bool:
        """Whether a member of the set is online, fit, and of the storage that the set names."""
        if spu not in self.cluster.spus:
            return False
        report = self.cluster.report(spu)
        return report.fit and report.assigned and self.cluster.member(spu) in self.cluster.lrs

    # Clients

    async def _produce(self) -> None:
        """One record after the other, each sent again until it is acknowledged."""
        sequence = 0
        while not self._ending.is_set():
            payload = f"<{sequence}>".encode() + b"p" * self.random.randrange(20, 300)
            batch = batch_of(1, payload, producer_id=PRODUCER_ID, sequence=sequence)
            answer = await self._send(bytearray(batch))
            while not (isinstance(answer, ProduceResponse) or self._ending.is_set()):
                if isinstance(answer, FencedError | InvalidRequestError):
                    self.problems.append(f"record {sequence} is refused: {answer.message}")
                    return
                # A pause as clients have it.
                await asyncio.sleep(0.02)
                answer = await self._send(bytearray(batch))
            if not isinstance(answer, ProduceResponse):
                return
            offset = answer.base_offset
            if offset in self.acknowledged:
                self.problems.append(f"offset {offset} was acknowledged twice")
            self.acknowledged[offset] = sequence, payload
            sequence += 1
            if self.random.random() < 0.3:
                await asyncio.sleep(0.005)

    async def _send(self, batch: bytearray) -> ProduceResponse | RunnelError:
        answered: asyncio.Future[ProduceResponse | RunnelError] = (
            asyncio.get_running_loop().create_future()
        )
        if (spu := self.cluster.spus.get(self.cluster.leader)) is None:
            return NotLeaderError("the leader is away")
        request = produce_request(timeout_ms=1_500)
        try:
            spu.host.replica(UID).produce(request, memoryview(batch), answered.set_result)
            async with asyncio.timeout(DEADLINE_S):
                return await answered
        except RunnelError as error:
            return error
        except TimeoutError:
            self.problems.append("a request was never answered")
            return NotLeaderError("no answer came")

    def _look(self) -> None:
        """Read everything from every SPU, as a consumer that follows any replica."""
        for spu, opened in sorted(self.cluster.spus.items()):
            replica = opened.host.replica(UID)
            at, end = replica.log_start, replica.lac
            while at <= end:
                request = FetchRequest(UID, at, 1 << 20, 1, 0, 0, FetchFlags.FOLLOWER_OK)
                try:
                    found = replica.fetch(request, wait=True)
                except RunnelError:
                    break
                batches = split_batches(found.data)
                for header, batch in batches:
                    self._see(spu, header.base_offset, bytes(batch), found.response.lac)
                    at = header.next_offset
                if not batches:
                    break

    def _see(self, spu: int, offset: int, batch: bytes, lac: int) -> None:
        if offset > lac:
            self.problems.append(f"SPU {spu} showed offset {offset}, committed is {lac}")
        if self.visible.setdefault(offset, batch) != batch:
            self.problems.append(f"SPU {spu} shows another record at offset {offset} than before")

    # What must hold

    def _is_whole(self) -> bool:
        return self._has_healed() and self.cluster.are_alike()

    def _has_healed(self) -> bool:
        cluster = self.cluster
        return (
            len(cluster.spus) == SPUS
            and cluster.replica(cluster.leader).is_serving
            and all(self._is_fit(spu) for spu in cluster.spus)
            and len(self.acknowledged) > 10
        )

    def _check(self) -> None:
        if self.problems:
            # What comes of them says nothing new.
            return
        start = self.cluster.replica(self.cluster.leader).log_start
        for offset, (sequence, payload) in self.acknowledged.items():
            batch = self.visible.get(offset)
            if batch is None and offset >= start:
                self.problems.append(f"record {sequence} was acknowledged at {offset}, and is lost")
            elif batch is not None and payload not in batch:
                self.problems.append(f"another record than {sequence} stands at {offset}")
        places: dict[int, int] = {}
        for offset, batch in sorted(self.visible.items()):
            header = read_header(batch)
            if header.producer_id != PRODUCER_ID:
                continue
            if header.sequence in places:
                first = places[header.sequence]
                self.problems.append(f"record {header.sequence} stands at {first} and {offset}")
            places[header.sequence] = offset

    async def _within(self, what: str, work: Awaitable[Any]) -> Any:
        """Await ``work``, which hangs if it takes so long."""
        try:
            async with asyncio.timeout(DEADLINE_S):
                return await work
        except TimeoutError:
            self.problems.append(f"{what}: it hangs; {self._states()}")
            return None

    def _states(self) -> str:
        reports = {spu: self.cluster.report(spu) for spu in self.cluster.spus}
        return f"leader {self.cluster.leader}, set {self.cluster.lrs}, {reports}"

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.problems.append(f"{context.get('message')}: {context.get('exception')!r}")
