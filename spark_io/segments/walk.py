"""The way through a stream from one cut to a later one, segment by segment. Pure.

Reading a segment to its end leads to its successors, once all their predecessors are read: what is
taken in one step may be read in any order, and the records of a key never come before those of an
earlier step.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from schemas.control.streams import SegmentHistory, segment_of
from schemas.streams.cuts import NOT_BEGUN, Frontier, StreamCut
from schemas.streams.epochs import Segment


@dataclass(frozen=True, slots=True)
class Piece:
    """Offsets from ``start`` to below ``end`` of a segment, by its number."""

    number: int
    start: int
    end: int


class Walk:
    """Where a reader is between two cuts, and the pieces that it has taken.

    ``stop``: None goes to the end of the stream. ``current`` are the ids of the segments that take
    records; ``history`` tells of any other one what follows it, and where it ends once its seal is
    done.
    """

    def __init__(
        self,
        begin: Frontier,
        stop: Frontier | None,
        current: Collection[int],
        history: Callable[[int], SegmentHistory],
    ) -> None:
        self.pieces: list[Piece] = []
        self._begin = begin
        self._stop = stop
        self._current = current
        self._ask = history
        self._known: dict[int, SegmentHistory] = {}
        self._offsets = dict(begin.cut.offsets)
        self._segments = dict(begin.segments)
        self._done: set[int] = set()

    @property
    def cut(self) -> StreamCut:
        """Where the reader is."""
        return StreamCut(self._begin.cut.stream, self._begin.cut.uid, dict(self._offsets))

    def open(self) -> dict[int, int]:
        """By id the segments that may be read now, and their next offsets: none is at an end behind
        which others follow."""
        while self._go_on():
            pass
        return {one: offset for one, offset in self._offsets.items() if offset != NOT_BEGUN}

    def end_of(self, segment: int) -> int | None:
        """Where an open segment is to be read to: its end, or the stop. None if that is where its
        log ends now."""
        if self._stops_in(segment):
            return self._stop_offset(segment)
        return None if segment in self._current else self._history(segment).end

    def take(self, ends: Mapping[int, int]) -> None:
        """Read open segments, by id, up to offsets."""
        for one, end in sorted(ends.items()):
            start = self._offsets[one]
            if end > start:
                self.pieces.append(Piece(self._segments[one].number, start, end))
                self._offsets[one] = end

    def _go_on(self) -> bool:
        """Begin what waits for nothing, and leave what is read; whether there was any of it."""
        moved = False
        for one, offset in sorted(self._offsets.items()):
            if offset == NOT_BEGUN:
                if not self._is_beyond(one) and not self._waits(one):
                    self._offsets[one] = 0
                    moved = True
            elif self._leave(one, offset):
                moved = True
        return moved

    def _leave(self, segment: int, offset: int) -> bool:
        if segment in self._current or self._stops_in(segment):
            return False
        history = self._history(segment)
        if history.end is None or offset < history.end or not history.successors:
            return False
        del self._offsets[segment]
        self._done.add(segment)
        for one in map(segment_of, history.successors):
            self._segments[one.id] = one
            self._offsets.setdefault(one.id, NOT_BEGUN)
        return True

    def _waits(self, segment: int) -> bool:
        """Is anything before a segment not read?"""
        before = map(segment_of, self._history(segment).predecessors)
        return any(not self._is_done(one) for one in before)

    def _is_done(self, segment: Segment) -> bool:
        return segment.id in self._done or self._begin.is_done(segment)

    def _is_beyond(self, segment: int) -> bool:
        return self._stop is not None and not self._stop.holds(self._segments[segment])

    def _stops_in(self, segment: int) -> bool:
        return self._stop is not None and segment in self._stop.cut.offsets

    def _stop_offset(self, segment: int) -> int:
        return 0 if self._stop is None else max(0, self._stop.cut.offsets[segment])

    def _history(self, segment: int) -> SegmentHistory:
        if segment not in self._known:
            self._known[segment] = self._ask(segment)
        return self._known[segment]
