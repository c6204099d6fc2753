"""The topic ``_archive``, which lists the files of archives: state logs, by the uid of a topic.

A topic that was never archived costs readers one request, which finds no such topic.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from runnel.archive.manifest import Archives, ArchivesState, TopicArchive, Update
from runnel.net.routing import TopicRoute
from runnel.state_log.topic_logs import TopicLogs
from schemas.errors import NotFoundError

#: How long reading and writing wait for a partition that does not answer.
GIVE_UP_S: Final = 30.0


class ArchiveStore(TopicLogs[Archives, Update]):
    """The files of all archives, as one client reads and lists them."""

    def __init__(
        self,
        find_route: Callable[[], Awaitable[TopicRoute]],
        make: Callable[[], Awaitable[object]],
        truncate: Callable[[str, int], Awaitable[object]],
        new_id: Callable[[], str],
    ) -> None:
        super().__init__(ArchivesState(), find_route, make, truncate, new_id)

    async def archive(self, uid: str) -> TopicArchive:
        """What is archived of a topic, as committed now; nothing if nothing ever was.

        Raises RetryableErrors.
        """
        try:
            log = await self.log_of(uid)
            state = await log.read(GIVE_UP_S)
        except NotFoundError:
            return TopicArchive("")
        return state.get(uid, TopicArchive(""))

    async def update(
        self, uid: str, decide: Callable[[Archives], Sequence[Update]]
    ) -> TopicArchive:
        """Append the updates that ``decide`` makes, and give the archive of a topic after them.

        Raises what ``decide`` raises, and as `runnel.state_log.log.StateLog.update`.
        """
        log = await self.made_log_of(uid)
        state = await log.update(decide, GIVE_UP_S)
        return state.get(uid, TopicArchive(""))
