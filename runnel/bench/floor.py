"""The limits of this machine, measured in the same run as the workload that is compared with them.

Sequential write: pieces of 1 MiB into one file, then one fsync. Loopback: the same from one process
to another through a TCP socket of 127.0.0.1. Fsync: 4 KiB appended and made durable, the median of
many. Each is sampled before and after the workload (`Samples.combined`), so that other work on the
machine meets both. Files go to the given directory, and are removed.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import numpy as np

from runnel.bench.latency import nearest_rank

PIECE: Final = 1 << 20
_FSYNC_BYTES: Final = 4 << 10
_FSYNC_SAMPLES: Final = 30
_FSYNC_MOST_S: Final = 1.0
_PATIENCE_S: Final = 60.0
_SENDER: Final = Path(__file__).with_name("loopback_sender.py")


@dataclass(frozen=True, slots=True)
class Floor:
    """The limits of this machine; ``fsync_ms`` is a median."""

    write_mb_per_s: float
    loopback_mb_per_s: float
    fsync_ms: float


@dataclass(frozen=True, slots=True)
class Samples:
    """What was measured: ``size`` bytes each, in seconds, and fsyncs in milliseconds."""

    size: int
    write_s: float
    loopback_s: float
    fsyncs_ms: tuple[float, ...]

    @classmethod
    def take(cls, directory: Path, size: int) -> Self:
        """Measure now, with files in ``directory``. Raises OSError."""
        return cls(size, sequential_write(directory, size), loopback(size), fsyncs(directory))

    @staticmethod
    def combined(samples: Sequence[Samples]) -> Floor:
        """The floor by all samples, of which there is at least one."""
        size = sum(sample.size for sample in samples)
        fsyncs_ms = np.sort([ms for sample in samples for ms in sample.fsyncs_ms])
        return Floor(
            write_mb_per_s=size / sum(sample.write_s for sample in samples) / 1e6,
            loopback_mb_per_s=size / sum(sample.loopback_s for sample in samples) / 1e6,
            fsync_ms=nearest_rank(fsyncs_ms, 50),
        )


def sequential_write(directory: Path, size: int) -> float:
    """Seconds to write ``size`` bytes and make them durable."""
    piece = os.urandom(PIECE)
    # A file with a name: file systems may skip work at the fsync of a file without one.
    with tempfile.NamedTemporaryFile(dir=directory, prefix="bench-floor-", buffering=0) as file:
        begin = time.perf_counter()
        for at in range(0, size, PIECE):
            file.write(piece[: min(PIECE, size - at)])
        os.fsync(file.fileno())
        return time.perf_counter() - begin


def fsyncs(directory: Path) -> tuple[float, ...]:
    """Milliseconds of appending 4 KiB and making that durable, several times over."""
    block = os.urandom(_FSYNC_BYTES)
    found: list[float] = []
    with tempfile.NamedTemporaryFile(dir=directory, prefix="bench-floor-", buffering=0) as file:
        end = time.perf_counter() + _FSYNC_MOST_S
        while len(found) < _FSYNC_SAMPLES and (not found or time.perf_counter() < end):
            begin = time.perf_counter()
            file.write(block)
            os.fsync(file.fileno())
            found.append((time.perf_counter() - begin) * 1e3)
    return tuple(found)


def loopback(size: int) -> float:
    """Seconds to move ``size`` bytes from another process to this one."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(_PATIENCE_S)
        # In a session of its own: Ctrl-C must reach only this process, which ends the other one.
        with subprocess.Popen(
            [
                sys.executable,
                "-I",
                str(_SENDER),
                str(server.getsockname()[1]),
                str(size),
                str(PIECE),
            ],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        ) as sender:
            try:
                connection, _ = server.accept()
                with connection:
                    connection.settimeout(_PATIENCE_S)
                    try:
                        return _receive(connection, size)
                    finally:
                        # Before its connection closes, which it would report with a traceback.
                        sender.kill()
            finally:
                sender.kill()


def _receive(connection: socket.socket, size: int) -> float:
    buffer = bytearray(PIECE)
    connection.sendall(b"!")
    begin = time.perf_counter()
    received = 0
    while received < size:
        count = connection.recv_into(buffer)
        if count == 0:
            raise ConnectionError("the process that measures the loopback ended early")
        received += count
    return time.perf_counter() - begin
