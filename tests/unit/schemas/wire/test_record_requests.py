"""Requests for records: what earlier versions leave out, and values that mean nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from schemas.errors import ProtocolError
from schemas.wire.record_requests import (
    Acks,
    FetchFlags,
    FetchRequest,
    ListOffsetsRequest,
    ListOffsetsResponse,
    PositionBy,
    ProduceRequest,
)
from tests.unit.schemas.wire.test_protocol import PARTS, UID


@given(PARTS[FetchRequest])
def test_law_a_fetch_of_an_earlier_client_is_for_leaders_only(request: FetchRequest) -> None:
    packed = request.pack()
    assert len(packed) == 45
    assert FetchRequest.unpack(packed[:44]) == replace(request, flags=FetchFlags(0))


def test_the_flag_of_followers_is_the_lowest_bit_of_the_last_byte() -> None:
    asked = FetchRequest(UID, 7, 1, 1, 1, 9, FetchFlags.FOLLOWER_OK)
    assert asked.pack()[-1] == 1
    assert FetchFlags.FOLLOWER_OK in FetchRequest.unpack(asked.pack()).flags
    assert FetchRequest.unpack(asked.pack()[:-1] + b"\xfe").flags & FetchFlags.FOLLOWER_OK == 0


@pytest.mark.parametrize("acks", [3, 255], ids=str)
def test_given_unknown_acks_then_a_protocol_error(acks: int) -> None:
    data = bytearray(ProduceRequest(UID, Acks.LEADER, 1).pack())
    data[16] = acks
    with pytest.raises(ProtocolError, match=f"bad produce request: {acks} is not a valid Acks"):
        ProduceRequest.unpack(bytes(data))


@pytest.mark.parametrize("cls", [ListOffsetsRequest, ListOffsetsResponse])
def test_given_an_unknown_meaning_of_a_position_then_a_protocol_error(
    cls: type[ListOffsetsRequest] | type[ListOffsetsResponse],
) -> None:
    before_by = cls.LAYOUT.size - cls.ADDED
    with pytest.raises(ProtocolError, match="9 is not a valid PositionBy"):
        cls.unpack(bytes(before_by) + b"\x09")


ASKED = ListOffsetsRequest(UID, 7, PositionBy.TRANSACTION_ID, 5, 3)
TOLD = ListOffsetsResponse(1, 2, 3, 4, PositionBy.TRANSACTION_ID, 9)


@pytest.mark.parametrize(
    ("whole", "size", "expected"),
    [
        pytest.param(ASKED, 41, ASKED, id="given-all-of-it"),
        pytest.param(ASKED, 25, replace(ASKED, below=0, term=0), id="given-no-terms"),
        pytest.param(ASKED, 24, ListOffsetsRequest(UID, 7), id="given-timestamps-alone"),
        pytest.param(TOLD, 41, TOLD, id="given-all-of-the-answer"),
        pytest.param(TOLD, 33, replace(TOLD, term=0), id="given-an-answer-without-a-term"),
        pytest.param(TOLD, 32, ListOffsetsResponse(1, 2, 3, 4), id="given-an-answer-about-times"),
    ],
)
def test_positions_of_earlier_versions(
    whole: ListOffsetsRequest | ListOffsetsResponse,
    size: int,
    expected: ListOffsetsRequest | ListOffsetsResponse,
) -> None:
    packed = whole.pack()
    assert len(packed) >= size
    assert whole.unpack(packed[:size]) == expected
