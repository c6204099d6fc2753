"""The severities are those of Python's logging."""

from __future__ import annotations

import logging

from schemas.daemon.log_options import LogLevel


def test_numbers_are_those_of_python() -> None:
    assert {level: level.number for level in LogLevel} == {
        level: logging.getLevelName(level.upper()) for level in LogLevel
    }
