"""Frames and their fixed parts: round trips, and only ProtocolError for what is malformed."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import (
    DivergedError,
    ErrorCode,
    NotLeaderError,
    NotReadyError,
    OffsetOutOfRangeError,
    ProtocolError,
    RunnelError,
    TransactionIdTooLowError,
    error_from,
)
from schemas.ids import PartitionUid
from schemas.objects.topic import MAX_BATCH_BYTES
from schemas.wire.located_batches import LocatedBatches
from schemas.wire.log_line_requests import ListLogLinesRequest, ListLogLinesResponse
from schemas.wire.log_requests import VerifyRequest, VerifyResponse
from schemas.wire.protocol import (
    FRAME_HEADER,
    FRAME_OVERHEAD,
    HELLO_MAGIC,
    MAX_FETCH_BYTES,
    MAX_FRAME_BYTES,
    PEER_MAGIC,
    PREFIX,
    PROTOCOL_VERSION,
    Api,
    DivergedResponse,
    FrameHeader,
    HelloRequest,
    HelloResponse,
    MissingBatchResponse,
    TransactionIdTooLowResponse,
    pack_error,
    pack_frame,
    raise_for_status,
    unpack_frame,
)
from schemas.wire.record_requests import (
    Acks,
    AnswerFlags,
    FetchFlags,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    PositionBy,
    ProduceRequest,
    ProduceResponse,
)
from schemas.wire.subscription_requests import PushResponse, SubscribeRequest

UID = PartitionUid("3f1c1a52-0000-4000-8000-0000000000aa")

u16 = st.integers(0, 2**16 - 1)
u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
uids = st.uuids().map(lambda uid: PartitionUid(str(uid)))

#: Every fixed part, with values for all of its fields.
PARTS: dict[Any, st.SearchStrategy[Any]] = {
    HelloRequest: st.builds(HelloRequest, u16, u16),
    HelloResponse: st.builds(HelloResponse, u16, u32, u32),
    ProduceRequest: st.builds(ProduceRequest, uids, st.sampled_from(Acks), u32, i64),
    ProduceResponse: st.builds(ProduceResponse, i64, i64),
    FetchRequest: st.builds(
        FetchRequest, uids, i64, u32, u32, u32, u64, st.integers(0, 255).map(FetchFlags)
    ),
    FetchResponse: st.builds(FetchResponse, i64, i64, st.integers(0, 255).map(AnswerFlags)),
    LocatedBatches: st.builds(LocatedBatches, st.binary(min_size=16, max_size=16), *[u64] * 5),
    SubscribeRequest: st.builds(SubscribeRequest, u32),
    PushResponse: st.builds(PushResponse, i64, i64, i64),
    DivergedResponse: st.builds(DivergedResponse, i64),
    TransactionIdTooLowResponse: st.builds(TransactionIdTooLowResponse, i64),
    MissingBatchResponse: st.builds(MissingBatchResponse, u32, i64),
    ListOffsetsRequest: st.builds(ListOffsetsRequest, uids, i64, st.sampled_from(PositionBy)),
    ListOffsetsResponse: st.builds(
        ListOffsetsResponse, i64, i64, i64, u64, st.sampled_from(PositionBy)
    ),
    ListLogLinesRequest: st.builds(ListLogLinesRequest, u64, u32, st.integers(0, 255), u64, u64),
    ListLogLinesResponse: st.builds(ListLogLinesResponse, u64, u64, u64, st.integers(0, 255)),
    VerifyRequest: st.builds(VerifyRequest, uids, i64, i64, i64, u32),
    VerifyResponse: st.builds(
        VerifyResponse,
        *[i64] * 5,
        *[u64] * 4,
        *[u32] * 2,
        st.binary(min_size=16, max_size=16),
        st.integers(0, 255),
    ),
}
parts = pytest.mark.parametrize("cls", PARTS, ids=lambda cls: cls.__name__)


@parts
@given(st.data())
def test_law_fixed_parts_round_trip(cls: Any, data: st.DataObject) -> None:
    part = data.draw(PARTS[cls])
    packed = part.pack()
    assert cls.unpack(packed) == part
    assert cls.unpack(memoryview(packed)) == part
    assert len(packed) == cls.LAYOUT.size


@parts
@given(st.data(), st.binary(min_size=1, max_size=9))
def test_law_longer_parts_are_accepted(cls: Any, data: st.DataObject, more: bytes) -> None:
    part = data.draw(PARTS[cls])
    assert cls.unpack(part.pack() + more) == part


@parts
@given(st.data())
def test_law_shorter_parts_are_a_protocol_error(cls: Any, data: st.DataObject) -> None:
    packed = data.draw(PARTS[cls]).pack()
    needed = len(packed) - cls.ADDED
    short = packed[: data.draw(st.integers(0, needed - 1))]
    with pytest.raises(ProtocolError, match=rf"{cls.__name__} needs {needed} bytes"):
        cls.unpack(short)


@parts
@given(st.binary(max_size=80))
def test_law_any_bytes_are_a_part_or_a_protocol_error(cls: Any, data: bytes) -> None:
    try:
        part = cls.unpack(data)
    except ProtocolError:
        return
    assert cls.unpack(part.pack()) == part
    # What fills up a layout is not looked at, and sent as zeros.
    exact = cls is not ProduceRequest and "x" not in cls.LAYOUT.format
    assert not exact or part.pack() == data[: cls.LAYOUT.size].ljust(cls.LAYOUT.size, b"\0")


def test_given_another_magic_then_said() -> None:
    request = b"GET " + HelloRequest(1, 1).pack()[4:]
    with pytest.raises(ProtocolError, match="the first frame does not say RNNL"):
        HelloRequest.unpack(request)
    greeting = PEER_MAGIC + bytes(12)
    with pytest.raises(
        ProtocolError, match="public port of an SPU, for clients, and an SPU called"
    ):
        HelloRequest.unpack(greeting)
    assert HelloRequest(1, 1).pack()[:4] == HELLO_MAGIC == b"RNNL"


# Frames


def joined(pieces: list[Any]) -> bytes:
    return b"".join(bytes(piece) for piece in pieces)


@given(st.integers(0, 255), u32, st.binary(max_size=60), st.lists(st.binary(max_size=60)), u16)
def test_law_frames_round_trip(
    api: int, correlation: int, fixed: bytes, tails: list[bytes], status: int
) -> None:
    frame = joined(pack_frame(api, correlation, fixed, *tails, status=status))
    (length,) = PREFIX.unpack_from(frame)
    assert length == len(frame) - PREFIX.size
    header, got_fixed, got_tail = unpack_frame(memoryview(frame)[PREFIX.size :])
    assert header == FrameHeader(api, PROTOCOL_VERSION, status, correlation, len(fixed))
    assert (bytes(got_fixed), bytes(got_tail)) == (fixed, b"".join(tails))


@given(st.binary(max_size=60))
def test_law_any_bytes_are_a_frame_or_a_protocol_error(data: bytes) -> None:
    try:
        header, fixed, tail = unpack_frame(memoryview(data))
    except ProtocolError:
        return
    assert len(fixed) == header.fixed_length
    assert bytes(fixed) + bytes(tail) == data[FRAME_HEADER.size :]


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        pytest.param(b"", "a frame of 0 bytes is shorter than its header", id="given-nothing"),
        pytest.param(bytes(11), "a frame of 11 bytes is shorter", id="given-one-byte-less"),
        pytest.param(
            struct.pack("<BBHII", 2, 1, 0, 1, 1),
            "fixed part of 1 bytes does not fit into the frame",
            id="given-a-fixed-part-that-is-not-there",
        ),
        pytest.param(
            struct.pack("<BBHII", 2, 1, 0, 1, 2**32 - 1) + bytes(9),
            "fixed part of 4294967295 bytes does not fit into the frame",
            id="given-the-longest-fixed-part",
        ),
    ],
)
def test_frames_that_are_none(frame: bytes, says: str) -> None:
    with pytest.raises(ProtocolError, match=says):
        unpack_frame(memoryview(frame))


def test_tails_are_not_copied() -> None:
    tail = bytearray(b"batch")
    pieces = pack_frame(Api.PRODUCE, 1, b"fixed", tail)
    assert pieces[1] is tail


def test_sizes_and_limits() -> None:
    assert FRAME_OVERHEAD == 16
    assert MAX_BATCH_BYTES + FRAME_HEADER.size + ProduceRequest.LAYOUT.size < MAX_FRAME_BYTES
    assert MAX_FETCH_BYTES + FRAME_OVERHEAD < MAX_FRAME_BYTES


# Errors


def received(error: RunnelError) -> RunnelError:
    frame = joined(pack_error(Api.FETCH, 9, error))
    header, fixed, tail = unpack_frame(memoryview(frame)[PREFIX.size :])
    assert (header.api, header.correlation) == (Api.FETCH, 9)
    has_more = isinstance(error, (DivergedError, TransactionIdTooLowError))
    assert len(fixed) == (8 if has_more else 0)
    with pytest.raises(RunnelError) as raised:
        raise_for_status(header, tail, fixed)
    return raised.value


@pytest.mark.parametrize(
    "code", [code for code in ErrorCode if code is not ErrorCode.OK], ids=lambda code: code.name
)
def test_every_error_crosses(code: ErrorCode) -> None:
    sent = error_from(code, "offset 7 – gone")
    got = received(sent)
    assert (type(got), got.message, got.code) == (type(sent), sent.message, sent.code)


def test_given_no_status_then_nothing_is_raised() -> None:
    raise_for_status(FrameHeader(Api.FETCH, 1, 0, 1, 0), memoryview(b"batches"))


@pytest.mark.parametrize("status", [2, 99, 65_535], ids=str)
def test_given_a_status_of_a_later_version_then_a_plain_error(status: int) -> None:
    with pytest.raises(RunnelError) as raised:
        raise_for_status(FrameHeader(Api.FETCH, 1, status, 1, 0), memoryview(b"why"))
    assert type(raised.value) is RunnelError
    assert raised.value.message == f"why (unknown error code {status})"


@pytest.mark.parametrize(
    ("message", "arrives"),
    [
        pytest.param("x" * 5_000, "x" * 4_096, id="given-a-long-message-then-cut"),
        pytest.param("é" * 4_095, "é" * 2_048, id="given-two-byte-characters-then-cut-between"),
        pytest.param("a" + "é" * 4_095, "a" + "é" * 2_047 + "�", id="given-a-cut-inside-one"),
        pytest.param("file \udcff", "file ?", id="given-half-a-character-then-replaced"),
        pytest.param("", "", id="given-no-message"),
    ],
)
def test_messages_are_bounded_text(message: str, arrives: str) -> None:
    assert received(NotLeaderError(message)).message == arrives


def test_details_stay_behind() -> None:
    """Frames carry a code and a message; what a client must know stands in the message."""
    got = received(OffsetOutOfRangeError("the first one is 9", firstAvailable=9))
    assert (got.message, got.details) == ("the first one is 9", {})


def test_the_offset_of_a_divergence_crosses() -> None:
    got = received(DivergedError("orders-0 differs from offset 70 on", diverged_at=70))
    assert isinstance(got, DivergedError)
    assert (got.diverged_at, got.message) == (70, "orders-0 differs from offset 70 on")


def test_the_batch_that_is_missing_crosses() -> None:
    sent = NotReadyError("sequence 9 came before 7", expectedSequence=7, knownEnd=70)
    frame = joined(pack_error(Api.PRODUCE, 9, sent))
    header, fixed, tail = unpack_frame(memoryview(frame)[PREFIX.size :])
    with pytest.raises(NotReadyError) as raised:
        raise_for_status(header, tail, fixed)
    assert raised.value.details == sent.details
    # Clients of earlier versions look at no fixed part.
    with pytest.raises(NotReadyError, match="sequence 9 came before 7"):
        raise_for_status(header, tail)


def test_the_last_transaction_id_of_a_refusal_crosses() -> None:
    got = received(TransactionIdTooLowError("orders-0 is at 70", last_transaction_id=70))
    assert isinstance(got, TransactionIdTooLowError)
    assert (got.last_transaction_id, got.message) == (70, "orders-0 is at 70")


def test_given_a_divergence_without_its_place_then_a_protocol_error() -> None:
    header = FrameHeader(Api.FETCH, 1, ErrorCode.DIVERGED, 1, 0)
    with pytest.raises(ProtocolError, match="DivergedResponse needs 8 bytes, 0 arrived"):
        raise_for_status(header, memoryview(b"lost"))
