"""The tutorial on streams: every block runs as it is written, on a cluster of its own."""

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

TEXT: Final = (ROOT / "docs" / "tutorial" / "streams.md").read_text(encoding="utf-8")
BLOCKS: Final = re.findall(r"```(sh|python)\n(.*?)```", TEXT, re.DOTALL)


#: Where the objects are kept changes nothing of what it shows.
@SQLITE_ALONE
@pytest.mark.long
def test_the_tutorial_runs_as_it_is_written(runnel: Command, tmp_path: Path) -> None:
    base = free_base_port(runnel.home / "local", 3)
    (program,) = (text for kind, text in BLOCKS if kind == "python")
    (tmp_path / "clicks.py").write_text(program)
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, command in (("runnel", f"{PYTHON} -P -m runnel.cli.main"), ("python", str(PYTHON))):
        (commands / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (commands / name).chmod(0o755)
    environment = {**runnel.environment, "PATH": f"{commands}:{os.environ['PATH']}"}
    printed = []
    for kind, script in BLOCKS:
        if kind != "sh":
            continue
        start = f"cluster start --base-port {base} --no-dashboard"
        done = subprocess.run(
            ["bash", "-e", "-m", "-o", "pipefail", "-c", script.replace("cluster start", start)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        printed.append(done.stdout)
    assert "epoch 3" in printed[2]
    assert printed[3] == "all in order\n"
    assert "stream default/clicks sealed" in printed[4]
