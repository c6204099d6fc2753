"""What fuzzing of the REST API has found, at both of its ends: the smallest input of each."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from schemas.errors import RunnelError
from tests.fuzz.api_targets import ask
from tests.fuzz.client_targets import CALLS, NEXT, replied, watched
from tests.fuzz.law import Rejected, with_length

_JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"


def answer_to(request: bytes) -> tuple[int, dict[str, Any]]:
    async def asked() -> tuple[int, str, bytes]:
        return await ask(with_length(request), whole=True)

    status, _kind, body = asyncio.run(asked())
    return status, json.loads(body)


def refusal_of(call: str, *bodies: bytes) -> str:
    """Why a client refuses the answers to a call."""
    pieces = [_JSON + body for body in bodies]
    data = bytes([2 * list(CALLS).index(call) + 1]) + NEXT.join(pieces)
    with pytest.raises(Rejected) as raised:
        replied(data)
    error = raised.value.__cause__
    assert isinstance(error, RunnelError)
    return error.message


@pytest.mark.parametrize("parameters", [b"(" * 6_000, b";" * 6_000, b'"' * 6_000])
def test_given_a_media_type_with_many_parameters_then_they_are_passed_over(
    parameters: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """aiohttp's parser of them raised RecursionError, or held up the SC for most of a second."""
    monkeypatch.setattr("aiohttp.helpers.parse_content_type", None)
    head = b"POST /v1/topics HTTP/1.1\r\nHost: sc\r\nContent-Type: application/json"
    status, error = answer_to(head + parameters + b"\r\n\r\n{}")
    assert status == (400 if parameters.startswith(b";") else 415)
    assert len(error["message"]) < 200


def test_given_an_address_that_no_terminal_should_see_then_it_is_told_as_it_was_sent() -> None:
    status, error = answer_to(b"GET /v1/%0a%1b[2J HTTP/1.1\r\nHost: sc\r\n\r\n")
    assert status == 404
    assert error["message"].startswith("there is no /v1/%0a%1b[2J; known kinds: ")


@pytest.mark.parametrize(
    ("call", "body"),
    [
        pytest.param("cluster", b"{}", id="given-no-name"),
        pytest.param("cluster", b"null", id="given-nothing"),
        pytest.param("list", b"{}", id="given-no-items"),
        pytest.param("list", b"7", id="given-a-number"),
        pytest.param("list", b'{"items":[],"continue":"a"}', id="given-an-empty-page-that-goes-on"),
        pytest.param("history", b'{"items":[{"revision":"a"}]}', id="given-no-revision"),
        pytest.param("replicas", b'{"items":[{}]}', id="given-no-spu"),
        pytest.param("replicas", b'{"items":[{"spu":1e400,"live":true}]}', id="given-no-number"),
        pytest.param(
            "delete", b'{"metadata":{"name":"t","resourceVersion":"a"}}', id="given-no-version"
        ),
    ],
)
def test_given_an_answer_of_another_form_then_it_is_not_understood(call: str, body: bytes) -> None:
    """Commands ended with a traceback, or asked for the next page for ever."""
    assert "this client does not understand" in refusal_of(call, body)


@pytest.mark.parametrize("call", CALLS)
def test_given_an_answer_without_end_then_it_says_so(call: str) -> None:
    assert "nested too deep" in refusal_of(call, b"[" * 50_000)


@pytest.mark.parametrize(
    ("event", "says"),
    [
        pytest.param(b"event: synced\ndata: {}", "KeyError", id="given-no-revision"),
        pytest.param(b"event: synced\ndata: 7", "TypeError", id="given-a-number"),
        pytest.param(b"event: compacted\ndata: []", "AttributeError", id="given-a-list"),
        pytest.param(
            b'id: a\nevent: added\ndata: {"metadata":{"name":"t"}}', "ValueError", id="given-an-id"
        ),
        pytest.param(
            b'event: added\ndata: {"metadata":{"name":"t","resourceVersion":"a"}}',
            "ValueError",
            id="given-a-version-that-is-no-number",
        ),
        pytest.param(b"event: added\ndata: " + b"[" * 50_000, "nested too deep", id="given-no-end"),
    ],
)
def test_given_an_event_of_another_form_then_the_watch_ends_with_a_word(
    event: bytes, says: str
) -> None:
    with pytest.raises(Rejected) as raised:
        watched(b"\x00" + event + b"\n\n")
    error = raised.value.__cause__
    assert isinstance(error, RunnelError)
    assert says in error.message
