"""Keys that wait to be reconciled: each at most once, and never two workers on one key.

A key that is added while a worker has it is handed out once more afterwards, however often it was
added. Keys are handed out in the order in which they were added, but for those that are hastened.
The queue is bounded by the number of keys that exist. `WorkQueueState` is the pure core;
`WorkQueue` adds waiting and timers.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from dataclasses import dataclass, field

from sc.controllers.actions import Key


@dataclass(slots=True)
class WorkQueueState:
    """Waiting, active and dirty keys, each with the newest cause for reconciling it.

    ``waiting`` is not a plain dict: finding a dict's first key costs a step for each key removed.
    ``urgent`` are active keys that do not queue up once more.
    """

    waiting: OrderedDict[Key, str] = field(default_factory=OrderedDict)
    active: set[Key] = field(default_factory=set)
    dirty: dict[Key, str] = field(default_factory=dict)
    urgent: set[Key] = field(default_factory=set)

    def add(self, key: Key, cause: str) -> None:
        if key in self.active:
            self.dirty[key] = cause
        else:
            self.waiting[key] = cause

    def take(self) -> tuple[Key, str] | None:
        """The key that has waited longest, now active; None when none waits."""
        if not self.waiting:
            return None
        key, cause = self.waiting.popitem(last=False)
        self.active.add(key)
        return key, cause

    def hasten(self, key: Key) -> None:
        """Hand a key out next, if it waits; an active one when its work ends, if it is added until
        then."""
        if key in self.waiting:
            self.waiting.move_to_end(key, last=False)
        elif key in self.active:
            self.urgent.add(key)

    def done(self, key: Key) -> None:
        """The work on an active key ended."""
        self.active.discard(key)
        if (cause := self.dirty.pop(key, None)) is not None:
            self.waiting[key] = cause
            if key in self.urgent:
                self.waiting.move_to_end(key, last=False)
        self.urgent.discard(key)


class WorkQueue:
    """The queue as workers use it."""

    def __init__(self) -> None:
        self._state = WorkQueueState()
        #: Workers that wait for a key, the first to wait first. A key wakes one of them, not all.
        self._idle_workers: deque[asyncio.Future[None]] = deque()
        self._one_done = asyncio.Event()
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        #: Keys whose work failed, and is soon tried again.
        self._failed: set[Key] = set()
        #: Set once the queue has been empty for the first time, and nothing of its work is to be
        #: tried again.
        self.worked_off = asyncio.Event()

    def __len__(self) -> int:
        return len(self._state.waiting) + len(self._state.active)

    @property
    def idle(self) -> bool:
        """Whether no key waits or is active (timers do not count)."""
        return not self._state.waiting and not self._state.active

    def add(self, key: Key, cause: str) -> None:
        waiting = len(self._state.waiting)
        self._state.add(key, cause)
        if len(self._state.waiting) > waiting:
            self._wake_one()

    def hasten(self, key: Key) -> None:
        """Hand a key out next, if it waits; an active one when its work ends, if it is added until
        then."""
        self._state.hasten(key)

    def add_after(self, key: Key, cause: str, delay_ms: float) -> None:
        """Add a key later. An earlier timer of the same key stays."""
        loop = asyncio.get_running_loop()
        at = loop.time() + max(0.0, delay_ms) / 1000
        current = self._timers.get(key)
        if current is not None:
            if current.when() <= at:
                return
            current.cancel()
        self._timers[key] = loop.call_at(at, self._fire, key, cause)

    def retry_after(self, key: Key, cause: str, delay_ms: float) -> None:
        """As `add_after`, for a key whose work failed: the queue is not worked off before."""
        self._failed.add(key)
        self.add_after(key, cause, delay_ms)

    async def take(self) -> tuple[Key, str]:
        """Wait for a key and make it active."""
        while True:
            found = self._state.take()
            if found is not None:
                self._failed.discard(found[0])
                return found
            woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle_workers.append(woken)
            try:
                await woken
            except asyncio.CancelledError:
                if not woken.cancelled():
                    # It had been woken for a key: wake another worker.
                    self._wake_one()
                raise

    async def shrunk_to(self, length: int) -> None:
        """Wait until at most ``length`` keys wait or are active."""
        while len(self) > length:
            self._one_done.clear()
            await self._one_done.wait()

    def done(self, key: Key) -> None:
        self._state.done(key)
        self._one_done.set()
        if self._state.waiting:
            self._wake_one()
        elif self.idle and not self._failed:
            self.worked_off.set()

    def close(self) -> None:
        """Cancel all timers."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _wake_one(self) -> None:
        while self._idle_workers:
            woken = self._idle_workers.popleft()
            if not woken.done():
                woken.set_result(None)
                return

    def _fire(self, key: Key, cause: str) -> None:
        self._timers.pop(key, None)
        self.add(key, cause)
