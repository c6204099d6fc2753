"""The other process of the loopback floor: sends so many bytes to a port of this host.

    python loopback_sender.py PORT BYTES PIECE

Run by path and isolated: it needs nothing but the standard library, so it starts fast. It waits for
one byte, so that starting it is not part of what is measured.
"""

from __future__ import annotations

import os
import socket
import sys


def main(port: int, size: int, piece_bytes: int) -> None:
    """Connect, wait for the start byte, and send."""
    piece = os.urandom(piece_bytes)
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.recv(1)
        for at in range(0, size, piece_bytes):
            connection.sendall(piece[: min(piece_bytes, size - at)])


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
