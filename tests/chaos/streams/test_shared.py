"""Three SCs share the work for streams, and are killed and stopped while all streams are scaled:
each scale comes to its end, and each key is read once and in order."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import psutil
import pytest

from tests.chaos.streams.clients import ENDS_S, Reading, Writing, until_done
from tests.contract.kv.etcd_server import require_client, require_etcd
from tests.e2e.conftest import Command
from tests.ports import free_base_port

require_client()

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(600)]

SCS: Final = 3
SPUS: Final = 2
STREAMS: Final = ("shop/a", "shop/b", "shop/c", "shop/d")
#: Longer than a lease.
STOPPED_S: Final = 8.0
BUCKETS: Final = 64


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    found = Command(tmp_path / "home", "etcd", etcd=require_etcd())
    base = free_base_port(found.home / "local", SPUS)
    start = ("cluster", "start", "--spus", str(SPUS), "--scs", str(SCS), "--base-port", str(base))
    found(*start)
    found.sc = ",".join(f"localhost:{base + 2 * number}" for number in range(SCS))
    try:
        yield found
    finally:
        found.run("cluster", "stop")


def scs(command: Command, role: str) -> list[psutil.Process]:
    """The processes of the SCs in a role."""
    items = command.json("get", "controllers")
    ports = {int(one["public"].rpartition(":")[2]) for one in items if one["role"] == role}
    return [
        psutil.Process(found.pid)
        for found in psutil.net_connections("tcp")
        if found.status == psutil.CONN_LISTEN and found.laddr and found.laddr.port in ports
    ]


def _kill_one_that_stands_by(command: Command) -> Callable[[], None]:
    scs(command, "standby")[0].kill()
    return lambda: None


def _kill_the_leader(command: Command) -> Callable[[], None]:
    scs(command, "leader")[0].kill()
    return lambda: None


def _stop_one_that_stands_by(command: Command) -> Callable[[], None]:
    stopped = scs(command, "standby")[0]
    os.kill(stopped.pid, signal.SIGSTOP)
    return lambda: os.kill(stopped.pid, signal.SIGCONT)


def _step_down(command: Command) -> Callable[[], None]:
    command("sc", "step-down")
    return lambda: None


#: To how many segments each stream is scaled, what comes in the middle, and how those that were
#: killed come back.
COURSE: Final = (
    (4, _kill_one_that_stands_by, "restart"),
    (2, _stop_one_that_stands_by, "start"),
    (3, _step_down, "start"),
    (1, _kill_the_leader, "start"),
)


def test_given_scs_that_come_and_go_then_streams_are_scaled_and_no_record_is_lost(
    command: Command,
) -> None:
    command("create", "scope", "shop")
    for stream in STREAMS:
        command("create", "stream", stream, "--replication-factor", str(SPUS))
    assert command.sc is not None
    writing = [Writing(command.sc, stream, stream) for stream in STREAMS]
    reading = [Reading(command.sc, stream) for stream in STREAMS]
    for thread in (*writing, *reading):
        thread.start()
    for segments, begin, again in COURSE:
        whole(command)
        scale(command, segments, begin)
        command("cluster", again)
    for one in writing:
        one.stopped.set()
        one.join(ENDS_S)
        assert not one.is_alive()
        assert not one.failed
        assert sum(one.sent.values()) > 1_000
    for stream, one, other in zip(STREAMS, writing, reading, strict=True):
        command("stream", "seal", stream, "--yes", "--timeout", "80s")
        other.join(ENDS_S)
        assert not other.is_alive(), "a reader does not end with its stream"
        assert not other.failed
        assert other.read == {key: list(range(count)) for key, count in one.sent.items()}


def whole(command: Command) -> None:
    """Wait until all SCs share the buckets."""
    deadline = time.monotonic() + ENDS_S
    while True:
        shares = [one["buckets"] for one in command.json("get", "controllers")]
        if len(shares) == SCS and sum(shares) == BUCKETS and all(shares):
            return
        assert time.monotonic() < deadline, shares
        time.sleep(0.2)


def scale(command: Command, segments: int, begin: Callable[[Command], Callable[[], None]]) -> None:
    """Scale all streams at once, with a fault in the middle."""
    done: list[str] = []

    def scaled(stream: str) -> None:
        until_done(command, "scale", stream, "--segments", str(segments))
        done.append(stream)

    scaling = [threading.Thread(target=scaled, args=(one,), daemon=True) for one in STREAMS]
    for thread in scaling:
        thread.start()
    end = begin(command)
    time.sleep(STOPPED_S if begin is _stop_one_that_stands_by else 1.0)
    end()
    for thread in scaling:
        thread.join(ENDS_S)
    assert sorted(done) == sorted(STREAMS), command("get", "streams")
    shown(command, segments)


def shown(command: Command, segments: int) -> None:
    """Wait until the SC that is asked shows it: one that was stopped shows the past for a while."""
    deadline = time.monotonic() + ENDS_S
    while True:
        found = [one["status"] for one in command.json("get", "streams")["items"]]
        if {(one["segments"], one["state"]) for one in found} == {(segments, "active")}:
            return
        assert time.monotonic() < deadline, found
        time.sleep(0.2)
