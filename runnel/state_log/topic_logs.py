"""The state logs in the partitions of one topic of the system, of which a key chooses one.

Everything about one key is in one partition, chosen by the key's hash. The topic is created when
somebody first writes; reading does not create it. If it is deleted, the call that meets that raises
NotFoundError, and the next one finds it anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Generic

from runnel.net.routing import TopicRoute
from runnel.state_log.fold import S, StateType, U
from runnel.state_log.log import StateLog
from schemas.errors import NotFoundError
from schemas.objects.topic import partition_name
from schemas.wire.partitioner import partition_for


class TopicLogs(Generic[S, U]):
    """See the module's text. Call `close` at the end.

    ``find_route`` raises NotFoundError while there is no such topic; ``make`` has it created.
    ``truncate`` takes the name of a partition and an offset. ``new_id`` gives random ids.
    """

    def __init__(
        self,
        kind: StateType[S, U],
        find_route: Callable[[], Awaitable[TopicRoute]],
        make: Callable[[], Awaitable[object]],
        truncate: Callable[[str, int], Awaitable[object]],
        new_id: Callable[[], str],
    ) -> None:
        self._kind = kind
        self._find_route = find_route
        self._make = make
        self._truncate = truncate
        self.new_id = new_id
        self._route: TopicRoute | None = None
        self._logs: dict[int, StateLog[S, U]] = {}

    async def log_of(self, key: str) -> StateLog[S, U]:
        """The log that holds a key. Raises NotFoundError if nobody has written yet."""
        route = await self._opened()
        return self._at(route, partition_for(key.encode(), route.partition_count))

    async def made_log_of(self, key: str) -> StateLog[S, U]:
        """Like `log_of`, but creates the topic if there is none."""
        try:
            return await self.log_of(key)
        except NotFoundError:
            await self._make()
        return await self.log_of(key)

    async def states(self, give_up_s: float) -> AsyncIterator[S]:
        """The state of each partition; none if nobody has written yet."""
        try:
            route = await self._opened()
        except NotFoundError:
            return
        for index in range(route.partition_count):
            yield await self._at(route, index).read(give_up_s)

    async def close(self) -> None:
        """Wait until snapshots in progress are written."""
        await asyncio.gather(*(log.close() for log in self._logs.values()))

    async def _opened(self) -> TopicRoute:
        if any(log.gone for log in self._logs.values()):
            self._route = None
            self._logs.clear()
        if self._route is None:
            self._route = await self._find_route()
        return self._route

    def _at(self, route: TopicRoute, index: int) -> StateLog[S, U]:
        if index not in self._logs:
            truncate = partial(self._truncate, partition_name(route.name, index))
            self._logs[index] = StateLog(route, index, self._kind, truncate, self.new_id)
        return self._logs[index]
