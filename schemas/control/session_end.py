"""How a session between an SPU and the SC ended, and the codes with which one end closes it.

A WebSocket that is closed properly carries a code. The end of a process or of its host leaves no
code: the operating system ends the connection, or nothing comes any more. So the code tells an SPU
that lives and will be back from one that is gone. Neighbours: `connection_manager.session` sends
and reads the codes, `sc.store.suspicions` decides what an end means.
"""

from __future__ import annotations

from enum import Enum, IntEnum


class CloseCode(IntEnum):
    """Why one end closes a session. Other codes mean that it will connect again."""

    NORMAL = 1000
    """No special reason; earlier releases close with this code whatever the reason."""
    SILENT = 4000
    """The other end missed its heartbeats."""
    GOODBYE = 4001
    """This end stops."""


class SessionEnd(Enum):
    """How a session ended, seen from one end."""

    LOST = "lost"
    """The connection ended without a code: the other process is gone."""
    SILENT = "silent"
    """The other end missed its heartbeats while the connection was open."""
    GOODBYE = "goodbye"
    """The other end said that it stops."""
    CLOSED = "closed"
    """One of the ends closed it for another reason: the other end may be back at once."""


def end_by(code: int | None) -> SessionEnd:
    """How a session ended that the other end closed with this code. Unknown codes are taken for
    those of an end that will be back."""
    return SessionEnd.GOODBYE if code == CloseCode.GOODBYE else SessionEnd.CLOSED
