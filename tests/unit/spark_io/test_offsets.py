"""Offsets as users write them, and the errors they get."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import InvalidRequestError
from schemas.wire.record_requests import EARLIEST, LATEST
from spark_io.offsets import OffsetWish, parse_offsets

BOTH = ("earliest", "latest")


def parse(text: str, words: tuple[str, ...] = BOTH) -> OffsetWish:
    return parse_offsets("startingOffsets", text, "orders", words=words)


@pytest.mark.parametrize(
    ("text", "everywhere", "by_partition"),
    [
        pytest.param("earliest", EARLIEST, None, id="given-earliest-then-all-partitions"),
        pytest.param(" LATEST ", LATEST, None, id="given-case-and-blanks-then-ignored"),
        pytest.param('{"0": 12}', EARLIEST, ((0, 12),), id="given-one-partition-then-its-offset"),
        pytest.param(
            '{"1": -1, "0": -2}',
            EARLIEST,
            ((0, EARLIEST), (1, LATEST)),
            id="given-special-numbers-then-earliest-and-latest",
        ),
        pytest.param(
            '{"orders": {"0": 12, "1": 0}}',
            EARLIEST,
            ((0, 12), (1, 0)),
            id="given-kafka's-form-then-the-topic-is-unwrapped",
        ),
    ],
)
def test_wishes(
    text: str, everywhere: int, by_partition: tuple[tuple[int, int], ...] | None
) -> None:
    assert parse(text) == OffsetWish("startingOffsets", everywhere, by_partition)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("newest", "'newest' is no position; give earliest or latest", id="word"),
        pytest.param("12", "'12' is no position", id="given-a-bare-number-then-refused"),
        pytest.param("[1]", "'[1]' is no position", id="given-a-list-then-refused"),
        pytest.param('{"0": 12', "bad JSON: Expecting", id="given-torn-JSON-then-refused"),
        pytest.param("{}", "names no partition", id="given-nothing-then-refused"),
        pytest.param('{"orders": {}}', "names no partition", id="given-no-partition-then-refused"),
        pytest.param('{"0": 1, "0": 2}', "'0' appears twice", id="given-a-repetition-then-refused"),
        pytest.param('{"a": 1}', "'a' is not the number of a partition", id="partition-name"),
        pytest.param('{"-1": 1}', "'-1' is not the number of a partition", id="partition-sign"),
        pytest.param('{"00": 1}', "'00' is not the number of a partition", id="partition-zeros"),
        pytest.param(
            '{"0": -3}', "-3 is no offset of partition 0", id="given-minus-3-then-refused"
        ),
        pytest.param('{"0": 1.5}', "1.5 is no offset", id="given-a-fraction-then-refused"),
        pytest.param('{"0": true}', "true is no offset", id="given-true-then-refused"),
        pytest.param('{"0": "1"}', '"1" is no offset', id="given-text-then-refused"),
        pytest.param(f'{{"0": {1 << 63}}}', "is no offset", id="given-65-bits-then-refused"),
        pytest.param('{"0": {"1": 2}}', "names topic 0, but the option topic is 'orders'", id="t"),
        pytest.param('{"0": 1, "x": {}}', "'x' is not the number of a partition", id="mixed"),
    ],
)
def test_refusals_name_the_option(text: str, says: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        parse(text)
    assert caught.value.message.startswith("option startingOffsets: ")
    assert says in caught.value.message


@pytest.mark.parametrize("text", ["earliest", '{"0": -2}'])
def test_given_an_end_at_earliest_then_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="latest"):
        parse(text, words=("latest",))


@given(st.dictionaries(st.integers(0, 10_000), st.integers(-2, (1 << 63) - 1), min_size=1))
def test_law_json_is_read_back(offsets: dict[int, int]) -> None:
    wish = parse(json.dumps({str(index): offset for index, offset in offsets.items()}))
    assert {index: wish.position(index) for index in offsets} == offsets


@given(st.text() | st.recursive(st.none() | st.integers(), st.lists).map(json.dumps))
def test_law_any_text_is_a_wish_or_a_clear_refusal(text: str) -> None:
    refusal = ""
    try:
        parse(text)
    except InvalidRequestError as error:
        refusal = error.message
    assert refusal == "" or refusal.startswith("option startingOffsets: ")
