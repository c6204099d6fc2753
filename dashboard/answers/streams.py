"""A stream's key space over its epochs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from typing import Any, Final

from dashboard.answers.cluster import SharedCluster
from runnel.client import StreamHandle
from schemas.control.streams import EpochInfo
from schemas.streams.epochs import parse_segment

#: Epochs of one answer, and about how many segments they have together at most.
MOST_EPOCHS: Final = 16
MOST_SEGMENTS: Final = 4_000
#: Past epochs that are kept: they do not change.
KEPT: Final = 256


class Epochs:
    """Asks for epochs; past ones once."""

    def __init__(self, shared: SharedCluster) -> None:
        self._shared = shared
        self._kept: OrderedDict[tuple[str, int], EpochInfo] = OrderedDict()

    async def latest(
        self, name: str, last: int | None, existing: Collection[int] | None
    ) -> dict[str, Any]:
        """The epochs of a stream up to ``last`` (None for the current one), the oldest first.
        ``existing``: the ids of the segments that were not truncated away, if that is known. Raises
        RunnelError."""
        handle = (await self._shared.get()).stream(name)
        current = await handle.epoch()
        number = current.epoch if last is None else min(last, current.epoch)
        found: list[EpochInfo] = []
        size = 0
        while number >= 0 and len(found) < MOST_EPOCHS:
            one = current if number == current.epoch else await self._past(handle, current, number)
            size += len(one.segments)
            if found and size > MOST_SEGMENTS:
                break
            found.append(one)
            number -= 1
        live = {one.id for one in current.segments}
        return {
            "stream": current.stream,
            "state": current.state.value,
            "current": current.epoch,
            "epochs": [_shown(one, live, existing) for one in reversed(found)],
        }

    async def _past(self, handle: StreamHandle, current: EpochInfo, number: int) -> EpochInfo:
        key = current.uid, number
        if (kept := self._kept.get(key)) is None:
            kept = self._kept[key] = await handle.epoch(number)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return kept


def _shown(
    epoch: EpochInfo, live: Collection[str], existing: Collection[int] | None
) -> dict[str, Any]:
    return {
        "epoch": epoch.epoch,
        "at": epoch.time_ms,
        "segments": [
            {
                "id": one.id,
                "low": one.low,
                "high": one.high,
                "state": _state(one.id, live, existing),
            }
            for one in epoch.segments
        ],
    }


def _state(segment: str, live: Collection[str], existing: Collection[int] | None) -> str:
    if segment in live:
        return "current"
    gone = existing is not None and parse_segment(segment) not in existing
    return "truncated" if gone else "replaced"
