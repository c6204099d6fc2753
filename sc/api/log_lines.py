"""``/v1/logs``: what a reader asks for, and the answer from the ring of the SC's own lines. Pure.

Neighbour: `schemas.daemon.log_ring`.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Final

from sc.api.requests import Query
from schemas.daemon.log_options import LogLevel
from schemas.daemon.log_ring import DEFAULT_ANSWER_LINES, LogPage, LogPosition, LogQuery, LogRing
from schemas.errors import InvalidRequestError

PROCESS: Final = "sc"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def read_log_query(query: Query) -> LogQuery:
    """Raises InvalidRequestError that names the parameter."""
    level, after = query.text("level"), query.text("after")
    return LogQuery(
        since_us=read_since(query.text("since")),
        level=_level(level) if level is not None else LogLevel.DEBUG,
        cause=query.text("cause"),
        limit=query.number("limit") or DEFAULT_ANSWER_LINES,
        after=_position(after) if after is not None else None,
    )


def read_since(text: str | None) -> int:
    """A time in microseconds since 1970; 0 for None. Raises InvalidRequestError."""
    if text is None:
        return 0
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidRequestError(
            f"since: {text!r} is not a time; write 2026-01-31T12:00:00Z"
        ) from None
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return max(0, (found - _EPOCH) // _MICROSECOND)


def log_lines_text(ring: LogRing, query: LogQuery) -> str:
    """The answer, as JSON. The lines in it are JSON already."""
    page = ring.read(query)
    lines = b",".join(page.lines).decode()
    rest = json.dumps(
        {"next": str(page.next), "complete": page.complete, "keptSince": _kept_since(page)}
    )
    return f'{{"process": "{PROCESS}", "lines": [{lines}], {rest[1:]}'


def _kept_since(page: LogPage) -> str | None:
    if not page.kept_since_us:
        return None
    return (_EPOCH + page.kept_since_us * _MICROSECOND).isoformat().replace("+00:00", "Z")


def _level(text: str) -> LogLevel:
    try:
        return LogLevel(text.lower())
    except ValueError:
        raise InvalidRequestError(
            f"level: {text!r} is unknown; use one of {', '.join(LogLevel)}"
        ) from None


def _position(text: str) -> LogPosition:
    try:
        return LogPosition.parse(text)
    except ValueError as error:
        raise InvalidRequestError(f"after: {error}") from None
