"""What a load asks for: the rules as tables, and a leader's reports over time."""

from __future__ import annotations

from itertools import pairwise

import pytest

from schemas.control.messages import LoadReport
from schemas.objects.load import LoadLimits, LoadUnit
from schemas.objects.quantities import Millis
from spu.load.verdict import SegmentLoad, judged

MINUTE_MS = 60_000
TWO_MINUTES = LoadLimits(unit=LoadUnit.EVENTS, target_rate=100, window=Millis(2 * MINUTE_MS))
COLD = LoadReport(parts=0)


def hot(parts: int) -> LoadReport:
    return LoadReport(parts=parts)


@pytest.mark.parametrize(
    ("rates", "age", "found"),
    [
        # A target of 100; the age in windows of two minutes.
        ((501, 0, 0, 0), 5, hot(5)),
        ((500, 0, 0, 0), 5, None),
        ((501, 0, 0, 0), 4.9, None),
        ((0, 201, 0, 0), 5, hot(2)),
        ((0, 200, 0, 0), 5, None),
        ((0, 0, 101, 0), 5, hot(2)),
        ((0, 0, 100, 0), 5, None),
        ((990, 430, 150, 90), 5, hot(9)),
        ((100, 350, 150, 90), 5, hot(3)),
        ((99, 99, 99, 49), 10, COLD),
        ((99, 99, 99, 49), 9.9, None),
        ((100, 99, 99, 49), 10, None),
        ((99, 100, 99, 49), 10, None),
        ((99, 99, 100, 49), 10, None),
        ((99, 99, 99, 50), 10, None),
        ((0, 0, 0, 0), 10, COLD),
    ],
)
def test_given_rates_then_they_ask_for(
    rates: tuple[float, ...], age: float, found: LoadReport | None
) -> None:
    assert judged(rates, 100, age) == found


class Leader:
    """Takes an even load by the minute, and ticks every five seconds."""

    def __init__(self, limits: LoadLimits = TWO_MINUTES, event_bytes: int = 1) -> None:
        self.load = SegmentLoad()
        self.limits = limits
        self.bytes = event_bytes
        self.now_ms = 0
        self.load.tick(0, limits)

    def minutes(self, minutes: float, rate: int) -> list[tuple[float, LoadReport | None]]:
        """What it said, with the minute at which it did."""
        said = []
        for _ in range(round(minutes * 12)):
            self.now_ms += 5_000
            self.load.took(rate * 5, rate * 5 * self.bytes)
            if self.load.tick(self.now_ms, self.limits):
                said.append((self.now_ms / MINUTE_MS, self.load.report))
        return said


def test_given_a_hot_segment_then_it_says_so_after_ten_minutes_and_once() -> None:
    leader = Leader()
    assert leader.minutes(9.9, 350) == []
    assert leader.minutes(60, 350) == [(10, hot(3))]


def test_given_a_load_that_ends_then_hot_is_taken_back_and_cold_comes_after_the_silence() -> None:
    leader = Leader()
    leader.minutes(10, 350)
    assert leader.load.report == hot(3)
    (back, nothing), (silent, cold) = leader.minutes(60, 0)
    assert (nothing, cold) == (None, COLD)
    # The average over ten minutes falls from 350 below 100 only then: 10 ln(350 / 100), and the
    # mean over what was seen so far falls faster.
    assert 10 + 8 < back < 10 + 12.6
    # That over twenty minutes falls below 50: at 20 ln(350 / 50) at the latest.
    assert back < silent < 10 + 39


def test_given_an_idle_segment_then_it_is_cold_after_twenty_minutes() -> None:
    leader = Leader()
    assert leader.minutes(120, 0) == [(20, COLD)]


def test_given_a_cold_segment_gets_records_then_cold_is_taken_back_at_once() -> None:
    leader = Leader()
    leader.minutes(20, 0)
    assert leader.load.report == COLD
    ((when, report),) = leader.minutes(1, 300)
    assert report is None
    assert when < 21


def test_given_a_load_that_comes_and_goes_then_hot_is_said_once_in_ten_minutes() -> None:
    leader = Leader()
    said = []
    for _ in range(60):
        said += leader.minutes(1, 1_000)
        said += leader.minutes(1, 0)
    times = [when for when, report in said if report is not None and report.is_hot]
    assert len(times) >= 1
    assert all(later - earlier >= 10 for earlier, later in pairwise(times))


def test_given_cold_was_taken_back_then_it_is_said_again_later_and_hot_at_once() -> None:
    leader = Leader()
    leader.minutes(20, 0)
    leader.minutes(0.5, 1_500)
    assert leader.load.report is None
    ((again, cold),) = leader.minutes(30, 0)
    assert cold == COLD
    assert again >= 30
    ((_, nothing), (_, found)) = leader.minutes(3, 5_000)
    assert nothing is None
    assert found is not None
    assert found.is_hot


def test_given_a_peak_in_silence_then_cold_waits_for_as_long_as_hot_is_said_once() -> None:
    """A minute of twelve times the target: the average over ten minutes is 114 then. All are below
    the bounds of cold 6 minutes later, since that over twenty is 59 e^(-t/20)."""
    leader = Leader()
    leader.minutes(60, 0)
    taken_back, (peak, found) = leader.minutes(1, 1_200)
    assert taken_back[1] is None
    assert found is not None
    assert found.is_hot
    (back, nothing), (silent, cold) = leader.minutes(30, 0)
    assert (nothing, cold) == (None, COLD)
    assert back < peak + 6
    assert silent == pytest.approx(peak + 10)


def test_given_kilobytes_then_bytes_are_counted_by_the_thousand() -> None:
    limits = LoadLimits(unit=LoadUnit.KILOBYTES, target_rate=100, window=Millis(2 * MINUTE_MS))
    assert Leader(limits, event_bytes=1_000).minutes(11, 350) == [(10, hot(3))]
    assert Leader(limits, event_bytes=10).minutes(11, 350) == []


def test_given_other_limits_or_none_then_it_begins_anew() -> None:
    leader = Leader()
    assert len(leader.minutes(10, 350)) == 1
    assert leader.load.tick(leader.now_ms + 5_000, None)
    assert leader.load.report is None
    leader.now_ms += 5_000
    leader.load.tick(leader.now_ms, TWO_MINUTES)
    assert leader.minutes(9.9, 350) == []
    assert len(leader.minutes(1, 350)) == 1


def test_given_a_shorter_window_then_everything_is_faster() -> None:
    second = LoadLimits(unit=LoadUnit.EVENTS, target_rate=100, window=Millis(1_000))
    load = SegmentLoad()
    said = []
    for tenth in range(200):
        load.took(35 if tenth < 60 else 0, 0)
        if load.tick(tenth * 100, second):
            said.append((tenth / 10, load.report))
    assert said[0] == (5.0, hot(3))
    assert said[-1][1] == COLD
