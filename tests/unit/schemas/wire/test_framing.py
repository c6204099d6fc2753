"""Frames out of any slicing of the stream."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.errors import ProtocolError
from schemas.wire.framing import RECEIVE_BYTES, FrameReader
from schemas.wire.protocol import FRAME_HEADER, MAX_FRAME_BYTES, PREFIX
from tests.laws import examples


def feed(reader: FrameReader, data: bytes, step: int) -> list[bytes]:
    frames = []
    at = 0
    while at < len(data):
        buffer = reader.buffer()
        assert len(buffer) > 0
        count = min(step, len(buffer), len(data) - at)
        buffer[:count] = data[at : at + count]
        reader.received(count)
        at += count
        while (frame := reader.next_frame()) is not None:
            frames.append(bytes(frame))
    return frames


def framed(*bodies: bytes) -> bytes:
    return b"".join(PREFIX.pack(len(body)) + body for body in bodies)


@settings(max_examples=examples(10))
@given(
    st.lists(
        st.one_of(
            st.integers(FRAME_HEADER.size, 200),
            st.sampled_from([RECEIVE_BYTES - 4, RECEIVE_BYTES - 3, RECEIVE_BYTES, 300_000]),
        ),
        max_size=8,
    ),
    st.sampled_from([1, 3, 4, 17, 1_000, RECEIVE_BYTES, 1 << 20]),
)
def test_law_frames_come_out_as_they_went_in(sizes: list[int], step: int) -> None:
    if sum(sizes) > 400_000:
        step = max(step, 1_000)
    bodies = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    assert feed(FrameReader(), framed(*bodies), step) == bodies


@pytest.mark.parametrize(
    ("length", "text"),
    [
        pytest.param(MAX_FRAME_BYTES + 1, "more than the", id="given-too-long-then-refused"),
        pytest.param((1 << 32) - 1, "more than the", id="given-the-largest-length-then-refused"),
        pytest.param(FRAME_HEADER.size - 1, "shorter", id="given-too-short-then-refused"),
        pytest.param(0, "shorter", id="given-zero-then-refused"),
    ],
)
def test_lengths_no_frame_has(length: int, text: str) -> None:
    with pytest.raises(ProtocolError, match=text):
        feed(FrameReader(), PREFIX.pack(length), 4)


def test_given_a_large_frame_then_it_is_received_in_place_and_the_memory_returned() -> None:
    reader = FrameReader()
    body = bytes(3 << 20)
    stream = PREFIX.pack(len(body)) + body[:100]
    first = reader.buffer()
    first[: len(stream)] = stream
    reader.received(len(stream))
    assert reader.next_frame() is None
    assert len(reader.buffer()) == len(body) - 100
    reader.received(len(body) - 100)
    frame = reader.next_frame()
    assert frame is not None
    assert len(frame) == len(body)
    assert len(reader.buffer()) == RECEIVE_BYTES
    assert len(reader._large_memory) == 0
