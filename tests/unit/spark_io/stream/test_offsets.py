"""The place of a stream in a checkpoint: one text for each place."""

from __future__ import annotations

import json
from dataclasses import replace
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
    known = replace(place, terms={"b": {10: 7, 9: 8}, "a": {}})
    assert json.dumps(known.to_json()) == (
        '{"a": {"0": 3}, "b": {"9": 2, "10": 1}, "_terms": {"b": {"9": 8, "10": 7}},'
        ' "_uids": {"a": "u1", "b": "u2"}}'
    )
    assert known.read_before("b") == {10: (1, 7), 9: (2, 8)}


@given(
    st.dictionaries(
        NAMES, st.dictionaries(st.integers(0, 200), st.integers(0, (1 << 63) - 1), min_size=1)
    ),
    st.dictionaries(
        NAMES, st.dictionaries(st.integers(0, 200), st.integers(1, (1 << 63) - 1), min_size=1)
    ),
)
def test_law_texts_are_read_back_and_equal_places_have_one(
    offsets: dict[str, dict[int, int]], terms: dict[str, dict[int, int]]
) -> None:
    place = StreamPlace(offsets, dict.fromkeys(offsets, "uid"), terms)
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
        assert all(
            wish.read_before(topic)
            == {p: at for p, at in place.read_before(topic).items() if at.offset}
            for topic in offsets
        )


@pytest.mark.parametrize(
    "data",
    [
        [],
        None,
        {"a": 3},
        {"a": {"x": 1}},
        {"a": {"0": -1}},
        {"a": {"0": True}},
        {"a": {"0": 1}, "_terms": {"a": 1}},
    ],
)
def test_what_is_no_place_is_refused(data: Any) -> None:
    with pytest.raises(InvalidRequestError, match="begin the query with a new checkpointLocation"):
        StreamPlace.from_json(data)
