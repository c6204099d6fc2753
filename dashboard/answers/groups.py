"""Reader groups: who reads what, and how far behind each group is."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from dashboard.answers.cluster import SharedCluster
from runnel.groups.group import GroupInfo
from schemas.errors import NotFoundError

#: Groups whose ends of segments are asked for at once.
AT_ONCE: Final = 8


async def groups(shared: SharedCluster) -> tuple[GroupInfo, ...]:
    """All groups, with where their segments end. Raises RunnelError."""
    cluster = await shared.get()
    turns = asyncio.Semaphore(AT_ONCE)

    async def described(one: GroupInfo) -> GroupInfo:
        async with turns:
            try:
                return await (await cluster.reader_group(one.name)).describe()
            except NotFoundError:
                # It was deleted meanwhile.
                return one

    return tuple(await asyncio.gather(*map(described, await cluster.reader_groups())))


def groups_json(found: tuple[GroupInfo, ...]) -> dict[str, Any]:
    """The answer to a browser; numbers that are not known are null."""
    return {
        "groups": [
            {
                "name": one.name,
                "sources": list(one.sources),
                "lag": one.lag,
                "unreadBytes": one.unread_bytes,
                "leaseS": one.lease_s,
                "checkpointAt": None
                if one.last_checkpoint is None
                else one.last_checkpoint.isoformat(),
                "outstanding": [list(waiting) for waiting in one.checkpoints],
                "waiting": list(one.waiting),
                "readers": [
                    {
                        "name": reader.name,
                        "by": reader.by,
                        "since": reader.since.isoformat(),
                        "segments": reader.segments,
                    }
                    for reader in one.readers
                ],
                "segments": [
                    {
                        "source": segment.source,
                        "segment": segment.segment,
                        "reader": segment.reader,
                        "position": segment.position,
                        "end": segment.end,
                        "lag": segment.lag,
                        "unreadBytes": segment.unread_bytes,
                    }
                    for segment in one.segments
                ],
            }
            for one in found
        ]
    }
