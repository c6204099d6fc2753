"""What this machine can do at most, measured in the same run as what is compared with it.

Sequential write: the same bytes with ``pwrite`` into one file, then one fsync. Loopback: the same
bytes from one process to another through a TCP socket on 127.0.0.1. Both in 1 MiB pieces.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import time
from pathlib import Path

PIECE = 1 << 20


def sequential_write(directory: Path, size: int) -> float:
    """Seconds to write ``size`` bytes and make them durable."""
    piece = os.urandom(PIECE)
    path = directory / "floor.bin"
    begin = time.perf_counter()
    with path.open("wb", buffering=0) as file:
        for at in range(0, size, PIECE):
            file.write(piece[: min(PIECE, size - at)])
        os.fsync(file.fileno())
    seconds = time.perf_counter() - begin
    path.unlink()
    return seconds


def loopback_copy(size: int) -> float:
    """Seconds to move ``size`` bytes between two processes."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        context = multiprocessing.get_context("spawn")
        sender = context.Process(target=_send, args=(server.getsockname()[1], size))
        sender.start()
        connection, _ = server.accept()
        with connection:
            buffer = bytearray(PIECE)
            connection.sendall(b"!")
            begin = time.perf_counter()
            received = 0
            while received < size:
                count = connection.recv_into(buffer)
                if count == 0:
                    raise ConnectionError("the sender ended early")
                received += count
            seconds = time.perf_counter() - begin
        sender.join()
    return seconds


def _send(port: int, size: int) -> None:
    piece = os.urandom(PIECE)
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.recv(1)
        for at in range(0, size, PIECE):
            connection.sendall(piece[: min(PIECE, size - at)])
