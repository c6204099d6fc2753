"""What a user may choose of a daemon's log: the least severe level, and the format of its lines.

Imports none of what writing a log needs, so that the command can name the choices. Neighbour:
`schemas.daemon.logs` carries them out.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class LogLevel(StrEnum):
    """How severe a line is."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"

    @property
    def number(self) -> int:
        """The severity as in Python's ``logging``: 10 for debug, 50 for critical."""
        return _NUMBERS[self]


class LogFormat(StrEnum):
    """How a line looks. ``AUTO`` is text on a terminal, and JSON elsewhere."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"


_NUMBERS: Final[Mapping[LogLevel, int]] = {
    level: 10 * number for number, level in enumerate(LogLevel, start=1)
}
