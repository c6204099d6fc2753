"""Run the unit tests in three processes of pytest at a time: `make test-unit`.

    python -m tests.in_parts [OPTION ...]

OPTION goes to pytest. Workers of pytest-xdist would each collect all tests and report each one,
which takes a quarter of the time of tests that are as short as these. Some of them wait, so there
is one part more than there are cores. What a part prints comes when it ends; the exit code is 1 if
the tests of any part failed.
"""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Final

#: Nothing is named but what is ignored elsewhere: a new directory is in one of them by itself.
PARTS: Final = (
    ("tests/unit", "--ignore=tests/unit/runnel", "--ignore=tests/unit/spu"),
    ("tests/unit/runnel", "--ignore=tests/unit/runnel/cli"),
    ("tests/architecture", "tests/unit/spu", "tests/unit/runnel/cli"),
)


def run(part: tuple[str, ...]) -> tuple[int, str]:
    """The exit code, and what was printed."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", *sys.argv[1:], *part]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return done.returncode, done.stdout


def main() -> int:
    """Run all parts; gives the exit code."""
    failed = False
    with ThreadPoolExecutor(len(PARTS)) as threads:
        for part in as_completed([threads.submit(run, part) for part in PARTS]):
            code, said = part.result()
            failed = failed or code != 0
            print(said, end="", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
