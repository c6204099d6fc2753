"""The beginning of Linux's ``struct tcp_info`` → what is not acknowledged, and the pace."""

from __future__ import annotations

import struct

import pytest

from schemas.wire.tcp_info import Pace, Unacknowledged, parse_pace, parse_tcp_info


def tcp_info(retransmissions: int, segments: int) -> bytes:
    """The beginning of Linux's ``struct tcp_info``, all other fields being in the way."""
    eight = bytes((1, 1, retransmissions, 9, 9, 9, 9, 9))
    return eight + struct.pack("=5I", 7, 7, 7, 7, segments) + b"\x07" * 200


@pytest.mark.parametrize(
    ("info", "found"),
    [
        pytest.param(tcp_info(0, 0), Unacknowledged(0, 0), id="given-nothing-sent-then-nothing"),
        pytest.param(tcp_info(3, 70_000), Unacknowledged(70_000, 3), id="given-both-then-both"),
        pytest.param(tcp_info(3, 1)[:27], None, id="given-too-little-then-unknown"),
    ],
)
def test_parse_tcp_info(info: bytes, found: Unacknowledged | None) -> None:
    assert parse_tcp_info(info) == found


def paced(silent_ms: int, round_trip_us: int, deviation_us: int) -> bytes:
    numbers = [7] * 17
    numbers[11], numbers[15], numbers[16] = silent_ms, round_trip_us, deviation_us
    return bytes(8) + struct.pack("=17I", *numbers) + b"\x07" * 100


@pytest.mark.parametrize(
    ("info", "found"),
    [
        pytest.param(paced(40, 600_000, 50_000), Pace(800.0, 40), id="given-all-then-all"),
        pytest.param(paced(40, 1, 1)[:75], None, id="given-too-little-then-unknown"),
    ],
)
def test_parse_pace(info: bytes, found: Pace | None) -> None:
    assert parse_pace(info) == found
