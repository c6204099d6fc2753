"""Ctrl-C while modules are imported: the process ends at once.  Nothing needs to be closed at that
point, and a traceback from an import statement helps nobody. This module imports only modules that
are loaded anyway.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

#: As `runnel.cli.failure.EXIT_INTERRUPTED`, which is not imported yet where this is needed.
EXIT_INTERRUPTED = 130


def interrupt_ends_at_once(wanted: bool) -> None:
    """Make Ctrl-C end the process, or (not ``wanted``) raise KeyboardInterrupt again."""
    # A shell starts background jobs with SIGINT ignored; it stays ignored.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _end_at_once if wanted else signal.default_int_handler)


@contextmanager
def importing() -> Iterator[None]:
    """A block of imports during which Ctrl-C ends the process at once."""
    if threading.current_thread() is not threading.main_thread():
        # Only the main thread may set signal handlers.
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    interrupt_ends_at_once(True)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end_at_once(_signal: int, _frame: FrameType | None) -> None:
    try:
        os.write(2, b"interrupted\n")
    finally:
        os._exit(EXIT_INTERRUPTED)
