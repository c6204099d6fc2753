"""The last records of a topic: where to begin, so that just so many are read.

Which records are the last of all partitions? Partitions have no order between them, so it goes by
time: the record to read in addition is always the one with the latest timestamp among those just
before the records that are read already. Within a partition the order of the log holds, whatever
the timestamps are.
"""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from runnel.admin.answers import PartitionOffsets
from runnel.net.offsets import Range, Stop, check_named
from runnel.records.tables import int64_values

#: Reads record batches of the partitions from the first offsets, up to the second.
ReadBatches = Callable[[Mapping[int, int], Stop], AsyncIterator[pa.RecordBatch]]


@dataclass(slots=True)
class _Window:
    """Offsets and timestamps of the last records of a partition, in their order."""

    offsets: list[npt.NDArray[np.int64]] = field(default_factory=list)
    times: list[npt.NDArray[np.int64]] = field(default_factory=list)
    records: int = 0


async def find_tail(
    topic: str,
    wanted: Range,
    count: int,
    bounds: Mapping[int, PartitionOffsets],
    offsets_at: Callable[[datetime], Awaitable[Mapping[int, int]]],
    read: ReadBatches,
) -> Range:
    """As ``wanted``, but from the last ``count`` records before its stop on; all of them if there
    are fewer.

    ``bounds`` are those of all partitions to read; ``offsets_at`` gives offsets near a time. Raises
    InvalidRequestError if the stop lacks a partition.
    """
    latest = {p: found.latest for p, found in bounds.items()}
    if count == 0:
        return replace(wanted, start=latest)
    end: Mapping[int, int]
    stop = wanted.stop
    match stop:
        case datetime() as when:
            end = await offsets_at(when)
        case Mapping() as offsets:
            check_named("stop", offsets, topic, bounds)
            end = {p: min(offsets[p], at) for p, at in latest.items()}
        case _:
            end = stop = latest
    earliest = {p: found.first for p, found in bounds.items()}
    reach = count
    # Offsets have gaps: it reaches further back until each partition has enough.
    while True:
        start = {p: max(earliest[p], end[p] - reach) for p in end}
        windows = {p: _Window() for p in end}
        async for batch in read(start, stop):
            window = windows[batch.column("partition")[0].as_py()]
            window.offsets.append(int64_values(batch.column("offset")))
            window.times.append(int64_values(batch.column("timestamp")))
            window.records += batch.num_rows
        if all(windows[p].records >= count or start[p] <= earliest[p] for p in end):
            return replace(wanted, start=_last(windows, start, count))
        reach *= 2


def _last(windows: Mapping[int, _Window], start: Mapping[int, int], count: int) -> dict[int, int]:
    """Go back from the ends: always to the latest of the records that come next."""
    offsets = {p: np.concatenate(w.offsets) for p, w in windows.items() if w.offsets}
    times = {p: np.concatenate(windows[p].times) for p in offsets}
    # A partition without records in its window has none at all.
    found = {p: int(offsets[p][-1]) + 1 if p in offsets else start[p] for p in windows}
    left = {p: len(rows) - 1 for p, rows in offsets.items()}
    latest = [(-int(times[p][at]), p) for p, at in left.items()]
    heapq.heapify(latest)
    for _ in range(min(count, sum(map(len, offsets.values())))):
        _, p = heapq.heappop(latest)
        at = left[p]
        found[p] = int(offsets[p][at])
        left[p] = at - 1
        if at:
            heapq.heappush(latest, (-int(times[p][at - 1]), p))
    return found
