"""``runnel bench spark`` on a local cluster of its own.

``python -m benchmarks.spark [options of runnel bench spark]``
"""

from __future__ import annotations

import subprocess
import sys

from benchmarks.local_cluster import local_cluster


def main() -> int:
    """Gives the exit code of the command."""
    with local_cluster() as sc:
        command = [sys.executable, "-m", "runnel.cli.main", "bench", "spark", "--sc", sc]
        return subprocess.run([*command, *sys.argv[1:]]).returncode


if __name__ == "__main__":
    raise SystemExit(main())
