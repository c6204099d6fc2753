"""The last complaint in a daemon's log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from schemas.daemon.trouble import last_trouble


def event(level: str, text: str = "slow", **more: Any) -> str:
    return json.dumps({"level": level, "event": text, **more})


@pytest.mark.parametrize(
    ("said", "trouble"),
    [
        pytest.param([], "", id="given-nothing-said"),
        pytest.param([event("info"), event("debug")], "", id="given-no-complaint"),
        pytest.param([event("warning")], "slow", id="given-warning"),
        pytest.param([event("error")], "slow", id="given-error"),
        pytest.param([event("critical")], "slow", id="given-critical"),
        pytest.param(
            [event("warning", "one"), event("error", "two"), event("info", "three")],
            "two",
            id="given-several-then-the-last-complaint",
        ),
        pytest.param(
            [event("error", reason="disk full")], "slow: disk full", id="given-reason-then-both"
        ),
        pytest.param([event("error", why="disk full")], "slow: disk full", id="given-why"),
        pytest.param(
            [event("error", exception="KeyError: 1")], "slow: KeyError: 1", id="given-exception"
        ),
        pytest.param(
            [event("error", error="no", why="", reason="first")],
            "slow: first",
            id="given-several-reasons-then-the-first-that-says-something",
        ),
        pytest.param(
            ['{"level": "fatal", "msg": "discovery failed", "error": "timed out"}'],
            "discovery failed: timed out",
            id="given-etcd-fatal",
        ),
        pytest.param(
            ['{"level": "warn", "msg": "apply took too long"}'],
            "apply took too long",
            id="given-etcd-warning",
        ),
        pytest.param(
            [event("error"), "the SPU cannot run: port 9005 is taken"],
            "the SPU cannot run: port 9005 is taken",
            id="given-words-that-are-no-log-line-then-those",
        ),
        pytest.param(
            ["cannot run", event("info")], "cannot run", id="given-words-before-a-log-line"
        ),
        pytest.param(["cannot run", "", "  "], "cannot run", id="given-empty-lines-at-the-end"),
        pytest.param(["17"], "17", id="given-json-that-is-no-log-line-then-as-it-stands"),
    ],
)
def test_last_trouble(said: list[str], trouble: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"{line}\n" for line in said))
    assert last_trouble(log) == trouble


def test_given_a_position_then_only_what_stands_behind_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("older trouble\n")
    begin = log.stat().st_size
    assert last_trouble(log, begin) == ""
    log.write_text("older trouble\nnewer trouble\n")
    assert last_trouble(log, begin) == "newer trouble"


def test_given_no_log_then_no_trouble(tmp_path: Path) -> None:
    assert last_trouble(tmp_path / "absent") == ""


def test_given_bytes_that_are_no_text_then_they_are_shown_all_the_same(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"cannot read \xff\n")
    assert last_trouble(log) == "cannot read \N{REPLACEMENT CHARACTER}"
