"""A log line as text for people: time, level and event first, then the fields, on one line.

An exception follows on lines of its own. Nothing in a line reaches the terminal as a control
character. Pure; neighbours: `schemas.daemon.logs` prints a daemon's lines with it,
``runnel cluster logs`` those of all daemons.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

#: The fields that every line begins with, in this order.
FIRST: Final = ("timestamp", "level", "event")
#: The fields of every line that say where it comes from; they follow those of the event.
_LAST: Final = ("process", "module", "cause")
_EXCEPTION: Final = "exception"
_LEVEL_WIDTH: Final = len("critical")
_COLORS: Final[Mapping[str, str]] = {
    "debug": "2",
    "info": "32",
    "warning": "33",
    "error": "31",
    "critical": "1;31",
}


def format_line(
    line: Mapping[str, Any], *, colors: bool = False, process_width: int | None = None
) -> str:
    """The text of a line, without a newline at its end.

    ``process_width`` shows the daemon in a column of this width behind the time, as lines of
    several daemons need it.
    """
    level = str(line.get("level", ""))
    padded = _printable(level).ljust(_LEVEL_WIDTH)
    parts = [
        _printable(str(line.get("timestamp", ""))),
        _colored(padded, _COLORS.get(level, ""), colors=colors),
        _colored(_printable(str(line.get("event", ""))), "1", colors=colors),
    ]
    left_out = {*FIRST, *_LAST, _EXCEPTION}
    names = [name for name in line if name not in left_out]
    last = [name for name in _LAST if name in line and line[name] != "-"]
    if process_width is not None:
        parts.insert(1, _printable(str(line.get("process", ""))).ljust(process_width))
        last = [name for name in last if name != "process"]
    parts += [_field(name, line[name]) for name in names]
    parts += [_colored(_field(name, line[name]), "2", colors=colors) for name in last]
    text = " ".join(parts)
    if _EXCEPTION in line:
        trace = str(line[_EXCEPTION]).splitlines()
        text = "\n".join([text, *(f"    {_printable(one)}" for one in trace)])
    return text


def _field(name: str, value: Any) -> str:
    return f"{_printable(name)}={_value(value)}"


def _value(value: Any) -> str:
    """Text as it is where that is unambiguous, everything else as JSON."""
    if isinstance(value, str) and value and not any(c in ' "=\\' for c in value):
        return _printable(value)
    try:
        return _printable(json.dumps(value, ensure_ascii=False))
    except (TypeError, ValueError):
        return _printable(repr(value))


def _printable(text: str) -> str:
    """Text whose control characters, and others that do not print, are escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _colored(text: str, code: str, *, colors: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if colors and code else text
