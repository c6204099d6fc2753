"""What ``runnel consume --name`` says and commits when a signal ends it; without a cluster."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from runnel.cli import failure
from runnel.cli.commands import app
from runnel.cli.records import consume

pytestmark = pytest.mark.usefixtures("signal_handlers")

NOTE = "The consumer of 't' could not commit: gave up after 5 s"


class Consumer:
    """Ends by ``reading``; ``leaving`` is called when it is left after that."""

    def __init__(self, reading: Callable[[], None], leaving: Callable[[Any], None]) -> None:
        self.reading = reading
        self.leaving = leaving
        self.left = False
        self.cluster_saw: BaseException | None = None

    def batches(self, *, max_records: int | None) -> Iterator[pa.RecordBatch]:
        assert max_records == 1000
        self.reading()
        yield from ()

    def __exit__(self, _kind: object, error: BaseException, _traceback: object) -> None:
        self.leaving(error)
        self.left = True

    def close(self) -> None:
        self.leaving(None)
        self.left = True


def ends(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, list[str]]:
    """Exit code and lines on standard error of a ``runnel consume t --name n``."""

    @contextmanager
    def connected(_sc: str | None) -> Iterator[Any]:
        topic = SimpleNamespace(spec=None)
        try:
            yield SimpleNamespace(consumer=lambda *_, **_options: consumer, get=lambda *_: topic)
        except BaseException as error:
            consumer.cluster_saw = error
            raise

    monkeypatch.setattr(consume, "connected", connected)
    monkeypatch.setattr(consume, "say_what_is_awaited", lambda *_, **_options: None)
    code = failure.run(lambda **more: app(["consume", "t", "--name", "n"], **more))
    return code, capsys.readouterr().err.splitlines()


def terminate(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def breaks_the_pipe() -> None:
    raise BrokenPipeError


def note(error: BaseException | None) -> None:
    assert error is not None
    error.add_note(NOTE)


@pytest.mark.parametrize("reading", [terminate, breaks_the_pipe])
def test_given_a_commit_that_fails_at_the_end_then_it_says_so_and_1(
    reading: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert ends(Consumer(reading, note), monkeypatch, capsys) == (1, [f"error: {NOTE}"])


def test_given_two_signals_then_the_last_commit_is_not_cut_short(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    consumer = Consumer(terminate, terminate)
    assert ends(consumer, monkeypatch, capsys) == (0, [])
    assert consumer.left
    # It closes what a signal has kept from being left, and must not take it for done.
    assert isinstance(consumer.cluster_saw, KeyboardInterrupt)
    # Afterwards, signals end the command again.
    assert signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN


def test_given_a_signal_during_the_commit_after_the_last_record_then_143(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    consumer = Consumer(lambda: None, terminate)
    assert ends(consumer, monkeypatch, capsys) == (143, ["terminated"])
    assert not consumer.left
