"""Log lines as text: what people read first stands first, and nothing steers their terminal."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.daemon.log_text import format_line

LINE = {
    "timestamp": "2026-01-31T12:00:00.000001Z",
    "level": "info",
    "event": "leading",
    "process": "spu-3",
    "partition": "orders-0",
    "module": "spu.replica.replica",
    "cause": "api-1f9c",
}
BEGIN = "2026-01-31T12:00:00.000001Z info     leading"
END = "process=spu-3 module=spu.replica.replica cause=api-1f9c"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({}, f"{BEGIN} partition=orders-0 {END}", id="given-a-line"),
        pytest.param(
            {"offset": 7, "fit": True, "why": None},
            f"{BEGIN} partition=orders-0 offset=7 fit=true why=null {END}",
            id="given-values-of-other-types",
        ),
        pytest.param(
            {"why": "no room", "path": "a=b", "empty": ""},
            f'{BEGIN} partition=orders-0 why="no room" path="a=b" empty="" {END}',
            id="given-text-that-needs-quotes",
        ),
        pytest.param(
            {"why": {1, 2}.__class__},
            f"{BEGIN} partition=orders-0 why=<class 'set'> {END}",
            id="given-a-value-that-is-not-json",
        ),
        pytest.param(
            {"cause": "-"},
            f"{BEGIN} partition=orders-0 process=spu-3 module=spu.replica.replica",
            id="given-no-cause",
        ),
        pytest.param(
            {"exception": "Traceback\n  KeyError: \x1b[2J"},
            f"{BEGIN} partition=orders-0 {END}\n    Traceback\n      KeyError: \\x1b[2J",
            id="given-an-exception-then-lines-of-their-own",
        ),
        pytest.param(
            {"event": "a\x1b[2Jb", "peer\r": "x\ny\u202e"},
            f"{BEGIN.removesuffix('leading')}a\\x1b[2Jb partition=orders-0"
            f" peer\\r=x\\ny\\u202e {END}",
            id="given-control-characters-then-escapes",
        ),
    ],
)
def test_text(fields: dict[str, Any], expected: str) -> None:
    assert format_line(LINE | fields) == expected


def test_given_lines_of_several_daemons_then_each_names_its_own_behind_the_time() -> None:
    text = format_line(LINE, process_width=6)
    assert text.startswith("2026-01-31T12:00:00.000001Z spu-3  info     leading")
    assert "process=" not in text


def test_colors() -> None:
    text = format_line(LINE, colors=True)
    assert "\x1b[32minfo    \x1b[0m \x1b[1mleading\x1b[0m" in text


def test_given_a_line_of_another_version_then_text() -> None:
    assert format_line({"event": 7}) == f" {' ' * 8} 7"
