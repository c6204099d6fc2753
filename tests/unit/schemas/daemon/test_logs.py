"""A log line is one JSON object that says who, what, when and why."""

from __future__ import annotations

import errno
import json
import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from schemas.causality import caused_by
from schemas.daemon.logs import LEVELS, configure_logs, get_logger
from schemas.errors import InvalidRequestError


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
        pytest.param("debug", ["debug", "info", "error"], id="given-debug-then-all"),
        pytest.param("info", ["info", "error"], id="given-info"),
        pytest.param("ERROR", ["error"], id="given-upper-case"),
        pytest.param("critical", [], id="given-critical-then-none-of-these"),
    ],
)
def test_levels(level: str, expected: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("sc", level=level)
    logger = get_logger("m")
    logger.debug("a")
    logger.info("b")
    logger.error("c")
    assert [line["level"] for line in lines(capsys)] == expected


def test_given_an_unknown_level_then_the_known_ones() -> None:
    with pytest.raises(InvalidRequestError) as raised:
        configure_logs("sc", level="verbose")
    assert raised.value.message == (
        "unknown log level 'verbose'; use one of debug, info, warning, error, critical"
    )
    assert LEVELS[1] == "info"


def test_values_that_are_not_json_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("sc")
    get_logger("m").info("odd", value=object, data=b"\xff")
    (line,) = lines(capsys)
    assert "object" in line["value"]
    assert line["data"] == "b'\\xff'"
