"""Which segment takes a key, as a writer learns of one seal after another."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from runnel.streams.segment_table import SegmentTable
from schemas.streams.epochs import Change, Epoch, number_of, segment_id
from schemas.streams.key_space import SPACE
from schemas.streams.scaling import successors
from tests.unit.schemas.streams.test_epochs import FIRST, histories

HALF = SPACE // 2


def test_given_an_epoch_then_each_key_has_its_segment() -> None:
    table = SegmentTable.of(FIRST.segments)
    assert [table.at(place) for place in (0, HALF - 1, HALF, SPACE - 1)] == [0, 0, 1, 1]
    places = np.array([0, HALF, HALF - 1], np.uint32)
    assert table.numbers_at(places).tolist() == [0, 1, 0]


@given(histories(), st.data())
def test_law_whatever_the_order_of_seals_the_last_epoch_is_reached(
    history: list[tuple[Epoch, Change]], data: st.DataObject
) -> None:
    """A writer meets seals in any order; each replaces what the writer knows of that segment."""
    table = SegmentTable.of(history[0][0].segments)
    sealed_in = {one: epoch for epoch, change in history[1:] for one in change.sealed}
    ranges = {one.id: one.keys for epoch, _ in history for one in epoch.segments}
    last = history[-1][0]
    while old := sorted(set(table.segments) & sealed_in.keys()):
        one = data.draw(st.sampled_from(old))
        table = table.replaced(one, successors(ranges[one], sealed_in[one]))
    for segment in last.segments:
        for place in (segment.keys.low, segment.keys.high - 1):
            assert table.at(place) == segment.id
    assert table.numbers_at(np.array([0], np.uint32)).tolist() == [number_of(table.segments[0])]
    assert segment_id(0, 0) == 0
