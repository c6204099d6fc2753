"""Clients that refuse unknown fields get statuses without them; all others get everything."""

from __future__ import annotations

import json

import pytest

from runnel.admin.calls import BY_HEADER, UNKNOWN_FIELDS
from sc.api.older_clients import is_older, known_to
from tests.unit.sc.builders import partition_of


@pytest.mark.parametrize(
    ("headers", "older"),
    [
        ({}, False),
        ({BY_HEADER: "runnel"}, True),
        ({BY_HEADER: "runnel", **UNKNOWN_FIELDS}, False),
        (UNKNOWN_FIELDS, False),
    ],
)
def test_a_client_is_older_if_it_names_itself_and_says_no_more(
    headers: dict[str, str], older: bool
) -> None:
    assert is_older(headers) == older


@pytest.mark.parametrize("writable", [False, None])
def test_an_older_client_gets_what_it_knows(writable: bool | None) -> None:
    text = json.dumps(partition_of(writable=writable).to_json())
    assert known_to(text, older=False) == text
    status = partition_of().to_json()["status"]
    assert json.loads(known_to(text, older=True))["status"] == status


def test_given_a_label_of_that_name_then_it_stays() -> None:
    labelled = partition_of().with_metadata(labels={"writable": "x"})
    text = json.dumps(labelled.to_json())
    assert json.loads(known_to(text, older=True)) == labelled.to_json()
