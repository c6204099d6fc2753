"""Measures what a scale of a stream costs the controller, and whether that grows with its history.

    python -m benchmarks.streams [--segments 10000] [--scales 1010] [--spus 10] [--json]

The real SC runs over a KV in memory with simulated SPUs, as in `benchmarks.reconcile`. A stream of
many segments is scaled again and again; each scale replaces a pair of neighbours by another one.
Operations, bytes and reads are those of the KV; processor time is that of this process, simulated
SPUs included. What counts is the last hundred scales beside the first hundred.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import uvloop

from benchmarks.reconcile_phases import CLUSTER, MeasuredController, SimulatedSpus
from sc.api.objects import ObjectService
from sc.api.requests import WriteOptions
from sc.api.streams import StreamService
from sc.controllers.streams.records import Request, RequestKind
from sc.kv import open_kv
from sc.kv.interface import KV, Compare, Op, Put, TxnResult
from sc.leadership import acquire
from sc.mirror import Mirror
from schemas.control.messages import AssignPartitions, Hello, Message, ReplicaRole, Report
from schemas.control.streams import RequestState
from schemas.daemon.collector import spare_what_is_there
from schemas.daemon.log_options import LogLevel
from schemas.daemon.logs import configure_logs
from schemas.objects.keys import ClusterKeys
from schemas.objects.metadata import Metadata
from schemas.objects.spu import Spu, SpuSpec
from schemas.objects.stream import Scaling, Stream, StreamMetadata, StreamSpec
from schemas.streams.epochs import parse_segment
from schemas.streams.key_space import place_of

NAME: Final = "default/bench"
BY: Final = WriteOptions("bench")
#: Scales at the beginning and at the end that are compared.
HUNDRED: Final = 100
#: Each measure of the last hundred may be at most so many times that of the first.
FLAT: Final = 1.2


class SealingSpus(SimulatedSpus):
    """SPUs that seal what they are told to seal, at once."""

    def hello(self, spu_id: int) -> Hello:
        return super().hello(spu_id).model_copy(update={"seals": True})

    def _handle(self, spu_id: int, message: Message) -> Report:
        report = super()._handle(spu_id, message)
        if not isinstance(message, AssignPartitions):
            return report
        sealed = {one.uid for one in message.assignments if one.sealed}
        replicas = tuple(
            one.model_copy(update={"sealed": one.leo})
            if one.uid in sealed and one.role is ReplicaRole.LEADER
            else one
            for one in report.replicas
        )
        self.replicas[spu_id].update((one.uid, one) for one in replicas)
        return report.model_copy(update={"replicas": replicas})


class Counting:
    """A KV that counts what it is asked to do."""

    def __init__(self, kv: KV) -> None:
        self._kv = kv
        self.transactions = self.operations = self.written = self.reads = 0

    async def txn(
        self, compares: Sequence[Compare], success: Sequence[Op], failure: Sequence[Op] = ()
    ) -> TxnResult:
        self.transactions += 1
        self.operations += len(success)
        self.written += sum(len(op.key) + len(op.value) for op in success if isinstance(op, Put))
        return await self._kv.txn(compares, success, failure)

    async def get(self, *args: Any, **options: Any) -> Any:
        self.reads += 1
        return await self._kv.get(*args, **options)

    async def range(self, *args: Any, **options: Any) -> Any:
        self.reads += 1
        return await self._kv.range(*args, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kv, name)


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one scale."""

    transactions: int
    operations: int
    written: int
    reads: int
    processor_ms: float
    wall_ms: float


async def measure(segments: int, scales: int, spus: int) -> list[Cost]:
    """The cost of each scale, in order."""
    kv = Counting(await open_kv("memory:"))
    keys = ClusterKeys(CLUSTER)
    mirror = Mirror(kv, CLUSTER)  # type: ignore[arg-type]
    controller = MeasuredController(mirror, await acquire(mirror.kv, keys), grace_ms=0)
    await mirror.load()
    # As the daemon does: otherwise most of what is measured is the collector, at random.
    spare_what_is_there()
    work = asyncio.create_task(controller.run_alone())
    objects, streams = ObjectService(controller), StreamService(controller)
    simulated = SealingSpus(spus)
    for spu_id in simulated.ids:
        spu = Spu(metadata=Metadata(name=f"spu-{spu_id}"), spec=SpuSpec(spu_id=spu_id))
        await objects.create(spu, BY)
    controller.connect(simulated)
    await _quiet(controller)
    await objects.create(
        Stream(
            metadata=StreamMetadata(name=NAME),
            spec=StreamSpec(scaling=Scaling(min_segments=segments)),
        ),
        BY,
    )
    await _quiet(controller)
    costs = []
    for number in range(scales):
        epoch = await streams.epoch(NAME)
        begin = 2 * number % (len(epoch.segments) - 1)
        pair = epoch.segments[begin : begin + 2]
        into = tuple((place_of(one.low), place_of(one.high)) for one in pair)
        before = (kv.transactions, kv.operations, kv.written, kv.reads)
        processor_s, wall_s = time.process_time(), time.perf_counter()
        request = await streams.submit(
            NAME,
            Request(
                id=f"scale-{number}",
                kind=RequestKind.SCALE,
                seal=tuple(parse_segment(one.id) for one in pair),
                into=into,
            ),
        )
        await _quiet(controller)
        processor_ms = (time.process_time() - processor_s) * 1000
        wall_ms = (time.perf_counter() - wall_s) * 1000
        after = (kv.transactions, kv.operations, kv.written, kv.reads)
        done = await streams.request(NAME, request.id)
        if done.state is not RequestState.DONE:
            raise RuntimeError(f"scale {number} is {done.state}: {done.reason}")
        one, two, three, four = (late - early for late, early in zip(after, before, strict=True))
        costs.append(Cost(one, two, three, four, processor_ms, wall_ms))
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    return costs


async def _quiet(controller: MeasuredController) -> None:
    """Return when nothing has been left to do for a few turns of the loop."""
    quiet = 0
    while quiet < 20:
        await asyncio.sleep(0)
        quiet = quiet + 1 if controller.queue.idle else 0


def summary(costs: Sequence[Cost]) -> dict[str, dict[str, float]]:
    """Means of the first and the last hundred, and their ratio, by measure."""
    count = min(HUNDRED, len(costs) // 2)
    found = {}
    for name in Cost.__dataclass_fields__:
        first = statistics.fmean(getattr(one, name) for one in costs[:count])
        last = statistics.fmean(getattr(one, name) for one in costs[-count:])
        found[name] = {"first": first, "last": last, "ratio": last / first}
    return found


def main() -> None:
    """Print a table, or JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--segments", type=int, default=10_000)
    parser.add_argument("--scales", type=int, default=1_010)
    parser.add_argument("--spus", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    configure_logs("sc", level=LogLevel.ERROR)
    costs = uvloop.run(measure(arguments.segments, arguments.scales, arguments.spus))
    found = summary(costs)
    if arguments.json:
        print(json.dumps(found))
        return
    print(
        f"{arguments.segments:,} segments, {arguments.scales:,} scales of one pair each,"
        f" {arguments.spus} simulated SPUs, {os.cpu_count()} cores"
    )
    print(f"{'of one scale':20}{'first 100':>12}{'last 100':>12}{'ratio':>8}")
    for name, row in found.items():
        late = "" if row["ratio"] <= FLAT else f"   above {FLAT}"
        print(
            f"{name.replace('_', ' '):20}{row['first']:12,.1f}{row['last']:12,.1f}"
            f"{row['ratio']:8.2f}{late}"
        )
    sys.stdout.flush()


if __name__ == "__main__":
    main()
