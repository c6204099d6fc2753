"""What the kernel is told about a connection, and what it tells."""

from __future__ import annotations

import asyncio
import socket
import sys
from contextlib import suppress
from typing import Any

import pytest
import uvloop

from schemas.wire.keepalive import (
    LISTENING,
    RTO_MAX_MS,
    SILENT,
    VANISHED,
    Patience,
    be_patient,
    give_up,
    keep_alive,
    listen,
    pace,
    unacknowledged,
    undelivered,
)
from schemas.wire.tcp_info import Unacknowledged

HOST = "127.0.0.1"


@pytest.mark.parametrize("patience", [VANISHED, SILENT, LISTENING])
def test_given_a_patience_then_the_kernel_has_it(patience: Patience) -> None:
    with socket.socket() as one:
        be_patient(one, patience)
        assert one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        if sys.platform == "linux":
            options = ("KEEPIDLE", "KEEPINTVL", "KEEPCNT", "USER_TIMEOUT")
            told = [
                one.getsockopt(socket.IPPROTO_TCP, getattr(socket, f"TCP_{name}"))
                for name in options
            ]
            assert told == [
                patience.idle_s,
                patience.interval_s,
                patience.probes,
                patience.unacknowledged_ms,
            ]


def test_given_a_kernel_that_can_then_pauses_are_bounded_until_the_ends_listen() -> None:
    with socket.socket() as one:
        try:
            before = one.getsockopt(socket.IPPROTO_TCP, RTO_MAX_MS)
        except OSError:
            pytest.skip("this kernel cannot")
        be_patient(one, VANISHED)
        assert one.getsockopt(socket.IPPROTO_TCP, RTO_MAX_MS) == VANISHED.pause_ms < before
        be_patient(one, LISTENING)
        assert one.getsockopt(socket.IPPROTO_TCP, RTO_MAX_MS) == before


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says it")
async def test_given_a_peer_that_reads_nothing_then_its_host_acknowledges_all_the_same() -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        transport, _ = await asyncio.get_running_loop().create_connection(
            asyncio.Protocol, HOST, port
        )
        transport.write(b"said")
        async with asyncio.timeout(5):
            while unacknowledged(transport) != Unacknowledged(0, 0):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        transport.abort()


def test_given_no_socket_then_nothing_is_known() -> None:
    assert unacknowledged(asyncio.BaseTransport()) is None
    assert pace(asyncio.BaseTransport()) is None


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says it")
async def test_given_loopback_then_answers_are_quick_and_silence_grows() -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        transport, _ = await asyncio.get_running_loop().create_connection(
            asyncio.Protocol, HOST, port
        )
        with server.accept()[0] as other:
            await asyncio.sleep(0.3)
            other.send(b"said")
            async with asyncio.timeout(5):
                while (found := pace(transport)) is None or found.silent_ms >= 300:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
            assert 0 < found.answer_ms < 1_000
            await asyncio.sleep(0.3)
            later = pace(transport)
            assert later is not None
            assert later.silent_ms >= 290
        transport.abort()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_given_a_connection_that_was_closed_then_nothing_is_known_or_told(run: Any) -> None:
    async def close() -> None:
        with socket.create_server((HOST, 0)) as server:
            port = server.getsockname()[1]
            transport, _ = await asyncio.get_running_loop().create_connection(
                asyncio.Protocol, HOST, port
            )
            transport.abort()
            await asyncio.sleep(0.01)
            assert pace(transport) is None
            assert unacknowledged(transport) is None
            keep_alive(transport)
            listen(transport)

    run(close())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says it")
async def test_given_bytes_that_nobody_acknowledges_then_they_are_counted_until_given_up() -> None:
    class Over:
        def __init__(self, under: socket.socket) -> None:
            self.under = under

        def get_extra_info(self, _name: str, _default: Any = None) -> Any:
            return self.under

    with socket.create_server((HOST, 0)) as server, socket.socket() as one:
        one.connect(server.getsockname())
        accepted, _ = server.accept()
        with accepted:
            assert undelivered(Over(one)) == 0
            one.setblocking(False)
            sent = 0
            with suppress(BlockingIOError):
                while True:
                    sent += one.send(bytes(1 << 16))
            await asyncio.sleep(0.3)
            left = undelivered(Over(one))
            assert left is not None
            assert 0 < left < sent, "the other kernel takes what it has room for"
            give_up(Over(one))
            told = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
            assert told == SILENT.unacknowledged_ms
    assert undelivered(Over(one)) is None
