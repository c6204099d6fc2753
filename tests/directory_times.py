"""How long the tests of each directory took, at the end of a run: what CONTRIBUTING.md budgets.

A pytest plugin. It prints and never fails: how long a test takes says as much about the machine as
about the test. The seconds are summed over workers, so on two cores a run is about half as long.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import PurePosixPath

import pytest

DEPTH = 3
"""Directories are told apart down to here: ``tests/integration/sc``, all of ``tests/unit/sc``."""
LEAST_S = 1.0

_SECONDS: defaultdict[str, float] = defaultdict(float)
_TESTS: Counter[str] = Counter()


def directory_of(nodeid: str) -> str:
    """The directory that a test counts for."""
    return "/".join(PurePosixPath(nodeid.partition("::")[0]).parent.parts[:DEPTH])


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Count set-up, call and clean-up of each test."""
    directory = directory_of(report.nodeid)
    _SECONDS[directory] += report.duration
    _TESTS[directory] += report.when == "call"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print a line for each directory that took a second or more, the slowest first."""
    slowest = sorted(_SECONDS.items(), key=lambda entry: entry[1], reverse=True)
    slow = [(name, took) for name, took in slowest if took >= LEAST_S]
    if not slow:
        return
    terminalreporter.section("seconds by directory, summed over workers")
    for name, took in slow:
        terminalreporter.write_line(f"{took:7.1f} s {_TESTS[name]:6,} tests  {name}")
