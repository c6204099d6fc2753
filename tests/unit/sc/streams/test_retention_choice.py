"""Where a stream is truncated: the rule as a table, a week of it, and the turns of streams."""

from __future__ import annotations

import pytest

from sc.controllers.streams.retention.choice import Choice, Slowest, chosen
from sc.controllers.streams.retention.periods import due_after
from sc.controllers.streams.retention.records import MAX_CUTS, CutEntry, most_cuts, thinned
from sc.controllers.streams.retention.tails import behind
from schemas.control.statistics import ReplicaNumbers
from schemas.ids import PartitionUid

SLOWEST = Choice.SUBSCRIBER
KEEPS = (50, 40, 30, 20, 10, 0)
HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("minimum", "maximum", "slowest", "found"),
    [
        # Without subscribers: the newest that keeps the minimum.
        (1, None, None, 4),
        (10, None, None, 4),
        (15, None, None, 3),
        (50, None, None, 0),
        (51, None, None, None),
        (10, 30, None, 4),
        # One that keeps enough, and not too much: where it is.
        (10, None, Slowest(2, 30), SLOWEST),
        (10, 40, Slowest(2, 30), SLOWEST),
        (30, 31, Slowest(2, 30), SLOWEST),
        # One that has read nearly everything: the minimum is kept, and no cut behind it is taken.
        (15, None, Slowest(5, 10), 3),
        (15, None, Slowest(4, 14), 3),
        (25, None, Slowest(6, 0), 2),
        (51, None, Slowest(6, 0), None),
        # One that is too slow: as much as the maximum allows.
        (10, 30, Slowest(1, 40), 2),
        (10, 30, Slowest(0, 50), 2),
        (10, 30, Slowest(2, 30), SLOWEST),
        (10, 35, Slowest(0, 60), 2),
        # None within the bounds: the newest that keeps the minimum.
        (25, 26, Slowest(0, 60), 2),
        (60, 61, Slowest(0, 70), SLOWEST),
    ],
)
def test_given_cuts_and_the_slowest_subscriber_then_it_is_truncated_at(
    minimum: int, maximum: int | None, slowest: Slowest | None, found: int | Choice | None
) -> None:
    assert chosen(KEEPS, minimum, maximum, slowest) == found


def test_given_a_clock_that_was_set_back_then_nothing_unread_is_chosen() -> None:
    assert chosen((50, 5, 40, 0), 20, None, Slowest(2, 10)) == 0


def test_given_no_cut_then_nothing_is_chosen() -> None:
    assert chosen((), 1, None) is None


def week(
    keeps: str, minimum: int, maximum: int | None, slowest: dict[int, int] | None = None
) -> dict[int, int]:
    """A cut each hour for a week; a gigabyte an hour from 8 to 20 o'clock, and none at night.
    ``slowest`` says from which hour on the slowest subscriber is at which hour; gives by hour the
    one that the stream begins at, where that changes."""
    cuts: list[tuple[int, int]] = []
    begins: dict[int, int] = {}
    size = begin = at = 0
    for hour in range(7 * 24 + 1):
        size += 8 < hour % 24 <= 20
        cuts.append((hour, size))
        now = [(hour - when if keeps == "time" else size - before) for when, before in cuts]
        place = None
        if slowest is not None:
            at = slowest.get(hour, at)
            at = max(at, begin)
            after = sum(when <= at for when, _ in cuts)
            place = Slowest(after, now[after - 1])
        found = chosen(now, minimum, maximum, place)
        if found is not None:
            to = max(begin, at if isinstance(found, Choice) else cuts[found][0])
            cuts = [cut for cut in cuts if cut[0] >= to]
            if to != begin:
                begins[hour] = begin = to
    return begins


def test_given_a_week_by_time_then_it_begins_a_day_ago() -> None:
    """24 hours are kept: from hour 25 on, the stream begins 24 hours ago."""
    assert week("time", 24, None) == {hour: hour - 24 for hour in range(25, 169)}


def test_given_a_week_by_size_then_it_begins_six_gigabytes_ago() -> None:
    """6 GB are kept. On the first day, the seventh gigabyte is there at 15 o'clock: the stream
    begins at 9, after the first one. At 20 it begins at 14, and the night keeps it there. On the
    next day the gigabytes that go first are those of the evening before: at 9 it begins at 15 of
    the day before, at 14 at 20 and, because nothing came at night, at the newest cut that keeps as
    much: at 8 of this day. At 15 it begins at 9."""
    first = {hour: hour - 6 for hour in range(15, 21)}
    table = dict(first)
    for day in range(1, 7):
        table |= {24 * day + hour: 24 * (day - 1) + hour + 6 for hour in range(9, 14)}
        table |= {24 * day + 14: 24 * day + 8}
        table |= {24 * day + hour: 24 * day + hour - 6 for hour in range(15, 21)}
    # The newest cut that keeps six: in the first morning, too.
    table |= {14: 8}
    assert week("size", 6, None) == table


def test_given_a_subscriber_then_it_is_waited_for_up_to_the_maximum() -> None:
    """24 hours are kept, and at most 72 for the subscriber. It reads everything at once until hour
    30, stands still until hour 130, and goes on from there.

    Until 54 its place keeps less than 24 hours, and the stream begins 24 hours ago, as without it.
    From then on it begins where the subscriber is, until that keeps 72 hours, which is at 102.
    After that it begins 72 hours ago. At 130 the subscriber is at the end: 24 hours again."""
    slowest = {hour: hour for hour in (*range(31), *range(130, 169))}
    table = {hour: hour - 24 for hour in range(25, 55)}
    table |= {hour: hour - 72 for hour in range(103, 130)}
    table |= {hour: hour - 24 for hour in range(130, 169)}
    assert week("time", 24, 72, slowest) == table


@pytest.mark.parametrize(
    ("offset", "found"),
    [(0, 1_000), (100, 1_000), (150, 500), (199, 10), (200, 0), (900, 0)],
)
def test_bytes_behind_an_offset_are_by_the_mean(offset: int, found: int) -> None:
    assert behind(ReplicaNumbers(PartitionUid("u"), 100, 190, 200, 1_000), offset) == found


def test_given_an_empty_log_then_nothing_is_behind() -> None:
    assert behind(ReplicaNumbers(PartitionUid("u"), 7, 7, 7, 100), 0) == 0


def test_given_too_many_cuts_then_the_most_crowded_go() -> None:
    times = [*range(0, 1_000, 100)]
    times.insert(5, times[4] + 10)
    times.insert(9, times[8] + 20)
    cuts = tuple(CutEntry(number=n, at_ms=at, size=n) for n, at in enumerate(times))
    kept, gone = thinned(cuts, 10, 60)
    assert len(kept) == 10
    assert {one.number for one in gone} <= {4, 5, 8, 9}
    assert sorted((*kept, *gone), key=lambda one: one.number) == list(cuts)
    assert (kept[0], kept[-1]) == (cuts[0], cuts[-1])
    assert thinned(kept, 10, 60) == (kept, ())
    assert [len(some) for some in thinned(cuts, 5, 3)] == [9, 3]
    assert len(thinned(cuts, 0, 60)[0]) == 2


@pytest.mark.parametrize(("characters", "most"), [(100, MAX_CUTS), (100_000, 83), (10_000_000, 10)])
def test_given_long_cuts_then_fewer_are_kept(characters: int, most: int) -> None:
    assert most_cuts("x" * characters) == most


def test_streams_are_looked_at_once_in_a_period_and_not_all_at_once() -> None:
    uids = [f"stream-{n}" for n in range(1_000)]
    first = [due_after(0, HOUR_MS, uid) for uid in uids]
    assert all(0 < at <= HOUR_MS for at in first)
    quarters = [sum(at * 4 // HOUR_MS == quarter for at in first) for quarter in range(4)]
    assert all(200 < count < 300 for count in quarters)
    for uid, at in zip(uids, first, strict=True):
        assert due_after(at, HOUR_MS, uid) == at + HOUR_MS
        assert due_after(at + 5, HOUR_MS, uid) == at + HOUR_MS
        assert due_after(at - 1, HOUR_MS, uid) == at
