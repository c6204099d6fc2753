"""Fetching one partition ahead of its reader: one request under way, at most two chunks held.

The leader holds a fetch until there are records (a long poll), so an idle partition costs one
request now and then. Trouble with the leader is retried until nothing has worked for
``give_up_s``; everything else ends the reader with the error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from runnel.cursor import Cursor
from runnel.read_state import Chunk
from runnel.routing import TopicRoute
from schemas.errors import OffsetOutOfRangeError
from schemas.protocol import (
    EARLIEST,
    LATEST,
    Api,
    FetchRequest,
    ListOffsetsRequest,
    ListOffsetsResponse,
)

#: Seconds that a leader may take beyond the wait it was asked for.
_FETCH_SLACK_S = 30.0


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """``fetch_bytes`` per request; the leader answers after ``max_wait_ms`` with what there is."""

    fetch_bytes: int
    max_wait_ms: int
    give_up_s: float


async def list_offsets(
    route: TopicRoute, partition: int, position: int, give_up_s: float
) -> ListOffsetsResponse:
    """Ask the leader for an offset; see `schemas.protocol.ListOffsetsRequest`."""
    response = await route.retrying(
        partition,
        Api.LIST_OFFSETS,
        lambda uid: ListOffsetsRequest(uid, position).pack(),
        give_up_s=give_up_s,
    )
    return ListOffsetsResponse.unpack(response.fixed)


async def earliest(route: TopicRoute, partition: int, give_up_s: float) -> int:
    """The first offset that is kept."""
    return (await list_offsets(route, partition, EARLIEST, give_up_s)).log_start


async def latest(route: TopicRoute, partition: int, give_up_s: float) -> int:
    """The offset after the last committed record."""
    return (await list_offsets(route, partition, LATEST, give_up_s)).offset


@dataclass(slots=True)
class PartitionReader:
    """Runs `run` as a task; ``deliver`` gets its chunks. `taken` tells it that one was used."""

    cursor: Cursor
    route: TopicRoute
    settings: FetchSettings
    deliver: Callable[[Chunk], None]
    #: Where retention may overtake the start without that being an error.
    from_earliest: bool = False
    _free: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(2))

    def taken(self) -> None:
        """A chunk left the queue: another may be fetched."""
        self._free.release()

    async def run(self) -> None:
        """Read until the cursor is finished. Raises what cannot be retried."""
        while not self.cursor.finished:
            await self._free.acquire()
            first, *more = await self._next()
            self.deliver(first)
            for chunk in more:
                await self._free.acquire()
                self.deliver(chunk)

    async def _next(self) -> list[Chunk]:
        """The chunks of the next answer that moves the position; at least one."""
        cursor = self.cursor
        while True:
            before = cursor.position
            found = cursor.take(await self._fetch())
            if cursor.position == before:
                continue
            self.from_earliest = False
            chunks = [
                Chunk(cursor.partition, records, records.column("offset")[-1].as_py() + 1)
                for records in found
            ] or [Chunk(cursor.partition, None, cursor.position)]
            chunks[-1] = chunks[-1]._replace(position_after=cursor.position)
            return chunks

    async def _fetch(self) -> memoryview:
        settings, cursor = self.settings, self.cursor
        try:
            response = await self.route.retrying(
                cursor.partition,
                Api.FETCH,
                lambda uid: FetchRequest(
                    uid,
                    cursor.position,
                    settings.fetch_bytes,
                    1,
                    settings.max_wait_ms,
                    cursor.term,
                ).pack(),
                give_up_s=settings.give_up_s,
                timeout_s=settings.max_wait_ms / 1000 + _FETCH_SLACK_S,
            )
        except OffsetOutOfRangeError as error:
            start = await earliest(self.route, cursor.partition, settings.give_up_s)
            if self.from_earliest and start > cursor.position:
                # Retention removed the first records between asking where they are and reading.
                cursor.position = start
                return memoryview(b"")
            raise OffsetOutOfRangeError(
                f"{self.route.name}/{cursor.partition}: offset {cursor.position} is not there;"
                f" the first available one is {start}. {error.message}",
                firstAvailable=start,
                partition=cursor.partition,
            ) from error
        return response.tail
