"""Measures what a partition costs the control loop, and whether that grows with their number.

    python -m benchmarks.reconcile [--sizes 1000,10000,100000] [--backends memory,sqlite,etcd]
        [--spus 1000] [--topic-size 1000] [--offline 10000] [--directory D] [--json]

It runs the real SC over real KVs with simulated SPUs, each backend and size in a process of its
own; `benchmarks.reconcile_phases` says what exactly is real. SQLite and etcd sync every commit to
files in a temporary directory.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import traceback
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import uvloop

from benchmarks.kv import BACKENDS, machine, store, sync_times
from benchmarks.reconcile_phases import Measured, Plan, measure
from schemas.daemon.log_options import LogLevel
from schemas.daemon.logs import configure_logs
from schemas.errors import NotFoundError, UnsupportedError

SIZES: Final = (1_000, 10_000, 100_000)
#: A partition may cost at most this many times as much at the largest size as at the smallest.
FLAT: Final = 1.5

ROWS: Final = (
    ("topics created to online, s", "online_s", ",.2f"),
    ("  per partition, ms", "partition_ms", ",.3f"),
    ("  processor, ms", "processor_ms", ",.3f"),
    ("  of that simulated SPUs", "simulation", ".0%"),
    ("  writes per partition", "writes_per_partition", ",.2f"),
    ("  bare transactions, ms", "transactions_ms", ",.3f"),
    ("  loop held at most, ms", "online_held_ms", ",.0f"),
    ("memory per partition, KiB", "memory_kib", ",.1f"),
    ("  after a restart, KiB", "restart_memory_kib", ",.1f"),
    ("restart to ready, s", "restart_s", ",.2f"),
    ("  until all SPUs are back, s", "return_s", ",.2f"),
    ("  loop held at most, ms", "restart_held_ms", ",.0f"),
    ("periodic pass, s", "resync_s", ",.2f"),
    ("  processor, s", "resync_cpu_s", ",.2f"),
    ("  loop held at most, ms", "resync_held_ms", ",.0f"),
    ("SPU gone to all handled, s", "offline_s", ",.2f"),
    ("  per partition, ms", "offline_ms", ",.3f"),
    ("  loop held at most, ms", "offline_held_ms", ",.0f"),
)

Results = dict[str, list[Measured]]


def measure_apart(plan: Plan) -> Measured:
    """Measure in a process of its own. Raises RuntimeError with the error of that process."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(plan, theirs))
    process.start()
    theirs.close()
    try:
        result = ours.recv()
    except EOFError:
        result = "the process ended without a result"
    finally:
        ours.close()
        process.join()
    if not isinstance(result, Measured):
        raise RuntimeError(f"{plan}: {result}")
    return result


def _serve(plan: Plan, pipe: Connection) -> None:
    with open(os.devnull, "w") as nowhere:
        sys.stderr = nowhere
        configure_logs("sc", level=LogLevel.INFO)
        try:
            pipe.send(uvloop.run(measure(plan)))
        except Exception:
            pipe.send(traceback.format_exc())


def ratio(results: list[Measured]) -> float:
    """The cost of a partition at the largest size, divided by that at the smallest."""
    ordered = sorted(results, key=lambda m: m.partitions)
    return ordered[-1].partition_ms / ordered[0].partition_ms


def report(
    facts: dict[str, object],
    arguments: argparse.Namespace,
    results: Results,
    missing: dict[str, str],
) -> str:
    """A table with a column for each backend and size."""
    columns = [(name, measured) for name, found in results.items() for measured in found]
    about = (
        f"{facts['cores']} x {facts['processor']}, {facts['file_system']}, Python"
        f" {facts['python']}, load {facts['load_before']} to {facts['load_after']},"
        f" write + fsync p50 {facts['fsync_ms']} ms"
    )
    settings = (
        f"{arguments.spus:,} SPUs, topics of {arguments.topic_size:,} partitions, an SPU with"
        f" {arguments.offline:,} partitions goes away"
    )
    lines = [
        about,
        settings,
        " " * 31 + "".join(f"{name:>11}" for name, _ in columns),
        f"{'partitions':31}" + "".join(f"{m.partitions:>11,}" for _, m in columns),
    ]
    for label, name, style in ROWS:
        cells = "".join(f"{format(getattr(m, name), style):>11}" for _, m in columns)
        lines.append(f"{label:31}{cells}")
    for name, found in results.items():
        if len(found) > 1:
            times = ratio(found)
            verdict = "flat" if times <= FLAT else f"not flat: more than {FLAT:g}"
            lines.append(
                f"{name}: a partition of the most costs {times:.2f} times that of the fewest,"
                f" {verdict}"
            )
    lines += [f"{name} was not measured: {why}" for name, why in missing.items()]
    return "\n".join(lines)


def _backends(text: str) -> list[str]:
    names = list(dict.fromkeys(text.split(",")))
    for name in names:
        if name not in BACKENDS:
            raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(BACKENDS)}")
    return names


def _sizes(text: str) -> list[int]:
    return sorted({_count(size) for size in text.split(",")})


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)


def _directory(text: str) -> Path:
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is not a directory")
    return Path(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="reconcile", description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--sizes", type=_sizes, default=list(SIZES), help="partitions, separated by commas"
    )
    parser.add_argument(
        "--backends", type=_backends, default=list(BACKENDS), help="which, separated by commas"
    )
    parser.add_argument("--spus", type=_count, default=1_000, help="how many simulated SPUs")
    parser.add_argument("--topic-size", type=_count, default=1_000, help="partitions of a topic")
    parser.add_argument(
        "--offline", type=_count, default=10_000, help="partitions of the SPU that goes away"
    )
    parser.add_argument(
        "--directory", type=_directory, help="where to put the files (where temporary ones go)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    return parser


def main() -> None:
    """Measure and print."""
    arguments = _parser().parse_args()
    configure_logs("benchmark", level=LogLevel.ERROR)
    results: Results = {}
    missing: dict[str, str] = {}
    syncs: list[float] = []
    with tempfile.TemporaryDirectory(prefix="runnel-bench-", dir=arguments.directory) as top:
        facts = machine(Path(top))
        for size in arguments.sizes:
            for backend in arguments.backends:
                directory = Path(top) / f"{backend}-{size}"
                directory.mkdir()
                syncs += sync_times(directory / "floor.bin")
                print(f"{backend}, {size:,} partitions …", file=sys.stderr)
                try:
                    with store(backend, directory) as (url, _version):
                        plan = Plan(
                            url, arguments.spus, size, arguments.topic_size, arguments.offline
                        )
                        measured = measure_apart(plan)
                    print(f"  {measured.partition_ms:.3f} ms a partition", file=sys.stderr)
                    results.setdefault(backend, []).append(measured)
                except (NotFoundError, UnsupportedError) as error:
                    missing[backend] = error.message
    results = {name: results[name] for name in arguments.backends if name in results}
    facts["load_after"] = round(os.getloadavg()[0], 2)
    facts["fsync_ms"] = round(1000 * statistics.median(syncs), 3)
    if arguments.json:
        settings = {n: getattr(arguments, n) for n in ("spus", "topic_size", "offline")}
        backends = {
            name: {
                "sizes": [asdict(measured) for measured in found],
                "partition_ratio": round(ratio(found), 3),
            }
            for name, found in results.items()
        }
        everything = {"machine": facts, "settings": settings, "backends": backends}
        print(json.dumps(everything | {"missing": missing}, indent=2))
        return
    print(report(facts, arguments, results, missing))


if __name__ == "__main__":
    main()
