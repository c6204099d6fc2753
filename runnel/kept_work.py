"""Work that outlives the call that waits for it.

A call with a short timeout may begin work that takes longer: it asks several servers, one after the
other. Were the work cancelled with the wait, the next call would begin anew, and none would ever
see the end. Here the work goes on, and the next call waits for the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class KeptWork(Generic[T]):
    """At most one task at a time, called ``name``. For one event loop."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._task: asyncio.Task[T] | None = None

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T | None:
        """Wait for what was begun by an earlier call that did not see its outcome, else begin
        ``work``. Gives its result, or raises its error, to all that wait, or to the next caller if
        nobody did; None if it was cancelled.
        """
        if self._task is None:
            self._task = asyncio.create_task(work(), name=self._name)
            # Nobody may ever ask again.
            self._task.add_done_callback(lambda done: done.cancelled() or done.exception())
        task = self._task
        # A wait for what is done would give way to the loop, and to a timeout that is due.
        if not task.done():
            await asyncio.wait([task])
        if self._task is task:
            self._task = None
        return None if task.cancelled() else task.result()

    def cancel(self) -> list[asyncio.Task[T]]:
        """Cancel what is under way; gives the task that is ending, if there is one."""
        if self._task is None:
            return []
        self._task.cancel()
        return [self._task]
