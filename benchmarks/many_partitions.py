"""One SPU with very many partitions: files, processor, memory, and how fast it restarts.

    python -m benchmarks.many_partitions [--partitions 10000] [--topics 1] [--files 1024]
        [--idle-s 20] [--megabytes 4] [--json]

The SC and the SPU are processes of their own; each partition has one replica and ``durability:
fsync``. The SPU may open at most ``--files`` files. Records are written and read with the Python
library. "served" means that the SPU has answered where every partition ends: it does so once it
leads the partition and has committed the first record of its leadership.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import random
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

import psutil

from benchmarks.own_daemons import SPU_ID, OwnDaemons, own_daemons
from runnel.admin.http import ScClient
from runnel.client import Cluster
from runnel.consume.consumer import Consumer
from runnel.local.plan import HOST
from runnel.net.address import Address
from runnel.net.connection import SpuConnection, open_connection
from schemas.errors import RunnelError
from schemas.ids import PartitionUid
from schemas.objects.partition import PartitionResolution
from schemas.wire.protocol import Api
from schemas.wire.record_requests import LATEST, ListOffsetsRequest

_POLL_S: Final = 0.5
_LIMIT_S: Final = 900.0
_IN_FLIGHT: Final = 200
#: A daemon counts as idle once it was no busier than this for this long: the checkpoints of logs
#: that became idle are written by then.
_SETTLE_S: Final = 5.0
_SETTLED: Final = 0.15
_VALUE: Final = 100

ROWS: Final = (
    ("create until served, s", "create_s", ",.2f"),
    ("  processor of SPU, s", "create_spu_s", ",.2f"),
    ("  processor of SC, s", "create_sc_s", ",.2f"),
    ("SPU, memory per partition, KiB", "spu_kib", ",.2f"),
    ("SC, memory per partition, KiB", "sc_kib", ",.2f"),
    ("SPU idle, % of a core", "spu_idle", ",.2f"),
    ("SC idle, % of a core", "sc_idle", ",.2f"),
    ("a record to each partition, s", "write_all_s", ",.2f"),
    ("records to a tenth, s", "write_some_s", ",.2f"),
    ("SPU start after kill -9, s", "kill_start_s", ",.2f"),
    ("  processor, s", "kill_start_cpu_s", ",.2f"),
    ("read all back, s", "read_s", ",.2f"),
    ("get partitions, s", "list_s", ",.2f"),
    ("SPU stop, s", "stop_s", ",.2f"),
    ("SPU start until served, s", "start_s", ",.2f"),
    ("  processor, s", "start_cpu_s", ",.2f"),
    ("read all back, s", "reread_s", ",.2f"),
    ("SC restart until online, s", "sc_restart_s", ",.2f"),
    ("  processor, s", "sc_restart_cpu_s", ",.2f"),
    ("SPU, memory at the end, KiB", "spu_end_kib", ",.2f"),
    ("SPU, most files open", "spu_files", ",d"),
    ("SC, most files open", "sc_files", ",d"),
    ("delete until gone, s", "delete_s", ",.2f"),
)


@dataclass(frozen=True)
class Plan:
    """The sizes of one run."""

    partitions: int = 10_000
    topics: int = 1
    files: int = 1_024
    idle_s: float = 20.0
    megabytes: float = 4.0

    @property
    def names(self) -> list[str]:
        return [f"many-{number}" for number in range(self.topics)]

    @property
    def each(self) -> int:
        return self.partitions // self.topics


async def until(what: str, done: Callable[[], Awaitable[bool]], daemons: OwnDaemons) -> float:
    """Seconds until ``done``. Raises RuntimeError if a daemon ended or it takes too long."""
    began = time.perf_counter()
    while not await done():
        daemons.spu.check()
        daemons.sc.check()
        if time.perf_counter() - began > _LIMIT_S:
            raise RuntimeError(f"{what}: not done after {_LIMIT_S:g} s")
        await asyncio.sleep(_POLL_S)
    return time.perf_counter() - began


class Spu:
    """The SPU, as its public port shows it."""

    def __init__(self, port: int) -> None:
        self._address = Address(HOST, port)

    async def listens(self) -> bool:
        try:
            await (await open_connection(self._address, 5.0)).close()
        except (RunnelError, OSError):
            return False
        return True

    async def serves(self, uids: list[PartitionUid]) -> bool:
        """Whether every partition is served; asks about as few as possible."""
        try:
            connection = await open_connection(self._address, 5.0)
        except (RunnelError, OSError):
            return False
        try:
            while uids:
                part = uids[-_IN_FLIGHT:]
                found = await asyncio.gather(
                    *(self._end(connection, uid) for uid in part), return_exceptions=True
                )
                for answer in found:
                    if isinstance(answer, BaseException) and not isinstance(answer, RunnelError):
                        raise answer
                    if isinstance(answer, BaseException):
                        return False
                del uids[-_IN_FLIGHT:]
        finally:
            await connection.close()
        return True

    async def _end(self, connection: SpuConnection, uid: PartitionUid) -> None:
        asked = ListOffsetsRequest(uid, LATEST).pack()
        await connection.request(Api.LIST_OFFSETS, asked, timeout_s=30.0)


class Bench:
    """All phases, in order; ``found`` collects their figures."""

    def __init__(self, plan: Plan, daemons: OwnDaemons, cluster: Cluster, sc: ScClient) -> None:
        self.found: dict[str, float] = {}
        self._plan = plan
        self._daemons = daemons
        self._cluster = cluster
        self._sc = sc
        self._spu = Spu(daemons.spu_port)
        self._uids: list[PartitionUid] = []
        self._records = 0

    async def run(self) -> None:
        spu, sc, plan = self._daemons.spu, self._daemons.sc, self._plan
        await self._cluster.create(self._daemons.manifest)
        spu.start()
        await self._cluster.wait("spu", f"spu-{SPU_ID}", "online", 30)
        await asyncio.sleep(1)
        rss = {"spu": spu.rss, "sc": sc.rss}
        await self._create()
        await self._idle()
        for name, daemon in (("spu", spu), ("sc", sc)):
            self.found[f"{name}_kib"] = (daemon.rss - rss[name]) / plan.partitions / 1024
        await self._write()
        # Before idle logs get their checkpoints.
        spu.end(signal.SIGKILL)
        await self._start("kill_start")
        self.found["read_s"] = await self._read()
        began = time.perf_counter()
        listed = await self._cluster.list("partitions")
        assert len(listed) == plan.partitions, len(listed)
        self.found["list_s"] = time.perf_counter() - began
        self.found["stop_s"] = spu.end(signal.SIGTERM)
        await self._start("start")
        self.found["reread_s"] = await self._read()
        await self._restart_sc()
        self.found["spu_end_kib"] = (spu.rss - rss["spu"]) / plan.partitions / 1024
        await self._delete()
        self.found["spu_files"], self.found["sc_files"] = spu.most_files, sc.most_files

    async def _create(self) -> None:
        plan, spu, sc = self._plan, self._daemons.spu, self._daemons.sc
        spu_cpu_s, sc_cpu_s = spu.cpu_s, sc.cpu_s
        began = time.perf_counter()
        for name in plan.names:
            spec = {"partitions": plan.each, "replicationFactor": 1}
            topic = {"kind": "Topic", "metadata": {"name": name}, "spec": spec}
            await self._cluster.create({"apiVersion": "runnel/v1", **topic})
        await until("creation", self._online, self._daemons)
        await until("creation", self._served, self._daemons)
        self.found["create_s"] = time.perf_counter() - began
        self.found["create_spu_s"] = spu.cpu_s - spu_cpu_s
        self.found["create_sc_s"] = sc.cpu_s - sc_cpu_s

    async def _idle(self) -> None:
        spu = self._daemons.spu

        async def settled() -> bool:
            cpu_s = spu.cpu_s
            await asyncio.sleep(_SETTLE_S)
            return spu.cpu_s - cpu_s < _SETTLED * _SETTLE_S

        # It takes ten seconds until logs count as idle.
        await asyncio.sleep(2 * _SETTLE_S)
        await until("idleness", settled, self._daemons)
        daemons = {"spu": spu, "sc": self._daemons.sc}
        before = {name: daemon.cpu_s for name, daemon in daemons.items()}
        began = time.perf_counter()
        await asyncio.sleep(self._plan.idle_s)
        took = time.perf_counter() - began
        for name, daemon in daemons.items():
            self.found[f"{name}_idle"] = (daemon.cpu_s - before[name]) / took * 100

    async def _write(self) -> None:
        plan = self._plan
        began = time.perf_counter()
        for name in plan.names:
            async with self._cluster.producer(name) as producer:
                for partition in range(plan.each):
                    producer.send(b"%0*d" % (_VALUE, partition), partition=partition)
        self._records = plan.each * plan.topics
        self.found["write_all_s"] = time.perf_counter() - began
        choose = random.Random(7)
        records = int(plan.megabytes * 1e6 / _VALUE / plan.topics)
        some = choose.sample(range(plan.each), max(1, plan.each // 10))
        began = time.perf_counter()
        for name in plan.names:
            async with self._cluster.producer(name) as producer:
                for number in range(records):
                    producer.send(b"%0*d" % (_VALUE, number), partition=choose.choice(some))
                    if number % 1_000 == 0:
                        await producer.drain()
            self._records += records
        self.found["write_some_s"] = time.perf_counter() - began

    async def _read(self) -> float:
        began = time.perf_counter()
        count = 0
        for name in self._plan.names:
            consumer: Consumer = self._cluster.consumer(name, start="earliest", stop="latest")
            async for batch in consumer.batches():
                count += batch.num_rows
        assert count == self._records, f"{count} records of {self._records} came back"
        return time.perf_counter() - began

    async def _start(self, name: str) -> None:
        spu, uids = self._daemons.spu, list(self._uids)

        async def served() -> bool:
            return await self._spu.serves(uids)

        began = time.perf_counter()
        spu.start()
        await until("start", served, self._daemons)
        self.found[f"{name}_s"] = time.perf_counter() - began
        self.found[f"{name}_cpu_s"] = spu.cpu_s
        await until("start", self._online, self._daemons)

    async def _restart_sc(self) -> None:
        sc = self._daemons.sc
        sc.end(signal.SIGTERM)
        began = time.perf_counter()
        sc.start()
        await until("restart of the SC", self._online, self._daemons)
        self.found["sc_restart_s"] = time.perf_counter() - began
        self.found["sc_restart_cpu_s"] = sc.cpu_s

    async def _delete(self) -> None:
        partitions = self._daemons.directory / "spu-0" / "partitions"

        async def gone() -> bool:
            return not any(partitions.iterdir())

        began = time.perf_counter()
        for name in self._plan.names:
            await self._cluster.delete("topic", name)
        await until("deletion", gone, self._daemons)
        self.found["delete_s"] = time.perf_counter() - began

    async def _online(self) -> bool:
        """Whether the SC says that all partitions and its SPU are online."""
        try:
            spus = (await self._sc.call("GET", "/v1/spus"))["items"]
            topics = (await self._sc.call("GET", "/v1/assignments"))["topics"]
        except RunnelError:
            return False
        partitions = [found for topic in topics for found in topic["partitions"]]
        online = [p for p in partitions if p["resolution"] == PartitionResolution.ONLINE.value]
        self._uids = [PartitionUid(found["uid"]) for found in partitions]
        there = all(spu["status"]["resolution"] == "online" for spu in spus)
        return there and len(online) == self._plan.partitions

    async def _served(self) -> bool:
        return await self._spu.serves(list(self._uids))


async def measure(plan: Plan) -> dict[str, float]:
    """All figures of one plan."""
    with own_daemons(plan.files) as daemons:
        sc = ScClient.parse(daemons.sc_address)

        async def healthy() -> bool:
            try:
                await sc.call("GET", "/health")
            except RunnelError:
                return False
            return True

        try:
            await until("start of the SC", healthy, daemons)
            async with await Cluster.connect(daemons.sc_address) as cluster:
                bench = Bench(plan, daemons, cluster, sc)
                await bench.run()
                return bench.found
        finally:
            await sc.close()


def report(plan: Plan, facts: dict[str, Any], found: dict[str, float]) -> str:
    """A table of the figures."""
    about = (
        f"{plan.partitions:,} partitions in {plan.topics:,} topics, {plan.files:,} files,"
        f" {plan.megabytes:g} MB"
    )
    lines = [
        about,
        f"{facts['cores']} cores, Python {facts['python']}, load {facts['load']}",
        "",
    ]
    for what, name, form in ROWS:
        lines.append(f"{what:<34}{found[name]:>12{form}}")
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--topics", type=int, default=1)
    parser.add_argument("--files", type=int, default=1_024, help="of the SPU")
    parser.add_argument("--idle-s", type=float, default=20.0)
    parser.add_argument("--megabytes", type=float, default=4.0)
    parser.add_argument("--json", action="store_true")
    options = vars(parser.parse_args())
    as_json = options.pop("json")
    plan = Plan(**options)
    load_before = psutil.getloadavg()[0]
    found = asyncio.run(measure(plan))
    facts: dict[str, Any] = {
        "cores": psutil.cpu_count(),
        "python": platform.python_version(),
        "load": f"{load_before:.1f} to {psutil.getloadavg()[0]:.1f}",
    }
    if as_json:
        print(json.dumps({"machine": facts, "plan": asdict(plan), "found": found}, indent=2))
    else:
        print(report(plan, facts, found))


if __name__ == "__main__":
    main()
