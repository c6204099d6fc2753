"""Named consumers: their positions, and moving and deleting these."""

from __future__ import annotations

from collections.abc import (
    Iterable,
    Mapping,
)

from runnel.client.links import Links
from runnel.net.offsets import (
    Start,
    make_range,
)
from runnel.positions.admin import (
    ConsumerReset,
    NamedConsumer,
    delete_consumer,
    list_consumers,
    reset_consumer,
)


class Consumers(Links):
    """The positions of named consumers."""

    async def consumers(
        self, name: str | None = None, *, bounds: bool = True
    ) -> tuple[NamedConsumer, ...]:
        """Named consumers and their positions in each topic: all, or those of one name.

        Without ``bounds`` the ends and the lag of partitions are None, and no SPU is asked for
        them. Raises NotFoundError for an unknown name. Creates nothing.
        """
        return await list_consumers(
            self._positions, self._route, name, bounds=bounds, find_archive=self._archive
        )

    async def reset_consumer(
        self, name: str, topic: str, to: Start, partitions: Iterable[int] | None = None
    ) -> ConsumerReset:
        """Move a named consumer to another position. ``to`` takes the values of ``start``; for a
        time or a transaction id, the position is what `offsets_at` gives.

        A process that reads under the name is fenced. Raises NotFoundError for an unknown name,
        InvalidRequestError for offsets outside of the log.
        """
        if isinstance(to, Mapping):
            partitions = to.keys() if partitions is None else partitions
        wanted = make_range(to, None, partitions)
        route = await self._route(topic)
        columns = await self._columns(route, wanted.start)
        archive = await self._archive(route)
        return await reset_consumer(self._positions, route, name, wanted, self.by, columns, archive)

    async def delete_consumer(self, name: str, topic: str | None = None) -> tuple[str, ...]:
        """Delete the positions of a consumer, in one topic or in all. Gives the topics.

        A process that reads under the name is fenced. Raises NotFoundError if there are none.
        """
        return await delete_consumer(self._positions, name, topic)
