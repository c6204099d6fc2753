"""Epochs: every one covers all keys, whatever was split and merged before; stored forms agree."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import ConflictError, InvalidRequestError
from schemas.streams.epochs import (
    FULL_EVERY,
    Change,
    Epoch,
    Segment,
    decode,
    decode_change,
    encode_change,
    encode_epoch,
    epoch_at,
    even,
    first_epoch,
    parse_segment,
    segment_id,
    segment_text,
)
from schemas.streams.key_space import SPACE, WHOLE, KeyRange, fraction, merged, place_of
from schemas.streams.scaling import evenly, predecessors, raised, scaled, successors

MANY = list(KeyRange(0, SPACE // 2).split(32_768))
FIRST = first_epoch(even(0, 2, 0, 1_000))


@st.composite
def histories(draw: st.DrawFn, most: int = 12) -> list[tuple[Epoch, Change]]:
    """Epochs and the changes that led to them: any splits and merges of neighbours."""
    change = even(0, draw(st.integers(1, 5)), 0, 1_000)
    found = [(first_epoch(change), change)]
    number = len(change.created)
    for _ in range(draw(st.integers(1, most))):
        now = found[-1][0]
        begin = draw(st.integers(0, len(now.segments) - 1))
        some = now.segments[begin : begin + draw(st.integers(1, 3))]
        keys = KeyRange(some[0].keys.low, some[-1].keys.high)
        inside = st.integers(keys.low + 1, max(keys.low + 1, keys.high - 1))
        cuts = draw(st.lists(inside, max_size=3 if keys.width > 1 else 0, unique=True))
        into = [KeyRange(*pair) for pair in pairwise([keys.low, *sorted(cuts), keys.high])]
        change = scaled(
            now,
            [one.id for one in some],
            into,
            next_number=number,
            min_segments=1,
            time_ms=draw(st.integers(0, 5_000)),
        )
        number += len(into)
        found.append((change.applied_to(now), change))
    return found


@given(histories())
def test_law_epochs_cover_all_keys_once_and_time_grows(
    history: list[tuple[Epoch, Change]],
) -> None:
    for number, (epoch, _) in enumerate(history):
        assert epoch.number == number
        assert merged(one.keys for one in epoch.segments) == (WHOLE,)
        assert list(epoch.segments) == sorted(epoch.segments, key=lambda one: one.keys)
    for (before, _), (after, _) in pairwise(history):
        assert after.time_ms > before.time_ms
    created = [one.number for _, change in history for one in change.created]
    assert created == list(range(len(created))), "no number comes twice"


@given(histories())
def test_law_successors_and_predecessors_are_inverse(
    history: list[tuple[Epoch, Change]],
) -> None:
    for (before, _), (after, change) in pairwise(history):
        sealed = {one.id: one for one in before.segments if one.id in change.sealed}
        for old in sealed.values():
            for new in successors(old.keys, after):
                assert old in predecessors(new.keys, before)
        for new in change.created:
            assert all(one.id in sealed for one in predecessors(new.keys, before))


@given(histories(most=FULL_EVERY + 10))
def test_law_what_is_stored_gives_every_epoch(history: list[tuple[Epoch, Change]]) -> None:
    stored = {
        epoch.number: encode_change(change) if epoch.number % FULL_EVERY else encode_epoch(epoch)
        for epoch, change in history
    }
    for epoch, change in history:
        assert epoch_at(epoch.number, stored) == epoch
        assert decode_change(encode_change(change)) == change


@given(st.binary(max_size=200))
def test_law_any_bytes_are_an_epoch_or_refused(data: bytes) -> None:
    with suppress(InvalidRequestError):
        assert isinstance(decode(data), Epoch | Change)


def test_given_many_segments_then_they_are_stored_small() -> None:
    epoch = first_epoch(even(0, 10_000, 0, 1_000))
    value = encode_epoch(epoch)
    assert len(value) < 160_000
    assert decode(value) == epoch


def test_given_a_missing_epoch_then_said() -> None:
    with pytest.raises(InvalidRequestError, match="epoch 1 of the stream is not stored"):
        epoch_at(2, {0: encode_epoch(FIRST)})
    with pytest.raises(InvalidRequestError, match="epoch 2 does not follow 0"):
        Change(2, 2, 3, (0,), ()).applied_to(FIRST)


@given(st.integers(1, 300), st.integers(1, 300))
def test_law_evenly_gives_the_number_that_is_asked_for(now: int, wanted: int) -> None:
    epoch = first_epoch(even(0, now, 0, 1_000))
    seal, into = evenly(epoch, wanted)
    if now == wanted:
        assert (seal, into) == ((), ())
        return
    change = scaled(epoch, seal, into, next_number=now, min_segments=1, time_ms=0)
    assert len(change.applied_to(epoch).segments) == wanted


@given(histories(), st.integers(1, 40))
def test_law_raised_splits_until_there_are_enough(
    history: list[tuple[Epoch, Change]], more: int
) -> None:
    epoch = history[-1][0]
    least = len(epoch.segments) + more
    widths = sorted(one.keys.width for one in epoch.segments)
    if widths[-1] < least:
        return
    change = scaled(epoch, *raised(epoch, least), next_number=999, min_segments=least, time_ms=0)
    assert len(change.applied_to(epoch).segments) == least


def plainly_raised(epoch: Epoch, least: int) -> tuple[tuple[int, ...], tuple[KeyRange, ...]]:
    """As `raised`, by a search for the widest segment each time."""
    parts = dict.fromkeys(epoch.segments, 1)
    while sum(parts.values()) < least:
        widest = max(parts, key=lambda one: (one.keys.width // parts[one], -one.keys.low))
        parts[widest] += 1
    split = {one: count for one, count in parts.items() if count > 1}
    into = tuple(keys for one, count in split.items() for keys in one.keys.split(count))
    return tuple(one.id for one in split), into


@given(histories(), st.integers(-3, 100))
def test_law_raised_always_splits_the_widest_and_of_equal_ones_the_lowest(
    history: list[tuple[Epoch, Change]], more: int
) -> None:
    epoch = history[-1][0]
    least = len(epoch.segments) + more
    assert raised(epoch, least) == plainly_raised(epoch, least)


def test_given_a_large_stream_then_each_more_segment_does_not_look_at_all_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    epoch = first_epoch(even(0, 1_000, 0, 1_000))
    looks = 0

    def counted(keys: KeyRange) -> int:
        nonlocal looks
        looks += 1
        return keys.high - keys.low

    monkeypatch.setattr(KeyRange, "width", property(counted))
    seal, into = raised(epoch, 1_900)
    assert (len(seal), len(into)) == (900, 1_800)
    # One look to begin with, and a few for each part.
    assert looks < 10 * 1_900


@pytest.mark.parametrize(
    ("seal", "into", "least", "error", "text"),
    [
        ([0], [], 1, InvalidRequestError, "name the segments to replace"),
        ([0, 0], [WHOLE], 1, InvalidRequestError, "named twice"),
        ([9], [WHOLE], 1, ConflictError, "segment 0.9 is not among the current segments"),
        ([0, 9, 8], [WHOLE], 1, ConflictError, "segments 0.9, 0.8 are not among"),
        ([0], [WHOLE], 1, InvalidRequestError, "must be the same keys"),
        ([0, 1], [WHOLE], 2, InvalidRequestError, "fewer than spec.scaling.minSegments"),
        (
            [0],
            MANY,
            1,
            InvalidRequestError,
            "at most 32,768",
        ),
    ],
)
def test_scales_that_cannot_be(
    seal: list[int], into: list[KeyRange], least: int, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        scaled(FIRST, seal, into, next_number=2, min_segments=least, time_ms=0)


@pytest.mark.parametrize("text", ["", "1", "1.", ".1", "a.b", "-1.0", "1.2.3", "99999999999.1"])
def test_given_no_segment_then_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"is no segment; write EPOCH\.NUMBER"):
        parse_segment(text)


@given(st.integers(0, 2**31 - 1), st.integers(0, 2**32 - 1))
def test_law_segments_are_read_as_they_are_shown(epoch: int, number: int) -> None:
    segment = segment_id(epoch, number)
    assert parse_segment(segment_text(segment)) == segment
    assert Segment(segment, WHOLE).number == number


@given(st.integers(0, SPACE))
def test_law_bounds_are_shown_exactly(place: int) -> None:
    assert place_of(fraction(place)) == place


@pytest.mark.parametrize(("low", "high"), [(0, 0), (5, 4), (-1, 3), (0, SPACE + 1)])
def test_given_no_range_then_refused(low: int, high: int) -> None:
    with pytest.raises(ValueError, match="is no range"):
        KeyRange(low, high)
