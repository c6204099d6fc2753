"""What a standby answers when the SC that leads stands still while it is asked."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import cast

import pytest
from aiohttp.test_utils import make_mocked_request

from sc.api import standby
from sc.api.standby import LeaderProxy
from sc.mirror import Mirror
from schemas.control.controllers import ControllerEntry
from schemas.errors import DeadlineExceededError, NotReadyError, RunnelError
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
        with pytest.raises(NotReadyError, match="waits for 2 answers") as raised:
            await proxy.forward(request)
        assert "retryAfterMs" in raised.value.details
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
    with silent_port() as port, pytest.raises(NotReadyError, match="cannot be reached from this"):
        await passed_on(method, f"127.0.0.1:{port}")


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
    with pytest.raises(DeadlineExceededError, match="whether a write was done is not known"):
        await passed_on(method, f"127.0.0.1:{port}")
    assert asked == 1
