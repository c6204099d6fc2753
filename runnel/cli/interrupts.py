"""Signals that end a command: Ctrl-C (SIGINT), SIGTERM and SIGHUP.

While modules are imported, each ends the process at once: nothing needs to be closed at that point,
and a traceback from an import statement helps nobody. Afterwards SIGTERM and SIGHUP do what Ctrl-C
does: a command commits, deletes and reports the same after each, and only the exit code differs.
This module imports only modules that are loaded anyway.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

#: The last line of an interrupted command on standard error, by the signal.
SAID: Final = {
    signal.SIGINT: "interrupted",
    signal.SIGTERM: "terminated",
    signal.SIGHUP: "hung up",
}

_received: signal.Signals = signal.SIGINT


def ending_signal() -> signal.Signals:
    """The signal behind the last KeyboardInterrupt; its exit code is 128 and its number."""
    return _received


def interrupt_ends_at_once(wanted: bool) -> None:
    """Make these signals end the process, or (not ``wanted``) raise KeyboardInterrupt."""
    for number in SAID:
        # A shell starts background jobs with SIGINT ignored, and nohup ignores SIGHUP: that stays.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end_at_once if wanted else _INTERRUPTING[number])


@contextmanager
def importing() -> Iterator[None]:
    """A block of imports during which these signals end the process at once."""
    if threading.current_thread() is not threading.main_thread():
        # Only the main thread may set signal handlers.
        yield
        return
    before = {number: signal.getsignal(number) for number in SAID}
    interrupt_ends_at_once(True)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _as_ctrl_c(number: int, frame: FrameType | None) -> None:
    global _received
    _received = signal.Signals(number)
    # While asyncio runs, this is its handler, which cancels the main task.
    handler = signal.getsignal(signal.SIGINT)
    if callable(handler):
        handler(signal.SIGINT, frame)
        return
    raise KeyboardInterrupt


#: asyncio takes Ctrl-C over only from the interpreter's own handler.
_INTERRUPTING: Final = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: _as_ctrl_c,
    signal.SIGHUP: _as_ctrl_c,
}


def _end_at_once(number: int, _frame: FrameType | None) -> None:
    try:
        os.write(2, f"{SAID[signal.Signals(number)]}\n".encode())
    finally:
        os._exit(128 + number)
