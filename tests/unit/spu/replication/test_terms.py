"""Terms: never lower, never twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import FencedError
from schemas.ids import MAX_RESTARTS, election_term, make_term
from spu.replication.terms import next_term


@pytest.mark.parametrize(
    ("wanted", "on_disk", "term"),
    [
        pytest.param(make_term(1, 1), 0, make_term(1, 1), id="given-none-then-as-wanted"),
        pytest.param(make_term(1, 2), make_term(1, 1, 9), make_term(1, 2), id="given-lower"),
        pytest.param(make_term(1, 1), make_term(1, 1), make_term(1, 1, 1), id="given-the-same"),
        pytest.param(make_term(1, 1), make_term(1, 1, 4), make_term(1, 1, 5), id="given-restarts"),
        pytest.param(make_term(2, 0), make_term(1, 9), make_term(2, 0), id="given-an-incarnation"),
    ],
)
def test_next_term(wanted: int, on_disk: int, term: int) -> None:
    assert next_term(wanted, on_disk) == term


@pytest.mark.parametrize(
    ("wanted", "on_disk", "text"),
    [
        pytest.param(make_term(1, 1), make_term(1, 2), "1:1 is over", id="given-a-higher-one"),
        pytest.param(
            make_term(1, 1),
            make_term(1, 1, MAX_RESTARTS),
            "SC must elect a leader",
            id="given-no-more",
        ),
    ],
)
def test_refusals(wanted: int, on_disk: int, text: str) -> None:
    with pytest.raises(FencedError, match=text):
        next_term(wanted, on_disk)


@given(st.integers(0, (1 << 64) - 1), st.integers(0, (1 << 64) - 1))
def test_law_the_term_is_above_the_disks_and_in_the_wanted_election(
    wanted: int, on_disk: int
) -> None:
    try:
        term = next_term(wanted, on_disk)
    except FencedError:
        return
    assert term > on_disk or on_disk == term == 0
    assert election_term(term) == election_term(wanted)
