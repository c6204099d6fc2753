"""The heartbeat monitor: counted in its own ticks."""

from __future__ import annotations

import pytest

from connection_manager.heartbeat import LATELY_S, HeartbeatMonitor, Lateness
from schemas.wire.tcp_info import Pace

INTERVAL_MS = 250


@pytest.mark.parametrize(
    ("misses", "events", "alive"),
    [
        pytest.param(3, "t", True, id="given-first-tick-then-alive"),
        pytest.param(3, "ttt", True, id="given-as-many-silent-ticks-as-allowed-then-alive"),
        pytest.param(3, "tttt", False, id="given-one-more-silent-tick-then-dead"),
        pytest.param(3, "ttthtttht", True, id="given-a-word-in-time-then-counted-anew"),
        pytest.param(3, "hhhtttt", False, id="given-many-words-then-they-do-not-add-up"),
        pytest.param(3, "tttht", True, id="given-own-long-stall-then-one-tick-and-no-blame"),
        pytest.param(1, "tt", False, id="given-one-miss-allowed-then-the-second-is-dead"),
        pytest.param(0, "t", False, id="given-no-miss-allowed-then-the-first-is-dead"),
    ],
)
def test_monitor(misses: int, events: str, alive: bool) -> None:
    """``t`` is a tick, ``h`` something heard; the last tick decides."""
    monitor, verdict = HeartbeatMonitor(misses, INTERVAL_MS), True
    for event in events:
        if event == "h":
            monitor.heard()
        else:
            verdict = monitor.tick()
    assert verdict is alive


@pytest.mark.parametrize(
    ("answer_ms", "ticks"),
    [
        pytest.param(0.1, 3, id="given-loopback-then-as-many-as-allowed"),
        pytest.param(200, 3, id="given-acknowledgements-that-were-delayed-then-no-more"),
        pytest.param(300, 5, id="given-an-ocean-between-then-a-little-longer"),
        pytest.param(800, 17, id="given-a-lossy-line-of-600-ms-then-seconds"),
        pytest.param(60_000, 46, id="given-a-line-that-hardly-moves-then-not-for-ever"),
    ],
)
def test_given_a_long_line_then_what_was_lost_has_time_to_come(
    answer_ms: float, ticks: int
) -> None:
    monitor = HeartbeatMonitor(3, INTERVAL_MS)
    pace = Pace(answer_ms, silent_ms=10_000)
    assert [monitor.tick(pace) for _ in range(ticks + 1)] == [True] * ticks + [False]
    assert monitor.allowed == ticks


@pytest.mark.parametrize(
    ("answers_ms", "ticks"),
    [
        pytest.param([2_000, 800], 46, id="given-it-gets-faster-then-as-long-as-before"),
        pytest.param([800, 2_000], 46, id="given-it-gets-slower-then-longer"),
        pytest.param([800, None], 17, id="given-the-kernel-says-no-more-then-as-long-as-before"),
    ],
)
def test_given_a_line_that_changes_then_a_silence_has_the_time_of_when_it_was_slowest(
    answers_ms: list[float | None], ticks: int
) -> None:
    monitor = HeartbeatMonitor(3, INTERVAL_MS)
    said = [
        monitor.tick(None if answer_ms is None else Pace(answer_ms, silent_ms=10_000))
        for answer_ms in [*answers_ms, *answers_ms[-1:] * (ticks - 1)]
    ]
    assert said == [True] * ticks + [False]


def test_given_a_word_on_a_line_that_has_become_faster_then_the_next_silence_has_less_time() -> (
    None
):
    monitor = HeartbeatMonitor(3, INTERVAL_MS)
    assert all(monitor.tick(Pace(2_000, silent_ms=10_000)) for _ in range(20))
    monitor.heard()
    said = [monitor.tick(Pace(0.1, silent_ms=10_000)) for _ in range(4)]
    assert said == [True, True, True, False]


@pytest.mark.parametrize(("silent_ms", "alive"), [(249, True), (250, False)])
def test_given_parts_of_a_long_message_then_the_peer_lives(silent_ms: int, alive: bool) -> None:
    monitor = HeartbeatMonitor(3, INTERVAL_MS)
    assert all(monitor.tick(Pace(0.1, silent_ms)) for _ in range(3))
    assert monitor.tick(Pace(0.1, silent_ms)) is alive


def test_given_the_last_part_came_just_now_then_as_patient_as_after_a_message() -> None:
    monitor = HeartbeatMonitor(3, INTERVAL_MS)
    said = [monitor.tick(Pace(0.1, silent_ms)) for silent_ms in (10, 260, 510, 760)]
    assert said == [True, True, True, False]


@pytest.mark.parametrize(
    ("answer_ms", "ticks", "quiet"),
    [
        pytest.param(0.1, 1, False, id="given-a-short-line-and-one-missed-then-not-quiet"),
        pytest.param(0.1, 2, True, id="given-a-short-line-and-two-missed-then-quiet"),
        pytest.param(800, 15, False, id="given-a-long-line-then-not-so-soon"),
        pytest.param(800, 16, True, id="given-a-long-line-and-all-but-one-missed-then-quiet"),
    ],
)
def test_quiet(answer_ms: float, ticks: int, quiet: bool) -> None:
    monitor = HeartbeatMonitor(3, INTERVAL_MS)
    for _ in range(ticks):
        monitor.tick(Pace(answer_ms, silent_ms=10_000))
    assert monitor.quiet is quiet


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.parametrize(
    ("before", "passed_s", "ticks"),
    [
        pytest.param("th" * 9, 0, 3, id="given-a-peer-in-time-then-as-many-as-allowed"),
        pytest.param("tth" * 9, 0, 3, id="given-a-tick-right-behind-a-word-then-no-more"),
        pytest.param("ttth", 0, 5, id="given-a-late-peer-then-twice-as-long"),
        pytest.param("ttthttttth", 0, 9, id="given-a-peer-later-each-time-then-longer-each-time"),
        pytest.param("ttthttttth" + 9 * "t" + "h", 0, 15, id="but-five-times-at-most"),
        pytest.param("ttth", LATELY_S, 5, id="given-it-was-late-lately-then-longer"),
        pytest.param("ttth", 2 * LATELY_S, 3, id="given-it-was-late-long-ago-then-no-more"),
        pytest.param("ttth", 9 * LATELY_S, 3, id="given-nothing-for-long-then-no-more"),
    ],
)
def test_given_a_peer_that_was_late_then_it_may_be_late_again(
    before: str, passed_s: float, ticks: int
) -> None:
    clock = Clock()
    monitor = HeartbeatMonitor(3, INTERVAL_MS, Lateness(clock))
    for event in before:
        if event == "h":
            monitor.heard()
        else:
            monitor.tick()
    clock.now_s += passed_s
    assert [monitor.tick() for _ in range(ticks + 1)] == [True] * ticks + [False]


def test_given_parts_of_messages_that_came_late_then_longer_too() -> None:
    monitor = HeartbeatMonitor(3, INTERVAL_MS, Lateness())
    for silent_ms in (10, 260, 510, 10, 260, 510, 760, 1010):
        assert monitor.tick(Pace(0.1, silent_ms))


def test_given_a_peer_that_was_late_then_all_have_as_long_and_are_quiet_together() -> None:
    lateness = Lateness()
    one, other = (HeartbeatMonitor(3, INTERVAL_MS, lateness) for _ in range(2))
    for _ in range(3):
        one.tick()
        other.tick()
        other.heard()
    one.heard()
    assert not other.quiet
    assert [(one.tick(), other.tick()) for _ in range(6)] == [(True, True)] * 5 + [(False, False)]
    assert one.quiet
    assert other.quiet


def test_given_a_peer_on_a_long_line_then_others_have_no_more_time() -> None:
    lateness = Lateness()
    far, near = (HeartbeatMonitor(3, INTERVAL_MS, lateness) for _ in range(2))
    for _ in range(10):
        assert far.tick(Pace(800, silent_ms=5_000))
    far.heard()
    assert [near.tick() for _ in range(4)] == [True] * 3 + [False]


def test_given_no_lateness_then_a_peer_that_was_late_has_no_more_time() -> None:
    monitor = HeartbeatMonitor(3, INTERVAL_MS)
    for _ in range(3):
        monitor.tick()
    monitor.heard()
    assert [monitor.tick() for _ in range(4)] == [True] * 3 + [False]
