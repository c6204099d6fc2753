"""What users ask of log lines and events, as the requests have it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from schemas.daemon.log_options import LogLevel
from schemas.errors import InvalidRequestError


def time_of_since(since: datetime | timedelta | None) -> datetime | None:
    """The time itself, or the time so long ago."""
    return datetime.now(UTC) - since if isinstance(since, timedelta) else since


def level_of(name: str) -> LogLevel:
    """A level by its name. Raises InvalidRequestError that lists them."""
    try:
        return LogLevel(name)
    except ValueError:
        raise InvalidRequestError(f"level: {name!r} is none of {', '.join(LogLevel)}") from None
