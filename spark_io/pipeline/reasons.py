"""Why a query failed, in a few lines: what Spark says holds plans, and calls of others. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

MAX_LINES: Final = 6
_MAX_LINE: Final = 300
#: From here on, Spark repeats the query.
_ENDS: Final = re.compile(r"^=== Streaming Query ===|^JVM stacktrace:", re.MULTILINE)
_OURS: Final = re.compile(r"(?:\w+\.)*errors\.\w+Error: (.*)")
_FRAME: Final = re.compile(r'  File "(.+)", line (\d+)')
_TRACEBACK: Final = "Traceback (most recent call last):"
_SQL_STATE: Final = re.compile(r"\s*SQLSTATE: \w{5}(?:; line \d+ pos \d+)?;?\s*$")
_PLAN: Final = re.compile(r"['~+:]|\s")


def reason_lines(text: str) -> list[str]:
    """At most `MAX_LINES` lines of a text that Spark gave as the reason."""
    text = _ENDS.split(text, 1)[0]
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if (ours := _OURS.fullmatch(line.rstrip())) is not None:
            # An error of Runnel says all that there is to say.
            found = [ours[1], *_message(lines[number + 1 :])]
            break
    else:
        found = list(_without_calls(lines))
    found = [line.strip() for line in found if line.strip()] or ["Spark gives no reason"]
    shown = [line if len(line) <= _MAX_LINE else f"{line[: _MAX_LINE - 1]}…" for line in found]
    return shown if len(shown) <= MAX_LINES else [*shown[: MAX_LINES - 1], "…"]


def _message(lines: list[str]) -> Iterator[str]:
    for line in lines:
        if _SQL_STATE.fullmatch(line) or not line.strip() or line.startswith(" "):
            return
        yield line


def _without_calls(lines: list[str]) -> Iterator[str]:
    """Lines without tracebacks and plans; an error in Python says where it was raised."""
    before, at = "", ""
    for line in lines:
        if line.rstrip().endswith(_TRACEBACK):
            before = line.rstrip().removesuffix(_TRACEBACK).rstrip()
            continue
        if (frame := _FRAME.match(line)) is not None:
            at = f" ({frame[1]}:{frame[2]})"
            continue
        if not line.strip() or _PLAN.match(line):
            continue
        said = _SQL_STATE.sub("", line)
        if said:
            yield f"{before} {said}{at}".strip()
        before, at = "", ""
    if before:
        yield before
