"""What starting a cluster of three SPUs takes, and what its daemons use at rest, beside another
build.

    python -m benchmarks.daemon_start PYTHON [--rounds 5] [--json]

PYTHON is the interpreter of an environment that has the other build installed, for example
``.venv/bin/python`` of a second clone. Every round starts a fresh cluster with either build, one
after the other, and begins with the other one than the round before. A cluster is ready when
``runnel cluster start`` returns: it takes records then. Processor time is that of a daemon from its
start until it is ready. Memory is read when nothing has happened for some seconds: RSS, which
counts memory that processes share in each of them, and PSS, which divides it among them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import psutil

from runnel.local.processes import free_base_port

SPUS: Final = 3
REST_S: Final = 4.0


@dataclass(frozen=True, slots=True)
class Start:
    """One start of one build; of SPUs the means."""

    ready_s: float
    sc_cpu_s: float
    spu_cpu_s: float
    sc_rss_mib: float
    sc_pss_mib: float
    spu_rss_mib: float
    spu_pss_mib: float


def start(python: str) -> Start:
    """Start a cluster, leave it alone for a while, and remove it."""
    home = Path(tempfile.mkdtemp(prefix="runnel-bench-"))
    directory = home / "cluster"
    # -P: the build is the installed one, and not the one of the current directory.
    command = [python, "-P", "-m", "runnel.cli.main", "cluster"]
    of_it = ["--data-dir", str(directory)]
    spus = ["--spus", str(SPUS)]
    environment = {**os.environ, "RUNNEL_HOME": str(home)}
    ports = ["--base-port", str(free_base_port(directory, SPUS))]
    try:
        began = time.perf_counter()
        _run([*command, "start", *spus, *ports, *of_it], environment)
        ready_s = time.perf_counter() - began
        try:
            daemons = _daemons(directory)
            cpu = {kind: _mean([_cpu_s(p) for p in found]) for kind, found in daemons.items()}
            time.sleep(REST_S)
            memory = {kind: [_memory(p) for p in found] for kind, found in daemons.items()}
        finally:
            _run([*command, "delete", "--yes", *of_it], environment)
    finally:
        shutil.rmtree(home)
    sc, spu = (
        [_mean(column) for column in zip(*memory[kind], strict=True)] for kind in ("sc", "spu")
    )
    return Start(ready_s, cpu["sc"], cpu["spu"], *sc, *spu)


def measure(other: str, rounds: int) -> dict[str, dict[str, float]]:
    """Medians of either build."""
    found: dict[str, list[Start]] = {other: [], sys.executable: []}
    for number in range(rounds):
        for python in sorted(found, reverse=bool(number % 2)):
            found[python].append(start(python))
    return {
        name: {
            field: statistics.median(asdict(one)[field] for one in found[python])
            for field in Start.__slots__
        }
        for name, python in (("other", other), ("this", sys.executable))
    }


def _run(command: Sequence[str], environment: dict[str, str]) -> None:
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)


def _daemons(directory: Path) -> dict[str, list[psutil.Process]]:
    """The processes of the cluster whose files are in a directory, by their modules."""
    found: dict[str, list[psutil.Process]] = {"sc": [], "spu": []}
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if any(word.startswith(str(directory)) for word in words):
            for kind, processes in found.items():
                if kind in words:
                    processes.append(process)
    if (len(found["sc"]), len(found["spu"])) != (1, SPUS):
        raise RuntimeError(f"these are not one SC and {SPUS} SPUs: {found}")
    return found


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _memory(process: psutil.Process) -> tuple[float, float]:
    """RSS and PSS in MiB."""
    info = process.memory_full_info()
    return info.rss / 2**20, info.pss / 2**20


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare starts of clusters of two builds.")
    parser.add_argument("python", help="the interpreter of the other build")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = measure(os.path.abspath(arguments.python), arguments.rounds)
    if arguments.json:
        print(json.dumps(found, indent=2))
        return
    print(f"{'':14}{'other':>10}{'this':>10}{'ratio':>8}")
    for field, other in found["other"].items():
        this = found["this"][field]
        print(f"{field:14}{other:10.2f}{this:10.2f}{this / other:8.2f}")


if __name__ == "__main__":
    main()
