"""What a browser may ask for."""

from __future__ import annotations

import json

import pytest

from dashboard.live.socket import MAX_TABLES, close_reason, read_tables
from schemas.errors import InvalidRequestError


def test_tables_of_a_request() -> None:
    asked = json.dumps({"tables": ["health", "topic:orders", "health"]})
    assert read_tables(asked) == {"health", "topic:orders"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "a request is"),
        ("[]", "a request is"),
        ('{"tables": "health"}', "a request is"),
        ('{"tables": [1]}', "a request is"),
        ("[" * 10_000, "a request is"),
        ('{"tables": ["secrets"]}', "'secrets' is no table"),
        ('{"tables": ["topic:"]}', "is no table"),
        ('{"tables": ["topic:../x"]}', "is no table"),
        (json.dumps({"tables": [f"topic:t{n}" for n in range(MAX_TABLES + 1)]}), "at most 16"),
    ],
)
def test_what_is_refused(text: str, problem: str) -> None:
    with pytest.raises(InvalidRequestError, match=problem):
        read_tables(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("short", "short"),
        ("x" * 200, "x" * 120),
        ("x" * 119 + "é", "x" * 119),
        ("x" + "€" * 60, "x" + "€" * 39),
        ("x" * 118 + "🙂", "x" * 118),
        ("\ud800", "?"),
    ],
)
def test_the_reason_of_a_close_is_cut_between_characters(text: str, expected: str) -> None:
    found = close_reason(text)
    assert (found.decode(), len(found) <= 120) == (expected, True)
