"""The tutorial on a Spark stream: every block runs as it is written, on a cluster of its own."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.architecture.source import ROOT
from tests.e2e.conftest import PYTHON, SQLITE_ALONE, Command
from tests.ports import free_base_port

TEXT: Final = (ROOT / "docs" / "tutorial" / "spark-stream.md").read_text(encoding="utf-8")
BLOCKS: Final = re.findall(r"```(sh|python)\n(.*?)```", TEXT, re.DOTALL)


def scripts() -> list[str]:
    """The blocks of commands, in order."""
    return [text for kind, text in BLOCKS if kind == "sh"]


def last(lines: list[str]) -> dict[str, str]:
    """The last total of each customer."""
    return dict(line.split("=") for line in lines)


#: Spark does not see where the SC keeps objects.
@SQLITE_ALONE
@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(300)
def test_the_tutorial_runs_as_it_is_written(runnel: Command, tmp_path: Path) -> None:
    base = free_base_port(runnel.home / "local", 3)
    (program,) = (text for kind, text in BLOCKS if kind == "python")
    (tmp_path / "totals.py").write_text(program)
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, command in (("runnel", f"{PYTHON} -P -m runnel.cli.main"), ("python", str(PYTHON))):
        (commands / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (commands / name).chmod(0o755)
    environment = {
        **runnel.environment,
        "PATH": f"{commands}:{os.environ['PATH']}",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }

    def run(script: str) -> list[str]:
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", script],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        return [line for line in done.stdout.splitlines() if "=" in line]

    begin, once, killed = scripts()
    try:
        run(begin.replace("--spus 3", f"--spus 3 --base-port {base}"))
        assert sorted(run(once)) == ["ada=7", "bob=5"]
        assert last(run(killed)) == {"ada": "117", "bob": "6"}
    finally:
        subprocess.run(
            [*str(PYTHON).split(), "-P", "-m", "runnel.cli.main", "cluster", "delete", "--yes"],
            env=environment,
            check=False,
            capture_output=True,
        )
