"""What a browser may ask for."""

from __future__ import annotations

import json

import pytest

from dashboard.live.socket import MAX_TABLES, read_tables
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
