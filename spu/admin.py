"""``python -m spu.admin``: describe and verify logs while no SPU has them open.

The ``runnel`` command runs this as a process, because it may not import the SPU. It reads one JSON
object from standard input::

    {"verb": "describe" | "verify", "path": PATH}

and prints JSON objects, one a line: ``{"stage", "count", "total"}`` while it works, and at the end
``{"done": {"partitions": […]}}`` or ``{"error": {code, message, details}}``. PATH is a partition's
directory, or the log directory of an SPU with all its partitions. While this process reads a log
directory, the SPU that owns it cannot start. Exit codes: 0 done, 1 failed.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

from schemas.daemon.log_options import LogLevel
from schemas.daemon.logs import configure_logs
from schemas.errors import (
    ConflictError,
    InvalidRequestError,
    NotFoundError,
    RunnelError,
    StorageFailedError,
)
from schemas.model import Model
from spu.storage.stopped import (
    StoppedLog,
    as_json,
    describe,
    is_partition_directory,
    open_stopped,
    verify_stopped,
)

_PARTITIONS: Final = "partitions"
_SAY_EVERY_S: Final = 0.2


class Request(Model):
    """What to do, and where."""

    verb: Literal["describe", "verify"]
    path: str


def _say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def partition_directories(path: Path) -> list[Path]:
    """The partition directories at or below ``path``.

    Raises NotFoundError, or InvalidRequestError if there are none.
    """
    if not path.is_dir():
        raise NotFoundError(f"{path} is not a directory")
    if is_partition_directory(path):
        return [path]
    place = path / _PARTITIONS
    found = [one for one in sorted(place.glob("*")) if is_partition_directory(one)]
    if not place.is_dir():
        raise InvalidRequestError(
            f"{path} holds no segments: name the log directory of an SPU, or one of its"
            " partitions/<uid> directories"
        )
    return found


@contextmanager
def left_alone(directory: Path) -> Iterator[None]:
    """Keep an SPU from starting on the log directory that a partition's directory belongs to.

    A copy of a partition's directory belongs to no SPU. Raises ConflictError if the SPU runs.
    """
    home = directory.parent.parent if directory.parent.name == _PARTITIONS else directory
    try:
        fd = os.open(home / "lock", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        yield
        return
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
            raise ConflictError(
                f"{home} is in use by process {holder}: stop that SPU first, or ask it with"
                " runnel partition verify TOPIC or runnel partition dump PARTITION"
            ) from error
        yield
    finally:
        os.close(fd)


def carry_out(request: Request) -> dict[str, Any]:
    """Do what ``request`` asks; returns what to print at the end. Raises RunnelError, OSError."""
    path = Path(request.path).absolute()
    directories = partition_directories(path)
    with left_alone(path):
        logs = [open_stopped(directory) for directory in directories]
        if request.verb == "describe":
            return {"partitions": [describe(log) for log in logs]}
        total = sum(log.size_bytes for log in logs)
        progress = _Progress(total)
        return {"partitions": [_verify(log, progress) for log in logs]}


def _verify(log: StoppedLog, progress: _Progress) -> dict[str, Any]:
    verification = verify_stopped(log, progress.within)
    progress.before += log.size_bytes
    return as_json(log, verification)


class _Progress:
    """Prints from time to time how many of all bytes are verified."""

    def __init__(self, total: int) -> None:
        self.before = 0
        self._total = total
        self._said_at = time.monotonic()

    def within(self, checked_bytes: int, _total: int) -> None:
        now = time.monotonic()
        if now - self._said_at >= _SAY_EVERY_S:
            self._said_at = now
            count = self.before + checked_bytes
            _say({"stage": "verify", "count": count, "total": self._total})


def main() -> int:
    """Carry out the request on standard input."""
    configure_logs("spu-admin", level=LogLevel.ERROR)
    request = Request.model_validate_json(sys.stdin.read())
    try:
        done = carry_out(request)
    except RunnelError as error:
        _say({"error": error.to_json()})
        return 1
    except OSError as error:
        failed = StorageFailedError(f"{error.filename or request.path}: {error.strerror}")
        _say({"error": failed.to_json()})
        return 1
    _say({"done": done})
    return 0


if __name__ == "__main__":
    sys.exit(main())
