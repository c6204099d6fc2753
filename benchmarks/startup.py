"""What a short call of the command costs, beside the same call of another build.

    python -m benchmarks.startup PYTHON [--sc HOST:PORT] [--rounds 11] [--json]

PYTHON is the interpreter of an environment that has the other build installed, for example
``.venv/bin/python`` of a second clone. Every round makes each call once with either build, and
begins with the other one than the round before. The table shows medians: processor time (user and
system) and the largest resident memory of the process, and this build's share of the other's as
the median of the ratios within a round. Both builds ask one cluster: the one at ``--sc``, else one
that this build starts. They create a topic there, and write to it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from benchmarks.local_cluster import local_cluster

_CLI = ("-m", "runnel.cli.main")
#: Starts a command from a small process: the memory of the one that forks counts as the child's.
_LAUNCHER = """
import os, sys
quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=quiet)
_, status, usage = os.wait4(pid, 0)
print(os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime, usage.ru_maxrss)
"""
_TOPIC = "startup"
#: What is called, and with what exit code it ends. ``{manifest}`` and ``{records}`` are files.
CALLS: dict[str, tuple[tuple[str, ...], int]] = {
    "python -c pass": (("-c", "pass"), 0),
    "import runnel": (("-c", "import runnel"), 0),
    "runnel --version": ((*_CLI, "--version"), 0),
    "runnel --help": ((*_CLI, "--help"), 0),
    "runnel aplly (mistyped)": ((*_CLI, "aplly"), 2),
    "runnel explain topic": ((*_CLI, "explain", "topic"), 0),
    "runnel get topics": ((*_CLI, "get", "topics"), 0),
    "runnel apply": ((*_CLI, "apply", "-f", "{manifest}"), 0),
    "runnel produce": ((*_CLI, "produce", _TOPIC, "-f", "{records}"), 0),
    "runnel consume": ((*_CLI, "consume", _TOPIC, "-B", "-n", "1"), 0),
    "runnel cluster start --help": ((*_CLI, "cluster", "start", "--help"), 0),
}
_MANIFEST = f"""\
apiVersion: runnel/v1
kind: Topic
metadata: {{name: {_TOPIC}}}
spec: {{partitions: 1}}
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one process."""

    cpu_s: float
    rss_mib: float


def cost(command: Sequence[str], expected_code: int) -> Cost:
    """Runs a command to its end."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _LAUNCHER, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    code, cpu_s, rss_kib = done.stdout.split()[-3:]
    assert int(code) == expected_code, (command, code)
    return Cost(float(cpu_s), int(rss_kib) / 1024)


def measure(other: str, rounds: int) -> dict[str, dict[str, float]]:
    """Medians of every call: both builds, and the ratio of this one to the other."""
    with tempfile.TemporaryDirectory(prefix="runnel-bench-") as directory:
        manifest, records = Path(directory, "topic.yaml"), Path(directory, "records.txt")
        manifest.write_text(_MANIFEST)
        records.write_text("one record\n")
        setup = [sys.executable, "-P", *_CLI, "apply", "--wait", "-f", str(manifest)]
        subprocess.run(setup, stdout=subprocess.DEVNULL, check=True)
        return _measure(other, rounds, {"manifest": str(manifest), "records": str(records)})


def _measure(other: str, rounds: int, files: Mapping[str, str]) -> dict[str, dict[str, float]]:
    pairs: dict[str, list[tuple[Cost, Cost]]] = {name: [] for name in CALLS}
    for number in range(rounds):
        for name, (call, code) in CALLS.items():
            arguments = [argument.format_map(files) for argument in call]
            builds = [other, sys.executable] if number % 2 else [sys.executable, other]
            # -P: the build is the installed one, and not the one of the current directory.
            found = {python: cost([python, "-P", *arguments], code) for python in builds}
            pairs[name].append((found[other], found[sys.executable]))
    return {name: _medians(found) for name, found in pairs.items()}


def _medians(pairs: Sequence[tuple[Cost, Cost]]) -> dict[str, float]:
    return {
        "other_cpu_s": statistics.median(other.cpu_s for other, _ in pairs),
        "this_cpu_s": statistics.median(this.cpu_s for _, this in pairs),
        "cpu_ratio": statistics.median(this.cpu_s / other.cpu_s for other, this in pairs),
        "other_rss_mib": statistics.median(other.rss_mib for other, _ in pairs),
        "this_rss_mib": statistics.median(this.rss_mib for _, this in pairs),
        "rss_ratio": statistics.median(this.rss_mib / other.rss_mib for other, this in pairs),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare what short calls cost in two builds.")
    parser.add_argument("python", help="the interpreter of the other build")
    parser.add_argument("--sc", help="a running cluster to ask; else one is started")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with nullcontext(arguments.sc) if arguments.sc else local_cluster() as sc:
        os.environ["RUNNEL_SC"] = sc
        found = measure(os.path.abspath(arguments.python), arguments.rounds)
    if arguments.json:
        print(json.dumps(found, indent=2))
        return
    print(f"{'call':28}{'other':>16}{'this':>18}{'CPU ratio':>11}{'RSS ratio':>11}")
    for name, row in found.items():
        print(
            f"{name:28}{row['other_cpu_s']:7.3f} s{row['other_rss_mib']:4.0f} MiB"
            f"{row['this_cpu_s']:8.3f} s{row['this_rss_mib']:4.0f} MiB"
            f"{row['cpu_ratio']:11.2f}{row['rss_ratio']:11.2f}"
        )


if __name__ == "__main__":
    main()
