"""A ring of log lines: bounded, and read in parts without gaps."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.daemon.log_options import LogLevel
from schemas.daemon.log_ring import (
    MAX_ANSWER_BYTES,
    MAX_LINE_BYTES,
    LogPosition,
    LogQuery,
    LogRing,
)

SECOND_US = 1_000_000
NOON_US = 1_769_860_800 * SECOND_US


def append(ring: LogRing, second: int, level: str = "info", cause: str = "-", **more: Any) -> None:
    line = {
        "timestamp": f"2026-01-31T12:00:{second:02}Z",
        "level": level,
        "event": f"e{second}",
        "cause": cause,
    } | more
    ring.append(line, json.dumps(line))


def events(ring: LogRing, **query: Any) -> list[str]:
    return [json.loads(line)["event"] for line in ring.read(LogQuery(**query)).lines]


@pytest.fixture
def ring() -> LogRing:
    ring = LogRing(7)
    append(ring, 0, "debug")
    append(ring, 1, "warning", "api-1")
    append(ring, 2, "error", "api-2")
    append(ring, 3, "info", "api-1")
    return ring


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        pytest.param({}, ["e0", "e1", "e2", "e3"], id="given-nothing-then-all"),
        pytest.param({"since_us": NOON_US + 2 * SECOND_US}, ["e2", "e3"], id="given-a-time"),
        pytest.param({"level": LogLevel.WARNING}, ["e1", "e2"], id="given-a-level"),
        pytest.param({"cause": "api-1"}, ["e1", "e3"], id="given-a-cause"),
        pytest.param({"cause": "api"}, [], id="given-a-part-of-a-cause-then-none"),
        pytest.param({"limit": 2}, ["e2", "e3"], id="given-a-limit-then-the-newest"),
        pytest.param({"limit": 0}, [], id="given-a-limit-of-0"),
        pytest.param({"after": LogPosition(7, 2)}, ["e2", "e3"], id="given-a-position"),
        pytest.param(
            {"after": LogPosition(7, 1), "limit": 2},
            ["e1", "e2"],
            id="given-a-position-and-a-limit-then-the-oldest-behind-it",
        ),
        pytest.param(
            {"after": LogPosition(8, 3), "limit": 2},
            ["e2", "e3"],
            id="given-the-position-in-another-ring-then-as-without",
        ),
    ],
)
def test_queries(ring: LogRing, query: dict[str, Any], expected: list[str]) -> None:
    assert events(ring, **query) == expected


def test_given_all_lines_then_the_answer_is_complete_and_says_where_it_ends(ring: LogRing) -> None:
    page = ring.read(LogQuery())
    assert (page.complete, page.next, page.kept_since_us) == (True, LogPosition(7, 4), 0)
    assert not ring.read(LogQuery(limit=3)).complete


def test_given_more_lines_than_fit_then_the_oldest_are_forgotten() -> None:
    ring = LogRing(7, max_lines=2)
    for second in range(4):
        append(ring, second)
    page = ring.read(LogQuery())
    assert events(ring) == ["e2", "e3"]
    assert page.kept_since_us == NOON_US + 2 * SECOND_US


def test_given_more_bytes_than_fit_then_the_oldest_are_forgotten() -> None:
    ring = LogRing(7, max_bytes=3_000)
    for second in range(10):
        append(ring, second, why="x" * 900)
    assert events(ring) == ["e7", "e8", "e9"]
    assert sum(map(len, ring.read(LogQuery()).lines)) <= 3_000


def test_given_a_reader_of_a_full_ring_then_an_answer_is_bounded_and_says_so() -> None:
    ring = LogRing(7)
    for number in range(200):
        append(ring, number % 60, why="x" * 10_000)
    page = ring.read(LogQuery())
    assert not page.complete
    assert sum(len(line) + 1 for line in page.lines) <= MAX_ANSWER_BYTES
    rest = ring.read(LogQuery(after=LogPosition(7, 50)))
    assert not rest.complete
    assert rest.next.after < 200


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"exception": "x" * 100_000}, id="given-a-long-text"),
        pytest.param({"many": [["x" * 100] * 1_000]}, id="given-a-long-list"),
        pytest.param({f"field{n}": "x" * 900 for n in range(100)}, id="given-many-fields"),
    ],
)
def test_given_a_long_line_then_a_short_one_of_the_same_event(more: dict[str, Any]) -> None:
    ring = LogRing(7)
    append(ring, 1, "error", "api-1", **more)
    (line,) = ring.read(LogQuery(cause="api-1")).lines
    assert len(line) <= MAX_LINE_BYTES
    found = json.loads(line)
    assert (found["event"], found["level"], found["cause"]) == ("e1", "error", "api-1")


def test_given_a_line_of_no_known_form_then_it_is_kept() -> None:
    ring = LogRing(7)
    ring.append({"level": "trace", "timestamp": None}, '{"event": "\udcff"}')
    assert len(ring.read(LogQuery()).lines) == 1


@pytest.mark.parametrize(
    "text", ["", "-", "7", "7-", "-7", "x-1", "7-1-1", "7--1", "7-1 ", "0x7-1", f"7-{'1' * 50}"]
)
def test_given_a_bad_position_then_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not what an earlier answer gave as next"):
        LogPosition.parse(text)


def test_given_a_position_then_its_text_is_read_again() -> None:
    assert LogPosition.parse(str(LogPosition(0xABC, 12))) == LogPosition(0xABC, 12)


@given(st.lists(st.integers(0, 3), max_size=30), st.integers(1, 5), st.sampled_from(list(LogLevel)))
def test_law_a_follower_gets_every_line_once(
    bursts: list[int], limit: int, level: LogLevel
) -> None:
    ring = LogRing(7)
    position = LogPosition(7, 0)
    number, found = 0, []
    for burst in bursts:
        for _ in range(burst):
            append(ring, 0, list(LogLevel)[number % 5], number=number)
            number += 1
        complete = False
        while not complete:
            page = ring.read(LogQuery(level=level, limit=limit, after=position))
            found += [json.loads(line)["number"] for line in page.lines]
            position, complete = page.next, page.complete
    assert found == [n for n in range(number) if list(LogLevel)[n % 5].number >= level.number]
