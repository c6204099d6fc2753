"""Runs ``runnel bench`` for the main cases, on a local cluster of its own.

    python -m benchmarks.records [--spus 1] [--seconds 10] [--json]

One partition, one replica, ``acks: committed``, ``durability: fsync``.
docs/reference/performance.md explains the figures.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import Any, Final

from benchmarks.local_cluster import local_cluster

CASES: Final = (
    ("produce", "--record-size", "1Ki"),
    ("produce", "--record-size", "100", "--per-record"),
    ("consume", "--record-size", "1Ki"),
    ("consume", "--record-size", "100", "--per-record"),
    ("e2e", "--record-size", "1Ki", "--rate", "5000"),
)


def bench(address: str, case: tuple[str, ...], *options: str) -> str:
    """The output of ``runnel bench`` for a case; its progress is not captured."""
    command = [sys.executable, "-m", "runnel.cli.main", "bench", *case, *options]
    done = subprocess.run(
        [*command, "--sc", address], stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def main() -> None:
    """Measure all cases and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spus", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=10.0, help="for each case")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    seconds = ("--seconds", str(arguments.seconds))
    found: list[dict[str, Any]] = []
    with local_cluster(arguments.spus) as address:
        for case in CASES:
            if arguments.json:
                found.append(json.loads(bench(address, case, *seconds, "--json")))
                continue
            print(f"$ runnel bench {' '.join((*case, *seconds))}", flush=True)
            print(bench(address, case, *seconds), flush=True)
    if arguments.json:
        print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
