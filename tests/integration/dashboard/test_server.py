"""The dashboard's port: which requests it answers, its live stream, and a cluster that is away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType, WSServerHandshakeError
from yarl import URL

from dashboard.config import DashboardConfig
from dashboard.live.hub import running
from dashboard.server import SCREENS, DashboardServer
from schemas.daemon.daemon import Listen
from tests.ports import HOST, free_ports

#: A pause in which a server that wrote without end would have written much.
PAUSE_S = 0.3


@asynccontextmanager
async def serving(**settings: object) -> AsyncIterator[tuple[ClientSession, int]]:
    """A dashboard of a cluster that is away, and a client at its address."""
    (sc_port,) = free_ports(1)
    config = DashboardConfig(sc=f"{HOST}:{sc_port}", http=Listen(host=HOST, port=0))
    server = DashboardServer(config.model_copy(update=settings))
    runner, port = await server.start()
    try:
        async with running(server.hub), ClientSession(f"http://{HOST}:{port}") as client:
            yield client, port
    finally:
        await runner.cleanup()
        await server.close()


async def test_given_a_cluster_that_is_away_then_pages_come_and_the_stream_says_why() -> None:
    async with serving() as (client, _):
        for path in ("/", *(f"/{name}" for name in SCREENS), "/topics/orders", "/spus/x/y"):
            async with client.get(path) as answer:
                assert answer.status == 200, path
                assert "<title>Runnel</title>" in await answer.text()
                assert answer.headers["Content-Security-Policy"].startswith("default-src 'self'")
        async with client.ws_connect("/live") as live:
            await live.send_json({"tables": ["health"]})
            frame = await told(live)
            while "connecting" in frame["trouble"]:
                frame = await told(live)
            assert frame["tables"] == {}
            assert "cannot reach" in frame["trouble"] or "no SC" in frame["trouble"]
        for path in (
            *("/api/consumers", "/api/events", "/api/topics/orders/records", "/api/series"),
            "/api/streams/shop/orders/epochs",
        ):
            async with client.get(path) as answer:
                body = await answer.json()
                assert (answer.status, body["code"]) == (503, "UNREACHABLE"), (path, body)
        async with client.get("/metrics") as answer:
            assert "runnel_dashboard_cluster_up 0" in await answer.text()


async def told(live: ClientWebSocketResponse) -> dict[str, Any]:
    """The next frame of the stream."""
    frame: dict[str, Any] = await live.receive_json(timeout=30)
    return frame


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/nothing", 404, "/nothing"),
        ("/static/../server.py", 404, ""),
        ("/static/%2e%2e/server.py", 404, ""),
        ("/api/objects/cats/x", 404, "'cats' is no kind"),
        ("/api/series?seconds=0", 400, "seconds: '0'"),
        ("/api/series?seconds=901", 400, "901"),
        ("/api/topics/orders/segments?first=-1", 400, "first: '-1'"),
        ("/api/topics/orders/records?limit=501", 400, "limit: '501'"),
        ("/api/topics/orders/records?offset=3", 400, "give a partition"),
        ("/api/topics/orders/records?since=now", 400, "since: 'now' is no time"),
        ("/api/topics/orders/records?since=2026-01-31T12:00:00", 400, "time zone"),
        ("/api/topics/orders/records?since=2026-01-31&transaction=1", 400, "give one of them"),
        ("/api/logs/sc?level=loud", 400, "level: 'loud'"),
    ],
)
async def test_given_a_bad_request_then_the_answer_says_what_is_wrong(
    path: str, status: int, said: str
) -> None:
    async with serving() as (client, port):
        async with client.get(URL(f"http://{HOST}:{port}{path}", encoded=True)) as answer:
            body = await answer.json()
        assert answer.status == status, body
        assert said in body["message"]
        assert body["code"] in ("NOT_FOUND", "INVALID_REQUEST")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
async def test_given_a_method_that_changes_things_then_it_is_refused(method: str) -> None:
    path = "/api/objects/topics/orders"
    async with serving() as (client, _), client.request(method, path) as answer:
        assert answer.status == 405
        assert method in (await answer.json())["message"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Host": "localhost:1"}, 200),
        ({"Host": "status.example.org"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 200),
    ],
    ids=str,
)
async def test_given_who_asks_then_foreign_pages_get_nothing(
    headers: dict[str, str], status: int
) -> None:
    async with serving(allowed_hosts=("status.example.org",)) as (client, _):
        for path in ("/", "/static/js/app.js", "/api/about", "/metrics", "/nothing"):
            async with client.get(path, headers=headers) as answer:
                wanted = 404 if (path, status) == ("/nothing", 200) else status
                assert answer.status == wanted, path
        if status == 403:
            with pytest.raises(WSServerHandshakeError) as refused:
                await client.ws_connect("/live", headers=headers)
            assert refused.value.status == 403


async def test_given_its_own_origin_then_the_stream_opens() -> None:
    async with (
        serving() as (client, port),
        client.ws_connect("/live", origin=f"http://{HOST}:{port}") as live,
    ):
        await live.send_json({"tables": []})
        assert (await told(live))["tables"] == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "a request is"),
        ("[]", "a request is"),
        ('{"tables": "health"}', "a request is"),
        ('{"tables": ["secrets"]}', "'secrets' is no table"),
        ('{"tables": ["topic:../x"]}', "is no table"),
        ('{"tables": [' + ",".join(['"health"'] * 17) + "]}", "17 tables; at most 16"),
        ("[" * 5000, "a request is"),
    ],
)
async def test_given_a_bad_message_then_the_stream_is_closed_with_the_reason(
    text: str, said: str
) -> None:
    async with serving() as (client, _), client.ws_connect("/live") as live:
        await live.send_str(text)
        while (message := await live.receive(30)).type is WSMsgType.TEXT:
            pass
        assert message.type is WSMsgType.CLOSE
        assert message.data == 1003
        assert said in str(message.extra)


async def test_given_a_message_that_is_too_large_then_the_stream_is_closed() -> None:
    async with serving() as (client, _), client.ws_connect("/live") as live:
        await live.send_str('{"tables": ["' + "x" * 20_000 + '"]}')
        while (message := await live.receive(30)).type is WSMsgType.TEXT:
            pass
        assert (message.type, message.data) == (WSMsgType.CLOSE, 1009)


async def test_given_no_records_then_neither_a_page_nor_a_tail_of_them_is_there() -> None:
    async with serving(records=False) as (client, _):
        async with client.get("/api/about") as answer:
            assert (await answer.json())["records"] is False
        async with client.get("/api/topics/orders/records") as answer:
            assert answer.status == 404
            assert "shows no records" in (await answer.json())["message"]
        with pytest.raises(WSServerHandshakeError) as refused:
            await client.ws_connect("/api/topics/orders/tail")
        assert refused.value.status == 404


async def test_given_browsers_that_go_then_they_are_counted_no_more() -> None:
    async with serving() as (client, _):
        async with client.ws_connect("/live") as live:
            await live.send_json({"tables": []})
            await told(live)
            assert "runnel_dashboard_browsers 1" in await metrics(client)
        for _attempt in range(100):
            if "runnel_dashboard_browsers 0" in await metrics(client):
                break
            await asyncio.sleep(0.02)
        assert "runnel_dashboard_browsers 0" in await metrics(client)


async def metrics(client: ClientSession) -> str:
    async with client.get("/metrics") as answer:
        return await answer.text()
