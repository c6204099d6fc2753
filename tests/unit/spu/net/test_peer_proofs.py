"""SPUs that share a key prove to each other that they know it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from schemas.control.proof import PeerEnd, peer_proof
from schemas.errors import ErrorCode
from schemas.wire.protocol import pack_frame
from spu.replication.messages import Attach
from spu.replication.wire import NONCE_BYTES, Greeting, Kind, encode
from tests.unit.spu.builders import CLUSTER, TERM, UID, until
from tests.unit.spu.net.spus import Raw, Spu, greeting

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
