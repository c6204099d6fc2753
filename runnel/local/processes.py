"""Daemons as operating-system processes, recognised by pid *and* start time.

A pid alone may be somebody else's after a reboot; nothing is ever signalled that was not started
here.
"""

from __future__ import annotations

import contextlib
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from runnel.local.plan import HOST, ClusterPlan, Daemon
from schemas.errors import ConflictError

STOP_TIMEOUT_S = 15.0
POLL_S = 0.02
_FIRST_PORT = 10_003
_LAST_PORT = 32_000


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process that was started here.

    ``started`` tells it from a later one with the same pid: the boot of the machine and the time
    since then at which it began. Neither moves when the wall clock is set.
    """

    pid: int
    started: str


def start_daemon(daemon: Daemon, config: Path, log: Path) -> ProcessId:
    """Start a daemon in the background, its output appended to ``log``."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", daemon.module, "-c", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            cwd=config.parent,
        )
    return ProcessId(process.pid, started_at(process.pid))


def started_at(pid: int) -> str:
    """What identifies the start of a process. Raises psutil.NoSuchProcess."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        # The name of the program may hold spaces and brackets: count from its end.
        ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        # Not Linux, or gone: psutil knows which.
        return f"{psutil.Process(pid).create_time():.0f}"
    return f"{boot}/{ticks}"


def is_alive(process: ProcessId | None) -> bool:
    """Whether that very process still runs."""
    if process is None:
        return False
    with contextlib.suppress(psutil.Error):
        same = started_at(process.pid) == process.started
        return same and psutil.Process(process.pid).status() != psutil.STATUS_ZOMBIE
    return False


def stop(processes: Iterable[ProcessId]) -> list[int]:
    """Ask processes to end, and kill those that do not. Gives the pids that had to be killed."""
    alive = [process for process in processes if is_alive(process)]
    _signal(alive, signal.SIGTERM)
    stubborn = _wait(alive)
    _signal(stubborn, signal.SIGKILL)
    _wait(stubborn)
    return [process.pid for process in stubborn]


def _signal(processes: Iterable[ProcessId], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            psutil.Process(process.pid).send_signal(number)


def _wait(processes: list[ProcessId]) -> list[ProcessId]:
    """Those that still run after `STOP_TIMEOUT_S`. A zombie that nobody reaps has ended."""
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while processes and time.monotonic() < deadline:
        time.sleep(POLL_S)
        processes = [process for process in processes if is_alive(process)]
    return processes


def port_is_free(port: int) -> bool:
    """Whether a daemon could listen on a loopback port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def free_base_port(data_dir: Path, spus: int) -> int:
    """A base port at which every daemon finds its ports free, now: drawn at random, so that
    clusters that are stopped for a moment and others that look for ports rarely meet.

    Below the range from which the system draws ports for outgoing connections. Raises
    ConflictError where there is none.
    """
    step = 10 + 3 * (spus + 1)
    bases = list(range(_FIRST_PORT, _LAST_PORT - step, step))
    random.shuffle(bases)
    for base in bases:
        plan = ClusterPlan(data_dir, base_port=base, spus=spus)
        if all(port_is_free(p) for daemon in plan.daemons for p in daemon.ports.values()):
            return base
    raise ConflictError(f"no free ports for {spus} SPUs between {_FIRST_PORT} and {_LAST_PORT}")
