"""The wall clock of a process jumps when a file says so, and back; nothing else changes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.chaos.whole.cluster import CLOCK

SHOW = """
import datetime, json, sys, time
from datetime import UTC
from time import time_ns
class Own(datetime.datetime): pass
for line in sys.stdin:
    time.sleep(0.1)
    walls = [
        time.time(),
        time_ns() / 1e9,
        datetime.datetime.now(UTC).timestamp(),
        datetime.datetime.now(tz=UTC).timestamp(),
        datetime.datetime.now().timestamp(),
        datetime.datetime.utcnow().replace(tzinfo=UTC).timestamp(),
        datetime.datetime.today().timestamp(),
        Own.now(UTC).timestamp(),
    ]
    kinds = [type(datetime.datetime.now()).__name__, type(Own.now()).__name__]
    print(json.dumps([walls, time.monotonic(), kinds]), flush=True)
"""


def test_given_a_file_then_all_wall_clocks_of_a_process_jump_and_jump_back(tmp_path: Path) -> None:
    file = tmp_path / "clock"
    environment = {**os.environ, "PYTHONPATH": str(CLOCK), "CHAOS_CLOCK": str(file)}
    with subprocess.Popen(
        [sys.executable, "-P", "-W", "ignore", "-c", SHOW],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for jump_s in (0, 3600, -3600, 0):
            if jump_s:
                file.write_text(str(jump_s))
            else:
                file.unlink(missing_ok=True)
            process.stdin.write("show\n")
            process.stdin.flush()
            walls, monotonic_s, kinds = json.loads(process.stdout.readline())
            assert walls == pytest.approx([time.time() + jump_s] * len(walls), abs=10)
            assert monotonic_s == pytest.approx(time.monotonic(), abs=10)
            assert kinds == ["datetime", "Own"]
        process.stdin.close()
        assert process.wait(10) == 0
