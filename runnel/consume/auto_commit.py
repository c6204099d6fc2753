"""The commits that a named consumer makes by itself: at intervals, at the end, and when it is
closed.

It commits only processed records: those before the one that was handed out last. Commits never go
back (`runnel.positions.store.Session.advance`). Once another consumer has taken over the name, it
reports that at once and commits nothing more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from runnel.consume.delivered import ReadState
from runnel.positions.store import Session
from schemas.errors import FencedError, RunnelError

_log = logging.getLogger("runnel")


class AutoCommit:
    """``interval_ms`` None: it commits nothing by itself.

    ``state`` knows the offsets to commit; ``fenced`` is called when another consumer has the name.
    """

    def __init__(
        self,
        topic: str,
        session: Session,
        interval_ms: int | None,
        state: ReadState,
        fenced: Callable[[FencedError], None],
    ) -> None:
        self._topic = topic
        self._session = session
        self._interval_ms = interval_ms
        self._state = state
        self._fenced = fenced
        self._task: asyncio.Task[None] | None = None

    @property
    def enabled(self) -> bool:
        return self._interval_ms is not None

    def start(self) -> None:
        """Commit every ``interval_ms``, in a task of its own."""
        if self._interval_ms is not None:
            self._task = asyncio.create_task(
                self._run(self._interval_ms / 1000), name=f"commit {self._topic}"
            )

    def cancel(self) -> list[asyncio.Task[None]]:
        """Stop committing at intervals; gives the task that is ending, if there is one."""
        if self._task is None:
            return []
        self._task.cancel()
        return [self._task]

    async def finish(self, offsets: Mapping[int, int]) -> None:
        """Commit everything, because the end was reached. Raises FencedError."""
        if self.enabled:
            await self._session.advance(self._state.with_terms(offsets))

    async def close(self, offsets: Mapping[int, int], give_up_s: float) -> None:
        """Commit these offsets for the last time and end the session. Raises as `Session.close`."""
        wanted = self._state.with_terms(offsets) if self.enabled else {}
        await self._session.close(wanted, give_up_s)

    async def _run(self, interval_s: float) -> None:
        while True:
            await asyncio.sleep(interval_s)
            try:
                await self._session.advance(self._state.with_terms(self._state.processed()))
            except FencedError as error:
                # A consumer that continued would process what another one processes, too.
                self._fenced(error)
                return
            except RunnelError as error:
                _log.warning("%s: not committed, tried again later: %s", self._topic, error.message)
