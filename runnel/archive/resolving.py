"""Where a place of a user is in a topic with an archive: in a file, or in the log.

The archive holds what is older, so it is looked at first. Records that are in both are the same.
"""

from __future__ import annotations

from datetime import datetime

from runnel.archive.source import ArchiveSource
from runnel.net.offsets import (
    ResolvedOffset,
    Start,
    TransactionId,
    list_offsets,
    resolve_offset,
)
from runnel.net.routing import TopicRoute
from runnel.records.record import timestamp_us_of
from runnel.records.schema_resolution import ReadColumns
from schemas.wire.record_requests import EARLIEST


async def resolve_place(
    route: TopicRoute,
    partition: int,
    start: Start,
    give_up_s: float,
    archive: ArchiveSource | None,
    *,
    columns: ReadColumns | None = None,
) -> ResolvedOffset:
    """As `runnel.net.offsets.resolve_offset`, in the archive and the log.

    Raises the same errors, and as `runnel.archive.source.FileRecords.next`.
    """
    if archive is not None:
        known = archive.partition(partition)
        rows = columns.rows if columns is not None else None
        found: int | None = None
        match start:
            case "earliest":
                bounds = await list_offsets(route, partition, EARLIEST, give_up_s)
                first = bounds.log_start
                # What the log holds no more may have been listed since the archive was looked at.
                if first and known.end < first:
                    await archive.refresh()
                    known = archive.partition(partition)
                if known.first is not None:
                    first = min(first, known.first)
                return ResolvedOffset(first, bounds.lac)
            case datetime():
                time_us = max(0, timestamp_us_of(start))
                found = await archive.find(partition, rows, time_us=time_us, least_id=None)
            case TransactionId(id=least_id):
                found = await archive.find(partition, rows, time_us=None, least_id=least_id)
            case _:
                pass
        if found is not None:
            return ResolvedOffset(found)
    return await resolve_offset(route, partition, start, give_up_s, columns=columns)
