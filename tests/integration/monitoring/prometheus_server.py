"""The Prometheus that tests use: its programs, and a server that scrapes.

The programs are, in this order: those in the directory that ``RUNNEL_TEST_PROMETHEUS`` names, and
those on the PATH. Debian's need not be installed::

    apt-get download prometheus && dpkg -x prometheus_*.deb /tmp/prometheus
    RUNNEL_TEST_PROMETHEUS=/tmp/prometheus/usr/bin make test

Without them tests are skipped; where ``CI`` is set they fail.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.contract.kv.etcd_server import unavailable
from tests.ports import free_ports

READY_S = 30.0
STOP_S = 10.0


def require_program(name: str) -> Path:
    """``prometheus`` or ``promtool``. Skips or fails without it."""
    directory = os.environ.get("RUNNEL_TEST_PROMETHEUS")
    found = shutil.which(name, path=directory)
    if found is None and directory is not None:
        pytest.fail(f"RUNNEL_TEST_PROMETHEUS={directory} has no {name}")
    if found is None:
        unavailable(f"no {name}: set RUNNEL_TEST_PROMETHEUS, or put {name} on the PATH")
    return Path(found)


class Prometheus:
    """A running server at a port of 127.0.0.1."""

    def __init__(self, port: int) -> None:
        self._port = port

    def is_ready(self) -> bool:
        with (
            suppress(OSError),
            urllib.request.urlopen(f"http://127.0.0.1:{self._port}/-/ready", timeout=5),
        ):
            return True
        return False

    def healthy(self) -> int:
        """How many targets the last scrape reached."""
        targets = self._get("/api/v1/targets")["activeTargets"]
        return sum(one["health"] == "up" for one in targets)

    def firing(self) -> set[str]:
        """The names of the alerts that fire now."""
        alerts = self._get("/api/v1/alerts")["alerts"]
        return {one["labels"]["alertname"] for one in alerts if one["state"] == "firing"}

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=10) as answer:
            return json.loads(answer.read())["data"]


@contextmanager
def prometheus(configuration: Path) -> Iterator[Prometheus]:
    """A server with a configuration, ready; its data is beside the configuration."""
    (port,) = free_ports(1)
    directory = configuration.parent
    with (directory / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                require_program("prometheus"),
                f"--config.file={configuration}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        server = Prometheus(port)
        deadline = time.monotonic() + READY_S
        while not server.is_ready():
            said = (directory / "prometheus.log").read_text(errors="replace")
            assert process.poll() is None, f"Prometheus ended:\n{said}"
            assert time.monotonic() < deadline, f"Prometheus is not ready:\n{said}"
            time.sleep(0.05)
        yield server
    finally:
        process.terminate()
        process.wait(STOP_S)
