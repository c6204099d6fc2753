"""Signals stop the work that a command began, but do not interrupt its cleanup."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def shielded() -> Iterator[None]:
    """Ignore Ctrl-C within the block. Only the main thread gets signals: no effect in others."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Turn SIGTERM into an exception in the block (SystemExit with the exit code that shells use),
    so that the block can undo its work; no effect outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _end(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
