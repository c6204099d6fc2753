"""TCP's own questions whether the other end is still there.

A host that vanishes (power, network, a frozen virtual machine) closes nothing. Without these
questions its connections would stay open for as long as nothing is written, and for many minutes
after that. With them the kernel gives such a connection up within about a minute.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Final

#: Ask after so much silence, so often, and give up after so many questions without an answer.
IDLE_S: Final = 30
INTERVAL_S: Final = 10
PROBES: Final = 3
#: Written bytes that nobody acknowledges for this long end the connection, too.
UNACKNOWLEDGED_MS: Final = 60_000

#: Not every system has, or names, all of them.
_OPTIONS: Final = (
    ("TCP_KEEPIDLE", IDLE_S),
    ("TCP_KEEPALIVE", IDLE_S),
    ("TCP_KEEPINTVL", INTERVAL_S),
    ("TCP_KEEPCNT", PROBES),
    ("TCP_USER_TIMEOUT", UNACKNOWLEDGED_MS),
)


def keep_alive(transport: asyncio.BaseTransport) -> None:
    """Have the kernel end this connection when the other end has vanished."""
    found = transport.get_extra_info("socket")
    if found is None:
        return
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _OPTIONS:
        if hasattr(socket, name):
            found.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
