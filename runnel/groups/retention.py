"""Telling streams how far a group is, so that their retention keeps what it has not read.

What a stream was told never goes back, and is told again without harm: so it does not matter who
tells it, or how often.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress

from runnel.groups.cut import GroupCut
from runnel.groups.sources import Source, Subscription
from runnel.groups.state import GroupState
from schemas.errors import NotFoundError, RunnelError

_log = logging.getLogger("runnel")


class Publisher:
    """Publishes the checkpoints of a group whose retention is automatic, for one reader. It never
    keeps the reader waiting: a checkpoint that could not be published is forgotten for the next
    one. ``state`` gives the group's state, and raises NotFoundError if there is no such group."""

    def __init__(self, group: str, state: Callable[[], Awaitable[object]]) -> None:
        self._group = group
        self._state = state
        #: The checkpoint that was published last, or tried.
        self._checkpoint = ""
        #: The newest one, and since when it was.
        self._newest = ("", 0.0)
        #: The streams that could not be told last time.
        self._failing: set[str] = set()
        self.task: asyncio.Task[None] | None = None

    def look(
        self, group: GroupState, sources: Iterable[Source], now_s: float, patience_s: float
    ) -> None:
        """Begin to publish the newest checkpoint once it was that for ``patience_s``, unless that
        was done. One reader has none; the others do it again a little later, which changes nothing,
        in case that one does not reach the SC."""
        newest = next((one for one in reversed(group.completed) if one.may_publish), None)
        under_way = self.task is not None and not self.task.done()
        if group.config.retention != "automatic" or newest is None or under_way:
            return
        if newest.id != self._newest[0]:
            self._newest = (newest.id, now_s)
        if newest.id != self._checkpoint and now_s - self._newest[1] >= patience_s:
            self._checkpoint = newest.id
            cut = GroupCut.of(newest.places, group.config.sources)
            found = subscriptions_of(sources, self._group)
            self.task = asyncio.create_task(self._publish(found, cut), name="publish a checkpoint")

    async def _publish(self, subscriptions: Sequence[Subscription], cut: GroupCut) -> None:
        for one in subscriptions:
            name = one.stream.name
            try:
                await one.publish(cut)
            except RunnelError as error:
                if name not in self._failing:
                    _log.warning(
                        "group %s: the retention of stream %s could not be told how far it is,"
                        " which is tried again with the next checkpoint: %s",
                        self._group,
                        name,
                        error.message,
                    )
                self._failing.add(name)
            else:
                self._failing.discard(name)
        # The reader meets by itself that its group is gone.
        with suppress(RunnelError):
            await end_unless_there(subscriptions, self._state)


def subscriptions_of(sources: Iterable[Source], group: str) -> list[Subscription]:
    """Those of a group with the streams among its sources."""
    found = (source.subscription(group) for source in sources)
    return [one for one in found if one is not None]


async def end_unless_there(
    subscriptions: Sequence[Subscription], state: Callable[[], Awaitable[object]]
) -> None:
    """Whoever has published looks whether the group was deleted meanwhile: who deleted it may have
    ended its subscriptions before that. ``state`` raises NotFoundError if it was; this does, too,
    when they are ended again."""
    try:
        await state()
    except NotFoundError:
        for one in subscriptions:
            await one.end()
        raise
