"""Processes in states that are hard to meet."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from subprocess import Popen

import psutil

from schemas.daemon.process import ProcessId, started_at

#: Tests put others in the places of this and of `subprocess.Popen`.
_PYTHON = sys.executable
_ENDS_IN_PARTS = """
import ctypes, platform, threading, time
threading.Thread(target=time.sleep, args=({seconds},)).start()
ctypes.CDLL(None).syscall({{"x86_64": 60, "aarch64": 93}}[platform.machine()], 0)
"""


@contextmanager
def half_ended(seconds: float) -> Iterator[ProcessId]:
    """A process whose first thread has ended, and whose other one does so after ``seconds``: such
    is one that was killed while it waited for a disk. It is not waited for."""
    with Popen([_PYTHON, "-c", _ENDS_IN_PARTS.format(seconds=seconds)]) as process:
        try:
            while psutil.Process(process.pid).status() != psutil.STATUS_ZOMBIE:
                time.sleep(0.01)
            yield ProcessId(process.pid, started_at(process.pid))
        finally:
            process.kill()
