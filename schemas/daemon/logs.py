"""One way to set up structured logs in every process: a JSON object a line, on stderr.

Lines carry the process's name and the causality id of the chain they belong to. A line that cannot
be written is dropped (`schemas.daemon.log_lines`).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from functools import partial
from typing import Any, Final

from schemas.causality import current_cause
from schemas.daemon.imports import import_without
from schemas.daemon.installation import name_in_clone
from schemas.daemon.log_lines import LogLines
from schemas.errors import InvalidRequestError

# structlog imports Rich where it finds it, to draw tracebacks in terminals: 6 MiB and a tenth of a
# second of each daemon, whose lines are JSON.
import_without("rich", "structlog")
import structlog  # noqa: E402

LEVELS: Final = ("debug", "info", "warning", "error", "critical")
_stamped: Final = structlog.processors.TimeStamper(fmt="iso", utc=True)
_rendered: Final = structlog.processors.JSONRenderer(sort_keys=False)


def _add_cause(
    _logger: Any, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    event.setdefault("cause", current_cause())
    return event


class _Libraries(logging.Handler):
    """Turns the records of Python's own logging, which libraries use, into lines like all others.
    Otherwise each malformed request at a port would print a traceback of aiohttp."""

    def emit(self, record: logging.LogRecord) -> None:
        logger = get_logger(record.name)
        logger.log(record.levelno, record.getMessage(), exc_info=record.exc_info)


def _lost_line(process: str, lost: int, why: str) -> str:
    """What stands in the log instead of lines that could not be written."""
    line = {
        "process": process,
        "module": name_in_clone(__name__),
        "lines": lost,
        "reason": why,
        "event": "log lines could not be written",
        "level": "warning",
        "cause": "-",
    }
    return str(_rendered(None, "warning", _stamped(None, "warning", line)))


def configure_logs(process: str, *, level: str = "info") -> None:
    """Send every log of this process to stderr, those of libraries from warnings on.
    ``process`` is for example ``sc`` or ``spu-3``.

    Raises InvalidRequestError for an unknown level.
    """
    if level.lower() not in LEVELS:
        raise InvalidRequestError(f"unknown log level {level!r}; use one of {', '.join(LEVELS)}")
    lines = LogLines(sys.stderr, partial(_lost_line, process))
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            _stamped,
            _add_cause,
            structlog.processors.format_exc_info,
            _rendered,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=lambda *_args: lines,
        cache_logger_on_first_use=True,
    )
    root = logging.getLogger()
    root.handlers = [one for one in root.handlers if not isinstance(one, _Libraries)]
    root.addHandler(_Libraries())
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(process=process)


def get_logger(module: str) -> structlog.stdlib.BoundLogger:
    """A logger whose lines name a module; ``module`` is that module's ``__name__``."""
    name = name_in_clone(module)
    logger: structlog.stdlib.BoundLogger = structlog.get_logger(module=name)
    return logger
