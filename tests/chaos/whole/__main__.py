"""``python -m tests.chaos.whole --minutes 2 --seed 1``: the whole cluster under faults.

Needs Linux, the right to make namespaces, and an etcd. Exits with 0 if all promises were kept, with
1 if not (the directory with the histories and logs is kept then), with 2 if it cannot run here.
``--judge DIRECTORY`` checks the histories of a run that was kept once more.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import pytest

from tests.architecture.source import ROOT
from tests.chaos.machines.test_more_machines import NAMESPACE, require_machines
from tests.chaos.whole.history import History
from tests.chaos.whole.recording import entries
from tests.chaos.whole.report import judge, summary
from tests.contract.kv.etcd_server import require_client, require_etcd

#: Nothing that was started outlives the run, however that ends.
ALONE: Final = ("--pid", "--fork", "--kill-child", "--mount-proc")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.whole")
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--directory",
        type=Path,
        help="a new one, kept; default: a temporary one, kept after a failure",
    )
    parser.add_argument("--judge", type=Path, metavar="DIRECTORY")
    options = parser.parse_args()
    if options.judge is not None:
        return _judge(options.judge, options.seed, options.minutes)
    try:
        require_machines()
        require_client()
        etcd = require_etcd()
    except (pytest.skip.Exception, pytest.fail.Exception) as error:
        print(f"it cannot run here: {error}", file=sys.stderr)
        return 2
    directory: Path = options.directory or Path(tempfile.mkdtemp(prefix="runnel-chaos-"))
    words = (str(directory), str(etcd), str(options.seed), str(options.minutes))
    with subprocess.Popen(
        [*NAMESPACE, *ALONE, sys.executable, "-m", "tests.chaos.whole.run", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT), "ETCD_UNSUPPORTED_ARCH": "arm64"},
        # When this process ends, however it does, the run reads an end of the pipe.
        stdin=subprocess.PIPE,
    ) as running:
        code = running.wait()
    if code == 0:
        if options.directory is None:
            shutil.rmtree(directory)
        return 0
    print(f"histories and logs: {directory}")
    print(f"to check them again: python -m tests.chaos.whole --judge {directory}")
    print(f"to see it again: make chaos MINUTES={options.minutes:g} SEED={options.seed}")
    return 1


def _judge(directory: Path, seed: int, minutes: float) -> int:
    history = History()
    for path in sorted((directory / "history").iterdir()):
        history.add(entries(path))
    verdict = judge(history)
    print(summary(verdict, seed, minutes))
    return 0 if verdict.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
