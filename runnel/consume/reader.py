"""Reading one partition ahead of its user: one answer at a time, at most `MOST_HELD` chunks.

The SPU pushes records when there are some, or holds a fetch until then (a long poll), so an idle
partition costs at most a request now and then. Temporary errors are retried until nothing has
worked for ``give_up_s``; every other error ends the reader. `runnel.consume.fetcher` decides which
replica the batches come from: here every answer continues at the position, or is not taken.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from runnel.consume.archived import ArchivedRecords
from runnel.consume.delivered import FetchedChunk
from runnel.consume.fetcher import PartitionFetcher
from runnel.consume.race import Fetched
from runnel.net.offsets import BEHIND_PAUSE_S, list_offsets
from runnel.net.routing import TopicRoute
from runnel.records.cursor import Cursor
from schemas.errors import (
    LOST_RECORDS,
    CorruptBatchError,
    DeadlineExceededError,
    DivergedError,
    OffsetOutOfRangeError,
    RunnelError,
)
from schemas.ids import PartitionUid
from schemas.wire.protocol import Api
from schemas.wire.record_requests import LATEST, FetchFlags, FetchRequest, FetchResponse

#: The most chunks of a partition that wait for the user.
MOST_HELD: Final = 2

_log = logging.getLogger("runnel")


@dataclass(slots=True)
class PartitionReader:
    """Runs `run` as a task; ``deliver`` gets its chunks. Call `taken` when one was used."""

    cursor: Cursor
    route: TopicRoute
    fetcher: PartitionFetcher
    give_up_s: float
    deliver: Callable[[FetchedChunk], None]
    #: Whether it is no error if retention overtakes the start.
    from_earliest: bool = False
    #: Whether deleted records are skipped, with a warning.
    steps_over_truncated: bool = False
    #: Of a topic with an archive: where records come from that the log holds no more.
    archived: ArchivedRecords | None = None
    #: While it is set, no fetch begins; the answer of one that is under way is still delivered.
    paused: bool = False
    # One entry for each chunk that was delivered and not taken: the loop adds, any thread removes.
    _held: deque[None] = field(default_factory=deque)
    _room: asyncio.Event = field(default_factory=asyncio.Event)
    _full: bool = False
    #: Until when an SC is not believed that does not know of what was read.
    _behind_until: float | None = None

    def taken(self) -> None:
        """A chunk left the queue: another may be fetched. In the loop."""
        self._held.pop()
        self._room.set()

    def pause(self) -> None:
        """Begin no fetch until `wake`. In the loop."""
        self.paused = True
        self._room.set()

    def wake(self) -> None:
        """It is no longer paused. In the loop."""
        self._room.set()

    def hold(self) -> None:
        """A chunk that was taken is delivered once more. In the loop."""
        self._held.append(None)

    def taken_elsewhere(self, loop: asyncio.AbstractEventLoop) -> None:
        """As `taken`, in another thread, which wakes the ``loop`` only if it waits for that."""
        self._held.pop()
        if self._full:
            with suppress(RuntimeError):  # The loop is closed.
                loop.call_soon_threadsafe(self._room.set)

    async def run(self) -> None:
        """Read until the cursor is finished. Raises errors that cannot be retried."""
        try:
            while not self.cursor.finished:
                await self._wait_for_room()
                chunk = await self._next()
                # First, because the thread that takes the chunk removes this.
                self._held.append(None)
                self.deliver(chunk)
        finally:
            self.fetcher.close()
            if self.archived is not None:
                self.archived.close()

    async def _wait_for_room(self) -> None:
        while self.paused or len(self._held) >= MOST_HELD:
            self._room.clear()
            # Set before checking again, so that a chunk taken in between wakes this task or is
            # seen.
            self._full = True
            if self.paused:
                self.fetcher.rest()
            if self.paused or len(self._held) >= MOST_HELD:
                await self._room.wait()
            self._full = False

    async def _next(self) -> FetchedChunk:
        """The chunks of the next answer that moves the position."""
        cursor = self.cursor
        while True:
            before = cursor.position
            if self.archived is not None and (chunk := await self.archived.next()) is not None:
                self.from_earliest = False
                self.fetcher.counts.received(
                    sum(b.num_rows for b in chunk.batches), sum(b.nbytes for b in chunk.batches)
                )
                return chunk
            fetched = await self._fetch()
            if fetched is None:
                continue
            self._behind_until = None
            try:
                found = cursor.take(fetched.data, fetched.lac)
            except CorruptBatchError as error:
                if fetched.follower is not None:
                    # The other replicas are not known to be damaged.
                    self.fetcher.avoid(fetched.follower)
                    self.fetcher.report_damage(fetched.follower, before, cursor.term)
                    continue
                if (verified := await self._fetch_verified(error)) is None:
                    continue
                # If this is damaged as well, the leader does not verify, or cannot find it.
                found = cursor.take(verified.data, verified.lac)
            if cursor.position == before and not cursor.finished:
                continue
            self.from_earliest = False
            self.fetcher.counts.received(sum(b.num_rows for b in found), len(fetched.data))
            return FetchedChunk(
                cursor.partition, found, cursor.position, cursor.term, cursor.term_starts
            )

    async def _fetch_verified(self, damage: CorruptBatchError) -> Fetched | None:
        """The batches that arrived damaged from the leader, once more, verified by the leader.

        If they are damaged on its disk, it gives up its leadership: the next leader answers. Raises
        ``damage`` if there is no other replica. None: fetch again, and meet what this met.
        """
        cursor, route = self.cursor, self.route

        def request(uid: PartitionUid) -> bytes:
            size = self.fetcher.fetch_bytes
            flags = FetchFlags.VERIFIED
            return FetchRequest(uid, cursor.position, size, 1, 0, cursor.term, flags).pack()

        partition = await route.partition(cursor.partition)
        alone = not partition.replicas
        _log.warning("%s; the SPU is asked to verify its replica", damage.message)
        try:
            response = await route.retrying(
                cursor.partition,
                Api.FETCH,
                request,
                give_up_s=0.0 if alone else self.give_up_s,
            )
        except RunnelError as error:
            if alone or isinstance(error, DeadlineExceededError):
                raise damage from error
            return None
        return Fetched(response.tail, FetchResponse.unpack(response.fixed).lac, None)

    async def _may_be_deposed(self) -> bool:
        """Whether what the leader said may be the word of one that leads no more: the SC names
        another one, or is so far behind that it does not know of what was read. In the second case
        this waits for a moment; once `give_up_s` are over, the SC is believed."""
        cursor, loop = self.cursor, asyncio.get_running_loop()
        if await self.route.another_leads(cursor.partition):
            return True
        if not await self.route.leads_below(cursor.partition, cursor.term):
            return False
        if self._behind_until is None:
            self._behind_until = loop.time() + self.give_up_s
        if loop.time() >= self._behind_until:
            return False
        await asyncio.sleep(BEHIND_PAUSE_S)
        return True

    async def _fetch(self) -> Fetched | None:
        """The next answer; None if it must be asked again, from where the position is now."""
        cursor = self.cursor
        place = f"{self.route.name}/{cursor.partition}"
        try:
            return await self.fetcher.fetch(cursor.position, cursor.term)
        except DivergedError as error:
            if await self._may_be_deposed():
                return None
            lost = DivergedError(
                f"{place}: the log no longer holds the records that were read before offset"
                f" {cursor.position}: it may differ from offset {error.diverged_at} on:"
                f" {LOST_RECORDS}. Decide what to do about those already processed, and continue"
                f" from offset {error.diverged_at}. {error.message}",
                diverged_at=error.diverged_at,
            )
            lost.details.update(
                topic=self.route.name, partition=cursor.partition, offset=cursor.position
            )
            raise lost from error
        except OffsetOutOfRangeError as error:
            found = await list_offsets(self.route, cursor.partition, LATEST, self.give_up_s)
            start, end = found.log_start, found.offset
            if cursor.position > end:
                if await self._may_be_deposed():
                    return None
                raise OffsetOutOfRangeError(
                    f"{place}: offset {cursor.position} is above the end of the log, {end}. If"
                    f" there were records below it, {LOST_RECORDS}. Decide what to do about those"
                    f" already processed, and start at {end} or below",
                    end=end,
                    partition=cursor.partition,
                ) from error
            if self.archived is not None:
                first = await self.archived.begin(start)
                if first == cursor.position:
                    return None
                start = start if first is None else first
            # Retention may have removed the first records between asking where they are and
            # reading. The first one of each log is the control record of its first leader: nobody
            # misses it.
            misses_none = self.from_earliest or (cursor.position == 0 and start == 1)
            if misses_none and start > cursor.position:
                cursor.position, cursor.term = start, 0
                return None
            if self.steps_over_truncated and start > cursor.position:
                _log.warning(
                    "%s: offsets %d to %d were truncated; reading continues from %d",
                    place,
                    cursor.position,
                    start - 1,
                    start,
                )
                cursor.position = start
                # The batch before it is not in the log any more, so there is nothing to compare.
                cursor.term = 0
                return None
            raise OffsetOutOfRangeError(
                f"{place}: offset {cursor.position} is not there;"
                f" the first available one is {start}. {error.message}",
                firstAvailable=start,
                partition=cursor.partition,
            ) from error
