"""Virtual time: a heap of calls, in the order of their times and then of their making."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

Call = Callable[..., None]


class Clock:
    """Times are microseconds since the beginning; what runs sees milliseconds as well."""

    def __init__(self) -> None:
        self.now_us = 0
        self.calls = 0
        self._heap: list[tuple[int, int, Call, tuple[Any, ...]]] = []

    @property
    def now_ms(self) -> int:
        return self.now_us // 1000

    def after(self, delay_us: int, call: Call, *args: Any) -> None:
        """Have something called once ``delay_us`` have passed."""
        self.at(self.now_us + delay_us, call, *args)

    def at(self, time_us: int, call: Call, *args: Any) -> None:
        """Have something called at a time that is not over."""
        self.calls += 1
        heappush(self._heap, (time_us, self.calls, call, args))

    def run_until(self, end_us: int) -> None:
        """Let time pass, and everything happen that is due."""
        heap = self._heap
        while heap and heap[0][0] <= end_us:
            time_us, _, call, args = heappop(heap)
            self.now_us = time_us
            call(*args)
        self.now_us = end_us
