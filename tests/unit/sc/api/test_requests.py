"""Query parameters and headers: what is read of them, and what is refused by name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sc.api.requests import (
    read_by,
    read_cause,
    read_last_event,
    read_media_type,
    read_name,
    read_query,
)
from sc.api.routes import MAX_REVISION, Form, Operation, Parameter, Route
from schemas.errors import InvalidRequestError, NotFoundError

ROUTE = Route(
    "GET",
    "/v1/things",
    Operation.LIST,
    "things",
    query=(
        Parameter("text", ""),
        Parameter("flag", "", Form.FLAG),
        Parameter("number", "", Form.NUMBER, low=1, high=10),
        Parameter("many", "", many=True),
    ),
)


def test_given_parameters_then_read_as_their_form() -> None:
    query = read_query(
        ROUTE, [("text", "x"), ("flag", "true"), ("number", "007"), ("many", "a"), ("many", "b")]
    )
    assert query.text("text") == "x"
    assert query.flag("flag")
    assert query.number("number") == 7
    assert query.all("many") == ["a", "b"]


def test_given_none_then_nothing_is_set() -> None:
    query = read_query(ROUTE, [])
    assert (query.text("text"), query.flag("flag"), query.number("number")) == (None, False, None)
    assert query.all("many") == []


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([("numbre", "1")], "unknown query parameter 'numbre'; did you mean number?"),
        ([("NUMBER", "1")], "unknown query parameter 'NUMBER'; did you mean number?"),
        (
            [("", "1")],
            "unknown query parameter ''; known here: text, flag, number, many",
        ),
        ([("text", "a"), ("text", "a")], "text: appears twice"),
        ([("flag", "True")], "flag: 'True' is neither true nor false"),
        ([("flag", "")], "flag: '' is neither true nor false"),
        ([("number", "0")], "number: '0' is not a whole number from 1 to 10"),
        ([("number", "11")], "number: '11' is not a whole number from 1 to 10"),
        ([("number", "-1")], "number: '-1' is not a whole number from 1 to 10"),
        ([("number", "1e1")], "number: '1e1' is not a whole number from 1 to 10"),
        ([("number", "٣")], "number: '٣' is not a whole number from 1 to 10"),
        ([("number", "9" * 5000)], f"number: '{'9' * 5000}' is not a whole number from 1 to 10"),
    ],
)
def test_given_wrong_parameter_then_named(pairs: list[tuple[str, str]], message: str) -> None:
    with pytest.raises(InvalidRequestError) as raised:
        read_query(ROUTE, pairs)
    assert raised.value.message == message


def test_given_a_route_without_parameters_then_none_is_known() -> None:
    route = Route("GET", "/v1/thing", Operation.GET, "thing")
    with pytest.raises(InvalidRequestError, match="unknown query parameter 'x'; none is known"):
        read_query(route, [("x", "1")])


@pytest.mark.parametrize(
    ("header", "peer", "by"),
    [
        ("alice@box", "::1", "alice@box"),
        (" alice ", "::1", "alice"),
        ("Zoë Müller", None, "Zoë Müller"),
        (None, "10.0.0.9", "10.0.0.9"),
        ("", "10.0.0.9", "10.0.0.9"),
        (None, None, "unknown"),
    ],
)
def test_given_header_and_peer_then_who_writes(
    header: str | None, peer: str | None, by: str
) -> None:
    assert read_by(header, peer) == by


@pytest.mark.parametrize("header", ["sc", " sc ", "x" * 257, "a\tb", "a\x1b[31m", "\udcff"])
def test_given_a_name_that_nobody_may_have_then_refused(header: str) -> None:
    with pytest.raises(InvalidRequestError, match="X-Runnel-By"):
        read_by(header, "::1")


@given(st.text(max_size=300))
def test_any_cause_is_taken_or_refused(header: str) -> None:
    try:
        found = read_cause(header)
    except InvalidRequestError:
        return
    assert found is None if header == "" else found == header
    assert header.isascii()
    assert not set(header) & {" ", "\r", "\n"}


def test_given_no_cause_then_none() -> None:
    assert read_cause(None) is None


@pytest.mark.parametrize(
    ("header", "revision"),
    [(None, None), ("", None), ("0", 0), ("42", 42), (str(MAX_REVISION), MAX_REVISION)],
)
def test_given_last_event_then_the_revision_to_go_on_after(
    header: str | None, revision: int | None
) -> None:
    assert read_last_event(header) == revision


@pytest.mark.parametrize("header", ["x", "-1", "1.0", str(MAX_REVISION + 1), " 1"])
def test_given_last_event_of_another_server_then_refused(header: str) -> None:
    with pytest.raises(InvalidRequestError, match="is not a resourceVersion"):
        read_last_event(header)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "x" * 250, "ü", "a\n"])
def test_given_name_that_no_object_has_then_not_found(name: str) -> None:
    with pytest.raises(NotFoundError, match="does not exist"):
        read_name("Topic", name)


def test_given_name_then_the_name() -> None:
    assert read_name("Topic", "a.b-c_D") == "a.b-c_D"


@pytest.mark.parametrize(
    ("header", "found"),
    [
        (None, ""),
        ("application/json", "application/json"),
        (" Application/JSON ; charset=utf-8", "application/json"),
        ("; charset=utf-8", ""),
    ],
)
def test_media_type(header: str | None, found: str) -> None:
    assert read_media_type(header) == found
