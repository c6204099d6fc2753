"""The phases of `benchmarks.reconcile`, for one backend at one size.

Real are the KV, the controller with all that it starts (reader, mirror, dispatchers, workers,
controllers, placement, updaters), the encoding of its messages to SPUs and the decoding of their
reports, and its log at level info (which is discarded). Simulated are the SPUs, which carry out
orders at once and have no disks, and their connections: no socket, no heartbeat. The SPUs share
the process and the event loop; their time is counted and shown.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

import psutil

from sc.controller import GRACE_MS, Controller
from sc.kv import open_kv
from sc.kv.interface import KV, ModRevisionIs, Put
from sc.store.codec import encode_object
from sc.store.local_store import Change, ObjectChanged
from sc.store.suspicions import SETTLE_MS
from schemas.causality import caused_by, current_cause, new_cause
from schemas.control.messages import (
    AssignPartitions,
    DeleteReplicas,
    Envelope,
    Hello,
    LeadPartitions,
    Message,
    ReplicaReport,
    ReplicaRole,
    Report,
    decode_envelope,
)
from schemas.control.session_end import SessionEnd
from schemas.daemon.collector import spare_what_is_there
from schemas.ids import StorageId, Term
from schemas.objects.keys import ClusterKeys
from schemas.objects.metadata import Metadata, Object
from schemas.objects.partition import Partition, PartitionResolution
from schemas.objects.spu import Spu, SpuResolution, SpuSpec
from schemas.objects.topic import PartitionAssignment, Topic, TopicSpec

CLUSTER: Final = "bench"
OFFLINE_TOPIC: Final = "offline"
OFFLINE_SPU: Final = 1
TICK_S: Final = 0.01
#: Nothing is left to do if nothing has happened for this many ticks.
QUIET_TICKS: Final = 10
#: As many transactions are in flight as the SC has workers.
IN_FLIGHT: Final = 64
FLOOR_TRANSACTIONS: Final = 5_000


@dataclass(frozen=True, slots=True)
class Plan:
    """One measurement. ``topic_size``: partitions of each topic; ``offline``: those of the SPU
    that goes away."""

    url: str
    spus: int
    partitions: int
    topic_size: int
    offline: int


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds are wall time. ``held``: the longest time, in ms, for which a phase kept the event
    loop from everything else, for example from heartbeats of SPUs.

    ``partition_ms``: from the first topic created to the last partition online, divided by the
    partitions; ``processor_ms``: this process's processor time for that, which says more on a busy
    machine; ``simulation``: the share of the time that the simulated SPUs took;
    ``transactions_ms``: the time of as many bare transactions of that size, per partition.
    ``restart_s`` ends at `Controller.ready`, ``return_s`` when all SPUs are back as well and
    nothing is left to do. ``resync_s`` is one periodic pass over everything with nothing to do,
    ``resync_cpu_s`` its processor time.
    ``memory_kib``: growth of resident memory per partition when they are online, including the KV
    if it is in this process; ``restart_memory_kib``: the same after the restart.
    """

    partitions: int
    online_s: float
    partition_ms: float
    processor_ms: float
    simulation: float
    writes_per_partition: float
    transactions_ms: float
    online_held_ms: float
    memory_kib: float
    resync_s: float
    resync_cpu_s: float
    resync_held_ms: float
    restart_s: float
    return_s: float
    restart_held_ms: float
    restart_memory_kib: float
    offline_s: float
    offline_ms: float
    offline_held_ms: float


class SimulatedSpus:
    """The replicas of all SPUs, and their answers. ``seconds``: time spent here."""

    def __init__(self, count: int) -> None:
        self.ids = range(1, count + 1)
        self.replicas: dict[int, dict[str, ReplicaReport]] = {spu_id: {} for spu_id in self.ids}
        self.seconds = 0.0

    def hello(self, spu_id: int) -> Hello:
        replicas = tuple(self.replicas[spu_id].values())
        return Hello(software="simulated", spu_id=spu_id, instance="i", replicas=replicas)

    def answer(self, spu_id: int, message: Message) -> str:
        """Carry out a message; returns the report as it would come over the session."""
        begin = time.perf_counter()
        envelope = Envelope(id=1, cause=current_cause(), body=self._handle(spu_id, message))
        text = envelope.encode()
        self.seconds += time.perf_counter() - begin
        return text

    def _handle(self, spu_id: int, message: Message) -> Report:
        held = self.replicas[spu_id]
        changed: list[ReplicaReport] = []
        match message:
            case AssignPartitions():
                for assignment in message.assignments:
                    old = held.get(assignment.uid) or ReplicaReport(
                        uid=assignment.uid, storage_id=StorageId(uuid.uuid4().hex)
                    )
                    update: dict[str, object] = {"revision": assignment.revision, "assigned": True}
                    changed.append(old.model_copy(update=update))
            case LeadPartitions():
                for lead in message.leads:
                    update = {
                        "role": ReplicaRole.LEADER,
                        "term": Term(lead.term + 1),
                        "lrs": lead.lrs,
                        "revision": lead.revision,
                    }
                    changed.append(held[lead.uid].model_copy(update=update))
            case DeleteReplicas():
                for tombstone in message.tombstones:
                    held.pop(tombstone.uid, None)
                return Report(deleted=message.tombstones)
            case _:
                raise ValueError(f"an SC does not send {message.type}")
        held.update((report.uid, report) for report in changed)
        return Report(replicas=tuple(changed))


class MeasuredController(Controller):
    """A controller whose SPUs are simulated."""

    spus: SimulatedSpus
    messages = 0

    def connect(self, spus: SimulatedSpus) -> None:
        """Begin the sessions of all SPUs, each in its first generation."""
        self.spus = spus
        for spu_id in spus.ids:
            with caused_by(new_cause(f"spu{spu_id}")):
                self.opened(1, spus.hello(spu_id))

    async def _send(self, spu_id: int, message: Message) -> None:
        self.messages += 1
        Envelope(id=1, cause=current_cause(), body=message).encode()
        await asyncio.sleep(0)
        text = self.spus.answer(spu_id, message)
        asyncio.get_running_loop().call_soon(self._heard, spu_id, text)

    def _heard(self, spu_id: int, text: str) -> None:
        envelope = decode_envelope(text)
        if isinstance(envelope.body, Report):
            with caused_by(envelope.cause):
                self.reported(spu_id, 1, envelope.body)


@dataclass
class Loop:
    """Ticks on the event loop; ``held_s`` is the longest delay of a tick."""

    held_s: float = 0.0
    last: float = field(default_factory=time.perf_counter)

    async def run(self) -> None:
        self.last = time.perf_counter()
        while True:
            await asyncio.sleep(TICK_S)
            now = time.perf_counter()
            self.held_s = max(self.held_s, now - self.last - TICK_S)
            self.last = now

    def restart(self) -> None:
        """Count from now on."""
        self.held_s, self.last = 0.0, time.perf_counter()

    @property
    def held_ms(self) -> float:
        return round(1000 * max(self.held_s, time.perf_counter() - self.last - TICK_S), 1)


@asynccontextmanager
async def _ticking() -> AsyncIterator[Loop]:
    loop = Loop()
    ticks = asyncio.create_task(loop.run())
    try:
        yield loop
    finally:
        ticks.cancel()


@asynccontextmanager
async def _running(controller: Controller) -> AsyncIterator[None]:
    """Run a controller. Its errors are raised here, at once."""
    owner = asyncio.current_task()
    work = asyncio.create_task(controller.run_alone())
    work.add_done_callback(lambda done: owner.cancel() if owner and not done.cancelled() else None)
    try:
        yield
    except asyncio.CancelledError:
        if work.done():
            work.result()
        raise
    finally:
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work


async def _change(
    controller: Controller, topic: str | None, resolution: PartitionResolution, count: int
) -> float:
    """The time, by `time.perf_counter`, at which the mirror had shown that many partitions (of a
    topic, or of any) change to a resolution. It begins to count when it is first awaited."""
    done: asyncio.Future[float] = asyncio.get_running_loop().create_future()
    left = count

    def heard(change: Change) -> None:
        nonlocal left
        if not isinstance(change, ObjectChanged) or not isinstance(change.new, Partition):
            return
        old, new = change.old, change.new
        before = old.status.resolution if isinstance(old, Partition) else None
        wanted = topic is None or new.spec.owner.name == topic
        if wanted and new.status.resolution is resolution and before is not resolution:
            left -= 1
            if left == 0 and not done.done():
                done.set_result(time.perf_counter())

    end = controller.feed.listen(heard)
    try:
        return await done
    finally:
        end()


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - conditions of the view, which has no events
        await asyncio.sleep(TICK_S)


async def _quiet(controller: MeasuredController) -> float:
    """Wait until nothing happens; returns when, by `time.perf_counter`, the last event came."""
    moved, before, quiet = time.perf_counter(), (-1, -1), 0
    while quiet < QUIET_TICKS:
        now = (controller.view.store.revision, controller.messages)
        if now == before and controller.queue.idle:
            quiet += 1
        else:
            moved, before, quiet = time.perf_counter(), now, 0
        await asyncio.sleep(TICK_S)
    return moved


def _resident() -> int:
    """Resident memory of this process in bytes, after a garbage collection."""
    gc.collect()
    return int(psutil.Process().memory_info().rss)


def _stored(obj: Object) -> Object:
    """An object as the API stores a new one."""
    return obj.with_metadata(
        uid=str(uuid.uuid4()), generation=1, creation_timestamp="2000-01-01T00:00:00Z"
    )


async def _create(kv: KV, obj: Object, *more: Put) -> None:
    key = ClusterKeys(CLUSTER).object(obj.PLURAL, obj.name)
    value = encode_object(_stored(obj), new_cause("bench"))
    result = await kv.txn([ModRevisionIs(key, 0)], [Put(key, value), *more])
    if not result.succeeded:
        raise ValueError(f"{key} is there already")


async def _register(kv: KV, spus: SimulatedSpus) -> None:
    for spu_id in spus.ids:
        name = f"spu-{spu_id}"
        spu = Spu(metadata=Metadata(name=name), spec=SpuSpec(spu_id=spu_id))
        id_key = ClusterKeys(CLUSTER).spu_id(spu_id)
        await _create(kv, spu, Put(id_key, name.encode()))


async def _connect_all(controller: MeasuredController, spus: SimulatedSpus) -> None:
    """Connect the SPUs once the SC admits all of them, and wait until their objects say so."""
    await _until(lambda: len(controller.connections.registered) == len(spus.ids))
    controller.connect(spus)
    store = controller.view.store
    await _until(
        lambda: all(s.status.resolution is SpuResolution.ONLINE for s in store.objects(Spu))
    )


def _sizes(plan: Plan) -> list[int]:
    full, rest = divmod(plan.partitions, plan.topic_size)
    return [plan.topic_size] * full + [rest] * bool(rest)


async def _transactions_ms(kv: KV, plan: Plan, writes: float) -> float:
    """Milliseconds per partition of as many transactions as the SC made, by as many callers:
    two compares and a put of a partition's size each."""
    partition = await kv.range(ClusterKeys(CLUSTER).kind("partitions"), limit=1)
    value = partition.items[0].value
    key, count = partition.items[0].key, min(FLOOR_TRANSACTIONS, plan.partitions * 3)
    revision = partition.items[0].mod_revision
    times = []
    for turn in range(3):

        async def caller(number: int, turn: int = turn) -> None:
            for i in range(number, count, IN_FLIGHT):
                target = f"/floor/{turn}/{i}"
                compares = [ModRevisionIs(key, revision), ModRevisionIs(target, 0)]
                await kv.txn(compares, [Put(target, value)])

        begin = time.perf_counter()
        await asyncio.gather(*(caller(number) for number in range(IN_FLIGHT)))
        times.append((time.perf_counter() - begin) / count)
    return 1000 * statistics.median(times) * writes


async def measure(plan: Plan) -> Measured:
    """Run all phases of one backend at one size; this process does nothing else."""
    found: dict[str, float] = {}
    spus = SimulatedSpus(plan.spus)
    kv = await open_kv(plan.url)
    try:
        async with _ticking() as loop:
            await _register(kv, spus)
            base = await _first_life(kv, plan, spus, loop, found)
            # The second life stands for another process: it must not reuse anything.
            gc.unfreeze()
            if not plan.url.startswith("memory:"):
                await kv.close()
            gc.collect()
            begin = time.perf_counter()
            loop.restart()
            if not plan.url.startswith("memory:"):
                kv = await open_kv(plan.url)
            await _second_life(kv, plan, spus, loop, found, base, begin)
            found["transactions_ms"] = await _transactions_ms(
                kv, plan, found["writes_per_partition"]
            )
    finally:
        await kv.close()
    return Measured(
        partitions=plan.partitions,
        **{name: round(value, 4) for name, value in found.items()},
    )


async def _first_life(
    kv: KV, plan: Plan, spus: SimulatedSpus, loop: Loop, found: dict[str, float]
) -> int:
    """Bring partitions online, and reconcile all again. Returns the resident memory before them."""
    controller = await MeasuredController.acquire(kv, CLUSTER)
    spare_what_is_there()
    async with _running(controller):
        await _connect_all(controller, spus)
        await _quiet(controller)
        base, revision, simulated = _resident(), controller.view.store.revision, spus.seconds
        loop.restart()
        online = asyncio.create_task(
            _change(controller, None, PartitionResolution.ONLINE, plan.partitions)
        )
        await asyncio.sleep(0)
        begin, cpu = time.perf_counter(), time.process_time()
        for number, size in enumerate(_sizes(plan)):
            spec = TopicSpec(partitions=size)
            await _create(kv, Topic(metadata=Metadata(name=f"topic-{number}"), spec=spec))
        seconds = await online - begin
        found["online_s"] = seconds
        found["partition_ms"] = 1000 * seconds / plan.partitions
        found["processor_ms"] = 1000 * (time.process_time() - cpu) / plan.partitions
        found["simulation"] = (spus.seconds - simulated) / seconds
        await _quiet(controller)
        found["online_held_ms"] = loop.held_ms
        writes = controller.view.store.revision - revision
        found["writes_per_partition"] = writes / plan.partitions
        found["memory_kib"] = (_resident() - base) / plan.partitions / 1024

        loop.restart()
        begin, cpu = time.perf_counter(), time.process_time()
        await controller.repair()
        moved = await _quiet(controller)
        found["resync_s"] = moved - begin
        found["resync_cpu_s"] = time.process_time() - cpu
        found["resync_held_ms"] = loop.held_ms
    return base


async def _second_life(
    kv: KV,
    plan: Plan,
    spus: SimulatedSpus,
    loop: Loop,
    found: dict[str, float],
    base: int,
    begin: float,
) -> None:
    """Restart, then take away an SPU that leads many partitions."""
    controller = await MeasuredController.acquire(kv, CLUSTER)
    spare_what_is_there()
    # No SPU could connect until now, so a held loop did not matter.
    loop.restart()
    async with _running(controller):
        back = asyncio.create_task(_connect_all(controller, spus))
        await controller.queue.worked_off.wait()
        found["restart_s"] = time.perf_counter() - begin
        await back
        found["return_s"] = await _quiet(controller) - begin
        # The end of the time that SPUs have to come back wakes what waited for it.
        await asyncio.sleep(GRACE_MS / 1000)
        await _quiet(controller)
        found["restart_held_ms"] = loop.held_ms
        found["restart_memory_kib"] = (_resident() - base) / plan.partitions / 1024

        online = asyncio.create_task(
            _change(controller, OFFLINE_TOPIC, PartitionResolution.ONLINE, plan.offline)
        )
        await asyncio.sleep(0)
        rows = tuple(
            PartitionAssignment(id=i, replicas=(OFFLINE_SPU,)) for i in range(plan.offline)
        )
        await _create(
            kv, Topic(metadata=Metadata(name=OFFLINE_TOPIC), spec=TopicSpec(assignment=rows))
        )
        await online
        await _quiet(controller)
        offline = asyncio.create_task(
            _change(controller, OFFLINE_TOPIC, PartitionResolution.OFFLINE, plan.offline)
        )
        await asyncio.sleep(0)
        gc.collect()
        # The SC takes the collection for a lag, and doubts itself for a moment.
        await asyncio.sleep(2 * SETTLE_MS / 1000)
        loop.restart()
        begin = time.perf_counter()
        controller.closed(OFFLINE_SPU, 1, "gone", SessionEnd.LOST, 0)
        found["offline_s"] = await offline - begin
        found["offline_ms"] = 1000 * found["offline_s"] / plan.offline
        found["offline_held_ms"] = loop.held_ms
        await _quiet(controller)
