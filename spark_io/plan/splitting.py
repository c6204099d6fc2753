"""Several tasks for one large partition. Pure.

Pieces have about the same number of bytes, as stored. They end at boundaries of segments where one
is near, since a task then reads whole segments; an offset inside of a batch costs no more than that
batch, which two tasks read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from spark_io.plan.slices import LogSlice

#: A boundary so near to an even cut is taken instead, as a share of a piece.
_NEAR: Final = 0.25
#: The bytes before each of some offsets, increasing in both.
Marks = Sequence[tuple[int, int]]


def piece_counts(
    sizes: Sequence[int], lengths: Sequence[int], least: int, most_bytes: int | None
) -> list[int]:
    """How many pieces to make of each slice, of ``sizes`` bytes and ``lengths`` offsets.

    Pieces of at most about ``most_bytes``, and at least ``least`` of all together. None for an
    empty slice, and never more than it has offsets.
    """
    counts = [
        min(length, 1 if most_bytes is None else max(1, -(-size // most_bytes)))
        for size, length in zip(sizes, lengths, strict=True)
    ]
    while (missing := least - sum(counts)) > 0:
        # The largest pieces first. A slice takes at most its share at once.
        room = [i for i, count in enumerate(counts) if count < lengths[i]]
        if not room:
            break
        weights = {i: max(sizes[i], 1) / counts[i] for i in room}
        total = sum(weights.values())
        for i in sorted(room, key=lambda i: -weights[i]):
            share = max(1, int(missing * weights[i] / total))
            taken = min(share, lengths[i] - counts[i], least - sum(counts))
            counts[i] += taken
    return counts


def split(piece: LogSlice, count: int, marks: Marks = ()) -> list[LogSlice]:
    """Cut a slice into ``count`` pieces, in order: disjoint, complete, none empty.

    ``count`` is at most the number of its offsets. ``marks`` are the ends of segments, if known.
    """
    if count <= 0:
        return []
    cuts = [piece.start, *_cuts(piece.start, piece.end, count, marks), piece.end]
    found = [
        replace(piece, start=start, end=end, begins_at=None, start_term=0, end_term=0)
        for start, end in pairwise(cuts)
    ]
    found[0] = replace(found[0], begins_at=piece.begins_at, start_term=piece.start_term)
    found[-1] = replace(found[-1], end_term=piece.end_term)
    return found


def _cuts(start: int, end: int, count: int, marks: Marks) -> list[int]:
    if len(marks) < 2:
        marks = ((start, 0), (end, end - start))
    first, last = _bytes_before(start, marks), _bytes_before(end, marks)
    piece_bytes = (last - first) / count
    boundaries = [offset for offset, _ in marks if start < offset < end]
    found: list[int] = []
    for number in range(1, count):
        target = first + number * piece_bytes
        offset = _offset_at(target, marks)
        for boundary in boundaries:
            if abs(_bytes_before(boundary, marks) - target) <= _NEAR * piece_bytes:
                offset = boundary
                break
        # Each piece keeps at least one offset.
        least = (found[-1] if found else start) + 1
        found.append(max(least, min(offset, end - (count - number))))
    return found


def _bytes_before(offset: int, marks: Marks) -> float:
    """By interpolation between the marks around it."""
    at = bisect_right(marks, offset, key=lambda mark: mark[0])
    if at == 0:
        return marks[0][1]
    if at == len(marks):
        return marks[-1][1]
    (low, low_bytes), (high, high_bytes) = marks[at - 1], marks[at]
    return low_bytes + (high_bytes - low_bytes) * (offset - low) / (high - low)


def _offset_at(wanted: float, marks: Marks) -> int:
    at = bisect_right(marks, wanted, key=lambda mark: mark[1])
    if at == 0:
        return marks[0][0]
    if at == len(marks):
        return marks[-1][0]
    (low, low_bytes), (high, high_bytes) = marks[at - 1], marks[at]
    return low + int((high - low) * (wanted - low_bytes) / max(1, high_bytes - low_bytes))
