"""A directory of managed SPUs, and stand-ins for them that start in no time."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.sc.provisioning.bench import Bench, pids_with

#: Started as ``python -P -m spu -c FILE``. Nobody ever writes to what it reads.
STAND_IN = """#!/bin/sh
if [ -e "$5.broken" ]; then echo "cannot run: broken"; exit 3; fi
read line < {never}
"""


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    made = Bench(tmp_path / "cluster")
    popen = subprocess.Popen

    def start(command: list[str], **more: Any) -> subprocess.Popen[bytes]:
        if others := pids_with(command[-1]):
            made.overlaps.append([*command, *map(str, others)])
        made.started.append(popen(command, **more))
        return made.started[-1]

    monkeypatch.setattr("sc.provisioning.local.subprocess.Popen", start)
    yield made
    for provisioner in made.provisioners:
        await provisioner.close()
    for process in made.started:
        process.kill()
        process.wait()
    assert not made.overlaps, "two processes of one SPU at a time"


@pytest.fixture
def stand_in(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[bool], None]:
    """Makes SPUs stand-ins; call it to have them fail, or not any more."""
    program = tmp_path / "python"
    never = tmp_path / "never"
    program.write_text(STAND_IN.format(never=never))
    program.chmod(0o755)
    os.mkfifo(never)
    monkeypatch.setattr("sys.executable", str(program))
    broken = Path(f"{bench.config_file}.broken")

    def set_broken(yes: bool) -> None:
        broken.parent.mkdir(parents=True, exist_ok=True)
        broken.touch() if yes else broken.unlink()

    return set_broken
