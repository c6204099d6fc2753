"""Stream cuts: their text, what they may name, and what lies before what."""

from __future__ import annotations

import base64
import tracemalloc
import zlib
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import InvalidRequestError
from schemas.streams.cuts import Frontier, StreamCut
from schemas.streams.epochs import Change, Epoch, Segment, parse_segment
from schemas.streams.key_space import SPACE, KeyRange
from tests.unit.schemas.streams.test_epochs import histories

HALF = SPACE // 2
SEGMENTS = {
    name: Segment(parse_segment(name), keys)
    for name, keys in {
        "0.0": KeyRange(0, SPACE),
        "1.1": KeyRange(0, HALF),
        "1.2": KeyRange(HALF, SPACE),
        "2.3": KeyRange(0, SPACE),
    }.items()
}


def cut(offsets: dict[str, int]) -> StreamCut:
    return StreamCut("s/t", "u", {parse_segment(one): offset for one, offset in offsets.items()})


def frontier(offsets: dict[str, int]) -> Frontier:
    return Frontier(cut(offsets), [SEGMENTS[one] for one in offsets])


offsets = st.dictionaries(
    st.integers(0, (1 << 64) - 1), st.integers(-1, (1 << 63) - 1), max_size=400
)


@given(st.text(min_size=0, max_size=40), offsets)
def test_law_a_cut_survives_its_text(uid: str, places: dict[int, int]) -> None:
    one = StreamCut("shop/orders", uid, places)
    assert StreamCut.parse(f" {one}\n") == one


@given(offsets.filter(bool), st.data())
def test_law_damaged_text_is_refused(places: dict[int, int], data: st.DataObject) -> None:
    text = str(StreamCut("shop/orders", "u", places))
    at = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.sampled_from("Aa0_-@/ é\n="))
    damaged = text[:at] + other + text[at + 1 :]
    if damaged.strip() != text:
        try:
            found = StreamCut.parse(damaged)
        except InvalidRequestError:
            return
        # The last letter of base64 may have bits that say nothing.
        assert found == StreamCut("shop/orders", "u", places)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it does not begin with SCOPE/NAME@"),
        ("orders@AAAA", "it does not begin with SCOPE/NAME@"),
        ("s/t", "it does not begin with SCOPE/NAME@"),
        ("s/t@", "its checksum is wrong"),
        ("s/t@AAAAAAAA", "its checksum is wrong"),
        ("s/t@\N{SNOWMAN}", "codec can't encode"),
        (str(cut({"0.0": 5})).replace("s/t", "s/u"), "its checksum is wrong"),
        (str(cut({"0.0": 5}))[:-4], "something of it is missing"),
    ],
)
def test_given_other_text_then_refused_with_why(text: str, why: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"not a stream cut: .*{why}"):
        StreamCut.parse(text)


def coded(plain: bytes, form: bytes = b"\1") -> str:
    """Text with a checksum that is right."""
    data = form + zlib.compress(plain)
    crc = zlib.crc32(data, zlib.crc32(b"s/t")).to_bytes(4, "little")
    return "s/t@" + base64.urlsafe_b64encode(data + crc).decode().rstrip("=")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (coded(bytes(200_000_000)), "it holds more than 1,"),
        (coded(b""), "it is damaged"),
        (coded(b"\7" + bytes(20)), "version 7, which this version does not know"),
        (coded(b"\1" + bytes(20)), "it is damaged"),
        (coded(b"", rb"\9"), "it is damaged"),
        ("s/t@" + "A" * 10_000_000, "it has 10,000,004 characters"),
        (b"s/t@AAAA", "give the text that"),
        (None, "give the text that"),
    ],
)
def test_given_crafted_text_then_refused_and_nothing_is_large(text: Any, why: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRequestError, match=f"not a stream cut: .*{why}"):
            StreamCut.parse(text)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("places", "why"),
    [
        ({}, "no segment for the keys 0 to 1"),
        ({"1.1": 0}, "no segment for the keys 0.5 to 1"),
        ({"1.2": 0}, "no segment for the keys 0 to 0.5"),
        ({"0.0": -2}, "segment 0.0 has the offset -2"),
        ({"0.0": 1 << 63}, "segment 0.0 has the offset"),
        ({"0.0": 3, "1.2": 0}, "segments 0.0 and 1.2 share keys, and the newer one is begun"),
        ({"1.1": 1, "1.2": 1, "2.3": 0}, "segments 1.1 and 2.3 share keys"),
        ({"1.1": -1, "1.2": 1, "2.3": 5}, "share keys"),
    ],
)
def test_given_what_is_no_place_then_refused_with_why(places: dict[str, int], why: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"no place in stream s/t: .*{why}"):
        frontier(places)


@pytest.mark.parametrize(
    ("places", "done", "held"),
    [
        ({"0.0": 0}, "", "0.0"),
        ({"0.0": 7, "1.1": -1}, "", "0.0"),
        ({"1.1": 0, "1.2": 0}, "0.0", "0.0 1.1 1.2"),
        ({"1.1": 4, "1.2": -1}, "0.0", "0.0 1.1"),
        ({"1.1": 4, "1.2": 2, "2.3": -1}, "0.0", "0.0 1.1 1.2"),
        ({"1.2": 2, "2.3": -1}, "0.0 1.1", "0.0 1.1 1.2"),
        ({"2.3": 0}, "0.0 1.1 1.2", "0.0 1.1 1.2 2.3"),
    ],
)
def test_what_is_done_and_what_is_held(places: dict[str, int], done: str, held: str) -> None:
    at = frontier(places)
    assert " ".join(name for name, one in SEGMENTS.items() if at.is_done(one)) == done
    assert " ".join(name for name, one in SEGMENTS.items() if at.holds(one)) == held


#: Places in a stream, each before the next for all keys.
CHAIN = (
    {"0.0": 0},
    {"0.0": 7, "1.1": -1},
    {"1.1": -1, "1.2": 0},
    {"1.1": 3, "1.2": 0},
    {"1.1": 3, "1.2": 4, "2.3": -1},
    {"1.2": 4, "2.3": -1},
    {"2.3": 0},
    {"2.3": 1},
)


def test_places_are_before_later_ones_and_not_after() -> None:
    for number, one in enumerate(CHAIN):
        for later in CHAIN[number:]:
            assert frontier(one).is_after(frontier(later)) is None
    for earlier, late in ((0, 1), (3, 4), (4, 5), (6, 7), (0, 7)):
        assert "comes before" in (frontier(CHAIN[late]).is_after(frontier(CHAIN[earlier])) or "")


def test_places_that_are_apart_are_not_before_each_other() -> None:
    one, other = frontier({"1.1": 3, "1.2": 0}), frontier({"1.1": 0, "1.2": 3})
    for begin, stop in ((one, other), (other, one)):
        assert begin.is_after(stop) is not None


@given(histories())
def test_law_each_epoch_is_a_place_and_not_after_the_next(
    history: list[tuple[Epoch, Change]],
) -> None:
    places = [
        Frontier(StreamCut("s/t", "u", {one.id: 0 for one in epoch.segments}), epoch.segments)
        for epoch, _ in history
    ]
    for number, place in enumerate(places):
        for later in places[number:]:
            assert place.is_after(later) is None
        for (before, _), (now, _) in pairwise(history[: number + 1]):
            gone = set(before.segments) - set(now.segments)
            assert all(place.is_done(one) for one in gone)
        assert not any(place.is_done(one) for one in history[number][0].segments)


#: Places along two ways through the segments: the lower half first, and the upper half first.
WAYS = [
    {"0.0": 0},
    {"0.0": 7},
    {"1.1": 0, "1.2": 0},
    {"1.1": 3, "1.2": 0},
    {"1.1": 0, "1.2": 3},
    {"1.1": 9, "1.2": -1},
    {"1.1": -1, "1.2": 9},
    {"1.1": 3, "2.3": -1, "1.2": 4},
    {"1.2": 4, "2.3": -1},
    {"1.1": 4, "2.3": -1},
    {"2.3": 0},
    {"2.3": 8},
]


@pytest.mark.parametrize("one", WAYS)
@pytest.mark.parametrize("other", WAYS)
def test_where_two_have_both_been_is_before_each_and_not_further_than_needed(
    one: dict[str, int], other: dict[str, int]
) -> None:
    mine, theirs = frontier(one), frontier(other)
    both = mine.met(theirs)
    assert both.is_after(mine) is None
    assert both.is_after(theirs) is None
    for place in map(frontier, WAYS):
        if place.is_after(mine) is None and place.is_after(theirs) is None:
            assert place.is_after(both) is None
    assert both.joined(mine).is_after(mine) is None
    assert both.cut == theirs.met(mine).cut
    assert mine.met(mine).cut == mine.cut


def place_in(history: list[tuple[Epoch, Change]], data: st.DataObject) -> Frontier:
    """Where somebody may be who reads a stream: some segments are done, one after the other."""
    epochs = [epoch for epoch, _ in history]
    born = {one: epoch for epoch, change in history for one in change.created}
    before = {
        one: [p for p in epochs[epoch.number - 1].segments if p.keys.overlaps(one.keys)]
        if epoch.number
        else []
        for one, epoch in born.items()
    }
    done: set[Segment] = set()
    ends = {one for one in born if one not in epochs[-1].segments}
    for _ in range(data.draw(st.integers(0, len(born)))):
        ready = [one for one in born if one in ends - done and all(p in done for p in before[one])]
        if ready:
            done.add(data.draw(st.sampled_from(sorted(ready, key=lambda one: one.id))))
    offsets = {}
    for one, parents in before.items():
        if one in done:
            continue
        if all(p in done for p in parents):
            offsets[one.id] = data.draw(st.integers(0, 5))
        elif any(p in done for p in parents):
            offsets[one.id] = -1
    return Frontier(StreamCut("s/t", "u", offsets), [one for one in born if one.id in offsets])


@given(histories(6), st.data())
def test_law_where_two_have_both_been_is_the_latest_place_before_both(
    history: list[tuple[Epoch, Change]], data: st.DataObject
) -> None:
    one, other, any_place = (place_in(history, data) for _ in range(3))
    both = one.met(other)
    assert both.is_after(one) is None
    assert both.is_after(other) is None
    assert both.cut == other.met(one).cut
    below = any_place.met(one).met(other)
    assert below.is_after(both) is None
    assert below.cut == any_place.met(both).cut
    assert one.joined(both).is_after(one) is None
