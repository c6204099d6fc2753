"""Signals that end a command: Ctrl-C (SIGINT), SIGTERM and SIGHUP.

Each raises KeyboardInterrupt in the command, however often it comes: a command commits, deletes and
reports the same after each, and only the exit code differs. Outside of the command (while modules
are imported, once the command is over, and while the interpreter shuts down) each ends the process
at once, with the same word and the same code: nothing needs to be closed there, and a traceback
from inside an import or the interpreter's exit helps nobody.
This module imports only modules that are loaded anyway.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Final, TypeVar

T = TypeVar("T")

#: The last line of an interrupted command on standard error, by the signal.
SAID: Final = {
    signal.SIGINT: "interrupted",
    signal.SIGTERM: "terminated",
    signal.SIGHUP: "hung up",
}

_received: signal.Signals = signal.SIGINT
#: Whether a signal raises KeyboardInterrupt; otherwise it ends the process at once.
_raises = False
_told = False


def take_signals() -> None:
    """Handle these signals from now on, until the process has ended."""
    for number in SAID:
        # A shell starts background jobs with SIGINT ignored, and nohup ignores SIGHUP: that stays.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)
    # What is registered first runs last. After that the interpreter takes its handlers away, and
    # a signal would kill the process instead of leaving it its exit code.
    atexit.register(_ignore_signals)


def interruptible(command: Callable[[], T]) -> T:
    """Run the command: within it, signals raise KeyboardInterrupt. Gives its result."""
    global _raises, _told
    _told = False
    try:
        _raises = True
        return command()
    finally:
        # A function call here would give a second signal the time to raise outside of the command.
        _raises = False


def tell_ending() -> int:
    """Say on standard error which signal ended the command; gives the exit code."""
    global _told
    if not _told:
        _told = True
        # Standard error may be closed.
        with suppress(OSError):
            print(SAID[_received], file=sys.stderr, flush=True)
    return 128 + _received


@contextmanager
def importing() -> Iterator[None]:
    """A block of imports during which these signals end the process at once."""
    global _raises
    if threading.current_thread() is not threading.main_thread():
        # Only the main thread gets signals.
        yield
        return
    before, _raises = _raises, False
    try:
        yield
    finally:
        _raises = before


@dataclass
class Counted:
    """How many signals have come."""

    count: int = 0


@contextmanager
def counting(most: int) -> Iterator[Counted]:
    """A block of the main thread in which these signals are counted. The last of ``most``, and any
    after it, does what it would do without the block."""
    counted = Counted()
    handlers = {number: signal.getsignal(number) for number in SAID}

    def count(number: int, frame: FrameType | None) -> None:
        global _received
        _received = signal.Signals(number)
        counted.count += 1
        handler = handlers[_received]
        if counted.count >= most and callable(handler):
            handler(number, frame)

    taken = [number for number, handler in handlers.items() if callable(handler)]
    try:
        for number in taken:
            signal.signal(number, count)
        yield counted
    finally:
        # Ctrl-C last: after that one, nothing here goes on.
        for number in reversed(taken):
            signal.signal(number, handlers[number])


def _end(number: int, _frame: FrameType | None) -> None:
    global _received
    if _raises:
        _received = signal.Signals(number)
        # Between the making of a coroutine and the call that awaits it, nobody can catch this.
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        raise KeyboardInterrupt
    try:
        if not _told:
            # The stream may be in the middle of a line of the command.
            os.write(2, f"{SAID[signal.Signals(number)]}\n".encode())
    finally:
        os._exit(128 + number)


def _ignore_signals() -> None:
    for number in SAID:
        signal.signal(number, signal.SIG_IGN)
