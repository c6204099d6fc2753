"""How far one batch of a stream goes. Pure.

A limit is shared by the partitions in proportion to what each has to read, so a large backlog does
not starve the others, and every partition with something to read moves by at least one record.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from spark_io.options.read import TriggerLimits

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Backlog:
    """What a partition has to read: offsets from ``start`` to below ``end``, of about
    ``record_bytes`` each."""

    start: int
    end: int
    record_bytes: float = 0.0

    @property
    def length(self) -> int:
        return max(0, self.end - self.start)


def admit(backlogs: Mapping[K, Backlog], limits: TriggerLimits) -> dict[K, int]:
    """Where the batch ends in each partition: at most at its end, and within the limits, except
    that every partition with something to read gets one record.

    Where there are more such partitions than records are allowed, those with most to read get one.
    """
    allowed = {key: float(backlog.length) for key, backlog in backlogs.items()}
    total = sum(allowed.values())
    if limits.max_offsets is not None and total > limits.max_offsets:
        allowed = {key: size * limits.max_offsets / total for key, size in allowed.items()}
    size = sum(rows * backlogs[key].record_bytes for key, rows in allowed.items())
    if limits.max_bytes is not None and size > limits.max_bytes:
        allowed = {key: rows * limits.max_bytes / size for key, rows in allowed.items()}
    most = total if limits.max_offsets is None else limits.max_offsets
    taken = {key: min(int(rows), backlogs[key].length) for key, rows in allowed.items()}
    left = most - sum(taken.values())
    for key, backlog in sorted(backlogs.items(), key=lambda item: -item[1].length):
        if not taken[key] and backlog.length and left >= 1:
            taken[key] = 1
            left -= 1
    return {key: backlogs[key].start + taken[key] for key in backlogs}


def waits(backlogs: Mapping[K, Backlog], limits: TriggerLimits, since_ms: float) -> bool:
    """Is it too early for a batch? ``since_ms``: how long ago the last one began."""
    if limits.min_offsets is None or since_ms >= limits.max_delay_ms:
        return False
    return sum(backlog.length for backlog in backlogs.values()) < limits.min_offsets
