"""A fetcher that asks the SC for the topic's schema when a batch of an unknown version comes.

It learns versions before the answer is decoded, so that `runnel.records.schema_resolution` does not
meet an unknown one, unless no SC knows it either.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from runnel.consume.fetcher import FetchSettings, PartitionFetcher
from runnel.consume.race import Fetched
from runnel.consume.speculation import Speculation
from runnel.net.routing import TopicRoute
from runnel.records.schema_resolution import ReadColumns
from schemas.columns.topic_schema import TopicSchema
from schemas.errors import CorruptBatchError, RetryableError
from schemas.wire.batch import split_batches

#: How long to wait before the SC is asked once more; doubled each time, up to the second.
_ASK_AGAIN_S: Final = 0.05
_MOST_PAUSE_S: Final = 2.0
#: Asks for the current schema of a topic.
AskSchema = Callable[[], Awaitable[TopicSchema | None]]


class SchemaFollower(PartitionFetcher):
    """A fetcher that asks for the topic's schema when a batch of an unknown version comes."""

    def __init__(
        self,
        columns: ReadColumns,
        ask_schema: AskSchema,
        route: TopicRoute,
        partition: int,
        settings: FetchSettings,
        speculation: Speculation,
        lac: int,
        expected_end: int = 0,
    ) -> None:
        super().__init__(route, partition, settings, speculation, route.random, lac, expected_end)
        self._columns = columns
        self._ask_schema = ask_schema
        self._give_up_s = settings.give_up_s

    async def fetch(self, offset: int, term: int) -> Fetched:
        """As for any fetcher; after it, every version in the answer that the SC knows is known."""
        fetched = await super().fetch(offset, term)
        loop = asyncio.get_running_loop()
        deadline, pause_s = loop.time() + self._give_up_s, _ASK_AGAIN_S
        while self._meets_unknown(fetched.data):
            # The SPU knows that version, so an SC that does not is offline or about to learn it.
            late = loop.time() >= deadline
            try:
                found = await self._ask_schema()
            except RetryableError:
                if late:
                    raise
            else:
                if found is not None:
                    self._columns.learn(found)
                if late:
                    break
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _MOST_PAUSE_S)
        return fetched

    def _meets_unknown(self, data: memoryview) -> bool:
        try:
            batches = split_batches(data)
        except CorruptBatchError:
            # Decoding reports it, with the place.
            return False
        records = (header for header, _ in batches if not header.is_control)
        return not all(map(self._columns.knows, records))
