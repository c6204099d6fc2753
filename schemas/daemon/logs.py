"""One way to write structured logs in every process: a JSON object a line, on stderr.

Lines carry the process's name and the causality id of the chain they belong to. A line that cannot
be written is dropped (`schemas.daemon.log_lines`). A process that did not call `configure_logs`
writes lines as well, without its name.
"""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from schemas.causality import current_cause
from schemas.daemon.installation import name_in_clone
from schemas.daemon.log_lines import LogLines
from schemas.errors import InvalidRequestError

LEVELS: Final = ("debug", "info", "warning", "error", "critical")
#: The same numbers as in Python's own logging.
_NUMBERS: Final = {name: logging.getLevelNamesMapping()[name.upper()] for name in LEVELS}

Line = dict[str, Any]


class Logger:
    """Writes lines that name a module. ``event`` says in a few words what happened, and fields say
    of what; values that are no JSON appear as their repr. ``exc_info`` adds a traceback."""

    __slots__ = ("_module",)

    def __init__(self, module: str) -> None:
        self._module = module

    def debug(self, event: str, /, **fields: Any) -> None:
        self.log("debug", event, **fields)

    def info(self, event: str, /, **fields: Any) -> None:
        self.log("info", event, **fields)

    def warning(self, event: str, /, **fields: Any) -> None:
        self.log("warning", event, **fields)

    def error(self, event: str, /, **fields: Any) -> None:
        self.log("error", event, **fields)

    def log(
        self, level: str, event: str, /, *, exc_info: BaseException | None = None, **fields: Any
    ) -> None:
        """Write a line of one of the `LEVELS`, unless it is below the process's."""
        if _NUMBERS[level] < _output.lowest:
            return
        line: Line = {"module": self._module, **fields, **_stamps(level, event)}
        line["cause"] = fields.get("cause", line["cause"])
        if exc_info is not None:
            line["exception"] = "".join(traceback.format_exception(exc_info)).rstrip("\n")
        _output.write(line)


def configure_logs(process: str, *, level: str = "info") -> None:
    """Send every log of this process to stderr, those of libraries from warnings on.
    ``process`` is for example ``sc`` or ``spu-3``.

    Raises InvalidRequestError for an unknown level.
    """
    global _output
    number = _NUMBERS.get(level.lower())
    if number is None:
        raise InvalidRequestError(f"unknown log level {level!r}; use one of {', '.join(LEVELS)}")
    lines = LogLines(sys.stderr, partial(_lost_line, process))
    _output = _Output(number, lambda line: lines.put(_rendered({"process": process, **line})))
    root = logging.getLogger()
    root.handlers = [one for one in root.handlers if not isinstance(one, _Libraries)]
    root.addHandler(_Libraries())


def get_logger(module: str) -> Logger:
    """A logger whose lines name a module; ``module`` is that module's ``__name__``."""
    return Logger(name_in_clone(module))


def last_trouble(log: Path, begin: int = 0) -> str:
    """The last complaint of a daemon after a position in its log: a warning, an error, or text
    that is no log line, such as why it cannot run. Empty if there is none."""
    try:
        with log.open("rb") as file:
            file.seek(begin)
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    for line in reversed([line for line in text.splitlines() if line.strip()]):
        try:
            event = json.loads(line)
        except ValueError:
            return line
        if not isinstance(event, dict):
            return line
        if event.get("level") in ("warning", "error", "critical", "warn", "fatal"):
            # etcd says `msg` and `error`.
            what = event.get("event") or event.get("msg")
            keys = ("reason", "why", "exception", "error")
            why = next((event[key] for key in keys if event.get(key)), None)
            return f"{what}: {why}" if why else str(what)
    return ""


class _Output:
    """Where the lines of this process go: those from the number of a level on, to a function."""

    __slots__ = ("lowest", "write")

    def __init__(self, lowest: int, write: Callable[[Line], None]) -> None:
        self.lowest = lowest
        self.write = write


class _Libraries(logging.Handler):
    """Turns the records of Python's own logging, which libraries use, into lines like all others.
    Otherwise each malformed request at a port would print a traceback of aiohttp."""

    def emit(self, record: logging.LogRecord) -> None:
        # A library may have levels of its own between the known ones.
        level = max(
            (name for name in LEVELS if _NUMBERS[name] <= record.levelno),
            key=_NUMBERS.__getitem__,
            default="debug",
        )
        failure = record.exc_info[1] if record.exc_info else None
        get_logger(record.name).log(level, record.getMessage(), exc_info=failure)


def _stamps(level: str, event: str) -> Line:
    """What every line has."""
    seconds, ns = divmod(time.time_ns(), 1_000_000_000)
    now = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{ns // 1000:06}Z"
    return {"event": event, "level": level, "timestamp": now, "cause": current_cause()}


def _rendered(line: Line) -> str:
    return json.dumps(line, default=repr)


def _lost_line(process: str, lost: int, why: str) -> str:
    """What stands in the log instead of lines that could not be written."""
    line = {
        "process": process,
        "module": name_in_clone(__name__),
        "lines": lost,
        "reason": why,
        **_stamps("warning", "log lines could not be written"),
        "cause": "-",
    }
    return _rendered(line)


def _write_unnamed(line: Line) -> None:
    # The stream as it is now: a process that configures nothing may have replaced it.
    LogLines(sys.stderr, partial(_lost_line, "-")).put(_rendered(line))


_output = _Output(_NUMBERS["info"], _write_unnamed)
