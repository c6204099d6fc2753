"""Real processes: a cluster started by the command line, in a directory and on ports of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from runnel.local.processes import free_base_port

TIMEOUT_S = 90


@dataclass
class Command:
    """Runs ``runnel`` with a home of its own."""

    home: Path
    sc: str | None = None

    @property
    def environment(self) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("RUNNEL_")}
        return {**inherited, "RUNNEL_HOME": str(self.home), "NO_COLOR": "1"}

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "runnel.cli.main", *arguments],
            env=self.environment,
            **options,
        )

    def __call__(self, *arguments: str, stdin: str | bytes = b"", code: int = 0) -> str:
        """Standard output of a command that must end with ``code``."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == code, (
            f"{arguments}: {done.returncode}\n{done.stdout!r}\n{_err(done)}"
        )
        return done.stdout.decode()

    def fails(self, *arguments: str, code: int, stdin: str | bytes = b"") -> str:
        """Standard error of a command that must fail with ``code``, and say why in few lines."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == code, (
            f"{arguments}: {done.returncode}\n{done.stdout!r}\n{_err(done)}"
        )
        assert "Traceback" not in _err(done)
        assert _err(done).strip()
        return _err(done)

    def run(self, *arguments: str, stdin: str | bytes = b"") -> subprocess.CompletedProcess[bytes]:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        return subprocess.run(
            [sys.executable, "-m", "runnel.cli.main", *arguments],
            env=self.environment,
            input=data,
            capture_output=True,
            timeout=TIMEOUT_S,
        )

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "-o", "json"))


def _err(done: subprocess.CompletedProcess[bytes]) -> str:
    return done.stderr.decode()


@pytest.fixture
def runnel(tmp_path: Path) -> Iterator[Command]:
    """The command without a cluster; whatever it starts is stopped."""
    command = Command(tmp_path / "home")
    yield command
    command.run("cluster", "stop")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """A running cluster of two SPUs for a whole module."""
    home = tmp_path_factory.mktemp("cluster")
    command = Command(home)
    base = free_base_port(home / "local", 2)
    command("cluster", "start", "--spus", "2", "--base-port", str(base))
    command.sc = f"localhost:{base}"
    yield command
    command("cluster", "stop")
