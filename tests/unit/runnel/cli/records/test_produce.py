"""What ``runnel produce`` says when a signal ends it; no cluster is needed for that."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from runnel.cli import failure, interrupts
from runnel.cli.commands import app
from runnel.cli.records import produce

pytestmark = pytest.mark.usefixtures("signal_handlers")


def ends(capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    """Exit code and lines on standard error of a ``runnel produce t``."""
    code = failure.run(lambda **more: app(["produce", "t"], **more))
    return code, capsys.readouterr().err.splitlines()


@pytest.mark.parametrize("number", interrupts.SAID)
def test_given_a_signal_while_it_connects_then_it_says_that_nothing_is_stored(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def connected(_sc: str | None) -> Iterator[None]:
        os.kill(os.getpid(), number)
        yield

    monkeypatch.setattr(produce, "connected", connected)
    code, said = ends(capsys)
    assert code == 128 + number
    assert said == ["0 records acknowledged before the interrupt", interrupts.SAID[number]]


def test_given_a_second_signal_while_it_counts_then_it_says_so_all_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Stopped:
        """A producer that is interrupted, and interrupted again when it is asked what it sent."""

        def __enter__(self) -> None:
            raise KeyboardInterrupt

        def __exit__(self, *_: object) -> None: ...

        @property
        def metrics(self) -> SimpleNamespace:
            os.kill(os.getpid(), signal.SIGINT)
            return SimpleNamespace(records_sent=3, records_failed=2)

    @contextmanager
    def connected(_sc: str | None) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(
            producer=lambda _topic, **_options: Stopped(), get=lambda _kind, _name: None
        )

    monkeypatch.setattr(produce, "connected", connected)
    monkeypatch.setattr(produce, "say_what_is_awaited", lambda *_args, **_options: None)
    code, said = ends(capsys)
    assert code == 130
    assert said == ["3 records acknowledged before the interrupt, 2 not", "interrupted"]
