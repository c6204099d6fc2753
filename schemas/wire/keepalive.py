"""How the kernel finds out that the other end of a TCP connection is gone, and what it knows of it.

A host that vanishes (power, network, a frozen virtual machine) closes nothing. Without TCP's own
questions its connections would stay open for as long as nothing is written, and for many minutes
after that. With `keep_alive` the kernel gives such a connection up within about a minute.

A cut network is worse than it looks: TCP sends again after 0.2 s, 0.4 s, 0.8 s and so on, so what
was written during a cut of 20 s arrives up to 20 s after its end. A new connection works at once.
Where the kernel can bound these pauses (Linux since 6.15), it is asked to. `unacknowledged` tells
when it is time for a new one. What it says does not depend on the processes: the
kernel of the other end acknowledges also for a process that stands still or reads nothing.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

from schemas.wire.tcp_info import (
    TCP_INFO_BYTES,
    Pace,
    Unacknowledged,
    parse_pace,
    parse_tcp_info,
)

#: Linux's ``TCP_RTO_MAX_MS``, which Python does not name.
RTO_MAX_MS: Final = 44
_INT: Final = struct.Struct("=i")


class OverSocket(Protocol):
    """A transport, or a WebSocket: it knows its socket."""

    def get_extra_info(self, name: str, default: Any = None) -> Any: ...


@dataclass(frozen=True, slots=True)
class Patience:
    """Ask after so much silence, so often, and give up after so many questions without an answer.
    Written bytes that nobody acknowledges for ``unacknowledged_ms`` (0: as the system wants it)
    end the connection, too; so do bytes that the other end has no room for. TCP pauses for at most
    ``pause_ms`` before it sends again what was lost: on a line that was slow and lost much, the
    first pause is 1 to 3 s, and each next one twice as long, also when the line is good again."""

    idle_s: int
    interval_s: int
    probes: int
    unacknowledged_ms: int
    pause_ms: int = 6_000


#: For connections that may wait for long until the other end reads.
VANISHED: Final = Patience(30, 10, 3, 60_000)
#: For connections whose ends listen for each other, and end them themselves. On a line that loses
#: much, Linux counts the time without acknowledgements from a loss long ago that was made good, and
#: ended connections that worked. It derives such a time from shorter pauses, too, so theirs are
#: those of the system.
LISTENING: Final = Patience(30, 10, 3, 0, 120_000)
#: For connections with short requests, and another way to go on.
SILENT: Final = Patience(1, 1, 3, 3_000)


def keep_alive(transport: asyncio.BaseTransport) -> None:
    """Have the kernel end this connection when the other end has vanished."""
    if (found := _open_socket(transport)) is not None:
        be_patient(found, VANISHED)


def listen(transport: OverSocket) -> None:
    """Have the kernel leave a connection to its ends, which listen for each other from now on."""
    if (found := _open_socket(transport)) is not None:
        be_patient(found, LISTENING)


def give_up(transport: OverSocket) -> None:
    """Have the kernel end a connection soon that is being closed, if the other host takes nothing
    of what was written."""
    if (found := _open_socket(transport)) is not None:
        be_patient(found, SILENT)


def be_patient(connection: socket.socket, patience: Patience) -> None:
    """Have the kernel end a connection whose other end has vanished, by these times, and bound the
    pauses before it sends again."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # Not every system has, or names, all of them.
    for name, value in (
        ("TCP_KEEPIDLE", patience.idle_s),
        ("TCP_KEEPALIVE", patience.idle_s),
        ("TCP_KEEPINTVL", patience.interval_s),
        ("TCP_KEEPCNT", patience.probes),
        ("TCP_USER_TIMEOUT", patience.unacknowledged_ms),
    ):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        # This is Linux; an older one does not know the option.
        with suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, RTO_MAX_MS, patience.pause_ms)


def undelivered(transport: OverSocket) -> int | None:
    """How many bytes the kernel has that the other host has not acknowledged; None where it does
    not say (only Linux does)."""
    found = _open_socket(transport)
    if found is None or not hasattr(socket, "TCP_USER_TIMEOUT"):
        return None
    import fcntl
    import termios

    try:
        # On a socket of TCP this is what Linux calls SIOCOUTQ.
        told = fcntl.ioctl(found.fileno(), termios.TIOCOUTQ, bytes(_INT.size))
    except OSError:
        return None
    left: int = _INT.unpack(told)[0]
    return left


def unacknowledged(transport: asyncio.BaseTransport) -> Unacknowledged | None:
    """What the kernel knows of a connection; None where it does not say (only Linux does)."""
    return parse_tcp_info(_tcp_info(transport))


def pace(transport: OverSocket) -> Pace | None:
    """How fast a connection is; None where the kernel does not say (only Linux does)."""
    return parse_pace(_tcp_info(transport))


def _open_socket(transport: OverSocket) -> Any:
    """The socket of a connection; None once that is closed: uvloop's raises ValueError then."""
    found = transport.get_extra_info("socket")
    return None if found is None or found.fileno() < 0 else found


def _tcp_info(transport: OverSocket) -> bytes:
    found = _open_socket(transport)
    if found is None or not hasattr(socket, "TCP_INFO"):
        return b""
    try:
        told: bytes = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
    except OSError:
        return b""
    return told
