"""The tutorial on reader groups: every block runs as it is written, in one shell."""

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

TEXT: Final = (ROOT / "docs" / "tutorial" / "reader-groups.md").read_text(encoding="utf-8")
BLOCKS: Final = re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)

#: What the reader of the page waits for in these pauses; other tests may load the machine.
PAUSES: Final = {
    "sleep 3\n": "runnel group describe billing | grep -q '^bob *2'",
    "sleep 6\n": "! runnel group describe billing | grep -q '^bob'",
}


#: Where the objects are kept changes nothing of what it shows.
@SQLITE_ALONE
@pytest.mark.long
def test_the_tutorial_runs_as_it_is_written(runnel: Command, tmp_path: Path) -> None:
    base = free_base_port(runnel.home / "local", 2)
    commands = tmp_path / "bin"
    commands.mkdir()
    (commands / "runnel").write_text(f'#!/bin/sh\nexec {PYTHON} -P -m runnel.cli.main "$@"\n')
    (commands / "runnel").chmod(0o755)
    start = f"cluster start --base-port {base} --no-dashboard"
    # The second terminal is the same one here: its readers are jobs of one shell.
    script = "\necho =====\n".join(BLOCKS).replace("cluster start", start)
    for pause, until in PAUSES.items():
        assert pause in script
        script = script.replace(pause, f"until {until}; do sleep 0.2; done\n")
    done = subprocess.run(
        ["bash", "-e", "-m", "-o", "pipefail", "-c", script],
        cwd=tmp_path,
        env={**runnel.environment, "PATH": f"{commands}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    printed = done.stdout.split("=====\n")
    shares = [row.split()[:2] for row in printed[3].splitlines() if row.startswith(("ada", "bob"))]
    assert shares == [["ada", "2"], ["bob", "2"]]
    left = [row.split()[:2] for row in printed[5].splitlines() if row.startswith(("ada", "bob"))]
    assert left == [["ada", "4"]]
    assert printed[6] == "3000 records\n"
    assert printed[7].splitlines()[1] == "3000"
