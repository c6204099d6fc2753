"""A dashboard as a process of its own, as ``runnel dashboard`` runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.ports import HOST, free_ports

READY_S = 30.0
STOP_S = 20.0


@dataclass(frozen=True)
class Dashboard:
    """A running dashboard."""

    process: subprocess.Popen[bytes]
    port: int

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def json(self, path: str) -> Any:
        """An answer of the dashboard. Raises HTTPError for a refusal."""
        with urllib.request.urlopen(f"http://{HOST}:{self.port}{path}", timeout=20) as answer:
            return json.loads(answer.read())


@contextmanager
def running_dashboard(sc: str, directory: Path, *options: str) -> Iterator[Dashboard]:
    """A dashboard of the cluster at ``sc`` that answers; its log is in the directory."""
    (port,) = free_ports(1)
    log = directory / f"dashboard-{port}.log"
    with log.open("wb") as file:
        process = start_dashboard("--sc", sc, "--port", str(port), *options, stderr=file)
    try:
        dashboard = Dashboard(process, port)
        deadline = time.monotonic() + READY_S
        while not _answers(dashboard):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)
        yield dashboard
        assert "Traceback" not in log.read_text(), log.read_text()
    finally:
        process.terminate()
        process.wait(STOP_S)


def start_dashboard(*options: str, stderr: Any) -> subprocess.Popen[bytes]:
    """``python -m dashboard`` with options, and nothing of this process's settings of Runnel."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("RUNNEL")}
    return subprocess.Popen(
        [sys.executable, "-m", "dashboard", *options],
        env=inherited,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
    )


def _answers(dashboard: Dashboard) -> bool:
    with suppress(OSError):
        return bool(dashboard.json("/health") == {"status": "ok"})
    return False
