"""Offsets as users write them, and the errors they get."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import InvalidRequestError
from schemas.wire.record_requests import EARLIEST, LATEST
from spark_io.options.places import Wish, parse_offsets, parse_time, parse_times

BOTH = ("earliest", "latest")


def parse(text: str, words: tuple[str, ...] = BOTH, only: str | None = "orders") -> Wish:
    return parse_offsets("startingOffsets", text, only, words=words)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "earliest", Wish("startingOffsets", EARLIEST), id="given-earliest-then-all-partitions"
        ),
        pytest.param(
            " LATEST ", Wish("startingOffsets", LATEST), id="given-case-and-blanks-then-ignored"
        ),
        pytest.param(
            '{"0": 12}',
            Wish("startingOffsets", EARLIEST, ((None, ((0, 12),)),)),
            id="given-one-partition-then-its-offset",
        ),
        pytest.param(
            '{"1": -1, "0": -2}',
            Wish("startingOffsets", EARLIEST, ((None, ((0, EARLIEST), (1, LATEST))),)),
            id="given-special-numbers-then-earliest-and-latest",
        ),
        pytest.param(
            '{"orders": {"0": 12, "1": 0}}',
            Wish("startingOffsets", EARLIEST, (("orders", ((0, 12), (1, 0))),)),
            id="given-kafka's-form-then-by-topic",
        ),
        pytest.param(
            '{"orders": {"0": 12}, "_uids": {"orders": "u1"}}',
            Wish("startingOffsets", EARLIEST, (("orders", ((0, 12),)),), (("orders", "u1"),)),
            id="given-the-text-of-a-checkpoint-then-with-its-uids",
        ),
        pytest.param(
            '{"orders": {"0": 12}, "_terms": {"orders": {"0": 7}}}',
            Wish(
                "startingOffsets",
                EARLIEST,
                (("orders", ((0, 12),)),),
                terms=(("orders", ((0, 7),)),),
            ),
            id="given-terms-then-with-them",
        ),
    ],
)
def test_wishes(text: str, expected: Wish) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param('{"orders": {"0": 1}}', "topic 'bills' is missing", id="a-topic-is-missing"),
        pytest.param(
            '{"orders": {"0": 1}, "bills": {"0": 1}, "x": {"0": 1}}',
            "names topic x, which is not read; read are bills, orders",
            id="a-topic-too-many",
        ),
        pytest.param(
            '{"orders": {"0": 1, "1": 1}, "bills": {"0": 1}}',
            "topic 'orders' has no partition 1 to read; there are 0",
            id="a-partition-too-many",
        ),
        pytest.param(
            '{"orders": {"0": 1}, "bills": {"0": 1}, "_uids": {"orders": "old"}}',
            "about the topic 'orders' with the uid old, and that was deleted; the one of this name"
            " now is new",
            id="another-topic-of-the-name",
        ),
    ],
)
def test_places_of_several_topics_are_checked(text: str, says: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        parse(text, only=None).check({"orders": [0], "bills": [0]}, {"orders": "new"})
    assert says in caught.value.message


def test_what_was_read_before_needs_an_offset_and_a_term() -> None:
    wish = parse(
        '{"orders": {"0": 12, "1": -1, "2": 5, "3": 0}, "_terms": {"orders": {"0": 7, "1": 8,'
        ' "3": 9}}}'
    )
    assert wish.read_before("orders") == {0: (12, 7)}
    assert wish.read_before("bills") == {}


def test_given_several_topics_then_their_names_are_needed() -> None:
    with pytest.raises(InvalidRequestError, match="put their names around the partitions"):
        parse('{"0": 12}', only=None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1735689600500", datetime(2025, 1, 1, 0, 0, 0, 500_000, UTC)),
        (" 2025-01-01T01:00:00+01:00 ", datetime(2025, 1, 1, tzinfo=UTC)),
        ("2025-01-01T00:00:00Z", datetime(2025, 1, 1, tzinfo=UTC)),
    ],
)
def test_times(text: str, expected: datetime) -> None:
    assert parse_time("startingTimestamp", text) == Wish("startingTimestamp", expected)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("yesterday", "'yesterday' is no time; give milliseconds"),
        ("2025-01-01T00:00:00", "it has no time zone"),
        ("-5", "is no time"),
        ("9" * 19, "is no time"),
        ("", "is no time"),
    ],
)
def test_texts_that_are_no_times(text: str, says: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        parse_time("endingTimestamp", text)
    assert caught.value.message.startswith("option endingTimestamp: ")
    assert says in caught.value.message


def test_times_by_partition() -> None:
    wish = parse_times("startingOffsetsByTimestamp", '{"orders": {"0": 0, "1": 1500}}', "orders")
    assert wish.place("orders", 0) == datetime(1970, 1, 1, tzinfo=UTC)
    assert wish.place("orders", 1) == datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)
    with pytest.raises(InvalidRequestError, match="-1 is no time of partition 0"):
        parse_times("startingOffsetsByTimestamp", '{"0": -1}', "orders")


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
        pytest.param('{"0": 1, "x": {}}', "'x' is not the number of a partition", id="mixed"),
        pytest.param('{"_uids": 1, "0": 1}', "_uids is no map of topics to uids", id="uids"),
        pytest.param('{"_terms": 1, "0": 1}', "_terms is no map of topics", id="terms"),
        pytest.param(
            '{"orders": {"0": 1}, "_terms": {"orders": {"0": 0}}}', "_terms is no map", id="term-0"
        ),
        pytest.param("null", "'null' is no position", id="given-null-then-refused"),
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
    assert {index: wish.place("orders", index) for index in offsets} == offsets


@given(st.text() | st.recursive(st.none() | st.integers(), st.lists).map(json.dumps))
def test_law_any_text_is_a_wish_or_a_clear_refusal(text: str) -> None:
    refusal = ""
    try:
        parse(text)
    except InvalidRequestError as error:
        refusal = error.message
    assert refusal == "" or refusal.startswith("option startingOffsets: ")


class Counted(tuple[Any, ...]):
    """Counts how often somebody goes through it."""

    passes = 0

    def __iter__(self) -> Iterator[Any]:
        type(self).passes += 1
        return super().__iter__()


def test_given_many_partitions_then_their_places_are_gone_through_once() -> None:
    class Places(Counted): ...

    class Terms(Counted): ...

    count = 5
    wish = Wish(
        "startingOffsets",
        by_topic=(("orders", Places((index, index) for index in range(count))),),
        terms=(("orders", Terms((index, 7) for index in range(count))),),
    )
    for index in range(count):
        assert wish.place("orders", index) == index
        assert wish.read_before("orders").get(index) == ((index, 7) if index else None)
    assert (Places.passes, Terms.passes) == (1, 1)


def test_given_a_wish_that_was_used_then_as_much_is_sent_as_before() -> None:
    wish = Wish(
        "startingOffsets", by_topic=(("orders", ((0, 5),)),), terms=(("orders", ((0, 7),)),)
    )
    before = pickle.dumps(wish)
    assert wish.place("orders", 0) == 5
    assert wish.read_before("orders")
    assert pickle.dumps(wish) == before
    assert pickle.loads(before) == wish  # noqa: S301 - it was made here
