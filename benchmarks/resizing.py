"""Measures what a producer gets through while a cluster is restarted, grows and shrinks.

    python -m benchmarks.resizing [--pause 10] [--rate RECORDS] [--json]

A local cluster of three SPUs, and a topic of six partitions with three replicas. A producer in a
process of its own sends records of 100 B as fast as they are acknowledged, or ``--rate`` a second:
where it shares the cores with the SPUs, the fastest producer also shows what it loses to the
processes that start. Meanwhile the cluster is restarted one process after the other, grows to five
SPUs and is rebalanced, and shrinks to three again; between these, nothing happens. What counts, for
each: how long it takes, records acknowledged per second beside those in the pauses before and after
it, the same for its slowest second, and the longest time without an acknowledgement. Tables are
counted in the order in which they were sent, so that one partition that stands still stops the
count.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import pyarrow as pa

import runnel
from runnel.local.processes import free_base_port
from schemas.errors import NotFoundError

TOPIC: Final = "bench"
PARTITIONS: Final = 6
FEW, MANY = 3, 5
KEYS: Final = 1_000
VALUE: Final = b"x" * 84
ROWS: Final = 500
#: Tables on their way.
UNACKNOWLEDGED: Final = 128
SAMPLE_S: Final = 0.01
WINDOW_S: Final = 1.0
_WAIT_S: Final = 180.0


def write(address: str, acknowledged: Any, ended: Any, rate: int | None) -> None:
    """Send tables of `ROWS` records, `UNACKNOWLEDGED` of them on their way, and at most ``rate``
    records a second."""
    table = pa.table({"key": [b"%016d" % (n % KEYS) for n in range(ROWS)], "value": [VALUE] * ROWS})
    with runnel.connect(address) as cluster, cluster.producer(TOPIC, linger_ms=2) as producer:
        waiting: deque[runnel.TableDelivery] = deque()
        due = time.perf_counter()
        while not ended.is_set():
            waiting.append(producer.send_table(table))
            while len(waiting) == UNACKNOWLEDGED or (waiting and waiting[0].done()):
                waiting.popleft().result(_WAIT_S)
                acknowledged.value += ROWS
            if rate is not None:
                due += ROWS / rate
                time.sleep(max(0.0, due - time.perf_counter()))


@dataclass
class Counted:
    """How many records had been acknowledged at which times, in seconds of `time.perf_counter`."""

    times: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)

    def add(self, time_s: float, count: int) -> None:
        self.times.append(time_s)
        self.counts.append(count)

    def rate(self, begin_s: float, end_s: float) -> float:
        """Records per second between two times."""
        return (self._at(end_s) - self._at(begin_s)) / (end_s - begin_s)

    def slowest(self, begin_s: float, end_s: float) -> float:
        """Records per second in the slowest `WINDOW_S` between two times."""
        last = max(begin_s, end_s - WINDOW_S)
        begins = [begin_s, *(one for one in self.times if begin_s < one < last), last]
        return min(self.rate(one, one + WINDOW_S) for one in begins)

    def longest_pause_s(self, begin_s: float, end_s: float) -> float:
        """The longest time without a record between two times, as exactly as these were noted."""
        grown = [
            b for (a, b) in pairwise(range(len(self.counts))) if self.counts[a] != self.counts[b]
        ]
        moments = [
            begin_s,
            *(self.times[n] for n in grown if begin_s < self.times[n] < end_s),
            end_s,
        ]
        return max(b - a for a, b in pairwise(moments))

    def _at(self, time_s: float) -> int:
        return self.counts[min(bisect_left(self.times, time_s), len(self.counts) - 1)]


class Resized:
    """A local cluster that its command changes."""

    def __init__(self, home: Path) -> None:
        self._environment = {**os.environ, "RUNNEL_HOME": str(home)}
        port = free_base_port(home / "local", MANY)
        self.address = f"127.0.0.1:{port}"
        self.run("cluster", "start", "--spus", str(FEW), "--base-port", str(port), "--no-dashboard")

    def run(self, *words: str) -> None:
        """Run the command to its end. Raises RuntimeError with what it said."""
        command = [sys.executable, "-P", "-m", "runnel.cli.main", *words]
        done = subprocess.run(command, env=self._environment, capture_output=True, timeout=600)
        if done.returncode:
            raise RuntimeError(f"runnel {' '.join(words)}: {done.stderr.decode()}")

    def restart(self) -> None:
        self.run("cluster", "restart")

    def grow(self) -> None:
        self._scale(MANY)
        for number in range(FEW, MANY):
            self.run("wait", "spu", f"spu-{number}", "--for", "online")
        self.run("cluster", "rebalance")

    def shrink(self) -> None:
        self._scale(FEW)
        deadline = time.monotonic() + _WAIT_S
        with runnel.connect(self.address) as cluster:
            while any(self._is_there(cluster, number) for number in range(FEW, MANY)):
                if time.monotonic() > deadline:
                    raise RuntimeError(f"the group does not shrink within {_WAIT_S:g} s")
                time.sleep(0.1)

    def _is_there(self, cluster: runnel.Cluster, number: int) -> bool:
        try:
            cluster.get("spu", f"spu-{number}")
        except NotFoundError:
            return False
        return True

    def _scale(self, spus: int) -> None:
        self.run("scale", "spugroup", "spu", "--replicas", str(spus))


def measure(home: Path, pause_s: float, rate_per_s: int | None) -> list[dict[str, Any]]:
    """What each change of the cluster cost; see the module's text."""
    cluster = Resized(home)
    try:
        factor = ("--partitions", str(PARTITIONS), "--replication-factor", str(FEW))
        cluster.run("create", "topic", TOPIC, *factor)
        cluster.run("wait", "topic", TOPIC, "--for", "writable")
        context = multiprocessing.get_context("spawn")
        acknowledged, ended = context.Value("q", 0), context.Event()
        writer = context.Process(
            target=write, args=(cluster.address, acknowledged, ended, rate_per_s)
        )
        writer.start()
        counted, over = Counted(), threading.Event()

        def sample() -> None:
            while not over.wait(SAMPLE_S):
                counted.add(time.perf_counter(), acknowledged.value)

        sampling = threading.Thread(target=sample)
        sampling.start()

        def during(work: Callable[[], None]) -> tuple[float, float]:
            began = time.perf_counter()
            work()
            return began, time.perf_counter()

        try:
            time.sleep(5.0)
            pauses = [during(lambda: time.sleep(pause_s))]
            changes: list[tuple[str, tuple[float, float]]] = []
            for name, work in (
                ("rolling restart", cluster.restart),
                (f"{FEW} to {MANY} SPUs, rebalance", cluster.grow),
                (f"{MANY} to {FEW} SPUs", cluster.shrink),
            ):
                changes.append((name, during(work)))
                pauses.append(during(lambda: time.sleep(pause_s)))
        finally:
            over.set()
            sampling.join()
            ended.set()
            writer.join(_WAIT_S)
        if writer.exitcode != 0:
            writer.kill()
            raise RuntimeError("the producer failed; what it printed says why")
    finally:
        cluster.run("cluster", "delete", "--yes")
    return [
        _cost(counted, name, span, around)
        for (name, span), around in zip(changes, pairwise(pauses), strict=True)
    ]


def _cost(
    counted: Counted,
    name: str,
    span: tuple[float, float],
    around: Sequence[tuple[float, float]],
) -> dict[str, Any]:
    alone = fmean(counted.rate(*pause) for pause in around)
    return {
        "what": name,
        "seconds": span[1] - span[0],
        "recordsPerSecond": {"alone": alone, "meanwhile": counted.rate(*span)},
        "ratio": counted.rate(*span) / alone,
        "ratioOfSlowestSecond": counted.slowest(*span) / alone,
        "longestPauseMs": 1000 * counted.longest_pause_s(*span),
        "longestPauseAloneMs": 1000 * max(counted.longest_pause_s(*pause) for pause in around),
    }


def main() -> None:
    """Print a table, or JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pause", type=float, default=10.0, help="seconds between the changes")
    parser.add_argument("--rate", type=int, help="records a second; default: all that it can")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="runnel-bench-"))
    try:
        found = measure(home, arguments.pause, arguments.rate)
    finally:
        shutil.rmtree(home)
    if arguments.json:
        print(json.dumps(found))
        return
    print(f"{'':24}  seconds      alone  meanwhile  ratio  slowest  longest pause, ms (alone)")
    for one in found:
        rates = one["recordsPerSecond"]
        print(
            f"{one['what']:24} {one['seconds']:8.1f} {rates['alone']:10,.0f}"
            f" {rates['meanwhile']:10,.0f} {one['ratio']:6.2f} {one['ratioOfSlowestSecond']:8.2f}"
            f"  {one['longestPauseMs']:.0f} ({one['longestPauseAloneMs']:.0f})"
        )


if __name__ == "__main__":
    main()
