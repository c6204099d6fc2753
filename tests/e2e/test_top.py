"""``runnel top``: one picture in a pipe, a live one on a terminal."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import time

import pytest

from tests.e2e.conftest import PYTHON, SQLITE_ALONE, TIMEOUT_S, Command

pytestmark = [pytest.mark.wheel, SQLITE_ALONE]


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
    # An SPU tells its numbers once a second, and one picture waits a second for the first.
    deadline = time.monotonic() + 30
    while not all(spu["diskUsed"] for spu in found["spus"]):
        assert time.monotonic() < deadline
        found = cluster.json("top")
    cluster("delete", "topic", "pictured")


def on_a_terminal(cluster: Command) -> tuple[subprocess.Popen[bytes], int]:
    """A process that shows its pictures, and our end of its terminal."""
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
    return process, ours


@pytest.mark.parametrize("ended_by", ["Ctrl-C", "q"])
def test_on_a_terminal_it_is_live_until_it_is_ended(cluster: Command, ended_by: str) -> None:
    process, ours = on_a_terminal(cluster)
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
    if ended_by == "q":
        os.write(ours, b"q")
    else:
        process.send_signal(signal.SIGINT)
    # It leaves the terminal as it was: the other screen, and the cursor.
    until(b"\x1b[?1049l")
    assert process.wait(TIMEOUT_S) == 0
    os.close(ours)
    assert b"Traceback" not in seen


def test_given_its_terminal_is_gone_then_it_ends(cluster: Command) -> None:
    """No signal tells it, as it is not in the terminal's session."""
    process, ours = on_a_terminal(cluster)
    seen, deadline = b"", time.monotonic() + TIMEOUT_S
    while b"2/2 SPUs online" not in seen:
        assert time.monotonic() < deadline, seen.decode(errors="replace")
        if select.select([ours], [], [], 1.0)[0]:
            seen += os.read(ours, 1 << 16)
    os.close(ours)
    try:
        process.wait(TIMEOUT_S)
    finally:
        process.kill()
