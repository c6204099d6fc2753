"""Who waits at an HTTP port: bounded in number and time, and nobody who is served has to go."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from unittest import mock

import pytest
from aiohttp import web

from connection_manager import guarded_site
from connection_manager.guarded_site import (
    ConnectionGuard,
    ConnectionLimits,
    GuardedConnection,
    GuardedSite,
    serving,
)
from schemas.wire.keepalive import VANISHED
from tests.polling import eventually

HALF = b"GET / HTTP/1.1\r\nHost: x\r\n"
WHOLE = HALF + b"\r\n"
WIDE = ConnectionLimits(100, 100, 100, 0)


@dataclass
class Port:
    """A guarded port; a request for ``/held`` is served until `release` is set."""

    guard: ConnectionGuard
    number: int
    stack: AsyncExitStack
    release: asyncio.Event = field(default_factory=asyncio.Event)

    async def connect(
        self, data: bytes = b"", address: str = "127.0.0.1"
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        before = self.guard.opened
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.number, local_addr=(address, 0)
        )
        self.stack.callback(writer.close)
        writer.write(data)
        await eventually(lambda: self.guard.opened > before)
        return reader, writer


@asynccontextmanager
async def listening(limits: ConnectionLimits) -> AsyncIterator[Port]:
    async with AsyncExitStack() as stack:
        port = Port(ConnectionGuard(limits), 0, stack)

        async def quick(_request: web.Request) -> web.Response:
            return web.Response(text="here")

        async def held(_request: web.Request) -> web.Response:
            await port.release.wait()
            return web.Response(text="done")

        app = web.Application(middlewares=[serving])
        app.add_routes([web.get("/", quick), web.get("/held", held)])
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        stack.callback(port.release.set)
        await GuardedSite(runner, "127.0.0.1", 0, port.guard).start()
        port.number = runner.addresses[0][1]
        yield port


async def ended(reader: asyncio.StreamReader) -> bool:
    """Whether the server has ended a connection on which nothing was answered."""
    try:
        async with asyncio.timeout(5):
            return await reader.read(1) == b""
    except ConnectionError:
        return True


async def answered(reader: asyncio.StreamReader) -> bool:
    async with asyncio.timeout(5):
        return (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")


async def is_open(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(0.05):
            return await reader.read(1) != b""
    except TimeoutError:
        return True


@pytest.mark.parametrize("data", [b"", HALF], ids=["given-silence", "given-half-a-head"])
async def test_given_no_whole_head_then_ended_in_time(data: bytes) -> None:
    with mock.patch.object(guarded_site, "HEADER_TIMEOUT_S", 0.1):
        async with listening(WIDE) as port:
            reader, writer = await port.connect(data)
            assert await ended(reader)
            await eventually(lambda: len(port.guard) == 0)
            writer.close()


async def test_given_half_of_the_next_head_then_ended_in_time() -> None:
    with mock.patch.object(guarded_site, "HEADER_TIMEOUT_S", 0.2):
        async with listening(WIDE) as port:
            reader, writer = await port.connect(WHOLE)
            assert await answered(reader)
            await reader.readuntil(b"here")
            # Between two requests there is more time.
            await asyncio.sleep(0.3)
            writer.write(HALF)
            assert await ended(reader)


async def test_given_a_connection_then_the_kernel_asks_whether_its_peer_is_there() -> None:
    async with listening(WIDE) as port:
        await port.connect()
        (connection,) = port.guard._open
        assert connection._transport is not None
        found = connection._transport.get_extra_info("socket")
        assert found.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        if sys.platform == "linux":
            assert found.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == VANISHED.idle_s


@pytest.mark.skipif(sys.platform != "linux", reason="one loopback address elsewhere")
@pytest.mark.parametrize(
    "limits",
    [
        pytest.param(ConnectionLimits(100, 4, 100, 0), id="given-many-that-wait"),
        pytest.param(ConnectionLimits(4, 100, 100, 0), id="given-many-connections"),
    ],
)
async def test_given_a_flood_from_one_address_then_it_ends_itself(
    limits: ConnectionLimits,
) -> None:
    async with listening(limits) as port:
        oldest, writer = await port.connect(address="127.0.0.2")
        flood = [await port.connect() for _ in range(10)]
        assert await ended(flood[0][0])
        assert await is_open(oldest)
        writer.write(WHOLE)
        assert await answered(oldest)


async def test_given_no_next_request_then_ended_in_time() -> None:
    with mock.patch.object(guarded_site, "IDLE_TIMEOUT_S", 0.2):
        async with listening(WIDE) as port:
            reader, _writer = await port.connect(WHOLE)
            await reader.readuntil(b"here")
            assert await ended(reader)


async def test_given_a_long_answer_then_not_ended_meanwhile() -> None:
    with mock.patch.object(guarded_site, "HEADER_TIMEOUT_S", 0.1):
        async with listening(WIDE) as port:
            reader, _writer = await port.connect(WHOLE.replace(b"/ ", b"/held "))
            await asyncio.sleep(0.3)
            port.release.set()
            assert await answered(reader)


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param(ConnectionLimits(100, 3, 100, 0), id="given-many-that-wait"),
        pytest.param(ConnectionLimits(100, 100, 3, 0), id="given-many-of-an-address"),
        pytest.param(ConnectionLimits(4, 100, 100, 0), id="given-many-connections"),
    ],
)
async def test_given_no_room_then_the_one_that_waited_longest_goes(
    limits: ConnectionLimits,
) -> None:
    async with listening(limits) as port:
        served, _ = await port.connect(WHOLE.replace(b"/ ", b"/held "))
        await eventually(lambda: port.guard.waiting == 0)
        waiting = [(await port.connect(HALF))[0] for _ in range(3)]
        assert [await is_open(reader) for reader in waiting] == [True] * 3
        newest, _ = await port.connect(WHOLE)
        assert await answered(newest)
        assert [await is_open(reader) for reader in waiting] == [False, True, True]
        port.release.set()
        assert await answered(served)


async def test_given_only_served_ones_then_a_new_one_is_refused() -> None:
    async with listening(ConnectionLimits(2, 100, 100, 0)) as port:
        served = [(await port.connect(WHOLE.replace(b"/ ", b"/held ")))[0] for _ in range(2)]
        await eventually(lambda: port.guard.waiting == 0)
        refused, _ = await port.connect()
        assert await ended(refused)
        port.release.set()
        assert [await answered(reader) for reader in served] == [True, True]


async def test_given_few_descriptors_then_they_are_left_to_others() -> None:
    """Idle connections leave descriptors for whoever needs one in this process."""
    async with listening(ConnectionLimits(1000, 1000, 1000, 20)) as port:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        oldest, _ = await port.connect()
        for number in unused_below_the_highest():
            port.stack.callback(os.close, number)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit := next_descriptor() + 60, hard))
        try:
            # The peer's end of each connection is in this process, too.
            for _ in range(40):
                await port.connect(HALF)
            # Those that were given up are closed a moment later.
            await eventually(lambda: next_descriptor() <= limit - 15)
            newest, _ = await port.connect(WHOLE)
            assert await answered(newest)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert not await is_open(oldest)


def scarce(waiting: list[str]) -> tuple[ConnectionGuard, list[GuardedConnection], int]:
    """A guard that leaves 20 descriptors to others, with connections that wait, and the number of
    descriptors that the process may have."""
    guard = ConnectionGuard(ConnectionLimits(1000, 1000, 1000, 20))
    found = [connection_from(guard, address) for address in waiting]
    assert all(guard.admits(connection, 5) for connection in found)
    return guard, found, resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def connection_from(guard: ConnectionGuard, address: str) -> GuardedConnection:
    connection = GuardedConnection(guard, asyncio.Protocol())
    connection.address = address
    return connection


async def test_given_few_descriptors_then_two_of_the_flood_go_for_one_of_it() -> None:
    guard, (monitor, *flood), allowed = scarce(["monitor", *(["flood"] * 4)])
    assert guard.admits(newest := connection_from(guard, "flood"), allowed - 20)
    assert guard._open == {monitor, *flood[2:], newest}
    # A monitor that waits alone stays, and another one gets in.
    assert guard.admits(other := connection_from(guard, "other"), allowed - 20)
    assert guard._open == {monitor, newest, other}
    assert guard.admits(one := connection_from(guard, "flood"), allowed - 20)
    assert guard._open == {monitor, other, one}


@pytest.mark.parametrize(("left", "admitted"), [(20, True), (11, True), (10, False), (1, False)])
async def test_given_descriptors_that_others_took_then_refused_only_near_the_end(
    left: int, admitted: bool
) -> None:
    guard, _, allowed = scarce([])
    assert guard.admits(connection_from(guard, "monitor"), allowed - left) == admitted


async def test_given_hardly_any_descriptors_then_even_one_alone_makes_room() -> None:
    guard, (first,), allowed = scarce(["flood"])
    assert guard.admits(newest := connection_from(guard, "monitor"), allowed - 1)
    assert guard._open == {newest}
    assert first not in guard._open


def next_descriptor() -> int:
    """The number that the next file or socket gets."""
    os.close(number := os.dup(0))
    return number


def unused_below_the_highest() -> list[int]:
    """Descriptors that this opens so that every number up to the highest one is in use: those that
    earlier tests left open would otherwise count against the limit, wherever they lie."""
    highest = max(int(name) for name in os.listdir("/dev/fd"))
    opened = []
    while next_descriptor() < highest:
        opened.append(os.dup(0))
    return opened
