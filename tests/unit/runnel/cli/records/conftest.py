"""What tests of commands about records share."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from runnel.cli import interrupts


@pytest.fixture
def signal_handlers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A command's signal handlers, as far as this process goes."""
    monkeypatch.setattr(interrupts, "_received", signal.SIGINT)
    before = {each: signal.getsignal(each) for each in interrupts.SAID}
    interrupts.take_signals()
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
