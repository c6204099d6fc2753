"""Tokens of pages: they name one place of one list, and nothing else is one."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sc.api.listing import Place
from schemas.errors import InvalidRequestError

OF = ("topics", "team=x", "")


@given(
    revision=st.integers(1, 2**63 - 1),
    last=st.from_regex(r"[A-Za-z0-9_-]{1,249}", fullmatch=True),
    selector=st.text(max_size=20),
)
def test_a_token_is_read_back(revision: int, last: str, selector: str) -> None:
    place = Place(revision, last, ("topics", selector, ""))
    token = place.token()
    assert not set(token) & set("+/=& ")
    assert Place.parse(token, place.of) == place


@given(st.text(max_size=40))
def test_any_text_is_no_token(token: str) -> None:
    with pytest.raises(InvalidRequestError):
        Place.parse(token, OF)


@pytest.mark.parametrize(
    "content",
    [
        None,
        [],
        [1],
        {},
        "text",
        [0, "t", *OF],
        [-1, "t", *OF],
        [True, "t", *OF],
        [1.5, "t", *OF],
        ["1", "t", *OF],
        [2**63, "t", *OF],
        [1, 2, *OF],
        [1, None, *OF],
        [1, "", *OF],
        [1, "a/b/c", *OF],
        [1, "\ud800", *OF],
    ],
    ids=json.dumps,
)
def test_given_json_of_another_form_then_no_token(content: object) -> None:
    token = base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")
    with pytest.raises(InvalidRequestError, match="not the `continue` of a page"):
        Place.parse(token, OF)


@pytest.mark.parametrize(
    "of", [("spus", "team=x", ""), ("topics", "", ""), ("topics", "team=x", "metadata.name=t"), ()]
)
def test_given_token_of_another_list_then_refused(of: tuple[str, ...]) -> None:
    with pytest.raises(InvalidRequestError, match="belongs to another list"):
        Place.parse(Place(3, "t", of).token(), OF)
