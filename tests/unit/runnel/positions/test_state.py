"""What may happen to the readings of named consumers: tables, and both forms of them by a law."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.positions.state import (
    Closed,
    Committed,
    Forgotten,
    Opened,
    Position,
    Positions,
    PositionsState,
    Reading,
    Reset,
    Update,
    commit,
    find,
    forget,
    open_reading,
    uncommitted,
)
from runnel.records.offset_and_term import OffsetAndTerm
from schemas.errors import FencedError, UnsupportedError

STATE = PositionsState()


def opened(session: str = "s1", uid: str = "u1", count: int = 2, **starts: int) -> Opened:
    at = {int(name.removeprefix("p")): offset for name, offset in starts.items()}
    return Opened("billing", "orders", uid, count, session, "ann", 1, at)


def at(offsets: Mapping[int, int], term: int = 0) -> dict[int, OffsetAndTerm]:
    return {p: OffsetAndTerm(offset, term) for p, offset in offsets.items()}


def state_of(*updates: Update) -> Positions:
    state = STATE.empty()
    for update in updates:
        state = STATE.apply(state, update)
    return state


def reading_of(*updates: Update) -> Reading:
    reading = find(state_of(*updates), "billing", "orders")
    assert reading is not None
    return reading


def offsets_of(*updates: Update) -> dict[int, int]:
    return {p: at.offset for p, at in reading_of(*updates).positions.items()}


COMMIT = Committed("billing", "orders", 2, {0: 7})
RESET = Reset("billing", "orders", "u1", 2, "bob", 3, {1: 0})


@pytest.mark.parametrize(
    ("updates", "session", "offsets"),
    [
        pytest.param((opened(p0=3),), "s1", {0: 3}, id="given-a-first-then-its-starts"),
        pytest.param((opened(), COMMIT), "s1", {0: 7}, id="given-a-commit-then-there"),
        pytest.param(
            (opened(), COMMIT, opened("s2", p0=1, p1=2)),
            "s2",
            {0: 7, 1: 2},
            id="given-another-then-starts-only-where-nothing-is-committed",
        ),
        pytest.param(
            (opened(), COMMIT, opened("s2", uid="u2", p1=2)),
            "s2",
            {1: 2},
            id="given-another-topic-of-the-name-then-afresh",
        ),
        pytest.param(
            (opened(), COMMIT, RESET), None, {0: 7, 1: 0}, id="given-a-reset-then-the-rest-stays"
        ),
        pytest.param(
            (opened(), COMMIT, Closed("billing", "orders")),
            None,
            {0: 7},
            id="given-close-then-kept",
        ),
    ],
)
def test_apply(updates: tuple[Update, ...], session: str | None, offsets: dict[int, int]) -> None:
    assert (reading_of(*updates).session, offsets_of(*updates)) == (session, offsets)


@pytest.mark.parametrize(
    "update",
    [
        pytest.param(COMMIT, id="given-a-commit-of-none-then-nothing"),
        pytest.param(Closed("billing", "orders"), id="given-a-close-of-none-then-nothing"),
        pytest.param(Forgotten("billing", "orders"), id="given-none-to-forget-then-nothing"),
    ],
)
def test_apply_to_nothing(update: Update) -> None:
    assert state_of(update) == {}


@pytest.mark.parametrize(
    ("updates", "says"),
    [
        pytest.param((opened("s2"),), "opened again by ann", id="given-another-session"),
        pytest.param((opened("s1"), RESET), "opened again or reset by bob", id="given-a-reset"),
        pytest.param((), "was deleted", id="given-none"),
        pytest.param(
            (opened("s1"), Forgotten("billing", "orders"), opened("s2")),
            "opened again",
            id="given-one-that-was-forgotten-and-made-again",
        ),
    ],
)
def test_fenced(updates: tuple[Update, ...], says: str) -> None:
    with pytest.raises(FencedError, match=f"'billing' of topic 'orders' {says}|{says}"):
        commit(state_of(*updates), "billing", "orders", "s1", at({0: 8}), 9)


def test_given_a_commit_then_only_news_is_written() -> None:
    state = state_of(opened(p1=4), COMMIT)
    assert commit(state, "billing", "orders", "s1", at({0: 7, 1: 5}), 9) == (
        Committed("billing", "orders", 9, {1: 5}),
    )
    assert commit(state, "billing", "orders", "s1", at({0: 7}), 9) == ()
    assert commit(state, "billing", "orders", "s1", at({0: 6}), 9) == ()
    assert commit(state, "billing", "orders", "s1", at({0: 7}), 9, back=True) == ()
    assert commit(state, "billing", "orders", "s1", at({0: 6}), 9, back=True) == (
        Committed("billing", "orders", 9, {0: 6}),
    )
    assert commit(state, "billing", "orders", "s1", {}, 9, close=True) == (
        Closed("billing", "orders"),
    )


def test_given_an_open_that_stands_already_then_nothing_more() -> None:
    assert open_reading(state_of(opened()), opened()) == ()


def test_given_starts_then_they_do_not_undo_what_was_committed_meanwhile() -> None:
    (update,) = open_reading(state_of(opened(), COMMIT), opened("s2", p0=1, p1=2))
    assert isinstance(update, Opened)
    assert update.starts == {1: 2}


@pytest.mark.parametrize(
    ("updates", "uid", "there", "since"),
    [
        pytest.param((), "u1", [0, 1, 2], [], id="given-nothing-then-all-were-there"),
        pytest.param((opened(p0=1, p1=1),), "u1", [], [2], id="given-growth-then-the-new-one"),
        pytest.param((opened(p1=1),), "u1", [0], [2], id="given-one-not-read-before-then-both"),
        pytest.param((opened(p0=1),), "u2", [0, 1, 2], [], id="given-another-topic-then-all"),
    ],
)
def test_uncommitted(
    updates: tuple[Update, ...], uid: str, there: list[int], since: list[int]
) -> None:
    reading = find(state_of(*updates), "billing", "orders")
    assert uncommitted(reading, uid, [0, 1, 2]) == (there, since)


def test_forget() -> None:
    elsewhere = Opened("billing", "clicks", "u9", 1, "s9", "ann", 1, {})
    state = state_of(opened(), elsewhere)
    assert [update.topic for update in forget(state, "billing", None)] == ["clicks", "orders"]
    assert [update.topic for update in forget(state, "billing", "orders")] == ["orders"]
    assert forget(state, "other", None) == ()
    assert state_of(opened(), *forget(state_of(opened()), "billing", None)) == {}


NAMES = st.sampled_from(["a", "b"])
OFFSETS = st.dictionaries(st.integers(0, 3), st.integers(0, 2**62), max_size=3)
TERMS = st.dictionaries(st.integers(0, 3), st.integers(1, 2**62), max_size=3)
UIDS = st.sampled_from(["u1", "u2"])
#: Up to the last one that a datetime can say.
TIMES = st.integers(0, 253_402_300_799_999_999)
UPDATES = st.one_of(
    st.builds(
        Opened, NAMES, NAMES, UIDS, st.integers(1, 4), st.text(), st.text(), TIMES, OFFSETS, TERMS
    ),
    st.builds(Committed, NAMES, NAMES, TIMES, OFFSETS, TERMS),
    st.builds(Closed, NAMES, NAMES),
    st.builds(Reset, NAMES, NAMES, UIDS, st.integers(1, 4), st.text(), TIMES, OFFSETS, TERMS),
    st.builds(Forgotten, NAMES, NAMES),
)


@given(st.lists(UPDATES, max_size=12))
def test_given_any_updates_then_json_holds_them_and_their_state(updates: list[Update]) -> None:
    for update in updates:
        assert STATE.read_update(json.loads(json.dumps(STATE.pack_update(update)))) == update
    state = state_of(*updates)
    assert STATE.read_state(json.loads(json.dumps(STATE.pack_state(state)))) == state


@pytest.mark.parametrize(
    "update",
    [
        pytest.param(opened(p0=4), id="opened"),
        pytest.param(COMMIT, id="committed"),
        pytest.param(RESET, id="reset"),
    ],
)
def test_given_an_update_of_an_earlier_version_then_no_term_is_known(update: Update) -> None:
    written = STATE.pack_update(update)
    del written["terms"]
    assert STATE.read_update(written) == update
    (state,) = STATE.pack_state(state_of(opened(), update))
    del state["terms"]
    again = STATE.read_state([state])
    assert [at.term for at in again["billing"]["orders"].positions.values()] == [0]


def test_given_terms_then_positions_have_them() -> None:
    state = state_of(replace(opened(p0=4, p1=5), terms={0: 3}))
    assert [at.place for at in state["billing"]["orders"].positions.values()] == [(4, 3), (5, 0)]
    (moved,) = commit(state, "billing", "orders", "s1", {0: OffsetAndTerm(9, 7)}, 2)
    assert reading_of(opened(), moved).positions == {0: Position(9, 2, 7)}
    (back,) = commit(state, "billing", "orders", "s1", at({0: 2}), 3, back=True)
    assert reading_of(opened(), moved, back).positions == {0: Position(2, 3)}
    (taken,) = open_reading(
        state_of(opened(), COMMIT), replace(opened("s2", p0=1, p1=2), terms={0: 5, 1: 6})
    )
    assert isinstance(taken, Opened)
    assert taken.terms == {1: 6}, "what was committed meanwhile has its own"


def test_given_an_update_of_a_later_version_then_unsupported() -> None:
    with pytest.raises(UnsupportedError, match="'joined'"):
        STATE.read_update({"kind": "joined", "name": "a"})


def test_given_positions_then_the_last_commit_is_the_latest() -> None:
    assert reading_of(opened(), COMMIT).positions == {0: Position(7, 2)}
