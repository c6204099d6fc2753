"""An answer that all browsers share: it is computed once, however many ask, and kept for a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Shared(Generic[T]):
    """What ``make`` gives, not older than ``keep_s`` seconds. Errors are not kept."""

    def __init__(self, make: Callable[[], Awaitable[T]], keep_s: float) -> None:
        self._make = make
        self._keep_s = keep_s
        self._task: asyncio.Task[T] | None = None
        self._made_at = 0.0

    async def get(self) -> T:
        """The answer, or the one that another caller waits for."""
        task = self._task
        if task is None or (task.done() and self._is_old(task)):
            task = asyncio.ensure_future(self._run())
            self._task = task
        # One caller that goes away does not take the answer from the others.
        return await asyncio.shield(task)

    async def _run(self) -> T:
        found = await self._make()
        self._made_at = time.monotonic()
        return found

    def _is_old(self, task: asyncio.Task[T]) -> bool:
        failed = task.cancelled() or task.exception() is not None
        return failed or time.monotonic() - self._made_at > self._keep_s
