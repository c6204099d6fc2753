"""Measures scales of a stream on real SPUs, under a producer.

    python -m benchmarks.stream_scaling [--scales 20] [--all] [--spus 3] [--pause 1.5]
        [--rate RECORDS] [--json]

A local cluster with a stream of four segments, each with a replica on every SPU. A producer in a
process of its own sends records of 100 B as fast as they are acknowledged, or ``--rate`` a second:
on a host whose cores all of them share, the fastest producer also shows what it loses to the
processes that scale. The stream is scaled
again and again, with pauses: one segment is split, and the two are merged; or with ``--all``, all
four are replaced by eight, and these by four. What counts: how long a scale takes from the request
to its end, and records acknowledged per second meanwhile beside those in the pauses before and
after it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa

import runnel

NAME: Final = "default/bench"
KEYS: Final = 1_000
VALUE: Final = b"x" * 84
ROWS: Final = 2_000
#: Tables on their way.
UNACKNOWLEDGED: Final = 32
FEW, MANY = 4, 8


def write(address: str, acknowledged: Any, ended: Any, rate: int | None) -> None:
    """Send tables of `ROWS` records, `UNACKNOWLEDGED` of them on their way, and at most ``rate``
    records a second."""
    table = pa.table({"key": [b"%016d" % (n % KEYS) for n in range(ROWS)], "value": [VALUE] * ROWS})
    with (
        runnel.connect(address) as cluster,
        cluster.stream(NAME).producer(linger_ms=2) as producer,
    ):
        waiting: deque[runnel.TableDelivery] = deque()
        due = time.perf_counter()
        while not ended.is_set():
            waiting.append(producer.send_table(table))
            while len(waiting) == UNACKNOWLEDGED or (waiting and waiting[0].done()):
                waiting.popleft().result(60)
                acknowledged.value += ROWS
            if rate is not None:
                due += ROWS / rate
                time.sleep(max(0.0, due - time.perf_counter()))


def split_or_merge(stream: runnel.StreamHandle, number: int) -> None:
    """Split the first segment; the next time, merge the first two."""
    now = stream.epoch().segments
    if number % 2:
        stream.scale([now[0].id, now[1].id], [(now[0].low, now[1].high)])
    else:
        low, high = now[0].low, now[0].high
        stream.scale([now[0].id], [(low, (low + high) / 2), ((low + high) / 2, high)])


def replace_all(stream: runnel.StreamHandle, number: int) -> None:
    """Divide all keys among as many segments as there were not before."""
    count = FEW if number % 2 else MANY
    old = [one.id for one in stream.epoch().segments]
    stream.scale(old, [(n / count, (n + 1) / count) for n in range(count)])


def measure(
    scales: int,
    spus: int,
    pause_s: float,
    scale: Callable[[runnel.StreamHandle, int], None],
    rate_per_s: int | None,
) -> dict[str, Any]:
    """Latencies of scales in milliseconds, and records acknowledged per second."""
    context = multiprocessing.get_context("spawn")
    acknowledged, ended = context.Value("q", 0), context.Event()
    local = runnel.LocalCluster(spus)
    with local as cluster:
        spec = {"scaling": {"minSegments": FEW}, "replicationFactor": spus}
        cluster.apply(
            {"apiVersion": "runnel/v1", "kind": "Stream", "metadata": {"name": NAME}, "spec": spec}
        )
        cluster.wait("stream", NAME, "active")
        writer = context.Process(
            target=write, args=(local.address, acknowledged, ended, rate_per_s)
        )
        writer.start()
        stream = cluster.stream(NAME)

        def rate(work: Callable[[], None]) -> tuple[float, float]:
            """Records per second while something is done, and the milliseconds that it took."""
            begun, before = time.perf_counter(), acknowledged.value
            work()
            took_s = time.perf_counter() - begun
            return (acknowledged.value - before) / took_s, took_s * 1000

        time.sleep(2.0)
        alone = [rate(lambda: time.sleep(pause_s))[0]]
        scaled = []
        for number in range(scales):
            scaled.append(rate(partial(scale, stream, number)))
            alone.append(rate(lambda: time.sleep(pause_s))[0])
        ended.set()
        writer.join(60)
    around = [statistics.fmean(pair) for pair in pairwise(alone)]
    beside = [one / other for (one, _), other in zip(scaled, around, strict=True)]
    return {
        "scaleMs": _quantiles([took for _, took in scaled]),
        "recordsPerSecond": {
            "alone": statistics.fmean(alone),
            "scaled": statistics.fmean(one for one, _ in scaled),
        },
        "ratio": _quantiles(beside),
    }


def _quantiles(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {
        "p50": ordered[len(ordered) // 2],
        "p99": ordered[min(len(ordered) - 1, round(0.99 * len(ordered)))],
        "least": ordered[0],
    }


def main() -> None:
    """Print a few lines, or JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--scales", type=int, default=20)
    parser.add_argument("--all", action="store_true", help="replace all segments each time")
    parser.add_argument("--spus", type=int, default=3)
    parser.add_argument("--pause", type=float, default=1.5)
    parser.add_argument("--rate", type=int, help="records a second; default: all that it can")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    scale = replace_all if arguments.all else split_or_merge
    found = measure(arguments.scales, arguments.spus, arguments.pause, scale, arguments.rate)
    if arguments.json:
        print(json.dumps(found))
        return
    took, rates, ratio = found["scaleMs"], found["recordsPerSecond"], found["ratio"]
    print(
        f"{arguments.scales} scales of {'all segments' if arguments.all else 'one segment'},"
        f" {arguments.spus} SPUs: median {took['p50']:.0f} ms, p99 {took['p99']:.0f} ms"
    )
    print(
        f"records/s alone {rates['alone']:,.0f}, while scaled {rates['scaled']:,.0f}; beside the"
        f" pauses around each scale: median {ratio['p50']:.2f}, least {ratio['least']:.2f}"
    )


if __name__ == "__main__":
    main()
