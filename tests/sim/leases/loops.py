"""An event loop in virtual time, one for each host, by the clock of that host."""

from __future__ import annotations

import asyncio
from asyncio import events
from collections.abc import Callable
from typing import Any, Final

_ROUNDED_S: Final = 1e-6


class _NoFiles:
    """A selector of a loop that waits for nothing but time."""

    def select(self, _timeout: float | None) -> list[Any]:
        return []

    def close(self) -> None:
        return


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs what is due by ``clock`` (seconds) when it is told to."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self._selector = _NoFiles()
        self._clock = clock
        # Times are converted between clocks, and come back rounded.
        self._clock_resolution = _ROUNDED_S

    def time(self) -> float:
        return self._clock()

    def next_due(self) -> float | None:
        """When something is to run, by its clock; None if nothing is."""
        found: Any = self
        if found._ready:
            return self.time()
        timers = [timer.when() for timer in found._scheduled if not timer.cancelled()]
        return min(timers, default=None)

    def turn(self) -> None:
        """Run all that is due."""
        found: Any = self
        events._set_running_loop(self)
        try:
            while (due := self.next_due()) is not None and due <= self.time() + _ROUNDED_S:
                found._run_once()
        finally:
            events._set_running_loop(None)

    def _process_events(self, _event_list: Any) -> None:
        return

    def _write_to_self(self) -> None:
        return
