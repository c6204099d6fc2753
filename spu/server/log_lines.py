"""Answers LIST_LOG_LINES from the ring of this SPU's own log lines."""

from __future__ import annotations

from schemas.daemon.log_options import LogLevel
from schemas.daemon.log_ring import LogPosition, LogQuery, LogRing
from schemas.errors import InvalidRequestError
from schemas.wire.log_line_requests import (
    MAX_CAUSE_BYTES,
    ListLogLinesRequest,
    ListLogLinesResponse,
)


def list_log_lines(
    ring: LogRing, asked: ListLogLinesRequest, tail: memoryview
) -> tuple[bytes, bytes]:
    """The fixed part and the tail of the answer. Raises InvalidRequestError."""
    level = next((level for level in LogLevel if level.number >= asked.level), None)
    if level is None:
        raise InvalidRequestError(f"level {asked.level} is above critical; lines have at most 50")
    if len(tail) > MAX_CAUSE_BYTES:
        raise InvalidRequestError(f"a causality id has at most {MAX_CAUSE_BYTES} bytes")
    cause = bytes(tail).decode(errors="replace") or None
    after = LogPosition(asked.ring, asked.after) if asked.ring else None
    page = ring.read(LogQuery(asked.since_us, level, cause, asked.limit, after))
    response = ListLogLinesResponse(
        page.next.ring, page.next.after, page.kept_since_us, int(page.complete)
    )
    return response.pack(), b"".join(line + b"\n" for line in page.lines)
