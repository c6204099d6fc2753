"""The last records of a topic: where to begin, so that just so many are read.

Which records are the last of all partitions? Partitions have no order between them, so it goes by
time: the record to read in addition is always the one with the latest timestamp among those just
before the records that are read already. Within a partition the order of the log holds, whatever
the timestamps are.
"""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from runnel.net.offsets import Stop
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
    read: ReadBatches,
    earliest: Mapping[int, int],
    end: Mapping[int, int],
    stop: Stop,
    count: int,
) -> dict[int, int]:
    """Per partition the offset to begin at, so that the last ``count`` records before ``stop`` are
    read; all of them if there are fewer.

    ``count`` is above 0. ``end``: per partition an offset near ``stop``. Offsets have gaps, so it
    reaches further back until each partition has enough.
    """
    reach = count
    while True:
        start = {p: max(earliest[p], end[p] - reach) for p in end}
        windows = {p: _Window() for p in end}
        async for batch in read(start, stop):
            window = windows[batch.column("partition")[0].as_py()]
            window.offsets.append(int64_values(batch.column("offset")))
            window.times.append(int64_values(batch.column("timestamp")))
            window.records += batch.num_rows
        if all(windows[p].records >= count or start[p] <= earliest[p] for p in end):
            return _last(windows, start, count)
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
