"""Frames come out whole however the bytes arrive."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.net.framing import FrameAssembler
from schemas.errors import ProtocolError
from schemas.wire.protocol import PREFIX, pack_frame


def feed(assembler: FrameAssembler, data: bytes, most: int) -> list[bytes]:
    """Write as a socket does: at most ``most`` bytes and no more than there is room for."""
    found: list[bytes] = []
    while data:
        room = assembler.buffer()
        count = min(len(room), most, len(data))
        assert count
        room[:count] = data[:count]
        data = data[count:]
        found += [bytes(frame) for frame in assembler.received(count)]
    return found


@given(
    tails=st.lists(st.integers(0, 400), max_size=10),
    inbox_bytes=st.integers(16, 200),
    most=st.integers(1, 300),
)
def test_law_frames_arrive_whole_and_in_order(
    tails: list[int], inbox_bytes: int, most: int
) -> None:
    frames = [b"".join(pack_frame(2, n, b"f" * 16, b"t" * size)) for n, size in enumerate(tails)]
    found = feed(FrameAssembler(inbox_bytes=inbox_bytes), b"".join(frames), most)
    assert found == [frame[PREFIX.size :] for frame in frames]


@pytest.mark.parametrize("inbox_bytes", [64, 4096], ids=["given-a-large-frame", "given-a-small"])
def test_given_a_fixed_part_of_16_bytes_then_the_tail_is_aligned(inbox_bytes: int) -> None:
    import numpy as np

    assembler = FrameAssembler(inbox_bytes=inbox_bytes)
    frame = b"".join(pack_frame(3, 1, b"f" * 16, b"t" * 96))
    found: list[memoryview] = []
    while frame:
        room = assembler.buffer()
        count = min(len(room), len(frame))
        room[:count] = frame[:count]
        frame = frame[count:]
        found += assembler.received(count)
    (only,) = found
    assert np.frombuffer(only[28:], np.uint8).ctypes.data % 8 == 0


@pytest.mark.parametrize("length", [0, 11, 101], ids=lambda n: f"given-length-{n}-then-refused")
def test_impossible_lengths(length: int) -> None:
    with pytest.raises(ProtocolError, match=f"has {length} bytes"):
        feed(FrameAssembler(limit=100), PREFIX.pack(length), 4)
