"""Explicit truncation: delete the oldest records of partitions, on every replica, for good.

A request is checked against the log (only committed records are truncated), noted by the SC, and
carried out by each replica when it learns of it: a replica that is offline, when it returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from runnel.admin.client import Admin
from runnel.net.offsets import list_offsets, resolve_offset
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


async def truncate(
    admin: Admin,
    route: TopicRoute,
    partitions: tuple[int, ...],
    before: Before,
    timeout_s: float,
    columns: ReadColumns | None = None,
) -> tuple[Truncated, ...]:
    """Truncate partitions of a topic; returns when their leaders no longer show those records.

    All are checked before the first one is truncated. Raises InvalidRequestError for an offset
    beyond the end of a partition, DeadlineExceededError after ``timeout_s`` seconds: truncations
    that the SC has noted by then still happen. ``columns``: how batches of a typed topic are
    decoded.
    """
    asked = set()
    try:
        async with asyncio.timeout(timeout_s):
            places = await asyncio.gather(
                *(_place(route, index, before, timeout_s, columns) for index in partitions)
            )
            for index, (_start, place) in zip(partitions, places, strict=True):
                await admin.truncate_partition(partition_name(route.name, index), place)
                asked.add(index)
            return tuple(
                await asyncio.gather(
                    *(
                        _done(route, index, start, place, timeout_s)
                        for index, (start, place) in zip(partitions, places, strict=True)
                    )
                )
            )
    except TimeoutError:
        noted = ", ".join(map(str, sorted(asked))) or "none"
        raise DeadlineExceededError(
            f"not all of topic {route.name!r} was truncated within {timeout_s:g} s; the SC has"
            f" noted it for partitions: {noted}. Those follow when their replicas hear of it"
        ) from None


async def _place(
    route: TopicRoute,
    partition: int,
    before: Before,
    give_up_s: float,
    columns: ReadColumns | None,
) -> tuple[int, int]:
    """The first offset of a partition now, and after the truncation. Raises InvalidRequestError."""
    bounds = await list_offsets(route, partition, LATEST, give_up_s)
    found = await resolve_offset(route, partition, before, give_up_s, bounds, columns=columns)
    place = found.offset
    if not 0 <= place <= bounds.offset:
        raise InvalidRequestError(
            f"{route.name}/{partition} cannot begin at offset {place}: it holds"
            f" {bounds.log_start} to {bounds.offset - 1}, and {bounds.offset} removes all"
        )
    return bounds.log_start, max(place, bounds.log_start)


async def _done(
    route: TopicRoute, partition: int, start: int, place: int, give_up_s: float
) -> Truncated:
    again_s = _AGAIN_S
    while True:
        first = (await list_offsets(route, partition, EARLIEST, give_up_s)).log_start
        if first >= place:
            return Truncated(partition, place, first, first - start)
        await asyncio.sleep(again_s)
        again_s = min(2 * again_s, _MOST_AGAIN_S)
