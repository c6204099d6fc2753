"""What a standby answers when the SC that leads stands still while it is asked."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer, make_mocked_request

from sc.api import standby
from sc.api.standby import LeaderProxy
from sc.mirror import Mirror
from schemas.control.controllers import ControllerEntry
from schemas.errors import DeadlineExceededError, NotReadyError, RunnelError
from tests.polling import eventually
from tests.silent_port import silent_port


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a process that stands still: its kernel accepts connections."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize(
    ("method", "error", "said"),
    [
        ("GET", NotReadyError, "another one leads in a moment"),
        ("HEAD", NotReadyError, "another one leads in a moment"),
        ("POST", DeadlineExceededError, "whether a write was done is not known"),
        ("DELETE", DeadlineExceededError, "whether a write was done is not known"),
    ],
)
async def test_given_a_leader_that_stands_still_then_only_a_write_is_unknown(
    silent: str, method: str, error: type[RunnelError], said: str
) -> None:
    leads = [
        ControllerEntry(name="a", instance="1", public=silent, private=silent, version="", since="")
    ]
    proxy = LeaderProxy(cast(Mirror, None), "b", lambda: leads[0])
    request = make_mocked_request(method, "/v1/topics")
    asked = asyncio.create_task(proxy.forward(request))
    await asyncio.sleep(0.05)
    assert not asked.done()
    leads[0] = leads[0].model_copy(update={"instance": "2"})
    with pytest.raises(error, match=said) as raised:
        await asked
    await proxy.close()
    assert ("retryAfterMs" in raised.value.details) is (error is NotReadyError)
    assert ("askAnother" in raised.value.details) is (error is NotReadyError)


async def test_given_many_that_wait_for_answers_then_one_more_is_not_sent(
    silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standby, "MOST_ASKING", 2)
    leads = ControllerEntry(
        name="a", instance="1", public=silent, private=silent, version="", since=""
    )
    proxy = LeaderProxy(cast(Mirror, None), "b", lambda: leads)
    for _ in range(2):
        request = make_mocked_request("DELETE", "/v1/topics/t")
        asked = [asyncio.create_task(proxy.forward(request)) for _ in range(2)]
        await asyncio.sleep(0.05)
        assert not any(task.done() for task in asked)
        with pytest.raises(NotReadyError, match=r"^SC b waits for 2 answers of a") as raised:
            await proxy.forward(request)
        assert {"retryAfterMs", "askAnother"} <= raised.value.details.keys()
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
    await proxy.close()


async def passed_on(method: str, address: str) -> None:
    leads = ControllerEntry(
        name="a", instance="1", public=address, private=address, version="", since=""
    )
    proxy = LeaderProxy(cast(Mirror, None), "b", lambda: leads)
    try:
        await proxy.forward(make_mocked_request(method, "/v1/topics/t"))
    finally:
        await proxy.close()


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_given_a_host_that_is_lost_then_nothing_was_sent(
    monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr(standby, "CONNECT_S", 0.1)
    said = "^SC b cannot reach the SC that leads, a: no connection within 0.1 s; "
    with silent_port() as port, pytest.raises(NotReadyError, match=said) as raised:
        await passed_on(method, f"127.0.0.1:{port}")
    assert raised.value.details["askAnother"]


@pytest.mark.parametrize("trouble", [None, "the SC has not reached its KV for 9 s"])
async def test_given_no_leader_then_another_sc_may_know_one_if_this_one_has_lost_the_kv(
    trouble: str | None,
) -> None:
    mirror = SimpleNamespace(kv_health=SimpleNamespace(trouble=trouble, away_ms=9_000))
    proxy = LeaderProxy(cast(Mirror, mirror), "b", lambda: None)
    with pytest.raises(NotReadyError) as raised:
        await proxy.forward(make_mocked_request("POST", "/v1/topics"))
    assert ("askAnother" in raised.value.details) is (trouble is not None)


@pytest.mark.parametrize(
    ("address", "why"),
    [
        pytest.param("127.0.0.1:1", "connection refused", id="given-nobody-who-listens"),
        pytest.param(
            "sc.invalid:9003", "[^:;]*(not known|in name resolution)", id="given-an-unknown-host"
        ),
    ],
)
async def test_given_no_connection_to_the_leader_then_who_says_so_and_why(
    address: str, why: str
) -> None:
    with pytest.raises(NotReadyError, match=f"^SC b cannot reach .* leads, a: {why}; another"):
        await passed_on("POST", address)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
async def test_given_a_leader_that_is_killed_before_it_answers_then_a_write_is_unknown(
    method: str,
) -> None:
    asked = 0

    async def killed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        await reader.readline()
        server.close()
        writer.transport.abort()

    server = await asyncio.start_server(killed, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(
        DeadlineExceededError, match=r"^SC a, which SC b passed this on to, .* is not known"
    ):
        await passed_on(method, f"127.0.0.1:{port}")
    assert asked == 1


async def test_given_one_that_stands_still_then_the_next_is_asked_soon_and_it_is_left_alone(
    silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standby, "FRESHER_S", 0.1)
    monkeypatch.setattr(standby, "LOOK_S", 0.02)
    now_ms, asked = 0, list[str]()

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text="known")

    app = web.Application()
    app.router.add_get("/v1/topics", answer)
    async with TestServer(app) as fresh:
        running = {
            name: ControllerEntry(
                name=name, instance=name, public=public, private="", version="", since=""
            )
            for name, public in (("a", silent), ("b", "-"), ("c", f"127.0.0.1:{fresh.port}"))
        }
        mirror = SimpleNamespace(controllers=running, clock_ms=lambda: now_ms, stale_ms=11_000)
        proxy = LeaderProxy(cast(Mirror, mirror), "b", lambda: None)
        pass_on = proxy._pass_on

        async def noted(
            request: web.Request, other: ControllerEntry, within_s: float
        ) -> web.StreamResponse:
            asked.append(other.name)
            return await pass_on(request, other, within_s if other.name == "a" else 30.0)

        monkeypatch.setattr(proxy, "_pass_on", noted)
        for at_ms in (0, 4_999, 5_000):
            now_ms = at_ms
            async with asyncio.timeout(5):
                found = await proxy.fresher(make_mocked_request("GET", "/v1/topics"))
            assert found is not None
            assert found.status == 200
        assert asked == ["a", "c", "c", "a", "c"]
        await proxy.close()


async def test_given_one_that_stands_still_then_it_is_left_alone_while_the_next_is_asked(
    silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standby, "FRESHER_S", 0.1)
    monkeypatch.setattr(standby, "LOOK_S", 0.02)
    running = {
        name: ControllerEntry(
            name=name, instance=name, public=silent, private="", version="", since=""
        )
        for name in ("a", "c")
    }
    mirror = SimpleNamespace(controllers=running, clock_ms=lambda: 0, stale_ms=11_000)
    proxy = LeaderProxy(cast(Mirror, mirror), "b", lambda: None)
    request = make_mocked_request("GET", "/v1/topics")
    async with asyncio.timeout(5):
        asking = asyncio.create_task(proxy.fresher(request))
        await eventually(lambda: list(proxy._not_fresher) == ["a"])
        assert await proxy.fresher(request) is None
        assert await asking is None
        assert await proxy.fresher(request) is None
    await proxy.close()
