"""The segments of a partition's log as its leader holds them, and their changes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from runnel.net.routing import TopicRoute
from schemas.wire.log_requests import ListSegmentsRequest, ListSegmentsResponse, SegmentInfo
from schemas.wire.protocol import Api

_WAIT_MS: Final = 20_000
_GIVE_UP_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Segments:
    """The log begins at ``log_start``; ``lac`` is the last committed offset, of a sealed log that
    of its last record."""

    version: int
    log_start: int
    lac: int
    items: tuple[SegmentInfo, ...]


async def list_segments(route: TopicRoute, partition: int, *, known_version: int = 0) -> Segments:
    """The segments of a partition now. With the version of an earlier answer: as soon as a segment
    began or was completed, truncated or deleted since, or after twenty seconds."""
    response = await route.retrying(
        partition,
        Api.LIST_SEGMENTS,
        lambda uid: ListSegmentsRequest(uid, known_version, _WAIT_MS).pack(),
        give_up_s=_GIVE_UP_S,
    )
    bounds = ListSegmentsResponse.unpack(response.fixed)
    items = tuple(SegmentInfo.unpack_all(response.tail))
    return Segments(bounds.version, bounds.log_start, bounds.lac, items)


async def watch_segments(route: TopicRoute, partition: int) -> AsyncIterator[Segments]:
    """The segments now, then again after every change, without end."""
    known = 0
    while True:
        found = await list_segments(route, partition, known_version=known)
        if found.version != known:
            yield found
        known = found.version
