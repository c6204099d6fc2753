"""Which offsets of a partition are due for its archive, and in which files. Pure.

A range begins at the watermark and ends with a completed segment that is old enough, never above
what is committed. It is offsets, not a segment: replicas cut their segments in different places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from schemas.wire.log_requests import SegmentInfo, SegmentState

#: Bytes of the log that become one file, at most.
MOST_BYTES: Final = 512 << 20


@dataclass(frozen=True, slots=True)
class DueRange:
    """Offsets from ``base`` to below ``end``, of about ``size_bytes`` in the log."""

    base: int
    end: int
    size_bytes: int


def due_ranges(
    segments: Sequence[SegmentInfo],
    log_start: int,
    lac: int,
    before: int | None,
    older_than_us: int | None,
    most_bytes: int = MOST_BYTES,
) -> list[DueRange]:
    """The ranges to archive of a partition, in order, each for one file.

    ``before``: its watermark, None before the first file. ``older_than_us``: only segments that
    were completed before this time; None: everything that is committed.
    """
    there = [one for one in segments if one.state is not SegmentState.TRUNCATED]
    begin = log_start if before is None else max(before, log_start)
    end = lac + 1
    if older_than_us is not None:
        end = min(end, _completed_end(there, begin, older_than_us))
    found: list[DueRange] = []
    for piece in _pieces(there, begin, end, most_bytes):
        last = found[-1] if found else None
        if last is not None and last.size_bytes + piece.size_bytes <= most_bytes:
            found[-1] = DueRange(last.base, piece.end, last.size_bytes + piece.size_bytes)
        else:
            found.append(piece)
    return found


def _completed_end(segments: Sequence[SegmentInfo], begin: int, older_than_us: int) -> int:
    """Where the completed segments end that are old enough, from ``begin`` on without a gap."""
    end = begin
    for one in segments:
        if one.end_offset <= begin:
            continue
        in_progress = one.state is SegmentState.IN_PROGRESS or not one.completed_us
        if in_progress or one.completed_us > older_than_us:
            break
        end = one.end_offset
    return end


def _pieces(
    segments: Sequence[SegmentInfo], begin: int, end: int, most_bytes: int
) -> list[DueRange]:
    """The parts of segments between two offsets, none larger than ``most_bytes``, about."""
    found: list[DueRange] = []
    for one in segments:
        start, stop = max(begin, one.base_offset), min(end, one.end_offset)
        if start >= stop:
            continue
        offsets = stop - start
        size = max(1, one.size_bytes * offsets // (one.end_offset - one.base_offset))
        count = min(offsets, -(-size // most_bytes))
        cuts = [start + offsets * number // count for number in range(count + 1)]
        found.extend(
            DueRange(low, high, size * (high - low) // offsets) for low, high in pairwise(cuts)
        )
    return found
