"""What may be listed in an archive, and what readers find: tables, and both forms by a law."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.archive.manifest import (
    Added,
    ArchivedFile,
    Diverged,
    Removed,
    Update,
    add,
    cut,
    remove,
)
from schemas.errors import ConflictError, UnsupportedError
from tests.unit.runnel.archive.builders import (
    STATE,
    UID,
    added,
    archive_of,
    archives_of,
    file_of,
)

FIRST = added(None, 0, 10)
SECOND = added(10, 10, 30)


@pytest.mark.parametrize(
    ("updates", "offset", "found", "first", "end"),
    [
        pytest.param((FIRST, SECOND), 0, [(0, 10), (10, 30)], 0, 30, id="given-two-then-both"),
        pytest.param((FIRST, SECOND), 10, [(10, 30)], 0, 30, id="given-the-end-of-one-then-next"),
        pytest.param((FIRST, SECOND), 30, [], 0, 30, id="given-the-watermark-then-none"),
        pytest.param(
            (FIRST, added(10, 20, 30)), 12, [(20, 30)], 0, 30, id="given-a-gap-then-what-follows"
        ),
        pytest.param(
            (FIRST, SECOND, Removed(UID, 0, 10)), 0, [(10, 30)], 10, 30, id="given-a-removed-file"
        ),
        pytest.param(
            (FIRST, SECOND, Removed(UID, 0, 15)),
            0,
            [(10, 30)],
            15,
            30,
            id="given-a-removal-inside-of-a-file-then-readers-begin-there",
        ),
        pytest.param(
            (FIRST, SECOND, Removed(UID, 0, 99)), 0, [], None, 0, id="given-all-removed-then-none"
        ),
        pytest.param(
            (FIRST, SECOND, Diverged(UID, 0, 20)),
            0,
            [(0, 10), (10, 20)],
            0,
            20,
            id="given-a-log-that-diverged-then-the-archive-ends-there",
        ),
        pytest.param(
            (FIRST, SECOND, Diverged(UID, 0, 5), added(5, 5, 40)),
            0,
            [(0, 5), (5, 40)],
            0,
            40,
            id="given-files-after-that-then-the-former-records-are-left-out",
        ),
    ],
)
def test_what_readers_find(
    updates: tuple[Update, ...],
    offset: int,
    found: list[tuple[int, int]],
    first: int | None,
    end: int,
) -> None:
    archive = archive_of(*updates)
    assert [(file.base, file.until) for file in archive.covering(offset)] == found
    assert (archive.first, archive.end) == (first, end)


def test_given_a_log_that_diverged_then_no_file_leaves_the_list() -> None:
    archive = archive_of(FIRST, SECOND, Diverged(UID, 0, 5))
    assert [file.name for file in archive.files] == [FIRST.file.name, SECOND.file.name]
    assert (archive.before, archive.diverged_at) == (5, 5)


@pytest.mark.parametrize(
    ("before", "adds", "allowed"),
    [
        pytest.param((), FIRST, True, id="given-nothing-then-the-first"),
        pytest.param((FIRST,), SECOND, True, id="given-the-watermark-then-the-next"),
        pytest.param((FIRST,), FIRST, False, id="given-the-same-again-then-not"),
        pytest.param(
            (FIRST, SECOND), added(10, 10, 20), False, id="given-a-slower-writer-then-not"
        ),
        pytest.param(
            (FIRST, Removed(UID, 0, 10)), SECOND, True, id="given-all-removed-then-it-goes-on"
        ),
        pytest.param(
            (FIRST, SECOND, Diverged(UID, 0, 5)),
            added(30, 30, 40),
            False,
            id="given-a-writer-that-has-not-heard-of-the-divergence-then-not",
        ),
        pytest.param((FIRST,), added(10, 12, 30), True, id="given-a-gap-then-it-may"),
    ],
)
def test_add(before: tuple[Update, ...], adds: Added, allowed: bool) -> None:
    state = archives_of(*before)
    if allowed:
        assert add(state, adds) == (adds,)
    else:
        with pytest.raises(ConflictError, match="another run meanwhile"):
            add(state, adds)


@pytest.mark.parametrize(
    ("before", "offset", "removes", "cuts"),
    [
        pytest.param((), 5, False, False, id="given-nothing-archived-then-nothing"),
        pytest.param((FIRST,), 5, True, True, id="given-an-offset-inside"),
        pytest.param((FIRST,), 10, True, False, id="given-the-watermark-then-no-divergence"),
        pytest.param((FIRST, Removed(UID, 0, 5)), 5, False, True, id="given-removed-already"),
        pytest.param((FIRST, Diverged(UID, 0, 5)), 5, True, False, id="given-cut-there-already"),
    ],
)
def test_remove_and_cut(before: tuple[Update, ...], offset: int, removes: bool, cuts: bool) -> None:
    state = archives_of(*before)
    assert remove(state, UID, 0, offset) == ((Removed(UID, 0, offset),) if removes else ())
    assert cut(state, UID, 0, offset) == ((Diverged(UID, 0, offset),) if cuts else ())


offsets = st.integers(0, 1 << 62)
files = st.builds(
    lambda base, rows, **more: file_of(base, base + rows, **more),
    offsets,
    st.integers(1, 1_000),
    first_us=st.integers(-(1 << 60), 1 << 60),
    last_us=st.integers(-(1 << 60), 1 << 60),
    last_id=st.integers(-1, 1 << 62),
    term=st.integers(0, (1 << 64) - 1),
    crc=st.integers(0, (1 << 32) - 1),
)
updates = st.one_of(
    st.builds(
        Added, st.just(UID), st.just("orders"), st.integers(0, 3), offsets | st.none(), files
    ),
    st.builds(Removed, st.just(UID), st.integers(0, 3), offsets),
    st.builds(Diverged, st.just(UID), st.integers(0, 3), offsets),
)


@given(st.lists(updates, max_size=8))
def test_law_updates_and_states_survive_json(made: list[Update]) -> None:
    for update in made:
        assert STATE.read_update(json.loads(json.dumps(STATE.pack_update(update)))) == update
    state = archives_of(*made)
    assert STATE.read_state(json.loads(json.dumps(STATE.pack_state(state)))) == state


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("../x.parquet", id="given-another-directory"),
        pytest.param(".hidden", id="given-a-hidden-file"),
    ],
)
def test_given_a_name_that_leads_elsewhere_then_it_is_no_file(name: str) -> None:
    with pytest.raises(ValueError, match="no file of an archive"):
        ArchivedFile.unpack(file_of(0, 10, name=name).pack())


def test_given_an_update_of_a_later_version_then_refused() -> None:
    with pytest.raises(UnsupportedError, match="'moved' are not known"):
        STATE.read_update({"kind": "moved", "uid": UID, "partition": 0})
