"""``sc run`` and ``spu run`` become the daemon, with the options that it was given."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.runnel.cli.conftest import CommandLine


@pytest.mark.parametrize("daemon", ["sc", "spu"])
def test_given_options_of_the_log_then_the_daemon_gets_them(
    daemon: str, command: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    became: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda _program, arguments: became.append(arguments))
    file = tmp_path / "daemon.yaml"
    file.touch()
    done = command(daemon, "run", "-c", str(file), "--log-level", "debug", "--log-format", "text")
    assert done.code == 0
    (arguments,) = became
    assert arguments[-6:] == ["-c", str(file), "--log-level", "debug", "--log-format", "text"]


def test_given_an_unknown_format_then_the_known_ones(command: CommandLine) -> None:
    done = command("sc", "run", "--log-format", "xml")
    assert done.code == 2
    assert "auto" in done.err
