"""One way to set up structured logs in every process: a JSON object a line, on stderr.

Lines carry the process's name and the causality id of the chain they belong to.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any, Final

import structlog

from schemas.causality import current_cause
from schemas.daemon.installation import name_in_clone
from schemas.errors import InvalidRequestError

LEVELS: Final = ("debug", "info", "warning", "error", "critical")


def _add_cause(
    _logger: Any, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    event.setdefault("cause", current_cause())
    return event


class _Libraries(logging.Handler):
    """What libraries say by Python's own logging, as lines like all others: a traceback of
    aiohttp's, which any stranger's bytes at a port bring about, would be a dozen of no form."""

    def emit(self, record: logging.LogRecord) -> None:
        logger = get_logger(record.name)
        logger.log(record.levelno, record.getMessage(), exc_info=record.exc_info)


def configure_logs(process: str, *, level: str = "info") -> None:
    """Send every log of this process to stderr, those of libraries from warnings on.
    ``process`` is for example ``sc`` or ``spu-3``.

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
    root = logging.getLogger()
    root.handlers = [one for one in root.handlers if not isinstance(one, _Libraries)]
    root.addHandler(_Libraries())
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(process=process)


def get_logger(module: str) -> structlog.stdlib.BoundLogger:
    """A logger that names the module it speaks for; ``module`` is that one's ``__name__``."""
    name = name_in_clone(module)
    logger: structlog.stdlib.BoundLogger = structlog.get_logger(module=name)
    return logger


def last_trouble(log: Path, begin: int = 0) -> str:
    """What a daemon said last behind a position of its log: a warning, an error, or words that
    are no log line, such as why it cannot run. Empty where it complained of nothing."""
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
