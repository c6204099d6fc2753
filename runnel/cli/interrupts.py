"""What Ctrl-C does while modules are imported: the process ends at once.

Nothing is open then that would want to be closed, and a traceback of somebody's import statement
helps nobody. Only what is loaded anyway is imported here.
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
    """From here on, or (not ``wanted``) raise KeyboardInterrupt again."""
    # A shell starts what runs in the background with SIGINT ignored, and so it stays.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _end_at_once if wanted else signal.default_int_handler)


@contextmanager
def importing() -> Iterator[None]:
    """For a block that imports what a command needs."""
    if threading.current_thread() is not threading.main_thread():
        # Only the main thread sets what a signal does.
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
