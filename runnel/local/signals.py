"""Signals stop the work that a command began, but do not interrupt its cleanup."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_SHIELDED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def shielded() -> Iterator[None]:
    """Ignore Ctrl-C, SIGTERM and SIGHUP within the block.

    Only the main thread gets signals: no effect in others.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in _SHIELDED}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
