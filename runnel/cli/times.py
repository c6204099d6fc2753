"""Times that users give on the command line."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from schemas.errors import InvalidRequestError
from schemas.objects.quantities import parse_duration_ms


def parse_time(text: str, now: datetime, option: str = "--at") -> datetime:
    """A time in ISO 8601 (UTC unless it says otherwise), or ``-1h`` for an hour before ``now``.

    Raises InvalidRequestError that names the option.
    """
    if re.match(r"^-\d", text):
        try:
            return now - timedelta(milliseconds=parse_duration_ms(text[1:]))
        except ValueError as error:
            raise InvalidRequestError(f"{option}: {error}") from error
        except OverflowError:
            raise InvalidRequestError(
                f"{option}: {text!r} is before the year 1; write -1h for an hour ago"
            ) from None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidRequestError(
            f"{option}: {text!r} is not a time; write 2026-01-31T12:00:00, or -1h for an hour ago"
        ) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def parse_since(text: str, now: datetime) -> datetime:
    """The time of ``--since``: ``10m`` is ten minutes before ``now``, and all that `parse_time`
    takes. Raises InvalidRequestError."""
    if re.fullmatch(r"([0-9]+(\.[0-9]+)?(ms|[wdhms]))+", text):
        text = f"-{text}"
    try:
        return parse_time(text, now, "--since")
    except InvalidRequestError as error:
        if "is not a time" not in error.message:
            raise
        raise InvalidRequestError(
            f"--since: {text!r} is neither a duration nor a time; write 10m for the last ten"
            " minutes, or 2026-01-31T12:00:00"
        ) from None
