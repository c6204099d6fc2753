"""The partitions of a topic: their bounds, their segments, and truncation."""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncIterator,
    Iterable,
    Mapping,
)
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from runnel.admin.answers import PartitionOffsets
from runnel.archive.manifest import PartitionArchive, remove
from runnel.archive.resolving import resolve_place
from runnel.client.links import Links
from runnel.net.offsets import (
    TransactionId,
    check_offset,
    check_offsets,
    list_offsets,
    make_range,
    term_below,
)
from runnel.net.routing import TopicRoute
from runnel.partition.sealing import Sealed, seal
from runnel.partition.segments import Segments, list_segments, watch_segments
from runnel.partition.truncate import Before, Truncated, truncate
from runnel.records.offset_and_term import NOTHING_READ, OffsetAndTerm
from schemas.errors import DivergedError, InvalidRequestError, UnreachableError
from schemas.objects.system_topics import is_system_name
from schemas.wire.record_requests import LATEST

OFFSETS_TIMEOUT_S: Final = 30.0


class Partitions(Links):
    """The bounds and segments of partitions, and truncation."""

    async def offsets(
        self,
        topic: str,
        partitions: Iterable[int] | None = None,
        *,
        timeout: float = OFFSETS_TIMEOUT_S,
        read: Mapping[int, OffsetAndTerm] | None = None,
    ) -> dict[int, PartitionOffsets]:
        """The bounds of a topic's partitions, as committed now, and what is in its archive.

        ``read``: up to where a reader has read, by partition, for example what
        `Consumer.position_with_terms` gave; `PartitionOffsets.diverged_at` then says whether the
        log still holds that. Raises an error that says what is wrong when a leader has not answered
        after ``timeout`` seconds.
        """
        route = await self._route(topic)
        chosen = make_range("earliest", None, partitions).chosen(topic, route.partition_count)
        _check_partitions("read", read or {}, route)
        try:
            archive = await self._archive(route)
        except UnreachableError:
            # The leaders answer all the same.
            archive = None

        async def bounds(index: int) -> PartitionOffsets:
            known = PartitionArchive() if archive is None else archive.partition(index)
            place, diverged_at = (read or {}).get(index, NOTHING_READ), None
            try:
                found = await list_offsets(route, index, LATEST, timeout, read=place)
            except DivergedError as error:
                diverged_at = error.diverged_at
                found = await list_offsets(route, index, LATEST, timeout)
            return PartitionOffsets(
                index,
                found.log_start,
                found.offset,
                found.size_bytes,
                known.first,
                known.size,
                found.term,
                diverged_at,
            )

        return {found.partition: found for found in await asyncio.gather(*map(bounds, chosen))}

    async def terms_below(self, topic: str, offsets: Mapping[int, int]) -> dict[int, int]:
        """The terms of the last batches below offsets of a topic, by partition; 0 where a log does
        not tell it any more.

        Ask only if `offsets` has told terms: SPUs of an earlier version know neither.
        """
        route = await self._route(topic)
        _check_partitions("offsets", offsets, route)
        found = await asyncio.gather(
            *(term_below(route, p, offset, OFFSETS_TIMEOUT_S) for p, offset in offsets.items())
        )
        return dict(zip(offsets, found, strict=True))

    async def offsets_at(
        self,
        topic: str,
        at: datetime | timedelta | TransactionId,
        partitions: Iterable[int] | None = None,
    ) -> dict[int, int]:
        """Per partition the offset of the first record at or after a time or a transaction id; the
        end of the partition if there is none. A timedelta is the time so long ago.

        If the batch of that record is damaged, or of a typed topic whose schema no SC tells now, it
        is the offset of the batch.
        """
        wanted = make_range(at, None, partitions)
        route = await self._route(topic)
        chosen = wanted.chosen(topic, route.partition_count)
        place = wanted.start
        if not isinstance(place, datetime | TransactionId):
            raise InvalidRequestError(
                f"at is {at!r}; give a datetime, a timedelta or a TransactionId"
            )
        columns = await self._columns(route, place)
        archive = await self._archive(route)
        found = await asyncio.gather(
            *(
                resolve_place(route, index, place, OFFSETS_TIMEOUT_S, archive, columns=columns)
                for index in chosen
            )
        )
        return dict(zip(chosen, (each.offset for each in found), strict=True))

    async def truncate(
        self,
        topic: str,
        before: Before,
        partitions: Iterable[int] | None = None,
        timeout: float = 60.0,
        *,
        force: bool = False,
    ) -> tuple[Truncated, ...]:
        """Remove the oldest records of a topic, on every replica and for good. Where it has an
        archive, they are gone from there as well; the next run of archiving deletes their files.

        ``before`` is the first offset that stays: one for all partitions, one for each, a time, or
        "latest" to remove everything. Returns when the leaders show no earlier record any more; an
        offline replica truncates when it returns. Raises InvalidRequestError for an offset beyond
        the end of a partition, before anything is truncated; DeadlineExceededError after
        ``timeout`` seconds; ConflictError for records that are in no archive yet, where the topic
        has one, unless ``force``.
        """
        if is_system_name(topic):
            raise InvalidRequestError(
                f"topic {topic!r} is a system topic: only Runnel truncates it"
            )
        route = await self._route(topic)
        if isinstance(before, int):
            check_offset("before", before)
        if isinstance(before, Mapping):
            check_offsets("before", before)
            partitions = before.keys() if partitions is None else partitions
        chosen = make_range("earliest", None, partitions).chosen(topic, route.partition_count)
        columns = await self._columns(route, before)
        archive = await self._archive(route)
        return await truncate(
            self,
            route,
            tuple(chosen),
            before,
            timeout,
            columns,
            force=force,
            archive=archive,
            unlist=None if archive is None else partial(self._unlist, route.topic.uid),
        )

    async def _unlist(self, uid: str, partition: int, before: int) -> None:
        await self._archives.update(uid, lambda state: remove(state, uid, partition, before))

    async def seal(self, topic: str, timeout: float = 60.0) -> tuple[Sealed, ...]:
        """Seal a topic: it takes no more records, for good. Returns where its partitions end, once
        all are sealed.

        Producers get SealedError from then on. Readers that follow end when they have read all.
        Raises NotFoundError; InvalidRequestError for a topic of the system; DeadlineExceededError
        after ``timeout`` seconds: what is missing is sealed as soon as it has a leader.
        """
        if is_system_name(topic):
            raise InvalidRequestError(f"topic {topic!r} is a system topic: Runnel writes to it")
        return await seal(self, topic, timeout)

    async def segments(self, topic: str, partition: int) -> Segments:
        """The segments of a partition's log, as its leader has them now."""
        return await list_segments(await self._route(topic), partition)

    async def watch_segments(self, topic: str, partition: int) -> AsyncIterator[Segments]:
        """The segments now, then after every change, without end."""
        route = await self._route(topic)
        async for found in watch_segments(route, partition):
            yield found


def _check_partitions(name: str, offsets: Mapping[int, object], route: TopicRoute) -> None:
    """Raise InvalidRequestError unless these are offsets of partitions of the topic."""
    check_offsets(name, offsets)
    if offsets:
        make_range("earliest", None, offsets).chosen(route.name, route.partition_count)
