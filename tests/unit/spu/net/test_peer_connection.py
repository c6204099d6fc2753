"""One connection between SPUs: what it carries, and when silence ends it."""

from __future__ import annotations

import asyncio
import socket
import threading
import time

import pytest
import uvloop

from schemas.errors import ErrorCode, UnreachableError
from schemas.ids import PartitionUid
from schemas.wire.batch import set_offset_and_term
from schemas.wire.protocol import MAX_FIRST_FRAME_BYTES, PREFIX, pack_frame
from schemas.wire.tcp_info import Pace
from spu.net.peer_connection import MOST_MORE_PINGS, SILENT_PINGS
from spu.net.peers import Peers
from spu.replication.messages import Append, AppendAck, Batch, Message
from spu.replication.wire import Damaged, Greeting, Kind, decode, encode
from tests.unit.spu.builders import CLUSTER, TERM, UID, batch_of, until
from tests.unit.spu.net.spus import HOST, Handler, Spu, close


async def test_what_is_known_of_a_line(zero: Spu) -> None:
    raw = await zero.greeted(1)
    await until(lambda: zero.handler.news == [("up", 1)])
    connection = zero.peers.connection(1)
    assert connection is not None
    line = connection.line()
    assert (line["waiting_bytes"], line["waiting_pushes"]) == (0, 0)
    assert line.get("retransmissions", 0) == 0
    raw.close()
    await until(lambda: connection.line() == {})


async def test_given_a_handle_that_is_closed_without_a_word_then_the_connection_is_over(
    zero: Spu, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = await zero.greeted(1)
    await until(lambda: zero.handler.news == [("up", 1)])
    connection = zero.peers.connection(1)
    assert connection is not None

    class Closed:
        """As uvloop's transport then."""

        def is_closing(self) -> bool:
            return False

        def writelines(self, _frame: object) -> None:
            raise RuntimeError("the handler is closed")

        write = writelines

        def close(self) -> None:
            pass

        abort = close

    real = connection._transport
    monkeypatch.setattr(connection, "_transport", Closed())
    connection.end(UnreachableError("no greeting came"))
    await until(lambda: zero.handler.news == [("up", 1), ("down", 1)])
    assert not connection.usable
    assert real is not None
    real.close()
    await raw.ended()


async def test_given_silence_then_the_connection_is_given_up(
    zero: Spu, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So silent is a process that is stopped: its kernel acknowledges all that it is sent.
    monkeypatch.setattr("spu.net.peer_connection.PING_EVERY_S", 0.001)
    raw = await zero.greeted(1)
    await until(lambda: zero.handler.news == [("up", 1), ("down", 1)])
    await raw.ended()


async def test_given_silence_on_a_line_that_was_slow_then_patience_has_an_end(
    zero: Spu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spu.net.peer_connection.PING_EVERY_S", 0.001)
    monkeypatch.setattr("spu.net.peer_connection.pace", lambda _: Pace(60_000.0, 0))
    raw = await zero.greeted(1)
    for _ in range(SILENT_PINGS + MOST_MORE_PINGS):
        kind, _, _, _ = await raw.receive()
        assert kind == Kind.PING
    with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
        await raw.receive()
    await until(lambda: zero.handler.news == [("up", 1), ("down", 1)])


async def test_given_pings_and_nothing_else_then_the_connection_is_kept(
    zero: Spu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spu.net.peer_connection.PING_EVERY_S", 0.005)
    monkeypatch.setattr("spu.net.peer_connection.SILENT_PINGS", 20)
    raw = await zero.greeted(1)
    for _ in range(30):
        kind, _, _, _ = await raw.receive()
        assert kind == Kind.PING
        await raw.send(pack_frame(Kind.PING, 0, b""))
    assert zero.handler.news == [("up", 1)]


def test_given_we_stood_still_ourselves_then_the_peer_is_not_blamed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("spu.net.peer_connection.PING_EVERY_S", 0.02)
    monkeypatch.setattr("spu.net.peer_connection.SILENT_PINGS", 10)
    ping = b"".join(pack_frame(Kind.PING, 0, b""))
    message = b"".join(encode(UID, AppendAck(TERM, 1, 5, 5)))
    over = threading.Event()

    def speak(port: int) -> None:
        """Say something all the time, and three times what its receiver stands still for."""
        with socket.create_connection((HOST, port)) as connection:
            connection.sendall(b"".join(Greeting(1, 0, CLUSTER).frame()))
            for number in range(1_000_000):
                if over.wait(0.002):
                    return
                connection.sendall(message if number in {20, 40, 60} else ping)

    class Slow(Handler):
        def peer_said(self, peer: int, uid: PartitionUid, message: Message | Damaged) -> None:
            time.sleep(0.3)
            super().peer_said(peer, uid, message)

    async def stand_still() -> list[tuple[str, int]]:
        handler = Slow()
        zero = Spu(Peers(0, handler), handler)
        speaker = threading.Thread(target=speak, args=(await zero.peers.listen(HOST, 0),))
        speaker.start()
        try:
            await until(lambda: len(handler.said) == 3)
            await asyncio.sleep(0.02)
            return list(handler.news)
        finally:
            over.set()
            await close(zero)
            speaker.join()

    # After it has read, this loop looks at its timers before it reads again.
    assert uvloop.run(stand_still()) == [("up", 1)]


async def test_given_a_corrupt_batch_then_it_is_answered_and_the_connection_stays(
    zero: Spu,
) -> None:
    # Ending it would take all other partitions of the two SPUs along.
    raw = await zero.greeted(1)
    batch = batch_of()
    set_offset_and_term(batch, 0, TERM)
    whole = bytes(batch)
    flipped = bytearray(whole)
    flipped[-1] ^= 1
    boot = "00" * 8
    broken = Append(TERM, 4, boot, (Batch(0, 1, TERM, bytes(flipped)),), -1, 0)
    sound = Append(TERM, 4, boot, (Batch(0, 1, TERM, whole),), -1, 0)
    await raw.send(encode(UID, broken), encode(UID, sound))
    kind, status, fixed, tail = await raw.receive()
    assert status == ErrorCode.OK
    assert decode(kind, fixed, tail) == (UID, Damaged(TERM, 4))
    await until(lambda: bool(zero.handler.said))
    ((peer, uid, message),) = zero.handler.said
    assert (peer, uid) == (1, UID)
    assert isinstance(message, Append)
    assert bytes(message.batches[0].data) == whole
    assert zero.handler.news == [("up", 1)]


async def test_given_an_end_that_takes_nothing_then_pushes_wait_in_order(zero: Spu) -> None:
    await zero.greeted(1)
    connection = zero.peers.connection(1)
    assert connection is not None
    pushed: list[int] = []
    connection.pause_writing()
    connection.push(lambda: pushed.append(1))
    connection.push(lambda: pushed.append(2))
    assert pushed == []
    connection.resume_writing()
    connection.push(lambda: pushed.append(3))
    assert pushed == [1, 2, 3]


async def test_given_a_long_first_frame_then_refused_before_anything_of_it_comes(
    zero: Spu,
) -> None:
    raw = await zero.dial([PREFIX.pack(MAX_FIRST_FRAME_BYTES + 1)])
    _, status, _, reason = await raw.receive()
    assert status == ErrorCode.PROTOCOL
    assert b"more than the 4096 allowed" in bytes(reason)
    await raw.ended()


async def test_given_a_long_line_then_silence_may_last_longer_and_is_not_the_kernels_affair(
    zero: Spu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spu.net.peer_connection.PING_EVERY_S", 0.001)
    # As many intervals more as a test waits at most, and then none.
    paces = [Pace(2_000.0, 0)] * 10
    monkeypatch.setattr(
        "spu.net.peer_connection.pace", lambda _: paces.pop() if paces else Pace(0.1, 0)
    )
    await zero.greeted(1)
    connection = zero.peers.connection(1)
    assert connection is not None
    assert connection._transport is not None
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        found = connection._transport.get_extra_info("socket")
        assert found.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 0
    await until(lambda: zero.handler.news == [("up", 1), ("down", 1)])
    assert not paces
