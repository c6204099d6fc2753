"""Processes of the operating system, recognised by pid *and* start time.

After a reboot another process may have the same pid; only the very process that was started is
ever signalled.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from schemas.daemon.installation import Program, runs_program

STOP_TIMEOUT_S = 15.0
POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process that was started by us.

    ``started`` distinguishes it from a later one with the same pid: the boot of the machine and
    the time from then to its start. Neither changes when the wall clock is set.
    """

    pid: int
    started: str


def started_at(pid: int) -> str:
    """What identifies the start of a process, always in the same way on one host.

    Raises psutil.NoSuchProcess, and OSError if that cannot be found out now, as for want of a
    descriptor.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        # The name of the program may hold spaces and brackets: count from its end.
        ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        # Not Linux, hidden, or the process is gone: psutil knows which.
        return f"{psutil.Process(pid).create_time():.0f}"
    return f"{boot}/{ticks}"


def is_alive(process: ProcessId | None) -> bool:
    """Whether that very process still runs, or ends but holds its files and ports until then."""
    if process is None:
        return False
    try:
        same = started_at(process.pid) == process.started
        found = psutil.Process(process.pid)
        return same and (found.status() != psutil.STATUS_ZOMBIE or _closes_files(found))
    except psutil.Error:
        return False
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        # Without a descriptor, `/proc` cannot be read, and says nothing about the process.
        return _is_there(process.pid)


def is_ending(process: ProcessId) -> bool:
    """Whether that very process has been killed or has ended, and still closes files and ports."""
    with contextlib.suppress(psutil.Error, OSError):
        found = psutil.Process(process.pid)
        zombie = found.status() == psutil.STATUS_ZOMBIE
        return zombie and started_at(process.pid) == process.started and _closes_files(found)
    return False


def _closes_files(zombie: psutil.Process) -> bool:
    # Its last thread closes them: one whose write the disk has yet to answer, or that waits for a
    # processor. The first thread waits to be reaped.
    return zombie.num_threads() > 1


def until_ended(processes: Iterable[ProcessId]) -> None:
    """Wait for those of these processes that are ending, for `STOP_TIMEOUT_S` at most."""
    _wait([process for process in processes if is_ending(process)])


def _is_there(pid: int) -> bool:
    """Whether some process has this pid, found out without a descriptor."""
    try:
        os.kill(pid, 0)
    except OSError as error:
        return error.errno == errno.EPERM
    return True


def runs_with(process: ProcessId | None, path: Path) -> bool:
    """Whether that very process still runs, and was started with something below ``path``, or
    below what that is a link to: a copy of a directory of processes is not about them."""
    if process is None or not is_alive(process):
        return False
    places = (f"{path}/", f"{path.resolve()}/")
    with contextlib.suppress(psutil.Error):
        command = psutil.Process(process.pid).cmdline()
        return any(place in argument for place in places for argument in command)
    return False


def processes_of(configs: dict[str, Path]) -> dict[str, ProcessId]:
    """Daemons by name whose command line ends with their configuration file."""
    by_argument = {
        argument: name
        for name, path in configs.items()
        for argument in (str(path), f"--config-file={path}")
    }
    found = {}
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or [""]
        name = by_argument.get(command[-1])
        if name is not None and (_is_ours(command) or command[-1].startswith("--config-file=")):
            with contextlib.suppress(psutil.NoSuchProcess):
                found[name] = ProcessId(process.pid, started_at(process.pid))
    return {name: process for name, process in found.items() if is_alive(process)}


def _is_ours(command: list[str]) -> bool:
    # ``runnel sc run`` becomes the daemon a moment later, in the same process.
    by_name = "sc" in command or "dashboard" in command
    return by_name or any(
        runs_program(command, program) for program in (Program.SC, Program.DASHBOARD)
    )


def spu_processes() -> dict[str, ProcessId]:
    """SPU daemons that run on this host, by the configuration file they were started with."""
    found = {}
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        if command[-2:-1] == ["-c"] and runs_program(command[:-2], Program.SPU):
            with contextlib.suppress(psutil.NoSuchProcess):
                found[command[-1]] = ProcessId(process.pid, started_at(process.pid))
    return found


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
