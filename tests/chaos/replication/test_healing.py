"""Networks that are cut in silence and heal, and SPUs that are all killed: records are acknowledged
again, and connections that carry nothing are given up.

Needs Linux and the right to make network namespaces.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from benchmarks.hosts import Network, network
from runnel.admin.http import ScClient
from runnel.net.address import Address
from runnel.net.connection import open_connection
from schemas.errors import UnreachableError
from schemas.wire.protocol import (
    MAX_FRAME_BYTES,
    PREFIX,
    PROTOCOL_VERSION,
    Api,
    HelloResponse,
    pack_frame,
    unpack_frame,
)
from schemas.wire.record_requests import LATEST, ListOffsetsRequest

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(1800)]

#: The benchmark has four more: a long cut, a ring, a second kill, clients cut off alone.
HERE = ("leader", "one-way", "all", "clients")
PORT = 9005
LIST = ListOffsetsRequest("3f1c1a52-0000-4000-8000-0000000000aa", LATEST).pack()  # type: ignore[arg-type]


@dataclass
class Hosts:
    """A client and a server, each in a thread on a host of its own."""

    wires: Network
    threads: dict[str, ThreadPoolExecutor]

    def run(self, host: str, work: Callable[[], Awaitable[Any]]) -> Future[Any]:
        """Run a coroutine on a host."""

        def there() -> Any:
            self.wires.enter(host)
            return asyncio.run(_awaited(work))

        return self.threads[host].submit(there)

    def cut(self) -> None:
        self.wires.cut("client", "server")
        self.wires.cut("server", "client")

    def heal(self) -> None:
        self.wires.heal("client", "server")
        self.wires.heal("server", "client")


async def _awaited(work: Callable[[], Awaitable[Any]]) -> Any:
    return await work()


@pytest.fixture
def wires() -> Iterator[Network]:
    with ExitStack() as stack:
        try:
            made = stack.enter_context(network())
        except RuntimeError as error:
            pytest.skip(str(error))
        yield made


@pytest.fixture
def hosts(wires: Network) -> Iterator[Hosts]:
    with ThreadPoolExecutor(1) as client, ThreadPoolExecutor(1) as server:
        for host in ("client", "server"):
            wires.add(host)
        yield Hosts(wires, {"client": client, "server": server})


class SilentServer:
    """Greets a client, and answers nothing after that; with ``reads`` it reads on."""

    def __init__(self, host: str) -> None:
        self.reads = True
        self.address = Address(host, PORT)
        self._over = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        server = await asyncio.start_server(self._swallow, self.address.host, PORT)
        await self._over.wait()
        server.close()

    def stop(self) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._over.set)

    async def _swallow(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            prefix = await reader.readexactly(PREFIX.size)
            if prefix != b"GET ":
                frame = memoryview(await reader.readexactly(PREFIX.unpack(prefix)[0]))
                header, _, _ = unpack_frame(frame)
                answer = HelloResponse(PROTOCOL_VERSION, 0, MAX_FRAME_BYTES).pack()
                writer.writelines(pack_frame(header.api, header.correlation, answer))
            while self.reads and await reader.read(1 << 16):
                pass
            await self._over.wait()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()


@pytest.fixture
def silent(hosts: Hosts) -> Iterator[SilentServer]:
    silent = SilentServer(hosts.wires.address("server"))
    running = hosts.run("server", silent.serve)
    yield silent
    silent.stop()
    running.result(30)


@pytest.fixture
def server(silent: SilentServer) -> Address:
    return silent.address


def test_given_a_cut_then_a_client_gives_up_its_connection_and_not_its_patience(
    hosts: Hosts, server: Address
) -> None:
    async def call() -> str:
        connection = await _opened(server)
        pending = await connection.start(Api.LIST_OFFSETS, LIST, timeout_s=60)
        # An SPU that answers nothing is no reason yet: its host is there.
        await asyncio.sleep(4)
        assert not pending.done()
        hosts.cut()
        try:
            with pytest.raises(UnreachableError) as failed:
                await pending
        finally:
            hosts.heal()
        await (await _opened(server)).close()
        await connection.close()
        return failed.value.message

    assert "network" in hosts.run("client", call).result(120)


def test_given_an_spu_that_reads_nothing_then_its_connection_is_kept(
    hosts: Hosts, silent: SilentServer, server: Address
) -> None:
    silent.reads = False

    async def call() -> bool:
        connection = await _opened(server)
        call = connection.request(Api.PRODUCE, b"", bytes(8 << 20), timeout_s=60)
        pending = asyncio.ensure_future(call)
        await asyncio.sleep(8)
        kept = connection.usable and not pending.done()
        await connection.close()
        with pytest.raises(UnreachableError):
            await pending
        return kept

    assert hosts.run("client", call).result(60)


def test_given_a_cut_then_a_call_of_the_sc_fails_long_before_its_deadline(
    hosts: Hosts, server: Address
) -> None:
    async def call() -> None:
        await (await _opened(server)).close()
        sc = ScClient((server,))
        pending = asyncio.ensure_future(sc.call("GET", "/v1/topics"))
        await asyncio.sleep(1)
        hosts.cut()
        try:
            async with asyncio.timeout(25):
                with pytest.raises(UnreachableError):
                    await pending
        finally:
            hosts.heal()
            await sc.close()

    hosts.run("client", call).result(120)


async def _opened(server: Address) -> Any:
    """A connection, once the server listens."""
    while True:
        try:
            return await open_connection(server, 5)
        except UnreachableError:
            await asyncio.sleep(0.05)


@pytest.mark.usefixtures("wires")
def test_after_each_failure_records_are_acknowledged_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = [sys.executable, "-m", "benchmarks.healing", "--rounds", "1", "--json"]
    command += ["--cases", ",".join(HERE)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=1_500, check=False)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)["this build"]
    assert set(found) == set(HERE)
    with capsys.disabled():
        after = ", ".join(f"{case} {numbers['after_s']:.1f}" for case, numbers in found.items())
        print(f"\ns from the end of a failure to the first acknowledgement: {after}")
    assert all(numbers["after_s"] < 60 for numbers in found.values())
