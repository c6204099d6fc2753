"""Terms order as their parts do; uids are 16 bytes on the wire."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.ids import (
    MAX_RESTARTS,
    dotted_term,
    election_term,
    format_term,
    make_term,
    next_election,
    parse_dotted_term,
    restarts_of,
    uid_bytes,
    uid_text,
)

parts = st.tuples(
    st.integers(0, 2**16 - 1), st.integers(0, 2**32 - 1), st.integers(0, MAX_RESTARTS)
)


@given(parts, parts)
def test_law_terms_order_as_their_parts_do(
    one: tuple[int, int, int], other: tuple[int, int, int]
) -> None:
    assert (make_term(*one) < make_term(*other)) == (one < other)
    assert (make_term(*one) == make_term(*other)) == (one == other)


@given(parts)
def test_law_a_term_takes_apart_again(given_parts: tuple[int, int, int]) -> None:
    incarnation, changes, restarts = given_parts
    term = make_term(*given_parts)
    assert 0 <= term < 2**64
    assert restarts_of(term) == restarts
    assert election_term(term) == make_term(incarnation, changes)
    assert dotted_term(term) == f"{incarnation}.{changes}.{restarts}"
    assert parse_dotted_term(dotted_term(term)) == term


@given(parts.filter(lambda given_parts: given_parts[1] < 2**32 - 1))
def test_law_the_next_election_outdoes_every_restart(given_parts: tuple[int, int, int]) -> None:
    incarnation, changes, _ = given_parts
    following = next_election(make_term(*given_parts))
    assert following == make_term(incarnation, changes + 1)
    assert following > make_term(incarnation, changes, MAX_RESTARTS)


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        pytest.param((1 << 16, 0, 0), "incarnation 65536 does not fit 16 bits", id="incarnation"),
        pytest.param((0, 1 << 32, 0), "4294967296 do not fit 32 bits", id="leader-changes"),
        pytest.param((0, 0, 1 << 16), "restarts 65536 do not fit 16 bits", id="restarts"),
        pytest.param((-1, 0, 0), "incarnation -1", id="negative-incarnation"),
        pytest.param((0, -1, 0), "leader changes -1", id="negative-changes"),
        pytest.param((0, 0, -1), "restarts -1", id="negative-restarts"),
    ],
)
def test_parts_out_of_range(bad: tuple[int, int, int], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make_term(*bad)


def test_the_limits_fit() -> None:
    assert make_term(2**16 - 1, 2**32 - 1, MAX_RESTARTS) == 2**64 - 1
    assert make_term(0, 0) == 0
    assert make_term(1, 2, 3) == 0x0001_0000_0002_0003


@given(st.uuids())
def test_law_uids_round_trip(uid: uuid.UUID) -> None:
    assert uid_text(uid_bytes(str(uid))) == str(uid)
    assert len(uid_bytes(str(uid))) == 16


@pytest.mark.parametrize("bad", ["", "orders-0", "3f1c1a52"], ids=repr)
def test_what_is_not_a_uid(bad: str) -> None:
    with pytest.raises(ValueError, match="badly formed"):
        uid_bytes(bad)


@pytest.mark.parametrize(
    ("given_parts", "text"),
    [((0, 0, 0), "0"), ((0, 4, 0), "4"), ((0, 4, 2), "4+2"), ((1, 0, 0), "1:0"),
     ((1, 4, 2), "1:4+2")],
)  # fmt: skip
def test_people_see_the_parts_that_count(given_parts: tuple[int, int, int], text: str) -> None:
    assert format_term(make_term(*given_parts)) == text
