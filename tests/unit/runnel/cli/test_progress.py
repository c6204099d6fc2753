"""What is printed while a command takes long and there is no terminal."""

from __future__ import annotations

import io
import threading

import pytest
from rich.console import Console

from runnel.cli import progress as module
from runnel.cli.progress import AGAIN_S, QUIET_S, Lines, going_on, progress


@pytest.mark.parametrize(
    ("lines", "now_s", "line"),
    [
        pytest.param(Lines("a"), QUIET_S - 1, None, id="given-a-short-time-then-nothing"),
        pytest.param(Lines("a"), QUIET_S, "a", id="given-a-long-time-then-what-is-waited-for"),
        pytest.param(Lines("b", "a", 20.0), 20 + QUIET_S - 1, None, id="given-news-then-not-yet"),
        pytest.param(Lines("b", "a", 20.0), 20 + QUIET_S, "b", id="given-news-then-soon"),
        pytest.param(Lines("a", "a", 20.0), 20 + AGAIN_S - 1, None, id="given-no-news-then-quiet"),
        pytest.param(Lines("a", "a", 20.0), 20 + AGAIN_S, "a", id="given-no-news-then-again"),
    ],
)
def test_lines(lines: Lines, now_s: float, line: str | None) -> None:
    assert lines.due(now_s) == line
    if line is not None:
        assert lines.due(now_s) is None


def test_given_a_terminal_then_a_name_in_brackets_is_no_markup(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = Console(file=io.StringIO(), force_terminal=True, width=100)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr(module, "stderr", lambda: terminal)
    with terminal.capture() as shown, progress("waiting for topics/[/x]") as update:
        update("no SC answers at [fe80::1]:9003")
    assert "no SC answers at [fe80::1]:9003" in shown.get()


def test_given_no_terminal_then_lines_on_standard_error_until_it_ends(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = threading.Semaphore(0)

    def say(text: str) -> None:
        said.append(text)
        printed.release()

    said: list[str] = []
    monkeypatch.setattr(module, "QUIET_S", 0.0)
    monkeypatch.setattr(module, "_LOOK_S", 0.001)
    monkeypatch.setattr(module, "say", say)
    with progress("waiting for a") as update:
        assert printed.acquire(timeout=10)
        update("a is pending")
        assert printed.acquire(timeout=10)
    assert said == ["waiting for a", "a is pending"]
    assert "progress" not in [thread.name for thread in threading.enumerate()]
    assert capsys.readouterr().out == ""


def test_given_an_interrupt_then_what_goes_on_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(KeyboardInterrupt), going_on("the drain goes on"):
        raise KeyboardInterrupt
    with going_on("the next one goes on"):
        pass
    assert capsys.readouterr().err == "the drain goes on\n"
