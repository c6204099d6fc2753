"""One way to set up structured logs in every process, on stderr: text for people on a terminal, a
JSON object a line elsewhere.

Each line begins with its time, level and event. It carries the process's name and the causality id
of the chain that it belongs to. A line that cannot be written is dropped
(`schemas.daemon.log_lines`). Neighbours: `schemas.daemon.log_options` names what users may choose,
`schemas.daemon.log_text` makes the text.
"""

from __future__ import annotations

import logging
import os
import secrets
import sys
from collections.abc import MutableMapping
from functools import partial
from typing import Any, Final, TextIO

from schemas.causality import current_cause
from schemas.daemon.imports import import_without
from schemas.daemon.installation import name_in_clone
from schemas.daemon.log_lines import LogLines
from schemas.daemon.log_options import LogFormat, LogLevel
from schemas.daemon.log_ring import LogRing
from schemas.daemon.log_text import FIRST, format_line

# structlog imports Rich where it finds it, to draw tracebacks in terminals: 6 MiB and a tenth of a
# second of each daemon, whose lines are JSON.
import_without("rich", "structlog")
import structlog  # noqa: E402

_stamped: Final = structlog.processors.TimeStamper(fmt="iso", utc=True)
_rendered: Final = structlog.processors.JSONRenderer(sort_keys=False)


def _add_cause(
    _logger: Any, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    event.setdefault("cause", current_cause())
    return event


def _order(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """The same fields, time, level and event first."""
    return {name: event.pop(name) for name in FIRST if name in event} | dict(event)


def _render_text(
    _logger: Any, _method: str, event: MutableMapping[str, Any], *, colors: bool
) -> str:
    return format_line(event, colors=colors)


class _Output:
    """The last processor: keeps a line in the ring as JSON, and renders it for stderr."""

    def __init__(self, ring: LogRing, render: Any) -> None:
        self._ring = ring
        self._render = render

    def __call__(self, logger: Any, method: str, event: MutableMapping[str, Any]) -> str:
        as_json = str(_rendered(logger, method, event))
        self._ring.append(event, as_json)
        return as_json if self._render is _rendered else str(self._render(logger, method, event))


class _Libraries(logging.Handler):
    """Turns the records of Python's own logging, which libraries use, into lines like all others.
    Otherwise each malformed request at a port would print a traceback of aiohttp."""

    def emit(self, record: logging.LogRecord) -> None:
        logger = get_logger(record.name)
        logger.log(record.levelno, record.getMessage(), exc_info=record.exc_info)


def _lost_line(render: Any, process: str, lost: int, why: str) -> str:
    """What stands in the log instead of lines that could not be written."""
    line = {
        "event": "log lines could not be written",
        "lines": lost,
        "reason": why,
        "level": "warning",
        "process": process,
        "module": name_in_clone(__name__),
        "cause": "-",
    }
    return str(render(None, "warning", _order(None, "warning", _stamped(None, "warning", line))))


def configure_logs(
    process: str, *, level: LogLevel = LogLevel.INFO, form: LogFormat = LogFormat.AUTO
) -> LogRing:
    """Send every log of this process to stderr, those of libraries from warnings on, and give the
    ring that keeps the last lines. ``process`` is for example ``sc`` or ``spu-3``.

    Text is coloured on a terminal only, unless ``NO_COLOR`` is set.
    """
    terminal = _is_terminal(sys.stderr)
    if form is LogFormat.AUTO:
        form = LogFormat.TEXT if terminal else LogFormat.JSON
    render: Any = _rendered
    if form is LogFormat.TEXT:
        render = partial(_render_text, colors=terminal and _wants_colors())
    ring = LogRing(secrets.randbits(48) or 1)
    lines = LogLines(sys.stderr, partial(_lost_line, render, process))
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            _stamped,
            _add_cause,
            structlog.processors.format_exc_info,
            _order,
            _Output(ring, render),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level.number),
        logger_factory=lambda *_args: lines,
        cache_logger_on_first_use=True,
    )
    root = logging.getLogger()
    root.handlers = [one for one in root.handlers if not isinstance(one, _Libraries)]
    root.addHandler(_Libraries())
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(process=process)
    return ring


def get_logger(module: str) -> structlog.stdlib.BoundLogger:
    """A logger whose lines name a module; ``module`` is that module's ``__name__``."""
    name = name_in_clone(module)
    logger: structlog.stdlib.BoundLogger = structlog.get_logger(module=name)
    return logger


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        # It was closed.
        return False


def _wants_colors() -> bool:
    """See https://no-color.org: any value but an empty one turns colours off."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
