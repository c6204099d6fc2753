"""Term histories: by table, and by law against a list of terms."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spu.replication.history import (
    History,
    TermStart,
    cut,
    diverged_at,
    end_of,
    extended,
    forgotten,
    largest_at_most,
    last_term,
)

#: Offsets 0-1 of term 2, 2-4 of term 5, 5 on of term 9.
THREE: History = (TermStart(2, 0), TermStart(5, 2), TermStart(9, 5))


@pytest.mark.parametrize(
    ("term", "largest", "end"),
    [
        pytest.param(1, 0, 0, id="given-a-term-before-all-then-nothing-in-common"),
        pytest.param(2, 2, 2, id="given-the-first-term-then-where-it-ends"),
        pytest.param(4, 2, 2, id="given-a-term-it-does-not-have-then-the-one-before"),
        pytest.param(5, 5, 5, id="given-a-middle-term-then-where-it-ends"),
        pytest.param(9, 9, 7, id="given-the-last-term-then-the-end-of-the-log"),
        pytest.param(12, 9, 7, id="given-a-later-term-then-the-end-of-the-log"),
    ],
)
def test_comparison(term: int, largest: int, end: int) -> None:
    assert largest_at_most(THREE, term) == largest
    assert end_of(THREE, largest, 7) == end


@pytest.mark.parametrize(
    ("leo", "left"),
    [
        pytest.param(7, THREE, id="given-its-own-end-then-all"),
        pytest.param(5, THREE[:2], id="given-a-boundary-then-the-term-behind-it-goes"),
        pytest.param(3, THREE[:2], id="given-the-middle-of-a-term-then-it-stays"),
        pytest.param(0, (), id="given-nothing-left-then-none"),
    ],
)
def test_cut(leo: int, left: History) -> None:
    assert cut(THREE, leo) == left


@pytest.mark.parametrize(
    ("start", "left"),
    [
        pytest.param(0, THREE, id="given-nothing-dropped-then-all"),
        pytest.param(2, THREE, id="given-a-boundary-then-the-term-before-it-is-kept"),
        pytest.param(3, THREE[1:], id="given-the-middle-of-a-term-then-it-is-the-one-before"),
        pytest.param(7, THREE[2:], id="given-an-empty-log-then-it-says-how-far-it-goes"),
    ],
)
def test_forgotten(start: int, left: History) -> None:
    assert forgotten(THREE, start) == left
    assert last_term(left) == 9


def test_given_a_term_that_falls_then_it_is_a_bug() -> None:
    assert extended(THREE, 9, 7) is THREE
    assert extended(THREE, 10, 7) == (*THREE, TermStart(10, 7))
    with pytest.raises(AssertionError, match="a record of term 8 after one of 9"):
        extended(THREE, 8, 7)


def history_of(terms: list[int]) -> History:
    history: History = ()
    for offset, term in enumerate(terms):
        history = extended(history, term, offset)
    return history


LOGS = st.lists(st.integers(1, 6), max_size=12).map(sorted)


@given(LOGS, st.integers(0, 12))
def test_law_a_cut_log_has_the_history_of_what_is_left(terms: list[int], leo: int) -> None:
    assert cut(history_of(terms), min(leo, len(terms))) == history_of(terms[:leo])


@given(LOGS, LOGS)
def test_law_cutting_by_history_ends_in_agreement(ours: list[int], theirs: list[int]) -> None:
    """A follower's log comes to agree in at most one round for each of its terms. Two logs that
    share a term hold the same in it as far as both go, as records of one leader do."""
    rounds = 0
    while True:
        last = last_term(history_of(theirs))
        term = largest_at_most(history_of(ours), last)
        end = end_of(history_of(ours), term, len(ours))
        if term == last and len(theirs) <= end:
            break
        theirs = theirs[: min(end, end_of(history_of(theirs), term, len(theirs)))]
        rounds += 1
        assert rounds <= 7
    assert last_term(history_of(theirs)) in {0, *ours}


LOG = (TermStart(1, 0), TermStart(3, 10), TermStart(5, 20))


@pytest.mark.parametrize(
    ("offset", "term", "expected"),
    [
        pytest.param(5, 1, None, id="given-the-same-term-then-alike"),
        pytest.param(10, 1, None, id="given-the-end-of-a-term-then-alike"),
        pytest.param(11, 3, None, id="given-the-first-of-the-next-then-alike"),
        pytest.param(25, 5, None, id="given-the-last-term-then-alike"),
        pytest.param(15, 2, 10, id="given-a-term-that-was-cut-then-from-where-the-one-before-ends"),
        pytest.param(15, 1, 10, id="given-an-older-term-that-went-on-then-from-its-end"),
        pytest.param(25, 4, 20, id="given-a-term-between-then-from-where-the-one-before-ends"),
        pytest.param(5, 2, 4, id="given-a-term-that-wrote-earlier-then-before-what-was-read"),
        pytest.param(25, 9, 24, id="given-a-later-term-then-before-what-was-read"),
    ],
)
def test_where_a_readers_log_differs(offset: int, term: int, expected: int | None) -> None:
    assert diverged_at(LOG, offset, term, 30) == expected
