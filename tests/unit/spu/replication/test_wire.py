"""Replication messages as frames: what is said comes out as it went in, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from schemas.errors import CorruptBatchError, ProtocolError
from schemas.wire.batch import set_offset_and_term
from schemas.wire.protocol import HelloRequest, pack_frame, unpack_frame
from spu.replication.messages import (
    Append,
    AppendAck,
    Attach,
    Batch,
    CommitUpdate,
    LogEnd,
    Message,
    Outdated,
    Reject,
    Reset,
    Truncate,
)
from spu.replication.wire import Greeting, Kind, decode, encode, encode_append
from tests.unit.spu.builders import UID, batch_of

BOOT = "00ff00ff00ff00ff"
STORAGE = "3f1c1a52-0000-4000-8000-0000000000bb"
TERM = (1 << 48) | (7 << 16) | 3


def stored(base: int, count: int) -> Batch:
    batch = batch_of(count)
    set_offset_and_term(batch, base, TERM)
    return Batch(base, base + count, TERM, bytes(batch))


def through(pieces: list[bytes | bytearray | memoryview]) -> tuple[int, memoryview, memoryview]:
    """Kind, fixed part and tail of a frame, as the other end sees them."""
    frame = b"".join(pieces)
    assert int.from_bytes(frame[:4], "little") == len(frame) - 4
    header, fixed, tail = unpack_frame(memoryview(frame)[4:])
    return header.api, fixed, tail


@pytest.mark.parametrize(
    "message",
    [
        Attach(TERM, 9),
        Attach(TERM, 9, BOOT),
        LogEnd(TERM, 9, BOOT, STORAGE, TERM - 1, 17, None, 15, TERM - 1, BOOT),
        LogEnd(TERM, 9, BOOT, STORAGE, TERM - 1, 17, "broken", -1, 0, ""),
        LogEnd(TERM, 9, BOOT, STORAGE, 0, 0, None, -1, 0, "", (1, 1 << 60), (1, 70_000, 3)),
        Outdated(TERM, 9, BOOT, 15),
        LogEnd(TERM, 9, BOOT, STORAGE, TERM - 1, 17),
        LogEnd(TERM, 9, BOOT, STORAGE, 0, 0, "an fsync failed: Ein-/Ausgabefehler …"),
        LogEnd(TERM, 9, BOOT, STORAGE, 0, 0, ""),
        Truncate(TERM, 9, BOOT, TERM - 1, 12),
        Reset(TERM, 9, BOOT, 40, TERM - 1),
        Reset(TERM, 9, BOOT, 40, TERM - 1, aside=True),
        Reset(TERM, 9, BOOT, 40, TERM - 1, ((7, 1, ((0, 5, 8), (1, 8, 9))), (9, 0, ((3, 1, 2),)))),
        Append(TERM, 9, BOOT, (stored(5, 1), stored(6, 4)), 4, 0),
        Append(TERM, 9, BOOT, (), -1, 0),
        CommitUpdate(TERM, 9, BOOT, 41, 3),
        AppendAck(TERM, 9, 12, 11),
        AppendAck(TERM, 9, 12, 11, gap=True),
        Reject(TERM, 9, TERM + 1),
    ],
    ids=lambda message: type(message).__name__.lower(),
)
def test_given_a_message_then_it_comes_out_as_it_went_in(message: Message) -> None:
    assert decode(*through(encode(UID, message))) == (UID, message)


def test_given_an_order_of_an_earlier_version_then_nothing_is_kept_aside() -> None:
    kind, fixed, tail = through(encode(UID, Reset(TERM, 9, BOOT, 40, TERM - 1, aside=True)))
    assert decode(kind, fixed[:-1], tail) == (UID, Reset(TERM, 9, BOOT, 40, TERM - 1))


def test_given_an_answer_of_an_earlier_version_then_it_knows_no_holders() -> None:
    said = LogEnd(TERM, 9, BOOT, STORAGE, TERM - 1, 17, None, 15, TERM - 1, BOOT)
    kind, fixed, tail = through(encode(UID, replace(said, version=(1, 7), holders=(1, 2))))
    assert decode(kind, fixed[:-28], tail) == (UID, said)
    with pytest.raises(ProtocolError, match="names 2 SPUs, and has 7 bytes for them"):
        decode(kind, fixed[:-1], tail)
    _, many, _ = through(encode(UID, replace(said, holders=tuple(range(1_001)))))
    with pytest.raises(ProtocolError, match="names 1001 holders; it has at most 1000"):
        decode(kind, many, tail)


def test_given_a_long_reason_then_it_is_cut_between_characters() -> None:
    """As `LogEnd` says it again when it is asked again: byte for byte."""
    message = LogEnd(TERM, 9, BOOT, STORAGE, 0, 0, "…" * 2_000)
    _, first = decode(*through(encode(UID, message)))
    assert isinstance(first, LogEnd)
    assert first.unfit == "…" * (4096 // len("…".encode()))
    assert decode(*through(encode(UID, first))) == (UID, first)


def test_given_batches_back_to_back_then_they_come_out_one_by_one() -> None:
    batches = (stored(5, 1), stored(6, 4))
    data = b"".join(bytes(batch.data) for batch in batches)
    frame = encode_append(UID, (TERM, 9, BOOT), 4, 0, data)
    assert decode(*through(frame)) == (UID, Append(TERM, 9, BOOT, batches, 4, 0))


def _damaged(at: int) -> bytes:
    data = bytearray(bytes(stored(5, 1).data) + bytes(stored(6, 1).data))
    data[at] ^= 1
    return bytes(data)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(_damaged(17), id="given-a-flipped-term-then-corrupt"),
        pytest.param(_damaged(-3), id="given-a-flipped-payload-then-corrupt"),
        pytest.param(bytes(stored(5, 1).data)[:-1], id="given-a-torn-end-then-corrupt"),
        pytest.param(bytes(stored(5, 1).data) + b"xyz", id="given-bytes-behind-then-corrupt"),
    ],
)
def test_damaged_batches(data: bytes) -> None:
    with pytest.raises(CorruptBatchError):
        decode(*through(encode_append(UID, (TERM, 9, BOOT), 4, 0, data)))


@pytest.mark.parametrize("kind", [Kind.ATTACH, Kind.POSITION, Kind.APPEND, Kind.ACK])
def test_given_a_short_message_then_it_is_refused(kind: Kind) -> None:
    with pytest.raises(ProtocolError, match="it needs"):
        decode(*through(pack_frame(kind, 0, b"x" * 20)))


def test_given_an_unknown_kind_then_it_says_upgrade() -> None:
    with pytest.raises(ProtocolError, match="upgrade"):
        decode(*through(pack_frame(99, 0, b"x" * 40)))


def test_given_a_greeting_then_it_comes_out_as_it_went_in() -> None:
    greeting = Greeting(3, 1, "3f1c1a52-0000-4000-8000-000000000001")
    kind, fixed, tail = through(greeting.frame())
    assert (kind, Greeting.unpack(fixed, tail)) == (Kind.GREETING, greeting)
    fresh = replace(greeting, nonce=b"n" * 16)
    kind, fixed, tail = through(fresh.frame())
    assert (kind, Greeting.unpack(fixed, tail)) == (Kind.GREETING, fresh)
    with pytest.raises(ProtocolError, match="RNLR"):
        Greeting.unpack(memoryview(b"GET " + b"\0" * 20), memoryview(b""))


def test_given_a_client_at_the_port_of_spus_then_it_says_which_port_is_meant() -> None:
    hello = memoryview(HelloRequest(1, 1).pack())
    with pytest.raises(ProtocolError, match=r"private port of an SPU, .* clients need its public"):
        Greeting.unpack(hello, memoryview(b""))
