"""What a command says while it takes long: a spinner on a terminal, and elsewhere a line at times.

Scripts and CI have no terminal. They get the first line after `QUIET_S`, so that what is fast says
nothing, then one when something has changed, and one a minute in any case.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from runnel.cli.failure import say, stderr

#: Between two lines, and before the first.
QUIET_S: Final = 10.0
#: A line that says the same once more.
AGAIN_S: Final = 60.0
_LOOK_S: Final = 0.5


@dataclass(slots=True)
class Lines:
    """Which lines are due. Pure: times are seconds since the command began to wait."""

    text: str
    said: str | None = None
    said_s: float = 0.0

    def due(self, now_s: float) -> str | None:
        """The line to print now, if any; it counts as printed."""
        silent_s = now_s - self.said_s
        if silent_s < (AGAIN_S if self.text == self.said else QUIET_S):
            return None
        self.said, self.said_s = self.text, now_s
        return self.text


@contextmanager
def progress(text: str) -> Iterator[Callable[[str], None]]:
    """Show what is waited for until the block ends; gives what changes the text, from any
    thread."""
    if sys.stderr.isatty():
        # Here, because it takes long to import. A name or a reason is no markup, whatever it holds.
        from rich.text import Text

        with stderr().status(Text(text)) as spinner:
            yield lambda text: spinner.update(Text(text))
        return
    lines, ended = Lines(text), threading.Event()
    thread = threading.Thread(target=_print, args=(lines, ended), name="progress", daemon=True)
    thread.start()

    def update(text: str) -> None:
        lines.text = text

    try:
        yield update
    finally:
        ended.set()
        thread.join()


@contextmanager
def going_on(text: str) -> Iterator[None]:
    """Say, where Ctrl-C or SIGTERM ends the block, that what it waits for goes on, and what ends
    that."""
    try:
        yield
    except KeyboardInterrupt:
        say(text)
        raise


def _print(lines: Lines, ended: threading.Event) -> None:
    began = time.monotonic()
    while not ended.wait(_LOOK_S):
        if (line := lines.due(time.monotonic() - began)) is not None:
            say(line)
