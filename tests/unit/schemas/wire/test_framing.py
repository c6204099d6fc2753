"""Frames come out whole however the stream is cut, and stay what they are while they may."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.errors import ProtocolError
from schemas.wire.frame_budget import FrameBudget
from schemas.wire.framing import RECEIVE_BYTES, FrameReader
from schemas.wire.protocol import FRAME_HEADER, MAX_FRAME_BYTES, PREFIX, pack_frame
from tests.laws import examples

BOTH = pytest.mark.parametrize("owned", [False, True], ids=["given-lent", "given-owned"])


def feed(reader: FrameReader, data: bytes, step: int, *, owned: bool = False) -> list[bytes]:
    """Write as a socket does: at most ``step`` bytes and no more than there is room for.

    Lent frames are copied at once, owned ones when all has come.
    """
    frames: list[bytes | memoryview] = []
    at = 0
    while at < len(data):
        buffer = reader.buffer()
        assert len(buffer) > 0
        count = min(step, len(buffer), len(data) - at)
        buffer[:count] = data[at : at + count]
        reader.received(count)
        at += count
        while (frame := reader.next_frame()) is not None:
            frames.append(frame if owned else bytes(frame))
    return [bytes(frame) for frame in frames]


def framed(*bodies: bytes) -> bytes:
    return b"".join(PREFIX.pack(len(body)) + body for body in bodies)


@BOTH
@settings(max_examples=examples(10))
@given(
    sizes=st.lists(
        st.one_of(
            st.integers(FRAME_HEADER.size, 200),
            st.sampled_from([RECEIVE_BYTES - 4, RECEIVE_BYTES - 3, RECEIVE_BYTES, 300_000]),
        ),
        max_size=8,
    ),
    step=st.sampled_from([1, 3, 4, 17, 1_000, RECEIVE_BYTES, 1 << 20]),
)
def test_law_frames_come_out_as_they_went_in(owned: bool, sizes: list[int], step: int) -> None:
    if sum(sizes) > 400_000:
        step = max(step, 1_000)
    bodies = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    assert feed(FrameReader(owned=owned), framed(*bodies), step, owned=owned) == bodies


@BOTH
@given(
    tails=st.lists(st.integers(0, 400), max_size=10),
    receive_bytes=st.integers(16, 200),
    step=st.integers(1, 300),
)
def test_law_frames_come_out_whole_of_buffers_of_any_size(
    owned: bool, tails: list[int], receive_bytes: int, step: int
) -> None:
    frames = [b"".join(pack_frame(2, n, b"f" * 16, b"t" * size)) for n, size in enumerate(tails)]
    reader = FrameReader(owned=owned, receive_bytes=receive_bytes)
    found = feed(reader, b"".join(frames), step, owned=owned)
    assert found == [frame[PREFIX.size :] for frame in frames]


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


def test_given_a_limit_then_a_longer_frame_is_refused() -> None:
    with pytest.raises(ProtocolError, match="101 bytes is more than the 100 allowed"):
        feed(FrameReader(limit=100), PREFIX.pack(101), 4)


@pytest.mark.parametrize("receive_bytes", [64, 4096], ids=["given-a-large-frame", "given-a-small"])
def test_given_a_fixed_part_of_16_bytes_then_the_tail_of_an_owned_frame_is_aligned(
    receive_bytes: int,
) -> None:
    reader = FrameReader(owned=True, receive_bytes=receive_bytes)
    data = b"".join(pack_frame(3, 1, b"f" * 16, b"t" * 96))
    found: list[memoryview] = []
    while data:
        room = reader.buffer()
        count = min(len(room), len(data))
        room[:count] = data[:count]
        data = data[count:]
        reader.received(count)
        while (frame := reader.next_frame()) is not None:
            found.append(frame)
    (only,) = found
    assert np.frombuffer(only[28:], np.uint8).ctypes.data % 8 == 0


def test_given_a_large_lent_frame_then_it_is_received_in_place_and_the_memory_returned() -> None:
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
    reader.drop_taken()
    assert len(reader._large_memory) == 0
    assert len(reader.buffer()) == RECEIVE_BYTES


def taken(reader: FrameReader) -> bytes:
    frame = reader.next_frame()
    assert frame is not None
    return bytes(frame)


def arrive(reader: FrameReader, data: bytes) -> int:
    """Receive as much as there is room for; how many bytes that was."""
    at = 0
    while at < len(data) and not reader.starved:
        buffer = reader.buffer()
        count = min(len(buffer), len(data) - at)
        assert count > 0
        buffer[:count] = data[at : at + count]
        reader.received(count)
        at += count
        assert reader.next_frame() is None
    return at


def test_given_an_announced_frame_then_memory_follows_what_has_arrived_of_it() -> None:
    budget = FrameBudget(1 << 30)
    reader = FrameReader(claim=budget.claim(lambda: None))
    stream = PREFIX.pack(MAX_FRAME_BYTES) + bytes(8 << 20)
    arrive(reader, stream[:100])
    assert (budget.used_bytes, len(reader._large_memory)) == (0, 0)
    for size in (RECEIVE_BYTES, 1 << 20, 8 << 20):
        reader = FrameReader(claim=budget.claim(lambda: None))
        before = budget.used_bytes
        arrive(reader, stream[:size])
        assert size <= budget.used_bytes - before <= 4 * size


def test_given_no_room_in_the_budget_then_the_frame_waits_and_comes_out_whole_later() -> None:
    budget = FrameBudget(1 << 20)
    woken: list[str] = []
    body = bytes(range(256)) * (12 << 10)
    stream = PREFIX.pack(len(body)) + body
    first = FrameReader(claim=budget.claim(lambda: woken.append("first")))
    second = FrameReader(claim=budget.claim(lambda: woken.append("second")))
    # One may go beyond the limit, so that something can always be finished.
    assert arrive(first, stream[:-1]) == len(stream) - 1
    at = arrive(second, stream)
    assert second.starved
    assert at <= RECEIVE_BYTES
    assert budget.used_bytes <= len(stream)
    assert woken == []
    rest = first.buffer()
    rest[:1] = stream[-1:]
    first.received(1)
    assert taken(first) == body
    first.drop_taken()
    assert woken == ["second"]
    assert second.next_frame() is None
    at += arrive(second, stream[at:-1])
    second.buffer()[:1] = stream[-1:]
    second.received(1)
    assert taken(second) == body


@given(
    sizes=st.lists(st.integers(FRAME_HEADER.size, 900), max_size=12),
    step=st.integers(1, 300),
    limit_bytes=st.integers(0, 4_000),
)
def test_law_a_budget_changes_no_frame_and_gets_everything_back(
    sizes: list[int], step: int, limit_bytes: int
) -> None:
    budget = FrameBudget(limit_bytes)
    claim = budget.claim(lambda: None)
    reader = FrameReader(receive_bytes=64, claim=claim)
    bodies = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    assert feed(reader, framed(*bodies), step) == bodies
    assert not reader.mid_frame
    claim.release()
    assert budget.used_bytes == 0


def test_given_a_wider_limit_then_what_was_received_before_stays() -> None:
    reader = FrameReader(limit=100, receive_bytes=104)
    small, large = bytes([1]) * 20, bytes([2]) * 5_000
    stream = framed(small, large)
    reader.buffer()[:104] = stream[:104]
    reader.received(104)
    frame = reader.next_frame()
    reader.widen(MAX_FRAME_BYTES)
    assert frame is not None
    assert bytes(frame) == small
    assert feed(reader, stream[104:], 1_000) == [large]
