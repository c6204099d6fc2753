"""What strangers send that is no HTTP: it is refused at once, and does not fill the log."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from structlog.testing import capture_logs

from connection_manager.turned_away import AGAIN_S
from tests.integration.sc.conftest import RunningSc

POST = b"POST /v1/topics HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


async def answer(address: str, data: bytes) -> bytes:
    """The first line that is answered."""
    host, _, port = address.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(data)
        async with asyncio.timeout(5):
            return await reader.readline()
    finally:
        writer.close()


LONG_LINE = b"GET /" + b"x" * 8_200 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
MALFORMED = (
    LONG_LINE,
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Runnel-By: a\nb\x00\r\n\r\n",
    b"GET / HTTP/1.1\r\nno header\r\n\r\n",
    b"garbage\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" + b"\x00\xff garbage\r\n\r\n",
)


@pytest.mark.parametrize("port", ["public", "private"])
async def test_given_requests_that_are_no_http_then_one_short_line_for_each_kind(
    port: str, sc: RunningSc, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = getattr(sc, port)
    with capture_logs() as lines:
        for _ in range(5):
            for data in MALFORMED:
                await answer(address, data)
        logged = [line for line in lines if line["event"] == "a request is no HTTP"]
        kinds = [line["reason"] for line in logged]
        assert kinds
        assert len(kinds) == len(set(kinds)) <= len(MALFORMED)
        assert {(line["log_level"], line["remote"], line["times"]) for line in logged} == {
            ("warning", "127.0.0.1", 1)
        }
        assert all(len(str(line)) < 300 for line in lines)
        assert not [line for line in lines if line["log_level"] == "error"]
        # Later, one line says how often it happened meanwhile.
        monkeypatch.setattr("connection_manager.turned_away.AGAIN_S", -AGAIN_S)
        await answer(address, LONG_LINE)
        assert [line["times"] for line in lines if line["event"] == "a request is no HTTP"][-1] == 5
    assert not caplog.records


async def test_given_a_web_page_at_the_private_port_then_it_is_logged_once(sc: RunningSc) -> None:
    request = b"GET /session HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://evil\r\n\r\n"
    with capture_logs() as lines:
        for _ in range(3):
            assert b"403" in await answer(sc.private, request)
    assert [line["event"] for line in lines] == ["a web page was turned away"]


async def test_given_a_length_above_the_limit_then_refused_before_the_body(sc: RunningSc) -> None:
    head = POST + b"Content-Length: 99999999999\r\n\r\n{"
    assert b" 413 " in await answer(sc.public, head)


@pytest.mark.parametrize(
    "head",
    [
        pytest.param((b"Transfer-Encoding: chunked", b"", b"zz", b""), id="given-no-chunk"),
        pytest.param(
            (b"Content-Encoding: gzip", b"Content-Length: 9", b"", b"not gzip!"),
            id="given-no-gzip",
        ),
    ],
)
async def test_given_a_body_that_cannot_be_read_then_bad_request_without_a_traceback(
    sc: RunningSc, head: Sequence[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    with capture_logs() as lines:
        assert b" 400 " in await answer(sc.public, POST + b"\r\n".join(head))
    assert not [line for line in lines if line["log_level"] == "error"]
    assert not caplog.records
