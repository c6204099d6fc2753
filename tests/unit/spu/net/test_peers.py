"""Connections between SPUs: who is let in, which one counts, and how a lost one is made again."""

from __future__ import annotations

import asyncio
import gc
import socket
from functools import partial

import pytest
import uvloop
from structlog.testing import capture_logs

from schemas.backoff import Backoff
from schemas.control.messages import Peer
from schemas.errors import ErrorCode, UnreachableError
from schemas.wire.protocol import MAX_FIRST_FRAME_BYTES, PREFIX, pack_frame
from spu.net import peers as peers_module
from spu.net.peer_connection import PeerConnection
from spu.net.peers import Peers
from spu.replication.messages import AppendAck, Attach
from spu.replication.wire import Greeting, Kind, encode
from tests.unit.spu.builders import CLUSTER, TERM, UID, until
from tests.unit.spu.net.spus import HOST, Handler, Raw, Spu, close, greeting, listening


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
