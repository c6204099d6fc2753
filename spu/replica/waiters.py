"""Requests that wait for the log to move: producers for a commit, consumers for records.

A waiting request is an entry here, not a task: it costs a heap or dict slot and a timer, is
released when the log moves, and is removed at once when its client disconnects. Its callback is
called exactly once, with None (what it waits for has happened) or an error. A `Listener` stays, and
its callback is called for every commit.
"""

from __future__ import annotations

import heapq
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable
from typing import Final

from schemas.errors import DeadlineExceededError, RunnelError

Callback = Callable[[RunnelError | None], None]
MAX_WAIT_MS: Final = 600_000
"""For longer than this no request waits, whatever it says."""
_SWEEP_AT: Final = 64


class Waiter:
    """One waiting request. Call `cancel` when the client has gone."""

    __slots__ = ("_home", "_timer", "deadline_s", "on_done", "timeout_ms", "until", "wake_bytes")

    def __init__(
        self, until: int, on_done: Callback, wake_bytes: int = 0, home: set[Waiter] | None = None
    ) -> None:
        self.until = until
        self.wake_bytes = wake_bytes
        self.on_done: Callback | None = on_done
        #: Set if its home has one timer for all its waiters.
        self.timeout_ms = 0
        self.deadline_s = 0.0
        self._home = home
        self._timer: TimerHandle | None = None
        if home is not None:
            home.add(self)

    def __lt__(self, other: Waiter) -> bool:
        return self.until < other.until

    def start_timer(self, loop: AbstractEventLoop, after_ms: int) -> None:
        """End the wait after ``after_ms``."""
        self._timer = loop.call_later(after_ms / 1000, self.tell, None)

    def tell(self, error: RunnelError | None) -> None:
        """Release the request; later calls do nothing."""
        on_done = self.on_done
        self.cancel()
        if on_done is not None:
            on_done(error)

    def cancel(self) -> None:
        self.on_done = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._home is not None:
            self._home.discard(self)


class OffsetWaiters:
    """Requests that wait until an offset is passed, the nearest first.

    Most are released long before their deadline, so one timer serves all of them.
    """

    def __init__(self) -> None:
        self._heap: list[Waiter] = []
        self._sweep_at = _SWEEP_AT
        self._timer: TimerHandle | None = None
        self._timer_s = 0.0

    def __len__(self) -> int:
        return sum(waiter.on_done is not None for waiter in self._heap)

    def add(
        self, loop: AbstractEventLoop, until: int, timeout_ms: int, on_done: Callback
    ) -> Waiter:
        """Wait until everything below ``until`` is done; after ``timeout_ms``, the callback gets an
        error that says that the outcome is unknown."""
        if len(self._heap) >= self._sweep_at:
            # Cancelled entries stay in the heap until now.
            self._heap = [waiter for waiter in self._heap if waiter.on_done is not None]
            heapq.heapify(self._heap)
            self._sweep_at = max(_SWEEP_AT, 2 * len(self._heap))
        waiter = Waiter(until, on_done)
        waiter.timeout_ms = timeout_ms
        waiter.deadline_s = loop.time() + timeout_ms / 1000
        heapq.heappush(self._heap, waiter)
        if self._timer is None or waiter.deadline_s < self._timer_s:
            self._start_timer(loop, waiter.deadline_s)
        return waiter

    def release(self, upto: int) -> None:
        """Release all that wait for an offset of at most ``upto``."""
        heap = self._heap
        while heap and (heap[0].on_done is None or heap[0].until <= upto):
            heapq.heappop(heap).tell(None)

    def fail(self, error: RunnelError) -> None:
        failed, self._heap = self._heap, []
        for waiter in failed:
            waiter.tell(error)
        self._stop_timer()

    def _start_timer(self, loop: AbstractEventLoop, at_s: float) -> None:
        self._stop_timer()
        self._timer_s = at_s
        self._timer = loop.call_at(at_s, self._time_passed, loop)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_passed(self, loop: AbstractEventLoop) -> None:
        """Fail those whose time is over, and set the timer for the next one."""
        self._timer = None
        late = [w for w in self._heap if w.on_done is not None and w.deadline_s <= self._timer_s]
        for waiter in late:
            waiter.tell(
                DeadlineExceededError(
                    f"not committed within {waiter.timeout_ms} ms, but it may still be committed."
                    " Send the same batch again with its producer id and sequence to find out"
                )
            )
        left = [waiter.deadline_s for waiter in self._heap if waiter.on_done is not None]
        if left and self._timer is None:
            self._start_timer(loop, min(left))


class RecordWaiters:
    """Long polls: each waits until an offset exists and enough bytes are committed."""

    def __init__(self) -> None:
        self._waiting: set[Waiter] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(
        self,
        loop: AbstractEventLoop,
        offset: int,
        wake_bytes: int,
        max_wait_ms: int,
        on_done: Callback,
    ) -> Waiter:
        """Wait until ``offset`` is committed and the byte count reaches ``wake_bytes``, but at most
        for ``max_wait_ms``: the callback gets None in both cases."""
        waiter = Waiter(offset, on_done, wake_bytes, self._waiting)
        waiter.start_timer(loop, max_wait_ms)
        return waiter

    def release(self, lac: int, committed_bytes: int) -> None:
        """Release those that have what they wait for."""
        for waiter in [
            waiter
            for waiter in self._waiting
            if waiter.until <= lac and waiter.wake_bytes <= committed_bytes
        ]:
            waiter.tell(None)

    def fail(self, error: RunnelError) -> None:
        for waiter in list(self._waiting):
            waiter.tell(error)


class Listener:
    """A callback for every commit, until the end. Call `cancel` to remove it."""

    __slots__ = ("_home", "on_done")

    def __init__(self, on_done: Callback, home: set[Listener]) -> None:
        self.on_done = on_done
        self._home = home
        home.add(self)

    def cancel(self) -> None:
        self._home.discard(self)


class Listeners:
    """Callbacks for every commit (None) and, once, for the end (an error).

    Unlike a waiter, a listener has no timer: listening to an idle log costs nothing.
    """

    def __init__(self) -> None:
        self._listening: set[Listener] = set()

    def __len__(self) -> int:
        return len(self._listening)

    def add(self, on_done: Callback) -> Listener:
        return Listener(on_done, self._listening)

    def release(self) -> None:
        for listener in list(self._listening):
            listener.on_done(None)

    def fail(self, error: RunnelError) -> None:
        for listener in list(self._listening):
            listener.cancel()
            listener.on_done(error)
