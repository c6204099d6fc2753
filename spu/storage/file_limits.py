"""Divides the files that an SPU's process may have open. Pure.

Clients are refused before log files cannot be opened, because a write that fails halts its replica.
The rest is for everything else: threads that write checkpoints and sync directories, the journal,
the sessions with the SC and other SPUs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from schemas.errors import InvalidRequestError

_OTHERS: Final = 64
_MIN_LOGS: Final = 16
_MAX_LOGS: Final = 4_096
_MIN_CLIENTS: Final = 8
_MAX_CLIENTS: Final = 1_000
_MIN_UNPROVEN: Final = 4
_MAX_UNPROVEN: Final = 128
LEAST: Final = _OTHERS + _MIN_LOGS + _MIN_CLIENTS + _MIN_UNPROVEN


@dataclass(frozen=True, slots=True)
class OpenFiles:
    """How many files all logs together may have open, how many clients may be connected, and how
    many connections may be open beside them that have not said HELLO yet."""

    logs: int
    clients: int
    unproven: int


def divide(limit: int) -> OpenFiles:
    """Divide ``limit``. Raises InvalidRequestError if it is too low."""
    if limit < LEAST:
        raise InvalidRequestError(
            f"an SPU needs at least {LEAST} open files, but this process may have {limit}: raise"
            " the limit (ulimit -n)"
        )
    logs = min(_MAX_LOGS, max(_MIN_LOGS, (limit - _OTHERS) // 4))
    left = limit - _OTHERS - logs
    unproven = min(_MAX_UNPROVEN, max(_MIN_UNPROVEN, left // 8))
    return OpenFiles(logs, min(_MAX_CLIENTS, left - unproven), unproven)
