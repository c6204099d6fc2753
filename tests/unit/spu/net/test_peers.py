"""Connections between SPUs: who is let in, which one counts, and when one is given up."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field, replace
from functools import partial

import pytest
import uvloop
from structlog.testing import capture_logs

from schemas.backoff import Backoff
from schemas.control.messages import Peer
from schemas.control.proof import PeerEnd, peer_proof
from schemas.errors import ErrorCode, UnreachableError
from schemas.ids import PartitionUid
from schemas.wire.batch import set_offset_and_term
from schemas.wire.protocol import MAX_FIRST_FRAME_BYTES, PREFIX, pack_frame, unpack_frame
from schemas.wire.tcp_info import Pace
from spu.net import peers as peers_module
from spu.net.peer_connection import MOST_MORE_PINGS, SILENT_PINGS, PeerConnection
from spu.net.peers import Peers
from spu.replication.messages import Append, AppendAck, Attach, Batch, Message
from spu.replication.wire import NONCE_BYTES, Damaged, Greeting, Kind, decode, encode
from tests.unit.spu.builders import CLUSTER, DEADLINE_S, TERM, UID, batch_of, until

HOST = "127.0.0.1"


@dataclass
class Handler:
    """Keeps what it is told."""

    cluster_uid: str | None = CLUSTER
    news: list[tuple[str, int]] = field(default_factory=list)
    said: list[tuple[int, PartitionUid, Message | Damaged]] = field(default_factory=list)
    sought: list[int] = field(default_factory=list)

    def peer_up(self, peer: int) -> None:
        self.news.append(("up", peer))

    def peer_down(self, peer: int) -> None:
        self.news.append(("down", peer))

    def peer_said(self, peer: int, uid: PartitionUid, message: Message | Damaged) -> None:
        self.said.append((peer, uid, message))

    def find_peers(self, spu_ids: Iterable[int]) -> None:
        self.sought.extend(spu_ids)


@dataclass
class Raw:
    """The other end of a connection, frame by frame."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, *frames: list[bytes | bytearray | memoryview]) -> None:
        for frame in frames:
            self.writer.write(b"".join(frame))
        await self.writer.drain()

    async def receive(self) -> tuple[int, int, memoryview, memoryview]:
        """Kind, status, fixed part and tail of the next frame."""
        async with asyncio.timeout(DEADLINE_S):
            (length,) = PREFIX.unpack(await self.reader.readexactly(PREFIX.size))
            frame = memoryview(await self.reader.readexactly(length))
        header, fixed, tail = unpack_frame(frame)
        return header.api, header.status, fixed, tail

    async def ended(self) -> None:
        """Read on until the connection is closed, in whichever way."""
        async with asyncio.timeout(DEADLINE_S):
            try:
                await self.reader.read()
            except ConnectionResetError:
                return

    def close(self) -> None:
        self.writer.transport.abort()


@dataclass
class Spu:
    """Peers with their handler, the port that they listen at, and raw ends to be closed."""

    peers: Peers
    handler: Handler
    port: int = 0
    raw: list[Raw] = field(default_factory=list)

    async def dial(self, *frames: list[bytes | bytearray | memoryview]) -> Raw:
        """A connection to it that nobody but the test speaks on."""
        raw = Raw(*await asyncio.open_connection(HOST, self.port))
        self.raw.append(raw)
        await raw.send(*frames)
        return raw

    async def greeted(self, spu: int) -> Raw:
        """A connection of another SPU that was let in."""
        raw = await self.dial(Greeting(spu, self.peers.spu_id, CLUSTER).frame())
        kind, status, _, _ = await raw.receive()
        assert (kind, status) == (Kind.GREETING, ErrorCode.OK)
        return raw

    def knows(self, peer: int, port: int, host: str = HOST, key: str | None = None) -> None:
        self.peers.found((Peer(spu_id=peer, host=host, port=port, key=key),))


async def listening(spu_id: int) -> Spu:
    handler = Handler()
    spu = Spu(Peers(spu_id, handler), handler)
    spu.port = await spu.peers.listen(HOST, 0)
    return spu


async def close(spu: Spu) -> None:
    for raw in spu.raw:
        raw.close()
    await spu.peers.close()


@pytest.fixture
async def zero() -> AsyncIterator[Spu]:
    spu = await listening(0)
    yield spu
    await close(spu)


@pytest.fixture
async def one() -> AsyncIterator[Spu]:
    spu = await listening(1)
    yield spu
    await close(spu)


def greeting(spu: int = 1, to: int = 0, cluster: str = CLUSTER, version: int = 1) -> Greeting:
    return Greeting(spu, to, cluster, version, version)


@pytest.mark.parametrize(
    ("first", "code"),
    [
        pytest.param(
            greeting(cluster="another").frame(),
            ErrorCode.UNAUTHORIZED,
            id="given-another-cluster-then-refused",
        ),
        pytest.param(
            greeting(cluster="").frame(),
            ErrorCode.UNAUTHORIZED,
            id="given-no-cluster-then-refused",
        ),
        pytest.param(
            greeting(to=5).frame(),
            ErrorCode.PROTOCOL,
            id="given-who-wants-somebody-else-then-refused",
        ),
        pytest.param(
            greeting(spu=0).frame(), ErrorCode.PROTOCOL, id="given-our-own-id-then-refused"
        ),
        pytest.param(
            greeting(version=2).frame(), ErrorCode.PROTOCOL, id="given-a-later-version-then-refused"
        ),
        pytest.param(
            pack_frame(Kind.PING, 0, b""), ErrorCode.PROTOCOL, id="given-no-greeting-then-refused"
        ),
    ],
)
async def test_who_is_refused(
    zero: Spu, first: list[bytes | bytearray | memoryview], code: ErrorCode
) -> None:
    raw = await zero.dial(first)
    _, status, _, reason = await raw.receive()
    assert status == code
    assert len(reason) > 0
    await raw.ended()
    assert zero.handler.news == []


async def test_given_no_cluster_of_our_own_then_nobody_is_let_in(zero: Spu) -> None:
    zero.handler.cluster_uid = None
    # Two that know no cluster must not believe that it is the same one.
    raw = await zero.dial(greeting(cluster="").frame())
    _, status, _, _ = await raw.receive()
    assert status == ErrorCode.UNAUTHORIZED
    assert zero.handler.news == []


async def test_given_two_then_the_higher_id_dials_and_both_are_told(zero: Spu, one: Spu) -> None:
    zero.knows(1, one.port)
    zero.peers.keep((0, 1))
    one.knows(0, zero.port)
    one.peers.keep((0, 1))
    await until(lambda: bool(zero.handler.news and one.handler.news))
    assert zero.handler.news == [("up", 1)]
    assert one.handler.news == [("up", 0)]
    connection = zero.peers.connection(1)
    assert connection is not None
    connection.send(UID, Attach(TERM, 3))
    await until(lambda: bool(one.handler.said))
    assert one.handler.said == [(0, UID, Attach(TERM, 3))]
    await one.peers.close()
    await until(lambda: zero.handler.news == [("up", 1), ("down", 1)])


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


async def test_given_another_spu_at_the_address_then_it_is_not_taken_for_the_one(one: Spu) -> None:
    ends: list[Raw] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends.append(Raw(reader, writer))
        await ends[-1].send(Greeting(7, 1, CLUSTER).frame())

    server = await asyncio.start_server(answer, HOST, 0)
    one.knows(0, server.sockets[0].getsockname()[1])
    one.peers.keep((0,))
    # The SC is asked for a better address.
    await until(lambda: one.handler.sought == [0])
    assert one.handler.news == []
    assert one.peers.connection(0) is None
    await one.peers.close()
    server.close()
    for end in ends:
        end.close()


async def test_given_a_newer_connection_then_the_late_end_of_the_old_one_changes_nothing(
    zero: Spu,
) -> None:
    old = await zero.greeted(1)
    before = zero.peers.connection(1)
    new = await zero.greeted(1)
    after = zero.peers.connection(1)
    replaced = [("up", 1), ("down", 1), ("up", 1)]
    assert zero.handler.news == replaced
    assert before is not after is not None
    # Its own close comes later than the newer connection.
    await old.ended()
    assert before is not None
    await until(lambda: not before.usable)
    assert zero.handler.news == replaced
    assert zero.peers.connection(1) is after
    await new.send(encode(UID, AppendAck(TERM, 1, 5, 5)))
    await until(lambda: zero.handler.said == [(1, UID, AppendAck(TERM, 1, 5, 5))])


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
    await raw.ended()
    assert zero.handler.news == [("up", 1), ("down", 1)]


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


def test_given_attempts_that_fail_then_nothing_is_kept_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("spu.net.peers.RETRY_CAP_MS", 1.0)
    with socket.create_server((HOST, 0)) as listening_once:
        port = listening_once.getsockname()[1]

    async def fail_often() -> int:
        one = await listening(1)
        one.knows(0, port)
        one.peers.keep((0,))
        await until(lambda: len(one.handler.sought) > 20)
        kept = sum(isinstance(found, PeerConnection) for found in gc.get_objects())
        await close(one)
        return kept

    # This loop makes the protocol of a connection before there is one.
    assert uvloop.run(fail_often()) <= 2


async def test_given_an_unknown_address_then_it_is_asked_for_until_it_is_told(
    zero: Spu, one: Spu, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is asked may get lost on its way to the SC.
    monkeypatch.setattr("spu.net.peers.FIND_AGAIN_S", 0.001)
    one.peers.keep((0,))
    await until(lambda: one.handler.sought[:3] == [0, 0, 0])
    one.knows(0, zero.port)
    await until(lambda: one.handler.news == [("up", 0)])


@pytest.mark.parametrize(
    ("host", "port"),
    [
        pytest.param(HOST, 1, id="given-nobody-there-then-asked-again"),
        # These are refused by the encoder of names and by the socket, not by the network.
        pytest.param("spu..example", 9000, id="given-a-name-that-is-none-then-asked-again"),
        pytest.param(HOST, 1 << 20, id="given-a-port-that-is-none-then-asked-again"),
    ],
)
async def test_an_address_that_fails(zero: Spu, one: Spu, host: str, port: int) -> None:
    one.knows(0, port, host)
    one.peers.keep((0,))
    await until(lambda: one.handler.sought[:1] == [0])
    assert one.handler.news == []
    one.knows(0, zero.port)
    await until(lambda: one.handler.news == [("up", 0)])


@pytest.mark.parametrize(
    ("host", "port", "reason"),
    [
        (HOST, 1, "connection refused"),
        ("spu..example", 9000, "label empty"),
        (HOST, 1 << 20, "port must be 0-65535"),
    ],
)
async def test_given_a_peer_that_is_not_reached_for_a_while_then_it_says_where_and_why(
    zero: Spu, one: Spu, monkeypatch: pytest.MonkeyPatch, host: str, port: int, reason: str
) -> None:
    monkeypatch.setattr(peers_module, "UNREACHABLE_S", 0.3)
    one.knows(0, port, host)
    one.peers.keep((0,))
    await until(lambda: len(one.handler.sought) > 1)
    before = list(one.peers.unreachable)
    assert before == [], "it may only be starting"
    await until(lambda: len(one.peers.unreachable) == 1)
    found = one.peers.unreachable[0]
    assert (found.spu_id, found.host, found.port) == (0, host, port)
    assert reason in found.reason
    one.knows(0, zero.port)
    await until(lambda: one.peers.unreachable == ())


async def test_given_an_address_where_another_spu_answers_then_that_is_the_reason(
    zero: Spu, one: Spu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own, for example, where `localhost` stands for the other machine."""
    monkeypatch.setattr(peers_module, "UNREACHABLE_S", 0.0)
    one.knows(0, one.port)
    one.peers.keep((0,))
    await until(lambda: len(one.peers.unreachable) == 1)
    found = one.peers.unreachable[0]
    assert "privateEndpoint" in found.reason


async def test_given_a_peer_that_is_not_wanted_any_more_then_it_is_not_unreachable(
    one: Spu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers_module, "UNREACHABLE_S", 0.0)
    one.knows(0, 1)
    one.peers.keep((0,))
    await until(lambda: len(one.peers.unreachable) == 1)
    one.peers.keep(())
    assert one.peers.unreachable == ()


def test_given_reasons_that_change_with_each_attempt_then_the_first_one_stays_a_while() -> None:
    async def attempts() -> list[str]:
        peers = Peers(1, Handler())
        peers.wanted = frozenset({0})
        there, seen = Peer(spu_id=0, host=HOST, port=1), list[str]()
        for number in range(100):
            peers._note_failure(there, f"reason {number}")
            seen.append(peers._failures[0].peer.reason)
        peers._note_failure(Peer(spu_id=0, host=HOST, port=2), "elsewhere")
        return [*seen, peers._failures[0].peer.reason]

    assert asyncio.run(attempts()) == ["reason 0"] * 100 + ["elsewhere"]


async def test_given_connections_that_are_lost_at_once_then_the_pauses_between_them_grow(
    one: Spu, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[int] = []

    def next_ms(backoff: Backoff) -> float:
        pauses.append(backoff.attempts)
        backoff.attempts += 1
        return 0.0

    async def greet_and_leave(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.writelines(Greeting(0, 1, CLUSTER).frame())
        writer.close()

    monkeypatch.setattr(Backoff, "next_ms", next_ms)
    server = await asyncio.start_server(greet_and_leave, HOST, 0)
    one.knows(0, server.sockets[0].getsockname()[1])
    one.peers.keep((0,))
    await until(lambda: one.handler.news.count(("up", 0)) >= 5)
    await one.peers.close()
    server.close()
    # That it was greeted is no success: what comes after the greeting ends it each time.
    assert len(pauses) >= 4
    assert pauses == sorted(set(pauses))


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


async def test_given_strangers_again_and_again_then_one_line_in_the_log(zero: Spu) -> None:
    with capture_logs() as lines:
        for _ in range(5):
            raw = await zero.dial([PREFIX.pack(MAX_FIRST_FRAME_BYTES + 1)])
            await raw.receive()
            await raw.ended()
        await until(lambda: not zero.peers._open)
    (line,) = lines
    assert (line["event"], line["times"]) == ("a peer's connection failed", 1)


async def test_given_many_that_send_no_greeting_then_peers_get_in(
    zero: Spu, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(peers_module._MAX_UNPROVEN):
        await zero.dial()
    await until(lambda: len(zero.peers._open) == peers_module._MAX_UNPROVEN)
    refused = await zero.dial()
    _, status, _, _ = await refused.receive()
    assert status == ErrorCode.OVERLOADED
    monkeypatch.setattr("spu.net.admission.PROVE_S", 0.0)
    await zero.greeted(1)
    assert zero.handler.news == [("up", 1)]


KEY = "5e" * 32
NONCE = b"n" * NONCE_BYTES


async def challenged(zero: Spu, spu: int = 1) -> tuple[Raw, bytes, bytes]:
    """A connection of a program that speaks as an SPU, the nonce and the proof that it was sent."""
    raw = await zero.dial(replace(greeting(spu), nonce=NONCE).frame())
    _, status, fixed, tail = await raw.receive()
    assert status == ErrorCode.OK, bytes(tail)
    nonce = Greeting.unpack(fixed, tail).nonce
    kind, _, proof, _ = await raw.receive()
    assert kind == Kind.PROOF
    return raw, nonce, bytes(proof)


async def test_given_the_key_of_the_pair_then_connected(zero: Spu, one: Spu) -> None:
    zero.knows(1, one.port, key=KEY)
    one.knows(0, zero.port, key=KEY)
    one.peers.keep({0})
    await until(lambda: (one.handler.news, zero.handler.news) == ([("up", 0)], [("up", 1)]))


async def test_given_the_key_at_one_end_only_then_not_connected_and_the_other_asks_for_it(
    zero: Spu, one: Spu
) -> None:
    zero.knows(1, one.port, key=KEY)
    one.knows(0, zero.port)
    one.peers.keep({0})
    await until(lambda: 0 in one.handler.sought)
    assert zero.handler.news == []
    one.knows(0, zero.port, key=KEY)
    await until(lambda: zero.handler.news == [("up", 1)])


async def test_given_the_key_at_the_dialling_end_only_then_the_other_asks_for_it(
    zero: Spu, one: Spu
) -> None:
    one.knows(0, zero.port, key=KEY)
    one.peers.keep({0})
    await until(lambda: 1 in zero.handler.sought)
    assert one.handler.news == []
    zero.knows(1, one.port, key=KEY)
    await until(lambda: one.handler.news == [("up", 0)])


@pytest.mark.parametrize("forged", ["attach", "ping", "nothing", "reflected", "of another key"])
async def test_given_a_program_that_speaks_as_a_peer_then_it_replaces_and_says_nothing(
    zero: Spu, one: Spu, forged: str
) -> None:
    zero.knows(1, one.port, key=KEY)
    one.knows(0, zero.port, key=KEY)
    one.peers.keep({0})
    await until(lambda: zero.handler.news == [("up", 1)])
    raw, nonce, proof = await challenged(zero)
    ends = PeerEnd(1, NONCE), PeerEnd(0, nonce)
    frames = {
        "attach": encode(UID, Attach(TERM, 1)),
        "ping": pack_frame(Kind.PING, 0, b""),
        "nothing": pack_frame(Kind.PROOF, 0, b""),
        "reflected": pack_frame(Kind.PROOF, 0, proof),
        "of another key": pack_frame(Kind.PROOF, 0, peer_proof(b"x" * 32, CLUSTER, *ends)),
    }
    await raw.send(frames[forged])
    _, status, _, reason = await raw.receive()
    assert (status, b"SPU 1 has not proven who it is" in bytes(reason)) == (
        ErrorCode.UNAUTHORIZED,
        True,
    )
    await raw.ended()
    assert zero.handler.news == [("up", 1)]
    assert zero.handler.said == []


async def test_given_the_right_proof_then_let_in_and_not_with_it_again(zero: Spu) -> None:
    zero.knows(1, 1, key=KEY)
    raw, nonce, _ = await challenged(zero)
    right = peer_proof(bytes.fromhex(KEY), CLUSTER, PeerEnd(1, NONCE), PeerEnd(0, nonce))
    await raw.send(pack_frame(Kind.PROOF, 0, right))
    await until(lambda: zero.handler.news == [("up", 1)])
    again, _, _ = await challenged(zero)
    await again.send(pack_frame(Kind.PROOF, 0, right))
    assert (await again.receive())[1] == ErrorCode.UNAUTHORIZED
    assert zero.handler.news == [("up", 1)]


async def test_given_greeting_of_an_older_version_then_refused_where_there_is_a_key(
    zero: Spu,
) -> None:
    zero.knows(1, 1, key=KEY)
    raw = await zero.dial(greeting().frame())
    await raw.receive()
    assert (await raw.receive())[1] == ErrorCode.UNAUTHORIZED
    assert zero.handler.news == []


async def test_given_new_peers_that_dial_this_spu_then_it_asks_for_their_keys(one: Spu) -> None:
    one.peers.keep({0, 1, 2, 3})
    assert [peer for peer in one.handler.sought if peer > 1] == [2, 3]
    one.peers.keep({0, 2, 3, 4})
    assert [peer for peer in one.handler.sought if peer > 1] == [2, 3, 4]


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


async def test_given_reasons_that_take_turns_then_each_is_logged_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("spu.net.peers.RETRY_CAP_MS", 1.0)
    reasons = ["no route to host", "no answer"] * 10

    async def refuse(*_: object) -> None:
        raise UnreachableError(reasons.pop() if reasons else "no answer")

    monkeypatch.setattr(peers_module, "dial", refuse)
    one = await listening(1)
    one.knows(0, 9)
    with capture_logs() as logs:
        one.peers.keep((0,))
        await until(lambda: not reasons)
    await close(one)
    told = [line["reason"] for line in logs if line["event"] == "cannot reach a peer"]
    assert sorted(told) == ["no answer", "no route to host"]


def _has(news: list[tuple[str, int]], count: int) -> bool:
    return len(news) == count


@pytest.mark.parametrize(("lasted_s", "lines"), [(0.0, 1), (10.0, 3)])
async def test_given_a_line_that_flaps_then_its_losses_are_counted_and_steady_ones_logged(
    zero: Spu, lasted_s: float, lines: int
) -> None:
    with capture_logs() as logs:
        for times in (1, 2, 3):
            raw = await zero.greeted(1)
            zero.peers._since[1] -= lasted_s
            raw.close()
            await until(partial(_has, zero.handler.news, 2 * times))
    assert [line["event"] for line in logs].count("lost a peer") == lines
