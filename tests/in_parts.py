"""Run the unit tests in three processes of pytest at a time: `make test-unit`.

    python -m tests.in_parts [OPTION ...]

OPTION goes to pytest. Workers of pytest-xdist would each collect all tests and report each one,
which takes a quarter of the time of tests that are as short as these. Some of them wait, so there
is one part more than there are cores. What a part prints comes when it ends; the exit code is 1 if
the tests of any part failed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Final

import pytest

#: Nothing is named but what is ignored elsewhere: a new directory is in one of them by itself.
PARTS: Final = (
    ("tests/unit", "--ignore=tests/unit/runnel", "--ignore=tests/unit/spu"),
    ("tests/unit/runnel", "--ignore=tests/unit/runnel/cli"),
    ("tests/architecture", "tests/unit/spu", "tests/unit/runnel/cli"),
)


def run(number: int) -> tuple[int, str]:
    """The exit code of a part, and what it printed."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", *sys.argv[1:]]
    # As a worker would: each has ports of its own.
    worker = {
        "PYTEST_XDIST_WORKER": f"gw{number}",
        "PYTEST_XDIST_WORKER_COUNT": str(len(PARTS)),
    }
    done = subprocess.run(
        [*command, *PARTS[number]],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env=os.environ | worker,
    )
    return done.returncode, done.stdout


def main() -> int:
    """Run all parts; gives the exit code."""
    codes = []
    with ThreadPoolExecutor(len(PARTS)) as threads:
        for part in as_completed([threads.submit(run, number) for number in range(len(PARTS))]):
            code, said = part.result()
            codes.append(code)
            print(said, end="", flush=True)
    # With -k, some parts may have no test that is wanted.
    some = [code for code in codes if code != pytest.ExitCode.NO_TESTS_COLLECTED]
    return int(any(some) or not some)


if __name__ == "__main__":
    sys.exit(main())
