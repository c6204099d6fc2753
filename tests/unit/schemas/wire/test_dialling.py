"""Connecting in short attempts."""

from __future__ import annotations

import asyncio
import socket

import pytest

from schemas.wire import dialling
from schemas.wire.dialling import dial
from tests.silent_port import silent_port

HOST = "127.0.0.1"
AddressInfo = tuple[int, int, int, str, tuple[str, int]]


async def test_given_nobody_answers_then_the_attempt_ends_soon() -> None:
    with silent_port() as port:
        async with asyncio.timeout(5):
            with pytest.raises(TimeoutError):
                await dial(asyncio.Protocol, HOST, port, 0.05)


async def test_given_nobody_listens_then_the_error_says_so() -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(ConnectionRefusedError):
        await dial(asyncio.Protocol, HOST, port)


async def test_given_a_silent_address_then_the_next_one_is_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Dialled(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport

    class Accepting(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            transport.close()

    loop = asyncio.get_running_loop()
    listening = await loop.create_server(Accepting, HOST, 0)
    port = listening.sockets[0].getsockname()[1]
    tried: list[str] = []
    connect = loop.create_connection

    async def resolved(*_: object, **__: object) -> list[AddressInfo]:
        info = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
        return [(*info, ("192.0.2.1", port)), (*info, (HOST, port))]

    async def connecting(protocol: object, host: str, *given: object, **named: object) -> object:
        tried.append(host)
        if host == "192.0.2.1":
            await asyncio.sleep(60)
        return await connect(protocol, host, *given, **named)  # type: ignore[call-overload]

    monkeypatch.setattr(loop, "getaddrinfo", resolved)
    monkeypatch.setattr(loop, "create_connection", connecting)
    (await dial(Dialled, "named", port, 0.05)).transport.close()
    assert tried == ["192.0.2.1", HOST]
    listening.close()
    # Both ends close at the next turns of the loop.
    await asyncio.sleep(0.01)


async def test_given_a_name_that_is_slow_to_resolve_then_only_that_may_take_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()

    async def never(*_: object, **__: object) -> list[AddressInfo]:
        await asyncio.sleep(60)
        raise AssertionError("it waited too long")

    monkeypatch.setattr(loop, "getaddrinfo", never)
    monkeypatch.setattr(dialling, "RESOLVE_S", 0.02)
    with pytest.raises(TimeoutError):
        await dial(asyncio.Protocol, "named", 1, 60)
