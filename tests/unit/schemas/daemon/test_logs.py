"""A log line says when, how severe and what first, then who and why: as JSON, or as text."""

from __future__ import annotations

import errno
import io
import json
import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from schemas.causality import caused_by
from schemas.daemon.log_options import LogFormat, LogLevel
from schemas.daemon.log_ring import LogQuery
from schemas.daemon.logs import configure_logs, get_logger


@pytest.fixture(autouse=True)
def _own_configuration() -> Iterator[None]:
    root = logging.getLogger()
    before = list(root.handlers)
    yield
    root.handlers = before
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    captured = capsys.readouterr()
    assert captured.out == ""
    return [json.loads(line) for line in captured.err.splitlines()]


def test_the_shape_of_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("spu-3")
    with caused_by("api-1f9c"):
        get_logger("spu.replica.replica").info("leading", partition="orders-0", offset=7)
    (line,) = lines(capsys)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "process": "spu-3",
        "module": "spu.replica.replica",
        "level": "info",
        "event": "leading",
        "cause": "api-1f9c",
        "partition": "orders-0",
        "offset": 7,
    }


def test_the_cause_is_always_there_and_may_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("sc")
    logger = get_logger("sc.main")
    logger.info("outside of a chain")
    logger.info("of another chain", cause="timer-2")
    assert [line["cause"] for line in lines(capsys)] == ["-", "timer-2"]


def test_an_exception_is_one_line_too(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("sc")
    try:
        raise KeyError("lost")
    except KeyError:
        get_logger("sc.main").exception("failed")
    (line,) = lines(capsys)
    assert line["level"] == "error"
    assert "KeyError: 'lost'" in line["exception"]


def test_given_a_library_that_complains_then_that_is_one_line_too(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logs("sc")
    configure_logs("sc")
    library = logging.getLogger("aiohttp.server")
    library.info("nobody asked for that")
    try:
        raise ValueError("no\nmethod")
    except ValueError:
        library.exception("Error handling request from %s", "127.0.0.1")
    (line,) = lines(capsys)
    assert (line["module"], line["level"]) == ("aiohttp.server", "error")
    assert line["event"] == "Error handling request from 127.0.0.1"
    assert "ValueError: no" in line["exception"]


def test_given_lines_that_could_not_be_written_then_a_line_says_how_many(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    configure_logs("sc")

    def fail(_text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(sys.stderr, "write", fail)
        get_logger("sc.main").error("lost")
        logging.getLogger("aiohttp.server").error("lost as well")
    get_logger("sc.main").info("there is room")
    said, line = lines(capsys)
    assert said.pop("timestamp").endswith("Z")
    assert said == {
        "process": "sc",
        "module": "schemas.daemon.logs",
        "lines": 2,
        "reason": "[Errno 28] No space left on device",
        "event": "log lines could not be written",
        "level": "warning",
        "cause": "-",
    }
    assert line["event"] == "there is room"


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        pytest.param(LogLevel.DEBUG, ["debug", "info", "error"], id="given-debug-then-all"),
        pytest.param(LogLevel.INFO, ["info", "error"], id="given-info"),
        pytest.param(LogLevel.ERROR, ["error"], id="given-error"),
        pytest.param(LogLevel.CRITICAL, [], id="given-critical-then-none-of-these"),
    ],
)
def test_levels(level: LogLevel, expected: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("sc", level=level)
    logger = get_logger("m")
    logger.debug("a")
    logger.info("b")
    logger.error("c")
    assert [line["level"] for line in lines(capsys)] == expected


def test_time_level_and_event_come_first(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("sc")
    get_logger("m").info("leading", partition="orders-0")
    (line,) = lines(capsys)
    assert list(line)[:3] == ["timestamp", "level", "event"]


@pytest.mark.parametrize("form", [LogFormat.JSON, LogFormat.TEXT])
def test_the_ring_keeps_as_json_what_is_logged(
    form: LogFormat, capsys: pytest.CaptureFixture[str]
) -> None:
    ring = configure_logs("sc", form=form)
    get_logger("m").info("leading", partition="orders-0")
    get_logger("m").debug("nobody asked for that")
    logging.getLogger("aiohttp.server").error("bad request")
    leading, bad = [json.loads(line) for line in ring.read(LogQuery()).lines]
    assert (leading["event"], leading["partition"]) == ("leading", "orders-0")
    assert (bad["event"], bad["level"], bad["process"]) == ("bad request", "error", "sc")
    if form is LogFormat.JSON:
        assert lines(capsys) == [leading, bad]


def test_given_a_log_that_cannot_be_written_then_the_ring_has_its_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    ring = configure_logs("sc")
    get_logger("m").info("leading")
    assert len(ring.read(LogQuery()).lines) == 1


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "environment", "form", "is_text", "has_colors"),
    [
        pytest.param(Terminal, {}, LogFormat.AUTO, True, True, id="given-a-terminal"),
        pytest.param(Terminal, {"NO_COLOR": "1"}, LogFormat.AUTO, True, False, id="given-no-color"),
        pytest.param(
            Terminal, {"NO_COLOR": ""}, LogFormat.AUTO, True, True, id="given-an-empty-no-color"
        ),
        pytest.param(
            Terminal, {"TERM": "dumb"}, LogFormat.AUTO, True, False, id="given-a-dumb-terminal"
        ),
        pytest.param(Terminal, {}, LogFormat.JSON, False, False, id="given-json-on-a-terminal"),
        pytest.param(io.StringIO, {}, LogFormat.AUTO, False, False, id="given-a-file"),
        pytest.param(io.StringIO, {}, LogFormat.TEXT, True, False, id="given-text-in-a-file"),
    ],
)
def test_formats(
    stream: type[io.StringIO],
    environment: dict[str, str],
    form: LogFormat,
    is_text: bool,
    has_colors: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    written = stream()
    monkeypatch.setattr(sys, "stderr", written)
    configure_logs("sc", form=form)
    get_logger("m").info("leading")
    text = written.getvalue()
    assert text.startswith("{") is not is_text
    assert ("\x1b[" in text) is has_colors
    assert text.count("\n") == 1


def test_given_no_stderr_then_lines_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    configure_logs("sc")
    get_logger("m").info("leading")


def test_values_that_are_not_json_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("sc")
    get_logger("m").info("odd", value=object, data=b"\xff")
    (line,) = lines(capsys)
    assert "object" in line["value"]
    assert line["data"] == "b'\\xff'"
