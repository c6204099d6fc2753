"""One object as its manifest, its last writes, replicas, segments, rates."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any, Final

from dashboard.answers.cluster import SharedCluster
from runnel.admin.http import ScClient
from schemas.errors import InvalidRequestError, RunnelError
from schemas.objects.manifest.manifest import dump_yaml

#: Partitions whose leaders one request asks for segments.
MOST_PARTITIONS: Final = 64
#: How long one of them may take; the others are shown without it.
SEGMENTS_S: Final = 3.0
HISTORY: Final = 50


async def describe(shared: SharedCluster, plural: str, name: str) -> dict[str, Any]:
    """An object as YAML and JSON, and its history, the newest write first."""
    cluster = await shared.get()
    obj = await cluster.get(plural, name)
    history = await cluster.history(plural, name, HISTORY)
    return {
        "yaml": dump_yaml([obj]),
        "object": obj.model_dump(mode="json", by_alias=True, exclude_none=True),
        "history": [asdict(entry) for entry in history.entries],
        "complete": history.complete,
    }


async def replicas(shared: SharedCluster, partition: str) -> dict[str, Any]:
    """The replicas of a partition, as their SPUs reported them last."""
    cluster = await shared.get()
    return {"replicas": [asdict(found) for found in await cluster.replicas(partition)]}


async def segments(shared: SharedCluster, topic: str, first: int) -> dict[str, Any]:
    """The segments of up to `MOST_PARTITIONS` partitions from ``first`` on, as their leaders have
    them. ``away`` says why a leader did not answer."""
    cluster = await shared.get()
    count = (await cluster.topic(topic)).partition_count
    if not 0 <= first < max(1, count):
        raise InvalidRequestError(f"first: {topic} has partitions 0 to {count - 1}, not {first}")
    chosen = range(first, min(count, first + MOST_PARTITIONS))
    away: dict[str, str] = {}

    async def one(index: int) -> dict[str, Any] | None:
        try:
            async with asyncio.timeout(SEGMENTS_S):
                found = await cluster.segments(topic, index)
        except TimeoutError:
            away[str(index)] = f"its leader has not answered within {SEGMENTS_S:g} s"
            return None
        except RunnelError as error:
            away[str(index)] = error.message
            return None
        return {
            "index": index,
            "logStart": found.log_start,
            "end": found.lac + 1,
            "segments": [
                {
                    "base": item.base_offset,
                    "end": item.end_offset,
                    "bytes": item.size_bytes,
                    "state": item.state.name.lower(),
                    "openedUs": item.opened_us or None,
                    "completedUs": item.completed_us or None,
                    "truncatedUs": item.truncated_us or None,
                }
                for item in found.items
            ],
        }

    found = await asyncio.gather(*map(one, chosen))
    return {
        "partitions": [each for each in found if each is not None],
        "away": away,
        "count": count,
    }


async def series(sc: ScClient, seconds: int) -> dict[str, Any]:
    """Rates by second of all SPUs."""
    query = {"seconds": str(seconds), "limit": "1"}
    found = await sc.call("GET", "/v1/stats", query=query)
    return {
        "at": found["at"],
        "spus": {one["name"]: one.get("series", []) for one in found["spus"]},
    }
