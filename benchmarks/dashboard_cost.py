"""What an open dashboard costs a cluster of many partitions: throughput and latency.

    python -m benchmarks.dashboard_cost [--partitions 10000] [--rounds 2] [--json]

A dashboard follows the SC only while a browser is there. So the browser comes and goes every few
seconds while one producer writes, and then while latency is measured: neighbours in time differ
in nothing else, which runs of a minute each do not achieve. Each round has daemons and logs of its
own. A producer fills 250 MB of the disk each second; with TMPDIR=/dev/shm the disk has no part in
the figures, and a round must fit into the memory.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from typing import Final

import aiohttp

from benchmarks.own_daemons import own_daemons
from benchmarks.statistics_cost import FEW, FEWEST, RATE, Middle, Round

_FILES: Final = 4_096
_WARM_UP_S: Final = 5.0
#: A producer has opened its batches of all partitions after so long.
_BEGIN_S: Final = 10.0
_PAIRS: Final = 4
#: A browser has all rows after so long.
_SETTLE_S: Final = 1.0
_WINDOW_S: Final = 3.0
_LATENCY_PAIRS: Final = 6
_LATENCY_S: Final = 8.0
_COUNTER: Final = re.compile(r"^runnel_spu_appended_records_total ([\d.e+]+)$", re.MULTILINE)


class Visits(Round):
    """A round in which a browser comes and goes."""

    async def ratios(self) -> tuple[list[float], list[float]]:
        """Throughput, and 99th percentile of latency: with a browser, to that without, of pairs."""
        await self._create()
        written = "many" if self.partitions > FEWEST else FEW
        produce = ("produce", "--topic", written, "--record-size", "100")
        await replace(self, seconds=_WARM_UP_S)._bench(*produce)
        with self._dashboard("dashboard") as port:
            assert port is not None
            writing_s = _BEGIN_S + _PAIRS * 2 * (_SETTLE_S + _WINDOW_S + 0.5)
            writing = asyncio.create_task(replace(self, seconds=writing_s)._bench(*produce))
            await asyncio.sleep(_BEGIN_S)
            throughput = [await self._pair(port, self._rate) for _ in range(_PAIRS)]
            await writing
            latency = [await self._pair(port, self._p99_ms) for _ in range(_LATENCY_PAIRS)]
        return throughput, latency

    async def _pair(self, port: int, measure: object) -> float:
        found: dict[bool, float] = {}
        for there in random.sample((False, True), 2):
            async with self._browser(port, there=there):
                await asyncio.sleep(_SETTLE_S)
                found[there] = await measure()  # type: ignore[operator]
        return found[True] / found[False]

    @asynccontextmanager
    async def _browser(self, port: int, *, there: bool) -> AsyncIterator[None]:
        browser = asyncio.create_task(self._browse(port)) if there else None
        try:
            yield
        finally:
            if browser is not None:
                browser.cancel()
                await asyncio.gather(browser, return_exceptions=True)

    async def _rate(self) -> float:
        before, began = await self._appended(), time.perf_counter()
        await asyncio.sleep(_WINDOW_S)
        return (await self._appended() - before) / (time.perf_counter() - began)

    async def _appended(self) -> float:
        port = self.daemons.plan.spu_ports(0)["http"]
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}/metrics") as answer,
        ):
            found = _COUNTER.search(await answer.text())
        assert found is not None
        return float(found[1])

    async def _p99_ms(self) -> float:
        run = replace(self, seconds=_LATENCY_S)
        delivered = await run._bench("e2e", "--topic", FEW, "--rate", str(RATE))
        return float(delivered["latency_ms"]["p99"])


async def _main(arguments: argparse.Namespace) -> None:
    throughput: list[float] = []
    latency: list[float] = []
    for number in range(1, arguments.rounds + 1):
        with own_daemons(_FILES) as daemons:
            found = await Visits(daemons, arguments.partitions, 0.0).ratios()
        print(f"round {number} of {arguments.rounds}: {found}", file=sys.stderr)
        throughput += found[0]
        latency += found[1]
    result = {"throughput": Middle.of(throughput), "p99": Middle.of(latency)}
    if arguments.json:
        print(json.dumps({name: asdict(one) for name, one in result.items()}, indent=2))
        return
    print(f"{arguments.partitions:,} partitions, with a browser to without")
    print(f"  throughput  {result['throughput']} of {len(throughput)} pairs")
    print(f"  p99         {result['p99']} of {len(latency)} pairs")


def main() -> None:
    """Measure, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    asyncio.run(_main(parser.parse_args()))


if __name__ == "__main__":
    main()
