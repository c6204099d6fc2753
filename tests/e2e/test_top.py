"""``runnel top``: one picture in a pipe, a live one on a terminal."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import time

from tests.e2e.conftest import PYTHON, TIMEOUT_S, Command


def test_one_picture_for_people_and_for_programs(cluster: Command) -> None:
    cluster("create", "topic", "pictured", "--partitions", "2", "--replication-factor", "2")
    cluster("wait", "topic", "pictured", "--for", "provisioned")
    text = cluster("top")
    assert "2/2 SPUs online" in text
    assert [line.split()[0] for line in text.splitlines() if "provisioned" in line].count(
        "pictured"
    ) == 1
    found = cluster.json("top")
    assert found["health"]["spusOnline"] == 2
    (topic,) = [one for one in found["topics"] if one["name"] == "pictured"]
    assert (topic["partitions"], topic["replicas"]) == (2, 2)
    assert all(spu["diskUsed"] > 0 for spu in found["spus"])
    cluster("delete", "topic", "pictured")


def test_on_a_terminal_it_is_live_until_ctrl_c(cluster: Command) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [PYTHON, "-m", "runnel.cli.main", "top"],
        env={**cluster.environment, "TERM": "xterm", "LINES": "40", "COLUMNS": "150"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    seen = b""

    def until(text: bytes) -> None:
        nonlocal seen
        deadline = time.monotonic() + TIMEOUT_S
        while text not in seen:
            assert time.monotonic() < deadline, seen.decode(errors="replace")
            if select.select([ours], [], [], 1.0)[0]:
                seen += os.read(ours, 1 << 16)

    until(b"2/2 SPUs online")
    # What is made while it looks shows up.
    cluster("create", "topic", "appears-live", "--partitions", "1")
    until(b"appears-live")
    cluster("delete", "topic", "appears-live")
    process.send_signal(signal.SIGINT)
    # It leaves the terminal as it was: the other screen, and the cursor.
    until(b"\x1b[?1049l")
    assert process.wait(TIMEOUT_S) == 0
    os.close(ours)
    assert b"Traceback" not in seen
