"""Where a consumer begins to read each partition, and where it ends.

Without a name, it begins where its user asked (`runnel.net.offsets`). A named consumer begins at
its committed position, and where its user asked only in partitions without one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from runnel.archive.resolving import resolve_place
from runnel.archive.source import ArchiveSource
from runnel.net.offsets import (
    Range,
    ResolvedOffset,
    Start,
    TransactionId,
    list_offsets,
    with_terms,
)
from runnel.net.routing import TopicRoute
from runnel.positions.store import Session
from runnel.records.cursor import Cursor
from runnel.records.offset_and_term import OffsetAndTerm
from runnel.records.record import timestamp_us_of
from runnel.records.schema_resolution import ReadColumns
from schemas.errors import LOST_RECORDS, DivergedError, OffsetOutOfRangeError
from schemas.wire.record_requests import LATEST


@dataclass(frozen=True, slots=True)
class PartitionStart:
    """``lac`` is the last add confirmed if the leader's answer included it, else -1.

    ``from_earliest``: it is no error if retention overtakes the start.
    """

    cursor: Cursor
    lac: int
    from_earliest: bool


async def find_starts(
    route: TopicRoute,
    partitions: Sequence[int],
    wanted: Range,
    give_up_s: float,
    session: Session | None,
    columns: ReadColumns | None = None,
    archive: ArchiveSource | None = None,
) -> list[PartitionStart]:
    """Where to begin in each of the partitions; opens the ``session`` of a named consumer.
    ``columns``: how batches of a typed topic are decoded. ``archive``: the topic's, if it has one.

    Raises DivergedError if a log no longer holds what was read before the committed position,
    RetryableErrors without an answer for ``give_up_s``.
    """
    finder = _StartFinder(route, wanted, give_up_s, columns, archive)
    if session is None:
        return await finder.all_from(partitions, wanted.start)
    found: dict[int, PartitionStart] = {}

    async def starts(there: Sequence[int], since: Sequence[int]) -> dict[int, OffsetAndTerm]:
        asked, added = await asyncio.gather(
            finder.all_from(there, wanted.start),
            # Records came before this consumer could read the new partition: leave none out.
            finder.all_from(since, "earliest"),
        )
        found.update({each.cursor.partition: each for each in (*asked, *added)})
        # A time or an id that is not there yet is looked for again: nothing is committed for it.
        cursors = [each.cursor for each in found.values()]
        places = {
            c.partition: OffsetAndTerm(c.position, c.term) for c in cursors if not c.searching
        }
        unknown = {p: place.offset for p, place in places.items() if not place.term}
        return {**places, **await with_terms(route, unknown, give_up_s)}

    committed = await session.open(route.topic.uid, route.partition_count, partitions, starts)

    async def placed(index: int) -> PartitionStart:
        known = found.get(index)
        # Another consumer may have committed while this one looked for the start.
        at = committed.get(index)
        if known is not None and (at is None or at.offset == known.cursor.position):
            known.cursor.term = known.cursor.term if at is None else at.term
            return known
        return await finder.from_committed(index, committed[index], session.name)

    return await asyncio.gather(*map(placed, partitions))


class _StartFinder:
    def __init__(
        self,
        route: TopicRoute,
        wanted: Range,
        give_up_s: float,
        columns: ReadColumns | None,
        archive: ArchiveSource | None,
    ) -> None:
        self._route = route
        self._archive = archive
        self._columns = columns
        self._wanted = wanted
        self._give_up_s = give_up_s

    async def all_from(self, partitions: Sequence[int], start: Start) -> list[PartitionStart]:
        return await asyncio.gather(*(self._from(index, start) for index in partitions))

    async def from_committed(
        self, partition: int, committed: OffsetAndTerm, name: str
    ) -> PartitionStart:
        """Raises DivergedError if the log no longer holds what was read before the committed
        position: records that took the place of others would be skipped.
        """
        route, offset = self._route, committed.offset
        for _ in range(2):
            try:
                found = await list_offsets(
                    route, partition, LATEST, self._give_up_s, read=committed
                )
            except DivergedError as error:
                end = error.diverged_at
                what = f"the log holds other records from offset {end} on"
                break
            if found.lac + 1 >= offset:
                # Clients of earlier versions have read on behind the end of a sealed log.
                sealed = OffsetAndTerm(found.offset)
                place = committed if offset <= found.offset else sealed
                return await self._from(partition, {partition: place})
            end, what = found.offset, f"the log ends at {found.offset}"
            # It may be a deposed leader that does not know it yet: ask for the leader now.
            route.suspect(partition)
        raise DivergedError(
            f"{route.name}/{partition}: consumer {name!r} has read up to offset {offset},"
            f" and {what}: {LOST_RECORDS}. Decide what to do about those already processed, and"
            f" then: runnel consumer reset {name} --topic {route.name} --offset {end}"
            f" -p {partition}",
            diverged_at=end,
        )

    async def _from(self, partition: int, start: Start) -> PartitionStart:
        begin = await self._resolve(partition, start)
        stop, lac, before_us = None, begin.lac, None
        if (wanted := self._wanted.stop) is not None:
            if isinstance(wanted, datetime):
                # The cursor finds the first record that is not before it; if there is none yet,
                # reading ends here.
                before_us, wanted = timestamp_us_of(wanted), "latest"
            end = await self._resolve(partition, wanted)
            stop, lac = end.offset, max(lac, end.lac)
        cursor = Cursor(
            self._route.name,
            partition,
            begin.offset,
            stop,
            begin.not_before_us,
            begin.term,
            not_before_id=begin.not_before_id,
            before_us=before_us,
        )
        if stop is None and not isinstance(start, str | datetime | timedelta | TransactionId):
            await self._require_not_behind_a_seal(cursor)
        if cursor.finished and cursor.term:
            # No fetch will compare what was read before.
            read = OffsetAndTerm(cursor.position, cursor.term)
            await list_offsets(self._route, partition, LATEST, self._give_up_s, read=read)
        return PartitionStart(cursor, lac, start == "earliest")

    async def _require_not_behind_a_seal(self, cursor: Cursor) -> None:
        """Raise OffsetOutOfRangeError for an offset that no record of a sealed log will have: a
        reader would wait there for ever."""
        found = await list_offsets(self._route, cursor.partition, LATEST, self._give_up_s)
        if found.offset < cursor.position <= found.lac + 1:
            raise OffsetOutOfRangeError(
                f"{cursor.topic}/{cursor.partition}: offset {cursor.position} is above the end of"
                f" the log, which is sealed at {found.offset}; start there or below",
                end=found.offset,
                partition=cursor.partition,
            )

    async def _resolve(self, partition: int, start: Start) -> ResolvedOffset:
        return await resolve_place(
            self._route, partition, start, self._give_up_s, self._archive, columns=self._columns
        )
