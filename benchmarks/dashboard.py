"""The dashboard in a browser, of a cluster with 10,000 partitions that change.

    python -m benchmarks.dashboard [--partitions 10000] [--changes 1000] [--seconds 30]
        [--minutes 10] [--chromium PROGRAM] [--json]

An SC, an SPU and a dashboard are processes of their own; one topic has all partitions, and a record
is written to ``--changes`` of them each second, so that as many rows of the topic's screen change.
Debian's Chromium without a window shows each screen, on the same machine. For each screen:

- paint: from the start of the navigation until the screen shows the cluster, in ms;
- frames: the 95th percentile of the time between two frames in ms over ``--seconds``, and the share
  of frames that took at most 50 ms;
- values: how many rows that came changed per second, and how many records were acknowledged per
  second meanwhile: a busy machine writes fewer than ``--changes``.

Then the topic's screen stays open for ``--minutes``: its heap in MiB after a collection, at the end
of each half minute, and the elements of the page.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from playwright.async_api import Browser, Page, async_playwright

from benchmarks.many_partitions import until
from benchmarks.own_daemons import OwnDaemons, own_daemons
from runnel.client import Cluster
from runnel.manifests import Topic
from schemas.errors import RunnelError

TOPIC: Final = "many"
SLOW_MS: Final = 50.0
_FILES: Final = 4_096
_WAIT_MS: Final = 120_000
_SETTLE_S: Final = 3.0
_ARGUMENTS: Final = (
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"),
    *("--disable-component-update", "--disable-sync", "--enable-precise-memory-info"),
)
#: What a screen shows once it shows the cluster.
_SCREENS: Final = {
    "/": "document.querySelector('.tile')",
    "/placement": "document.querySelector('.placement-space')?.offsetHeight > 1000",
    f"/topics/{TOPIC}": "document.querySelectorAll('.table tbody tr').length > 20",
}
_FRAMES: Final = """(ms) => new Promise((done) => {
  const found = [];
  const began = performance.now();
  let before = began;
  const frame = (now) => {
    found.push(now - before);
    before = now;
    if (now - began < ms) requestAnimationFrame(frame);
    else done(found.slice(1));
  };
  requestAnimationFrame(frame);
})"""
_COUNT: Final = """async () => {
  const live = await import("/static/js/live.js");
  window.changedRows = 0;
  live.onMessage((message) => {
    for (const table of Object.values(message.tables)) {
      window.changedRows += Object.keys(table.rows).length;
    }
  });
}"""


@dataclass
class Screen:
    """What was measured of one screen."""

    path: str
    paint_ms: float
    frame_p95_ms: float
    in_time: float
    rows_per_s: float
    written_per_s: float


@dataclass
class Figures:
    """What was measured: screens, MiB every half minute, elements of the page at the end."""

    screens: list[Screen] = field(default_factory=list)
    heap_mib: list[float] = field(default_factory=list)
    elements: int = 0


async def _create(daemons: OwnDaemons, partitions: int) -> None:
    async def registered() -> bool:
        try:
            async with await Cluster.connect(daemons.sc_address) as cluster:
                await cluster.apply(daemons.manifest)
        except RunnelError:
            return False
        return True

    await until("start of the SC", registered, daemons)
    daemons.spu.start()
    async with await Cluster.connect(daemons.sc_address) as cluster:
        await cluster.apply(Topic(TOPIC, partitions=partitions))
        await cluster.wait("topics", TOPIC, "provisioned", timeout=_WAIT_MS / 1000)


@dataclass
class Written:
    """How many records were acknowledged until now."""

    records: int = 0


async def _change(sc_address: str, partitions: int, per_second: int, written: Written) -> None:
    """Write a record to so many partitions each second, in turn, for ever."""
    async with await Cluster.connect(sc_address) as cluster, cluster.producer(TOPIC) as producer:
        at, number = time.monotonic(), 0
        while True:
            for _ in range(per_second):
                producer.send(b"value", partition=number % partitions)
                number += 1
            await producer.flush()
            written.records = number
            at += 1.0
            await asyncio.sleep(max(0.0, at - time.monotonic()))


@contextmanager
def _dashboard(sc_address: str) -> Iterator[str]:
    options = ("--sc", sc_address, "--port", "0", "--log-format", "json")
    command = [sys.executable, "-P", "-m", "dashboard", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        try:
            url: str = json.loads(process.stderr.readline())["url"]
            yield url
        finally:
            process.terminate()


async def _measure(
    browser: Browser, url: str, path: str, seconds: float, written: Written
) -> Screen:
    context = await browser.new_context(base_url=url, viewport={"width": 1440, "height": 900})
    try:
        page = await context.new_page()
        paint = await _open(page, path)
        await page.evaluate(_COUNT)
        await asyncio.sleep(_SETTLE_S)
        rows_before, written_before = await page.evaluate("window.changedRows"), written.records
        frames: list[float] = await page.evaluate(_FRAMES, seconds * 1000)
        rows = await page.evaluate("window.changedRows") - rows_before
        records = written.records - written_before
    finally:
        await context.close()
    p95 = statistics.quantiles(frames, n=20)[-1]
    in_time = sum(one <= SLOW_MS for one in frames) / len(frames)
    return Screen(path, paint, p95, in_time, rows / seconds, records / seconds)


async def _open(page: Page, path: str) -> float:
    """Show a screen. Gives the milliseconds until it shows the cluster."""
    await page.goto(path, wait_until="commit")
    shown = await page.wait_for_function(
        f"() => ({_SCREENS[path]}) ? performance.now() : null", timeout=_WAIT_MS
    )
    return float(await shown.json_value())


async def _watch_heap(browser: Browser, url: str, minutes: int, figures: Figures) -> None:
    context = await browser.new_context(base_url=url, viewport={"width": 1440, "height": 900})
    page = await context.new_page()
    await _open(page, f"/topics/{TOPIC}")
    session = await context.new_cdp_session(page)
    for half in range(2 * minutes):
        await asyncio.sleep(30.0)
        # What only weak references hold goes with the second collection.
        for _ in range(2):
            await session.send("HeapProfiler.collectGarbage")
        used: dict[str, Any] = await session.send("Runtime.getHeapUsage")
        figures.heap_mib.append(used["usedSize"] / 2**20)
        print(f"after {30 * (half + 1)} s: {figures.heap_mib[-1]:.1f} MiB", file=sys.stderr)
    figures.elements = await page.evaluate("document.querySelectorAll('*').length")
    await context.close()


async def _run(arguments: argparse.Namespace) -> Figures:
    figures, written = Figures(), Written()
    with own_daemons(_FILES) as daemons:
        await _create(daemons, arguments.partitions)
        changing = asyncio.create_task(
            _change(daemons.sc_address, arguments.partitions, arguments.changes, written)
        )
        try:
            async with async_playwright() as playwright:
                browser = await playwright.chromium.launch(
                    executable_path=arguments.chromium, args=[*_ARGUMENTS]
                )
                with _dashboard(daemons.sc_address) as url:
                    for path in _SCREENS:
                        screen = await _measure(browser, url, path, arguments.seconds, written)
                        print(screen, file=sys.stderr)
                        figures.screens.append(screen)
                    await _watch_heap(browser, url, arguments.minutes, figures)
                await browser.close()
                if changing.done():
                    changing.result()
        finally:
            changing.cancel()
            await asyncio.gather(changing, return_exceptions=True)
    return figures


def _print(figures: Figures) -> None:
    print(
        f"{'screen':14}{'paint, ms':>12}{'frame p95, ms':>16}{'≤ 50 ms':>10}"
        f"{'rows/s':>10}{'written/s':>12}"
    )
    for one in figures.screens:
        print(
            f"{one.path:14}{one.paint_ms:12,.0f}{one.frame_p95_ms:16.1f}"
            f"{one.in_time:10.1%}{one.rows_per_s:10,.0f}{one.written_per_s:12,.0f}"
        )
    heap = ", ".join(f"{one:.1f}" for one in figures.heap_mib)
    print(f"heap every 30 s, MiB: {heap}; {figures.elements:,} elements")


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--changes", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--minutes", type=int, default=10)
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    figures = asyncio.run(_run(arguments))
    if arguments.json:
        print(json.dumps(asdict(figures), indent=2))
    else:
        _print(figures)


if __name__ == "__main__":
    main()
