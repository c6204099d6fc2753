"""Merges small record batches into larger ones: each batch that crosses from Python to the JVM has
a fixed cost, so batches of twenty rows move at a fifth of the speed of batches of a thousand. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """A batch is given out at ``enough_rows`` or ``enough_bytes``, and never above ``max_rows``.

    Bytes are estimated from the mean row of each incoming batch, so one batch may exceed
    ``max_bytes`` if its rows differ, and a single row larger than that is a batch alone.
    """

    enough_rows: int = 1_000
    max_rows: int = 65_536
    max_bytes: int = 8 << 20

    def __post_init__(self) -> None:
        if not 1 <= self.enough_rows <= self.max_rows or self.max_bytes < 1:
            raise ValueError(f"limits that cannot be kept: {self}")


def coalesce(batches: Iterable[pa.RecordBatch], limits: BatchLimits) -> Iterator[pa.RecordBatch]:
    """The same rows in the same order, in batches within the limits.

    Every batch but the last has at least ``enough_rows`` rows, unless one row more would have
    taken it above ``max_bytes``. A batch that is large enough already is passed on without a copy.
    """
    pending: list[pa.RecordBatch] = []
    rows = 0
    size = 0
    for batch in batches:
        start = 0
        while start < batch.num_rows:
            left = batch.num_rows - start
            row_bytes = max(1, batch.nbytes // batch.num_rows)
            room = min(limits.max_rows - rows, max(0, limits.max_bytes - size) // row_bytes)
            if room == 0 and not pending:
                room = 1
            taken = min(left, room)
            if taken:
                pending.append(batch.slice(start, taken))
                rows += taken
                size += taken * row_bytes
                start += taken
            if taken < left or rows >= limits.enough_rows:
                yield _joined(pending)
                pending, rows, size = [], 0, 0
    if pending:
        yield _joined(pending)


def _joined(pending: list[pa.RecordBatch]) -> pa.RecordBatch:
    return pending[0] if len(pending) == 1 else pa.concat_batches(pending)
