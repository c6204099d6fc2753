"""The place of a stream in a checkpoint: one text for each place."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import InvalidRequestError
from spark_io.options.places import parse_offsets
from spark_io.stream.offsets import StreamPlace

NAMES = st.sampled_from(["orders", "bills", "a.b-c"])


def test_the_text_has_numbers_in_order_and_the_uids_last() -> None:
    place = StreamPlace({"b": {10: 1, 9: 2}, "a": {0: 3}}, {"b": "u2", "a": "u1"})
    assert json.dumps(place.to_json()) == (
        '{"a": {"0": 3}, "b": {"9": 2, "10": 1}, "_uids": {"a": "u1", "b": "u2"}}'
    )


@given(
    st.dictionaries(
        NAMES, st.dictionaries(st.integers(0, 200), st.integers(0, (1 << 63) - 1), min_size=1)
    )
)
def test_law_texts_are_read_back_and_equal_places_have_one(
    offsets: dict[str, dict[int, int]],
) -> None:
    place = StreamPlace(offsets, dict.fromkeys(offsets, "uid"))
    text = json.dumps(place.to_json())
    again = StreamPlace.from_json(json.loads(text))
    assert again == place
    assert json.dumps(again.to_json()) == text
    if offsets:
        wish = parse_offsets("startingOffsets", text, None, words=("earliest",))
        assert all(
            wish.place(topic, index) == offset
            for topic, partitions in offsets.items()
            for index, offset in partitions.items()
        )


@pytest.mark.parametrize(
    "data", [[], None, {"a": 3}, {"a": {"x": 1}}, {"a": {"0": -1}}, {"a": {"0": True}}]
)
def test_what_is_no_place_is_refused(data: Any) -> None:
    with pytest.raises(InvalidRequestError, match="begin the query with a new checkpointLocation"):
        StreamPlace.from_json(data)
