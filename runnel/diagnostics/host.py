"""Facts of the host on which the command runs, and of the daemons of Runnel on it.

Command lines of other programs and values of environment variables are never read into the result:
either may hold secrets.

Neighbour: `runnel.diagnostics.local_files` reads the files of these daemons.
"""

from __future__ import annotations

import os
import platform
import resource
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import psutil

from runnel.diagnostics.redaction import is_telling
from runnel.environment import SHARED_VARIABLES, VARIABLES
from schemas.daemon.installation import Program, runs_program

_LIMITS: Final = ("RLIMIT_NOFILE", "RLIMIT_NPROC", "RLIMIT_MEMLOCK", "RLIMIT_FSIZE", "RLIMIT_CORE")
_SETTINGS: Final = (
    "/proc/sys/fs/file-max",
    "/proc/sys/net/core/somaxconn",
    "/proc/sys/vm/max_map_count",
    "/proc/sys/vm/swappiness",
    "/proc/pressure/cpu",
    "/proc/pressure/io",
    "/proc/pressure/memory",
    "/proc/loadavg",
)


@dataclass(frozen=True, slots=True)
class DaemonHere:
    """A daemon of Runnel that runs on this host: ``sc`` or ``spu``, and its configuration file."""

    program: str
    pid: int
    config: Path


def command_facts() -> dict[str, Any]:
    """Versions of Runnel, of Python and of what Runnel needs; which variables are set."""
    needed = sorted({name for name in map(_name, metadata.requires("runnel") or ()) if name})
    versions = {}
    for name in ["runnel", *needed]:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    known = [variable.name for variable in (*VARIABLES, *SHARED_VARIABLES)]
    return {
        "versions": versions,
        "python": sys.version,
        "executable": sys.executable,
        "environmentVariablesSet": [name for name in known if os.environ.get(name)],
    }


def host_facts(daemons: Sequence[DaemonHere], directories: Iterable[Path]) -> dict[str, Any]:
    """Platform, limits, memory, disks below ``directories``, and what the daemons use."""
    memory = psutil.virtual_memory()
    return {
        "platform": platform.platform(),
        "machine": platform.machine(),
        "libc": " ".join(platform.libc_ver()),
        "processors": os.cpu_count(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "bootedSecondsAgo": round(time.time() - psutil.boot_time()),
        "memoryBytes": {"total": memory.total, "available": memory.available},
        "limits": {
            name: resource.getrlimit(getattr(resource, name))
            for name in _LIMITS
            if hasattr(resource, name)
        },
        "settings": {path: text for path in _SETTINGS if (text := _read(path)) is not None},
        "disks": _disks(directories),
        "daemons": [_uses(daemon) for daemon in daemons],
    }


def daemons_here() -> list[DaemonHere]:
    """The SCs and SPUs that run on this host and that this user may see."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        for program in (Program.SC, Program.SPU):
            if "-c" in command[:-1] and runs_program(command, program):
                config = Path(command[command.index("-c") + 1])
                found.append(DaemonHere(program.value[0], process.pid, config))
    return sorted(found, key=lambda daemon: (daemon.program, str(daemon.config)))


def secrets_of_environment() -> list[str]:
    """Values of variables whose names say that they are secret, so that they can be removed."""
    return [value for name, value in os.environ.items() if is_telling(name) and value]


def _name(requirement: str) -> str | None:
    """The name of a requirement that is not of an extra for development."""
    return None if "dev" in requirement.partition("extra ==")[2] else _leading_word(requirement)


def _leading_word(requirement: str) -> str:
    end = next((n for n, c in enumerate(requirement) if not (c.isalnum() or c in "-_.")), None)
    return requirement[:end]


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None


def _disks(directories: Iterable[Path]) -> list[dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}
    for directory in directories:
        with suppress(OSError):
            usage = psutil.disk_usage(str(directory))
            inodes = os.statvfs(directory)
            found.setdefault(
                directory.stat().st_dev,
                {
                    "directory": str(directory),
                    "totalBytes": usage.total,
                    "freeBytes": usage.free,
                    "freeInodes": inodes.f_favail,
                },
            )
    return list(found.values())


def _uses(daemon: DaemonHere) -> dict[str, Any]:
    """What a daemon uses, as far as this user may know."""
    found: dict[str, Any] = {
        "program": daemon.program,
        "pid": daemon.pid,
        "config": str(daemon.config),
    }
    with suppress(psutil.Error):
        process = psutil.Process(daemon.pid)
        found["startedAt"] = process.create_time()
        found["residentBytes"] = process.memory_info().rss
        found["threads"] = process.num_threads()
        found["openFilesLimit"] = process.rlimit(psutil.RLIMIT_NOFILE)
        found["openFiles"] = process.num_fds()
    return found
