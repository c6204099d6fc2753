"""Named consumers, with how far they are behind."""

from __future__ import annotations

from typing import Any

from dashboard.answers.cluster import SharedCluster
from runnel.positions.admin import NamedConsumer


async def consumers(shared: SharedCluster) -> tuple[NamedConsumer, ...]:
    """All named consumers. Raises RunnelError."""
    return await (await shared.get()).consumers()


def consumers_json(found: tuple[NamedConsumer, ...]) -> dict[str, Any]:
    """The answer to a browser; numbers that are not known are null."""
    return {
        "consumers": [
            {
                "name": one.name,
                "topic": one.topic,
                "open": one.open,
                "by": one.by,
                "since": one.since.isoformat(),
                "topicGone": one.topic_gone,
                "lag": one.lag,
                "committedAt": None if one.committed_at is None else one.committed_at.isoformat(),
                "partitions": [
                    {
                        "partition": part.partition,
                        "committed": part.committed,
                        "committedAt": None
                        if part.committed_at is None
                        else part.committed_at.isoformat(),
                        "earliest": part.earliest,
                        "end": part.end,
                        "lag": part.lag,
                    }
                    for part in one.partitions
                ],
            }
            for one in found
        ]
    }
