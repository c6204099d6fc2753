"""Options on a daemon's command line take precedence over its file."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from schemas.daemon.daemon import AnyCaseLogLevel, daemon_main
from schemas.daemon.log_options import LogFormat, LogLevel
from schemas.model import Model


class Config(Model):
    log_level: AnyCaseLogLevel = LogLevel.INFO
    log_format: LogFormat = LogFormat.AUTO


def run(monkeypatch: pytest.MonkeyPatch, file: Path, *options: str) -> tuple[int, list[Config]]:
    found: list[Config] = []
    monkeypatch.setattr(sys, "argv", ["sc", "-c", str(file), *options])
    return daemon_main("the SC", "runnel sc run", Config, found.append), found


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        pytest.param("", (), (LogLevel.INFO, LogFormat.AUTO), id="given-neither"),
        pytest.param(
            "logLevel: ERROR\nlogFormat: text\n",
            (),
            (LogLevel.ERROR, LogFormat.TEXT),
            id="given-a-file",
        ),
        pytest.param(
            "logLevel: error\nlogFormat: text\n",
            ("--log-level", "debug", "--log-format", "json"),
            (LogLevel.DEBUG, LogFormat.JSON),
            id="given-both-then-the-options",
        ),
    ],
)
def test_log_options(
    text: str,
    options: tuple[str, ...],
    expected: tuple[LogLevel, LogFormat],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "sc.yaml"
    file.write_text(text)
    code, (config,) = run(monkeypatch, file, *options)
    assert code == 0
    assert (config.log_level, config.log_format) == expected


def test_given_an_unknown_level_in_the_file_then_where_and_the_known_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "sc.yaml"
    file.write_text("logLevel: verbose\n")
    code, found = run(monkeypatch, file)
    assert (code, found) == (2, [])
    said = capsys.readouterr().err
    assert f"{file}:1: logLevel:" in said
    assert "critical" in said


def test_given_an_unknown_level_as_an_option_then_the_known_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, tmp_path / "sc.yaml", "--log-level", "verbose")
    assert ended.value.code == 2
    assert "critical" in capsys.readouterr().err
