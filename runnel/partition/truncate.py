"""Explicit truncation: delete the oldest records of partitions, on every replica, for good.

A request is checked against the log (only committed records are truncated), noted by the SC, and
carried out by each replica when it learns of it: a replica that is offline, when it returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from runnel.admin.client import Admin
from runnel.archive.resolving import resolve_place
from runnel.archive.source import ArchiveSource
from runnel.net.offsets import list_offsets
from runnel.net.routing import TopicRoute
from runnel.records.schema_resolution import ReadColumns
from schemas.errors import DeadlineExceededError, InvalidRequestError
from schemas.objects.topic import partition_name
from schemas.wire.record_requests import EARLIEST, LATEST

#: Where a log is to begin: an offset, offsets by partition, a time, or "latest" (delete all).
Before = int | Mapping[int, int] | datetime | Literal["latest"]

_AGAIN_S: Final = 0.05
_MOST_AGAIN_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Truncated:
    """One partition: records below ``before`` are gone; ``first`` is the first offset that readers
    get, and ``removed`` the number of offsets between the former first one and this one."""

    partition: int
    before: int
    first: int
    removed: int


@dataclass(frozen=True, slots=True)
class _Place:
    """``first`` is the first offset that readers get now, from the archive or the log, which begins
    at ``log_start``; ``before`` is the one that they are to get."""

    first: int
    log_start: int
    before: int

    @property
    def log_before(self) -> int:
        """Where the log begins afterwards, at least."""
        return max(self.before, self.log_start)


async def truncate(
    admin: Admin,
    route: TopicRoute,
    partitions: tuple[int, ...],
    before: Before,
    timeout_s: float,
    columns: ReadColumns | None = None,
    *,
    force: bool = False,
    archive: ArchiveSource | None = None,
    unlist: Callable[[int, int], Awaitable[object]] | None = None,
) -> tuple[Truncated, ...]:
    """Truncate partitions of a topic; returns when their leaders no longer show those records.

    All are checked before the first one is truncated. Raises InvalidRequestError for an offset
    beyond the end of a partition, DeadlineExceededError after ``timeout_s`` seconds: truncations
    that the SC has noted by then still happen. ``columns``: how batches of a typed topic are
    decoded. ``force``: also records that are in no ``archive`` yet, where the topic has one;
    ``unlist`` takes those below an offset of a partition off its list. Raises ConflictError without
    it.
    """
    asked = set()
    try:
        async with asyncio.timeout(timeout_s):
            places = await asyncio.gather(
                *(_place(route, index, before, timeout_s, columns, archive) for index in partitions)
            )
            for index, place in zip(partitions, places, strict=True):
                name = partition_name(route.name, index)
                # Not where the log begins: what the SC remembers counts for the archive as well.
                await admin.truncate_partition(name, place.before, force=force)
                asked.add(index)
                if unlist is not None:
                    await unlist(index, place.before)
            return tuple(
                await asyncio.gather(
                    *(
                        _done(route, index, place, timeout_s)
                        for index, place in zip(partitions, places, strict=True)
                    )
                )
            )
    except TimeoutError:
        if not asked:
            raise DeadlineExceededError(
                f"the SC has noted no truncation of topic {route.name!r} within {timeout_s:.3g} s;"
                f" one that it was asked for may still follow: runnel topic offsets {route.name}"
            ) from None
        noted = ", ".join(map(str, sorted(asked)))
        raise DeadlineExceededError(
            f"not all of topic {route.name!r} was truncated within {timeout_s:.3g} s; the SC has"
            f" noted it for partitions: {noted}. Those follow when their replicas hear of it"
        ) from None


async def _place(
    route: TopicRoute,
    partition: int,
    before: Before,
    give_up_s: float,
    columns: ReadColumns | None,
    archive: ArchiveSource | None,
) -> _Place:
    """Where a partition is to begin. Raises InvalidRequestError."""
    bounds = await list_offsets(route, partition, LATEST, give_up_s)
    found = await resolve_place(route, partition, before, give_up_s, archive, columns=columns)
    place = found.offset
    if not 0 <= place <= bounds.offset:
        raise InvalidRequestError(
            f"{route.name}/{partition} cannot begin at offset {place}: it holds"
            f" {bounds.log_start} to {bounds.offset - 1}, and {bounds.offset} removes all"
        )
    archived = None if archive is None else archive.partition(partition).first
    first = bounds.log_start if archived is None else min(archived, bounds.log_start)
    return _Place(first, bounds.log_start, max(place, first))


async def _done(route: TopicRoute, partition: int, place: _Place, give_up_s: float) -> Truncated:
    again_s = _AGAIN_S
    while True:
        first = (await list_offsets(route, partition, EARLIEST, give_up_s)).log_start
        if first >= place.log_before:
            if place.before < place.log_start:
                # Records of the archive alone were removed.
                first = place.before
            return Truncated(partition, place.before, first, first - place.first)
        await asyncio.sleep(again_s)
        again_s = min(2 * again_s, _MOST_AGAIN_S)
