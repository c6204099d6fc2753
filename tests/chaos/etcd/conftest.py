"""What the faults did, shown at the end of every run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.contract.kv.etcd_server import etcd_version, require_etcd

_PROPERTY = "what the fault did"


@pytest.fixture
def report(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Call with one line for the end of the run."""
    version = ".".join(map(str, etcd_version(require_etcd())))

    def record(line: str) -> None:
        record_property(_PROPERTY, f"etcd {version}, {line}")

    return record


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what was reported, also without ``-s``."""
    lines = [
        str(value)
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "call"
        for name, value in report.user_properties
        if name == _PROPERTY
    ]
    if lines:
        terminalreporter.section("faults of etcd")
        for line in lines:
            terminalreporter.line(line)
