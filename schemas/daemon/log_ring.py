"""The last log lines of a process, kept in memory so that other hosts can ask for them.

A ring is bounded by lines and by bytes, and so is each answer. A line is stored as the JSON that is
sent, so a reader costs a scan and a copy, and nothing once it has its answer: where it is, it says
with its next request (`LogPosition`). Any thread may append.

Neighbours: `schemas.daemon.logs` appends; the SC serves its ring at ``/v1/logs``, an SPU as
LIST_LOG_LINES (`schemas.wire.log_line_requests`).
"""

from __future__ import annotations

import json
import re
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Self

from schemas.daemon.log_options import LogLevel

MAX_LINES: Final = 5_000
MAX_BYTES: Final = 2 << 20
#: Most bytes of the lines of one answer.
MAX_ANSWER_BYTES: Final = 1 << 20
#: Most lines of one answer, and how many there are if a reader does not say.
MAX_ANSWER_LINES: Final = 10_000
DEFAULT_ANSWER_LINES: Final = 1_000
#: A longer line is kept without the middle of its long texts.
MAX_LINE_BYTES: Final = 16 << 10
_KEPT_CHARACTERS: Final = 500
_ALWAYS_KEPT: Final = ("timestamp", "level", "event", "process", "module", "cause")
_POSITION: Final = re.compile(r"([0-9a-f]{1,16})-([0-9]{1,18})")


@dataclass(frozen=True, slots=True)
class LogPosition:
    """How far a reader got: behind line ``after`` of the ring with this id, which is another one
    after a restart of the process."""

    ring: int
    after: int

    def __str__(self) -> str:
        return f"{self.ring:x}-{self.after}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError."""
        if (match := _POSITION.fullmatch(text)) is None:
            raise ValueError(f"{text[:50]!r} is not what an earlier answer gave as next")
        return cls(int(match[1], 16), int(match[2]))


@dataclass(frozen=True, slots=True)
class LogQuery:
    """Which lines a reader wants: from a time on, of a level or more severe ones, of one cause.

    Without ``after`` it gets the newest ``limit`` of them, else the oldest ones behind it. A
    position in another ring counts as none.
    """

    since_us: int = 0
    level: LogLevel = LogLevel.DEBUG
    cause: str | None = None
    limit: int = DEFAULT_ANSWER_LINES
    after: LogPosition | None = None


@dataclass(frozen=True, slots=True)
class LogPage:
    """Lines as JSON, the oldest first.

    ``next``: where a reader goes on. ``complete`` is false if bounds left lines out: older ones,
    or those behind ``next`` for a reader that has a position. ``kept_since_us``: the time of the
    oldest line in the ring if earlier ones are forgotten, else 0.
    """

    lines: tuple[bytes, ...]
    next: LogPosition
    complete: bool
    kept_since_us: int


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    at_us: int
    level: int
    cause: str
    data: bytes

    def matches(self, query: LogQuery) -> bool:
        return (
            self.at_us >= query.since_us
            and self.level >= query.level.number
            and (query.cause is None or self.cause == query.cause)
        )


class LogRing:
    """The last lines of a process. ``ring_id`` tells it from the ring of an earlier process."""

    def __init__(
        self, ring_id: int, *, max_lines: int = MAX_LINES, max_bytes: int = MAX_BYTES
    ) -> None:
        self._id = ring_id
        self._max_lines = max_lines
        self._max_bytes = max_bytes
        self._lines: deque[_Line] = deque()
        self._bytes = 0
        self._last = 0
        self._lock = threading.Lock()

    def append(self, line: Mapping[str, Any], text: str) -> None:
        """Keep a line, which is ``text`` as JSON; forgets the oldest lines for it."""
        data = text.encode(errors="backslashreplace")
        if len(data) > MAX_LINE_BYTES:
            data = _shortened(line)
        at_us = _microseconds(line.get("timestamp"))
        level = _number(line.get("level"))
        with self._lock:
            self._last += 1
            self._lines.append(_Line(self._last, at_us, level, str(line.get("cause", "-")), data))
            self._bytes += len(data)
            while len(self._lines) > self._max_lines or self._bytes > self._max_bytes:
                self._bytes -= len(self._lines.popleft().data)

    def read(self, query: LogQuery) -> LogPage:
        """The lines that a reader wants, within the bounds of an answer."""
        with self._lock:
            lines, last = tuple(self._lines), self._last
        kept_since_us = lines[0].at_us if lines and lines[0].number > 1 else 0
        limit = min(query.limit, MAX_ANSWER_LINES)
        position = query.after
        if position is not None and position.ring == self._id:
            wanted = (line for line in lines if line.number > position.after)
            found, cut_by = _take((line for line in wanted if line.matches(query)), limit)
            # Up to the line that had no room, the reader has everything.
            upto = last if cut_by is None else cut_by.number - 1
        else:
            newest = (line for line in reversed(lines) if line.matches(query))
            found, cut_by = _take(newest, limit)
            found.reverse()
            upto = last
        return LogPage(tuple(found), LogPosition(self._id, upto), cut_by is None, kept_since_us)


def _take(lines: Any, limit: int) -> tuple[list[bytes], _Line | None]:
    """The first lines that fit into an answer, and the one that no longer did."""
    found: list[bytes] = []
    size = 0
    for line in lines:
        size += len(line.data) + 1
        if len(found) == limit or size > MAX_ANSWER_BYTES:
            return found, line
        found.append(line.data)
    return found, None


def _shortened(line: Mapping[str, Any]) -> bytes:
    """A line of at most `MAX_LINE_BYTES`, as JSON."""
    fields = {name: _middle_cut(value) for name, value in line.items()}
    data = json.dumps(fields).encode()
    if len(data) > MAX_LINE_BYTES:
        data = json.dumps({name: fields[name] for name in _ALWAYS_KEPT if name in fields}).encode()
    return data


def _middle_cut(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else repr(value)
    if len(text) <= 2 * _KEPT_CHARACTERS:
        return text
    left_out = len(text) - 2 * _KEPT_CHARACTERS
    return f"{text[:_KEPT_CHARACTERS]} … {left_out} characters … {text[-_KEPT_CHARACTERS:]}"


def _microseconds(timestamp: object) -> int:
    try:
        return round(datetime.fromisoformat(str(timestamp)).timestamp() * 1_000_000)
    except ValueError:
        return 0


def _number(level: object) -> int:
    try:
        return LogLevel(str(level)).number
    except ValueError:
        return LogLevel.INFO.number
