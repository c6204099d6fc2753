"""Which segment takes which keys, as one writer knows it. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from schemas.streams.epochs import Segment, number_of
from schemas.streams.key_space import KeyRange


@dataclass(frozen=True, slots=True)
class SegmentTable:
    """Ranges of keys in order, each with the id of its segment.

    A writer learns of the successors of one segment at a time. So a segment that replaced several
    may stand here more than once, with the parts of its range that the writer knows to be its own.
    """

    lows: tuple[int, ...]
    segments: tuple[int, ...]

    @classmethod
    def of(cls, segments: Iterable[Segment]) -> SegmentTable:
        """The table of an epoch."""
        found = sorted(segments, key=lambda one: one.keys)
        return cls(tuple(one.keys.low for one in found), tuple(one.id for one in found))

    def at(self, place: int) -> int:
        """The id of the segment that takes a key, by the hash of the key."""
        return self.segments[bisect_right(self.lows, place) - 1]

    def numbers_at(self, places: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
        """The numbers of the segments that take keys."""
        known = np.array([number_of(one) for one in self.segments], np.int64)
        return known[np.searchsorted(np.array(self.lows, np.int64), places, side="right") - 1]

    def replaced(self, old: int, successors: Iterable[Segment]) -> SegmentTable:
        """The table in which other segments have the keys of one."""
        new = tuple(successors)
        lows: list[int] = []
        segments: list[int] = []
        for keys, segment in self._ranges():
            if segment != old:
                lows.append(keys.low)
                segments.append(segment)
                continue
            for one in sorted(new, key=lambda one: one.keys):
                if one.keys.overlaps(keys):
                    lows.append(max(keys.low, one.keys.low))
                    segments.append(one.id)
        return SegmentTable(tuple(lows), tuple(segments))

    def _ranges(self) -> Iterable[tuple[KeyRange, int]]:
        highs = (*self.lows[1:], 1 << 32)
        for low, high, segment in zip(self.lows, highs, self.segments, strict=True):
            yield KeyRange(low, high), segment
