"""What happened in a cluster: changes of objects, log lines, and what led to what."""

from __future__ import annotations

from collections.abc import (
    Sequence,
)
from datetime import datetime, timedelta

from runnel.client.links import Links
from runnel.logs.asked import level_of, time_of_since
from runnel.logs.daemons import LogLines, Wanted, read_logs
from runnel.logs.events import ObjectEvent, list_events
from runnel.logs.trace import Trace, trace
from schemas.daemon.log_ring import MAX_ANSWER_LINES


class History(Links):
    """What happened in the cluster."""

    async def events(
        self,
        about: str | None = None,
        *,
        since: datetime | timedelta | None = None,
        cause: str | None = None,
        limit: int | None = None,
    ) -> tuple[ObjectEvent, ...]:
        """The last changes of all objects, or of one (``about="topic/orders"``), the newest last:
        who made them, when, and why.

        ``since``: from that time on, or the time so long ago. ``cause``: a causality id. ``limit``:
        the newest so many, 200 unless given. Raises InvalidRequestError, and NotFoundError from an
        SC of an earlier version.
        """
        return await list_events(
            self._sc, about=about, since=time_of_since(since), cause=cause, limit=limit
        )

    async def logs(
        self,
        *,
        since: datetime | timedelta | None = None,
        level: str = "debug",
        cause: str | None = None,
        spus: Sequence[str] = (),
        limit: int = MAX_ANSWER_LINES,
    ) -> LogLines:
        """The last log lines of the SC and all SPUs, or of ``spus`` by name or id, the oldest
        first.

        ``since`` and ``cause`` as in `events`. ``level``: lines of this level and more severe ones.
        ``limit``: the newest so many of each daemon. A daemon that does not answer is named in
        ``away``. Raises NotFoundError for an unknown SPU, InvalidRequestError.
        """
        wanted = Wanted(time_of_since(since), level_of(level), cause, limit)
        return await read_logs(self._sc, wanted, spus)

    async def trace(self, cause: str) -> Trace:
        """What one causality id led to: log lines of all daemons and changes of objects, in the
        order of time. Empty if no daemon knows it any more."""
        return await trace(self._sc, cause)
