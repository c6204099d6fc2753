"""``/v1/logs``: parameters that are refused by name, and an answer of the documented form."""

from __future__ import annotations

import json

import pytest

from sc.api.answers import LogLines
from sc.api.log_lines import log_lines_text, read_log_query
from sc.api.requests import Query
from schemas.daemon.log_options import LogLevel
from schemas.daemon.log_ring import LogPosition, LogQuery, LogRing
from schemas.errors import InvalidRequestError

LINE = {"timestamp": "2026-01-31T12:00:00Z", "level": "info", "event": "é", "cause": "api-1"}


def query(**values: str) -> Query:
    return Query({name: [value] for name, value in values.items()})


def test_given_nothing_then_the_newest_lines_of_every_level() -> None:
    assert read_log_query(query()) == LogQuery()


def test_given_parameters_then_read() -> None:
    asked = query(
        since="2026-01-31T13:00:00+01:00", level="WARNING", cause="api-1", limit="5", after="a-7"
    )
    assert read_log_query(asked) == LogQuery(
        1_769_860_800_000_000, LogLevel.WARNING, "api-1", 5, LogPosition(10, 7)
    )


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("since", "10m", "since: '10m' is not a time; write 2026-01-31T12:00:00Z"),
        (
            "level",
            "loud",
            "level: 'loud' is unknown; use one of debug, info, warning, error, critical",
        ),
        ("after", "x", "after: 'x' is not what an earlier answer gave as next"),
    ],
)
def test_given_a_bad_parameter_then_refused(name: str, value: str, message: str) -> None:
    with pytest.raises(InvalidRequestError) as raised:
        read_log_query(query(**{name: value}))
    assert raised.value.message == message


@pytest.mark.parametrize("since", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"])
def test_given_a_time_at_the_edge_then_a_time(since: str) -> None:
    assert read_log_query(query(since=since)).since_us >= 0


def test_given_lines_then_the_answer_has_its_form() -> None:
    ring = LogRing(10, max_lines=1)
    for _ in range(2):
        ring.append(LINE, json.dumps(LINE, ensure_ascii=False))
    answer = json.loads(log_lines_text(ring, LogQuery()))
    assert LogLines.model_validate(answer).kept_since == "2026-01-31T12:00:00Z"
    assert answer == {
        "process": "sc",
        "lines": [LINE],
        "next": "a-2",
        "complete": True,
        "keptSince": "2026-01-31T12:00:00Z",
    }


def test_given_no_lines_then_the_answer_has_its_form() -> None:
    answer = json.loads(log_lines_text(LogRing(10), LogQuery()))
    assert LogLines.model_validate(answer).lines == ()
    assert answer["keptSince"] is None
