"""What statistics and an open dashboard cost: throughput, latency and idle processor time.

    python -m benchmarks.statistics_cost [--partitions 3] [--pairs 7] [--seconds 5] [--json]

Each round has an SC and an SPU of its own, and begins with writing to empty logs, which is not
measured. In it the SC runs once without statistics (it selects the subprotocol before them, as an
older SC does, and so the SPU tells none), once with them, and once with them and a dashboard to
which a browser is connected that shows all tables. The order is drawn anew each round, and the
ratios are of one round, so that what drifts on the machine touches all alike. Behind each median
is the range of the middle half of the rounds.
Records are of 100 B, so that the processor and not the disk is what they wait for; with
TMPDIR=/dev/shm the disk has no part in it at all.

With more than 3 partitions, the others are in a topic of their own: records are written to those,
and soon after that latency is measured on 3.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Final

import aiohttp

from benchmarks.many_partitions import until
from benchmarks.own_daemons import OwnDaemons, own_daemons
from runnel.admin.http import ScClient
from runnel.client import Cluster
from runnel.manifests import Topic
from schemas.errors import RunnelError
from schemas.objects.partition import PartitionResolution

MODES: Final = ("without", "with", "dashboard")
FEW: Final = "few"
MANY: Final = "many"
FEWEST: Final = 3
RATE: Final = 1_000
_SETTLE_S: Final = 3.0
_FILES: Final = 4_096
#: As an SC before statistics: it selects the subprotocol before theirs.
_WITHOUT: Final = """
import runpy, sys
import connection_manager.manager as manager
from schemas.control.messages import OBSTACLES_PROTOCOL, PROTOCOLS
manager.PROTOCOLS = PROTOCOLS[PROTOCOLS.index(OBSTACLES_PROTOCOL):]
sys.argv[0] = "sc"
runpy.run_module("sc", run_name="__main__")
"""


@dataclass
class Figures:
    """What one run found: records per second, processor seconds of the daemons per million of them,
    milliseconds, processor seconds of the daemons per second."""

    records_per_s: float = 0.0
    cpu_per_million: float = 0.0
    p99_ms: float = 0.0
    idle_cpu: float = 0.0


@dataclass
class Round:
    """One pair of daemons."""

    daemons: OwnDaemons
    partitions: int
    seconds: float

    async def run(self) -> dict[str, Figures]:
        """The figures by mode."""
        sc = self.daemons.sc
        commands = dict.fromkeys(MODES, sc.command)
        commands["without"] = [*sc.command[:2], "-c", _WITHOUT, *sc.command[4:]]
        await self._create()
        # Whoever comes first writes faster, up to 1.4 times: the logs are still empty.
        await self._bench("produce", "--topic", self._written, "--record-size", "100")
        found = {}
        for mode in random.sample(MODES, len(MODES)):
            sc.end(signal.SIGTERM)
            sc.command = commands[mode]
            sc.start()
            await until("restart of the SC", self._online, self.daemons)
            with self._dashboard(mode) as port:
                found[mode] = await self._measure(port)
        return found

    async def _create(self) -> None:
        async def healthy() -> bool:
            try:
                async with await Cluster.connect(self.daemons.sc_address) as cluster:
                    await cluster.apply(self.daemons.manifest)
            except RunnelError:
                return False
            return True

        await until("start of the SC", healthy, self.daemons)
        self.daemons.spu.start()
        async with await Cluster.connect(self.daemons.sc_address) as cluster:
            await cluster.apply(Topic(FEW, partitions=FEWEST))
            if self.partitions > FEWEST:
                await cluster.apply(Topic(MANY, partitions=self.partitions - FEWEST))
        await until("creation", self._online, self.daemons)

    async def _online(self) -> bool:
        sc = ScClient.parse(self.daemons.sc_address)
        try:
            spus = (await sc.call("GET", "/v1/spus"))["items"]
            topics = (await sc.call("GET", "/v1/assignments"))["topics"]
        except RunnelError:
            return False
        finally:
            await sc.close()
        found = [part for topic in topics for part in topic["partitions"]]
        online = [p for p in found if p["resolution"] == PartitionResolution.ONLINE.value]
        there = all(spu["status"]["resolution"] == "online" for spu in spus)
        return there and len(online) == self.partitions

    @contextmanager
    def _dashboard(self, mode: str) -> Iterator[int | None]:
        if mode != "dashboard":
            yield None
            return
        options = ("--sc", self.daemons.sc_address, "--port", "0", "--log-format", "json")
        with subprocess.Popen(
            [sys.executable, "-P", "-m", "dashboard", *options], stderr=subprocess.PIPE
        ) as process:
            assert process.stderr is not None
            try:
                line = json.loads(process.stderr.readline())
                yield int(line["url"].rpartition(":")[2])
            finally:
                process.terminate()

    async def _measure(self, port: int | None) -> Figures:
        browser = None if port is None else asyncio.create_task(self._browse(port))
        try:
            await asyncio.sleep(_SETTLE_S)
            figures = Figures()
            before, began = self._cpu_s(), time.perf_counter()
            await asyncio.sleep(self.seconds)
            figures.idle_cpu = (self._cpu_s() - before) / (time.perf_counter() - began)
            before = self._cpu_s()
            produced = await self._bench(
                "produce", "--topic", self._written, "--record-size", "100"
            )
            figures.records_per_s = produced["records_per_s"]
            count = produced["records_per_s"] * self.seconds
            figures.cpu_per_million = (self._cpu_s() - before) / count * 1e6
            # The SPU still has numbers of partitions to tell.
            delivered = await self._bench("e2e", "--topic", FEW, "--rate", str(RATE))
            figures.p99_ms = delivered["latency_ms"]["p99"]
            return figures
        finally:
            if browser is not None:
                browser.cancel()
                await asyncio.gather(browser, return_exceptions=True)

    @property
    def _written(self) -> str:
        """The topic whose throughput is measured."""
        return MANY if self.partitions > FEWEST else FEW

    def _cpu_s(self) -> float:
        return self.daemons.sc.cpu_s + self.daemons.spu.cpu_s

    async def _browse(self, port: int) -> None:
        """Take all tables, as a browser does."""
        tables = ["health", "problems", "spus", "topics", "partitions", f"topic:{FEW}"]
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(f"ws://127.0.0.1:{port}/live", max_msg_size=0) as socket,
        ):
            await socket.send_json({"tables": tables})
            async for _ in socket:
                pass

    async def _bench(self, *arguments: str) -> Any:
        command = [sys.executable, "-P", "-m", "runnel.cli.main", "bench", *arguments]
        command += ["--seconds", str(self.seconds), "--sc", self.daemons.sc_address, "--json"]
        process = await asyncio.create_subprocess_exec(
            *command, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        out, error = await process.communicate()
        if process.returncode:
            raise RuntimeError(error.decode())
        return json.loads(out)


@dataclass(frozen=True)
class Middle:
    """A median, and the quartiles around it."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: list[float]) -> Middle:
        """Of at least two values."""
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, low, high)

    def __str__(self) -> str:
        return f"{self.median:.3f} ({self.low:.3f} to {self.high:.3f})"


def ratios(found: dict[str, list[Figures]], mode: str) -> dict[str, Middle]:
    """Ratios to the same round without statistics, and the idle times."""
    pairs = list(zip(found["without"], found[mode], strict=True))
    return {
        "throughput": Middle.of([b.records_per_s / a.records_per_s for a, b in pairs]),
        "cpu_per_record": Middle.of([b.cpu_per_million / a.cpu_per_million for a, b in pairs]),
        "p99": Middle.of([b.p99_ms / a.p99_ms for a, b in pairs]),
        "idle_cpu_without": Middle.of([a.idle_cpu for a, _ in pairs]),
        "idle_cpu": Middle.of([b.idle_cpu for _, b in pairs]),
    }


async def _main(arguments: argparse.Namespace) -> None:
    pairs: int = arguments.pairs
    if pairs < 2:
        raise SystemExit("--pairs: at least 2")
    found: dict[str, list[Figures]] = {mode: [] for mode in MODES}
    for number in range(1, pairs + 1):
        with own_daemons(_FILES) as daemons:
            figures = await Round(daemons, arguments.partitions, arguments.seconds).run()
        for mode, one in figures.items():
            found[mode].append(one)
            print(f"round {number} of {pairs}, {mode}: {one}", file=sys.stderr)
    result = {mode: ratios(found, mode) for mode in MODES[1:]}
    if arguments.json:
        told = {
            mode: {name: asdict(one) for name, one in middles.items()}
            for mode, middles in result.items()
        }
        print(json.dumps(told, indent=2))
        return
    print(f"{arguments.partitions:,} partitions, medians of {arguments.pairs} rounds")
    for mode, middles in result.items():
        print(mode)
        for name, middle in middles.items():
            print(f"  {name:17} {middle}")


def main() -> None:
    """Measure, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=FEWEST)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--json", action="store_true")
    asyncio.run(_main(parser.parse_args()))


if __name__ == "__main__":
    main()
