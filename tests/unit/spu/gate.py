"""A call that is made in a thread, held up until a test lets it go on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.unit.spu.builders import DEADLINE_S


@contextmanager
def gate(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str
) -> Iterator[tuple[threading.Event, threading.Event]]:
    """Hold up a call that is made in a thread; gives what says that it came, and what lets it
    go on."""
    entered, opened = threading.Event(), threading.Event()
    before = getattr(owner, name)

    def held(*args: Any, **kwargs: Any) -> Any:
        entered.set()
        if not opened.wait(DEADLINE_S):
            raise AssertionError(f"nobody let {name} go on")
        return before(*args, **kwargs)

    monkeypatch.setattr(owner, name, held)
    try:
        yield entered, opened
    finally:
        # A failed test must not keep the thread.
        opened.set()
