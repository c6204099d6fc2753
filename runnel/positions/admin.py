"""Listing, resetting and deleting named consumers and their committed offsets.

The lag of a consumer is the difference of two offsets. Offsets have gaps (control records,
decision 0002), so it is behind by that many records *at most*.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Final

from runnel.archive.resolving import resolve_place
from runnel.archive.source import ArchiveSource
from runnel.net.offsets import Range, list_offsets, with_terms
from runnel.net.routing import TopicRoute
from runnel.positions.state import (
    Positions,
    Reading,
    Reset,
    Update,
    apart,
    find,
    forget,
    readings,
)
from runnel.positions.store import GIVE_UP_S, PositionStore
from runnel.records.offset_and_term import OffsetAndTerm
from runnel.records.record import time_of
from runnel.records.schema_resolution import ReadColumns
from runnel.state_log.log import StateLog, now_us
from schemas.errors import InvalidRequestError, NotFoundError, RunnelError
from schemas.objects.spelling import nearest
from schemas.wire.record_requests import LATEST, ListOffsetsResponse

#: How long a partition may take to answer with its bounds; a list then shows none for it.
_BOUNDS_S: Final = 3.0

FindRoute = Callable[[str], Awaitable[TopicRoute]]
FindArchive = Callable[[TopicRoute], Awaitable[ArchiveSource | None]]


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """One partition: ``committed`` is the next offset to read, ``earliest`` and ``end`` are the
    bounds of the log. None if nothing is committed, or if no SPU answers now."""

    partition: int
    committed: int | None
    committed_at: datetime | None
    earliest: int | None
    end: int | None

    @property
    def lag(self) -> int | None:
        """How many records it is behind at most; None if that is not known."""
        if self.committed is None or self.end is None:
            return None
        return max(0, self.end - self.committed)


@dataclass(frozen=True, slots=True)
class NamedConsumer:
    """One consumer name at one topic.

    ``open``: it was opened and not closed since; its process may have ended without closing it.
    ``by``: the client that opened, closed or reset it last, and ``since`` when. ``topic_gone``:
    this topic was deleted, though another one may have its name now.
    """

    name: str
    topic: str
    open: bool
    by: str
    since: datetime
    topic_gone: bool
    partitions: tuple[PartitionProgress, ...]

    @property
    def lag(self) -> int | None:
        """The sum over the partitions; None if none is known."""
        known = [found.lag for found in self.partitions if found.lag is not None]
        return sum(known) if known else None

    @property
    def committed_at(self) -> datetime | None:
        """When anything was committed last."""
        times = [p.committed_at for p in self.partitions if p.committed_at is not None]
        return max(times, default=None)


@dataclass(frozen=True, slots=True)
class ConsumerReset:
    """The positions that a reset set. ``fenced``: the client that had the consumer open, if known;
    its next commit raises FencedError."""

    offsets: Mapping[int, int]
    fenced: str | None


async def list_consumers(
    store: PositionStore,
    find_route: FindRoute,
    name: str | None,
    *,
    bounds: bool = True,
    find_archive: FindArchive | None = None,
) -> tuple[NamedConsumer, ...]:
    """All readings, or those of one name. Without ``bounds`` no SPU is asked where partitions begin
    and end. ``find_archive``: where topics begin that have one. Raises NotFoundError for an unknown
    name."""
    state = await store.everything()
    if name is not None:
        _require(state, name)
    chosen = [found for found in readings(state) if name in (None, found[0])]
    routes = await _routes(find_route, {topic for _, topic, _ in chosen})
    asked = {
        (topic, reading.topic_uid): routes[topic]
        for _, topic, reading in chosen
        if _is_there(routes[topic], reading)
    }
    find = partial(_bounds, find_archive) if bounds else _no_bounds
    found = dict(zip(asked, await asyncio.gather(*map(find, asked.values())), strict=True))
    return tuple(
        _seen(consumer, topic, reading, found.get((topic, reading.topic_uid)))
        for consumer, topic, reading in chosen
    )


async def reset_consumer(
    store: PositionStore,
    route: TopicRoute,
    name: str,
    to: Range,
    by: str,
    columns: ReadColumns | None = None,
    archive: ArchiveSource | None = None,
) -> ConsumerReset:
    """Set where a consumer continues to read. ``columns``: how batches of a typed topic are
    decoded. ``archive``: the topic's, if it has one. Raises NotFoundError, InvalidRequestError,
    DivergedError for a place below which the log holds other records than were read.
    """
    log = await _log_of(store, name, route.name)
    chosen = to.chosen(route.name, route.partition_count)
    found = dict(
        zip(
            chosen,
            await asyncio.gather(
                *(_resolve(route, index, to, columns, archive) for index in chosen)
            ),
            strict=True,
        )
    )
    unknown = {index: place.offset for index, place in found.items() if not place.term}
    found |= await with_terms(route, unknown, GIVE_UP_S)
    offsets, terms = apart(found)
    reset = Reset(
        name=name,
        topic=route.name,
        topic_uid=route.topic.uid,
        partition_count=route.partition_count,
        by=by,
        at_us=now_us(),
        offsets=offsets,
        terms=terms,
    )
    fenced: str | None = None

    def decide(state: Positions) -> tuple[Update, ...]:
        nonlocal fenced
        reading = _require(state, name, route.name)
        fenced = reading.by if reading.session is not None else None
        return (reset,)

    await log.update(decide, GIVE_UP_S)
    return ConsumerReset(reset.offsets, fenced)


async def delete_consumer(store: PositionStore, name: str, topic: str | None) -> tuple[str, ...]:
    """Forget a consumer, in one topic or in all; returns the topics. Raises NotFoundError."""
    log = await _log_of(store, name, topic)
    gone: tuple[str, ...] = ()

    def decide(state: Positions) -> tuple[Update, ...]:
        nonlocal gone
        updates = forget(state, name, topic)
        gone = tuple(update.topic for update in updates) or gone
        return updates

    await log.update(decide, GIVE_UP_S)
    return gone


async def _log_of(
    store: PositionStore, name: str, topic: str | None
) -> StateLog[Positions, Update]:
    """The log that holds an existing name. Raises NotFoundError."""
    _require(await store.everything(), name, topic)
    return await store.log_of(name)


def _require(state: Positions, name: str, topic: str | None = None) -> Reading:
    """The reading, or any of the name. Raises NotFoundError that lists what exists."""
    known = state.get(name)
    if not known:
        hint = nearest(name, sorted(state))
        meant = f"; did you mean {hint!r}?" if hint else ""
        raise NotFoundError(f"consumer {name!r} does not exist{meant}")
    if topic is None:
        return next(iter(known.values()))
    reading = find(state, name, topic)
    if reading is None:
        raise NotFoundError(
            f"consumer {name!r} has not read topic {topic!r}; it reads {', '.join(sorted(known))}"
        )
    return reading


async def _routes(find_route: FindRoute, topics: set[str]) -> dict[str, TopicRoute | None]:
    async def one(topic: str) -> TopicRoute | None:
        try:
            return await find_route(topic)
        except NotFoundError:
            return None

    names = sorted(topics)
    return dict(zip(names, await asyncio.gather(*map(one, names)), strict=True))


def _is_there(route: TopicRoute | None, reading: Reading) -> bool:
    return route is not None and route.topic.uid == reading.topic_uid


async def _bounds(
    find_archive: FindArchive | None, route: TopicRoute | None
) -> dict[int, ListOffsetsResponse | None]:
    """The bounds of all partitions for readers, who begin in an archive where there is one; None
    for those that do not answer in time."""
    if route is None:
        return {}
    archive: ArchiveSource | None = None
    with suppress(RunnelError):
        archive = None if find_archive is None else await find_archive(route)

    async def one(index: int) -> ListOffsetsResponse | None:
        try:
            found = await list_offsets(route, index, LATEST, _BOUNDS_S)
        except RunnelError:
            return None
        first = None if archive is None else archive.partition(index).first
        return found if first is None else replace(found, log_start=min(first, found.log_start))

    indexes = range(route.partition_count)
    return dict(zip(indexes, await asyncio.gather(*map(one, indexes)), strict=True))


async def _no_bounds(route: TopicRoute | None) -> dict[int, ListOffsetsResponse | None]:
    return {} if route is None else dict.fromkeys(range(route.partition_count))


def _seen(
    name: str,
    topic: str,
    reading: Reading,
    bounds: Mapping[int, ListOffsetsResponse | None] | None,
) -> NamedConsumer:
    partitions = []
    for index in sorted({*reading.positions, *(bounds or {})}):
        at = reading.positions.get(index)
        found = (bounds or {}).get(index)
        partitions.append(
            PartitionProgress(
                index,
                at.offset if at is not None else None,
                time_of(at.at_us) if at is not None else None,
                found.log_start if found is not None else None,
                found.offset if found is not None else None,
            )
        )
    return NamedConsumer(
        name,
        topic,
        reading.session is not None,
        reading.by,
        time_of(reading.since_us),
        bounds is None,
        tuple(partitions),
    )


async def _resolve(
    route: TopicRoute,
    partition: int,
    to: Range,
    columns: ReadColumns | None,
    archive: ArchiveSource | None,
) -> OffsetAndTerm:
    """The place that a reset means. Raises InvalidRequestError if neither the log nor the archive
    has such an offset, DivergedError if it comes with a term and the log has another one there."""
    found = await resolve_place(route, partition, to.start, GIVE_UP_S, archive, columns=columns)
    read = OffsetAndTerm(found.offset, found.term)
    bounds = await list_offsets(route, partition, LATEST, GIVE_UP_S, read=read)
    offset, first = found.offset, bounds.log_start
    archived = None if archive is None else archive.partition(partition).first
    first = first if archived is None else min(first, archived)
    given = isinstance(to.start, int | Mapping)
    if given and not first <= offset <= bounds.offset:
        raise InvalidRequestError(
            f"{route.name}/{partition} cannot be read from offset {offset}: it holds"
            f" {first} to {bounds.offset - 1}, and {bounds.offset} comes next"
        )
    return read
