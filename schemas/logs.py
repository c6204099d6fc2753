"""One way to set up structured logs in every process: a JSON object a line, on stderr.

Lines carry the process's name and the causality id of the chain they belong to.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any, Final

import structlog

from schemas.causality import current_cause
from schemas.errors import InvalidRequestError

LEVELS: Final = ("debug", "info", "warning", "error", "critical")


def _add_cause(
    _logger: Any, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    event.setdefault("cause", current_cause())
    return event


def configure_logs(process: str, *, level: str = "info") -> None:
    """Send every log of this process to stderr. ``process`` is for example ``sc`` or ``spu-3``.

    Raises InvalidRequestError for an unknown level.
    """
    if level.lower() not in LEVELS:
        raise InvalidRequestError(f"unknown log level {level!r}; use one of {', '.join(LEVELS)}")
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _add_cause,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(sort_keys=False),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(process=process)


def get_logger(module: str) -> structlog.stdlib.BoundLogger:
    """A logger that names the module it speaks for."""
    logger: structlog.stdlib.BoundLogger = structlog.get_logger(module=module)
    return logger
