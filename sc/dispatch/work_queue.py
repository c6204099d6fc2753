"""Keys that wait to be reconciled: each at most once, and never two workers on one key.

A key added while it is being worked on is handed out again afterwards, once, however often it
was added. Handing out follows the order of adding. The queue is bounded by the number of keys
that exist. `WorkQueueState` is the pure core; `WorkQueue` adds waiting and timers.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from sc.controllers.actions import Key


@dataclass(slots=True)
class WorkQueueState:
    """Waiting, active and dirty keys, with the cause of the newest wish to look at each."""

    waiting: dict[Key, str] = field(default_factory=dict)
    active: set[Key] = field(default_factory=set)
    dirty: dict[Key, str] = field(default_factory=dict)

    def add(self, key: Key, cause: str) -> None:
        if key in self.active:
            self.dirty[key] = cause
        else:
            self.waiting[key] = cause

    def take(self) -> tuple[Key, str] | None:
        """The key that waits longest, now active; None when none waits."""
        if not self.waiting:
            return None
        key = next(iter(self.waiting))
        cause = self.waiting.pop(key)
        self.active.add(key)
        return key, cause

    def done(self, key: Key) -> None:
        """The work on an active key ended."""
        self.active.discard(key)
        if (cause := self.dirty.pop(key, None)) is not None:
            self.waiting[key] = cause


class WorkQueue:
    """The queue as workers use it."""

    def __init__(self) -> None:
        self._state = WorkQueueState()
        self._wakeup = asyncio.Event()
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        #: Set once the queue has been worked off for the first time.
        self.worked_off = asyncio.Event()

    def __len__(self) -> int:
        return len(self._state.waiting) + len(self._state.active)

    @property
    def idle(self) -> bool:
        """Nothing waits and nothing is being worked on (timers do not count)."""
        return not self._state.waiting and not self._state.active

    def add(self, key: Key, cause: str) -> None:
        self._state.add(key, cause)
        self._wakeup.set()

    def add_after(self, key: Key, cause: str, delay_ms: float) -> None:
        """Add a key later. An earlier timer of the same key stands."""
        loop = asyncio.get_running_loop()
        at = loop.time() + max(0.0, delay_ms) / 1000
        current = self._timers.get(key)
        if current is not None:
            if current.when() <= at:
                return
            current.cancel()
        self._timers[key] = loop.call_at(at, self._fire, key, cause)

    async def take(self) -> tuple[Key, str]:
        """Wait for a key and make it active."""
        while True:
            found = self._state.take()
            if found is not None:
                return found
            self._wakeup.clear()
            await self._wakeup.wait()

    def done(self, key: Key) -> None:
        self._state.done(key)
        if self._state.waiting:
            self._wakeup.set()
        elif self.idle:
            self.worked_off.set()

    def close(self) -> None:
        """Cancel all timers."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _fire(self, key: Key, cause: str) -> None:
        self._timers.pop(key, None)
        self.add(key, cause)
