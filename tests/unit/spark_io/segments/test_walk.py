"""The way between two cuts: every record once, in an order that keeps that of each key."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.control.streams import SegmentHistory
from schemas.streams.cuts import Frontier, StreamCut
from schemas.streams.epochs import Change, Epoch, Segment, segment_text
from spark_io.segments.walk import Piece, Walk
from tests.laws import examples
from tests.unit.runnel.streams.test_consumer import KEYS, Stream, some
from tests.unit.schemas.streams.test_epochs import histories


class Known:
    """A scripted stream, as planners ask for it."""

    def __init__(self, history: list[tuple[Epoch, Change]], per_epoch: int, *, sealed: bool):
        self.stream = Stream(history, per_epoch, sealed=sealed)
        self.segments = {one.id: one for epoch, _ in history for one in epoch.segments}
        self.current: Mapping[int, Segment] = history[-1][0].by_id()

    def history(self, segment: int) -> SegmentHistory:
        return asyncio.run(self.stream.segment(segment_text(segment)))

    def frontier(self, cut: StreamCut) -> Frontier:
        return Frontier(cut, [self.segments[one] for one in cut.offsets])

    def walk(self, begin: StreamCut, stop: StreamCut | None) -> Walk:
        end = None if stop is None else self.frontier(stop)
        return Walk(self.frontier(begin), end, self.current, self.history)

    def end(self, walk: Walk, segment: int) -> int:
        known = walk.end_of(segment)
        return len(self.stream.records[segment]) if known is None else known

    def records(self, pieces: list[Piece]) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {key: [] for key in range(KEYS)}
        for piece in pieces:
            segment = self.stream._id(piece.number)
            for key, count in self.stream.records[segment][piece.start : piece.end]:
                found[key].append(count)
        return found


def all_of(known: Known, walk: Walk, most: int | None = None) -> list[int]:
    """Take everything, at most so many records of each segment in a step; gives how many pieces
    there were after each step."""
    steps: list[int] = []
    while True:
        opened = walk.open()
        ends = {one: known.end(walk, one) for one in opened}
        if all(ends[one] <= offset for one, offset in opened.items()):
            return steps
        if most is not None:
            ends = {one: min(end, opened[one] + most) for one, end in ends.items()}
        walk.take(ends)
        steps.append(len(walk.pieces))


@settings(max_examples=examples(25))
@given(histories(), st.integers(0, 3), st.integers(0, 40), st.integers(0, 40), st.booleans())
def test_law_walks_between_cuts_tile_the_stream(
    history: list[tuple[Epoch, Change]], per_epoch: int, one: int, more: int, sealed: bool
) -> None:
    known = Known(history, per_epoch, sealed=sealed)
    stream = known.stream
    total = per_epoch * KEYS * len(history)

    async def positions() -> tuple[StreamCut, StreamCut]:
        _, first = await some(stream.consumer(), min(one, total))
        _, later = await some(stream.consumer(first), min(more, total - min(one, total)))
        return first, later

    first, later = asyncio.run(positions())
    head = StreamCut("s/t", "u", {one.id: 0 for one in history[0][0].segments})
    pieces: list[Piece] = []
    for begin, stop in ((head, first), (first, later), (later, None)):
        walk = known.walk(begin, stop)
        all_of(known, walk)
        if stop is not None:
            # Where it is, is where it was to go.
            assert known.frontier(walk.cut).is_after(known.frontier(stop)) is None
            assert known.frontier(stop).is_after(known.frontier(walk.cut)) is None
        pieces += walk.pieces
    assert known.records(pieces) == stream.wanted


@settings(max_examples=examples(25))
@given(histories(), st.integers(1, 3), st.integers(1, 4))
def test_law_steps_keep_the_order_of_each_key_and_any_cut_between_them_is_a_place(
    history: list[tuple[Epoch, Change]], per_epoch: int, most: int
) -> None:
    known = Known(history, per_epoch, sealed=False)
    head = StreamCut("s/t", "u", {one.id: 0 for one in history[0][0].segments})
    whole = known.walk(head, None)
    all_of(known, whole, most)
    assert known.records(whole.pieces) == known.stream.wanted
    # The same in batches, each from the cut at which the one before it ended, kept as text.
    at, pieces = head, []
    while True:
        walk = known.walk(StreamCut.parse(str(at)), None)
        opened = walk.open()
        walk.take({one: min(known.end(walk, one), at + most) for one, at in opened.items()})
        if not walk.pieces:
            break
        again = known.walk(at, walk.cut)
        all_of(known, again)
        assert sorted(again.pieces, key=lambda one: one.number) == sorted(
            walk.pieces, key=lambda one: one.number
        )
        at = walk.cut
        pieces += walk.pieces
    assert known.records(pieces) == known.stream.wanted


@settings(max_examples=examples(25))
@given(histories(), st.integers(1, 2), st.integers(0, 30), st.integers(0, 30))
def test_law_the_join_of_two_places_is_behind_both_and_no_further(
    history: list[tuple[Epoch, Change]], per_epoch: int, one: int, other: int
) -> None:
    known = Known(history, per_epoch, sealed=False)

    async def place(count: int) -> StreamCut:
        return (await some(known.stream.consumer("earliest", "latest"), count))[1]

    mine, theirs = (known.frontier(asyncio.run(place(count))) for count in (one, other))
    joined = mine.joined(theirs)
    assert mine.is_after(joined) is None
    assert theirs.is_after(joined) is None
    if mine.is_after(theirs) is None:
        assert joined.is_after(theirs) is None
