"""The window of a reader: as large as its wait, as small as its pace."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.net.flow_control import FIRST_BYTES, LEAST_BYTES, Window

KIB = 1 << 10
MIB = 1 << 20


@pytest.mark.parametrize(
    ("most", "size"),
    [(8 * MIB, FIRST_BYTES), (100 * KIB, 100 * KIB)],
    ids=["given-much-memory-then-it-starts-small", "given-little-then-with-that"],
)
def test_first(most: int, size: int) -> None:
    assert Window.first(most) == Window(size, most)


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (Window(256 * KIB, 8 * MIB, 3), Window(512 * KIB, 8 * MIB)),
        (Window(6 * MIB, 8 * MIB), Window(8 * MIB, 8 * MIB)),
        (Window(8 * MIB, 8 * MIB), Window(8 * MIB, 8 * MIB)),
    ],
    ids=[
        "given-a-wait-then-it-doubles",
        "given-a-bound-then-up-to-it",
        "given-the-bound-then-no-more",
    ],
)
def test_waits(window: Window, expected: Window) -> None:
    assert window.waited() == expected


@pytest.mark.parametrize(
    ("window", "unread", "expected"),
    [
        (Window(4 * MIB, 8 * MIB, 5), 3 * MIB - 1, Window(4 * MIB, 8 * MIB)),
        (Window(4 * MIB, 8 * MIB), 3 * MIB, Window(4 * MIB, 8 * MIB, 1)),
        (Window(4 * MIB, 8 * MIB, 6), 4 * MIB, Window(4 * MIB, 8 * MIB, 7)),
        (Window(4 * MIB, 8 * MIB, 7), 4 * MIB, Window(2 * MIB, 8 * MIB)),
        (Window(LEAST_BYTES, 8 * MIB, 7), 4 * MIB, Window(LEAST_BYTES, 8 * MIB)),
        (Window(10 * KIB, 10 * KIB, 7), 4 * MIB, Window(10 * KIB, 10 * KIB)),
    ],
    ids=[
        "given-room-in-it-then-it-stays",
        "given-a-full-one-then-it-is-counted",
        "given-some-full-ones-in-a-row-then-it-stays",
        "given-many-full-ones-in-a-row-then-it-is-halved",
        "given-the-least-then-it-stays",
        "given-less-memory-than-the-least-then-that",
    ],
)
def test_takes(window: Window, unread: int, expected: Window) -> None:
    assert window.took(unread) == expected


@pytest.mark.parametrize(
    ("outstanding", "granted"),
    [(MIB, 0), (512 * KIB + 1, 0), (512 * KIB, 512 * KIB), (0, MIB), (-MIB, 2 * MIB), (3 * MIB, 0)],
    ids=[
        "given-a-full-window-then-nothing",
        "given-less-than-half-missing-then-nothing-yet",
        "given-half-then-that",
        "given-all-then-all",
        "given-a-batch-longer-than-the-credit-then-that-too",
        "given-a-window-that-has-shrunk-then-nothing",
    ],
)
def test_grants(outstanding: int, granted: int) -> None:
    assert Window(MIB, 8 * MIB).grant(outstanding) == granted


@given(
    st.integers(1, 64 * MIB),
    st.lists(st.one_of(st.none(), st.integers(0, 64 * MIB)), max_size=60),
)
def test_law_it_stays_within_its_bounds(most: int, walk: list[int | None]) -> None:
    window = Window.first(most)
    for unread in walk:
        window = window.waited() if unread is None else window.took(unread)
        assert min(LEAST_BYTES, most) <= window.size <= most


@given(st.integers(1, 64 * MIB), st.integers(-64 * MIB, 64 * MIB))
def test_law_granting_never_exceeds_the_window_and_never_ends(most: int, outstanding: int) -> None:
    window = Window.first(most)
    credit = window.grant(outstanding)
    assert credit >= 0
    assert not credit or outstanding + credit == window.size
    assert window.grant(0) > 0, "who has taken everything is granted more"
