"""Cutting a stream of bytes into frames, without a socket in sight.

The owner asks where to receive (`buffer`), says how much arrived (`received`) and takes frames
(`next_frame`) until there is none. Small frames are handed out of one reused buffer. A large
frame is received straight into memory of its own size, so that a batch is stamped and written
from where the kernel put it. A frame is valid until the next call to `buffer`.

A length above the limit is refused before anything is allocated for it.
"""

from __future__ import annotations

from typing import Final

from schemas.errors import ProtocolError
from schemas.wire.protocol import FRAME_HEADER, MAX_FRAME_BYTES, PREFIX

RECEIVE_BYTES: Final = 128 << 10
#: Memory for large frames up to this size is kept for the next one.
_KEEP_BYTES: Final = 2 << 20


class FrameReader:
    """One direction of one connection."""

    __slots__ = ("_end", "_filled", "_large", "_large_memory", "_limit", "_small", "_start")

    def __init__(self, limit: int = MAX_FRAME_BYTES) -> None:
        self._limit = limit
        self._small = memoryview(bytearray(RECEIVE_BYTES))
        self._start = 0
        self._end = 0
        self._large_memory = memoryview(b"")
        self._large: memoryview | None = None
        self._filled = 0

    def buffer(self) -> memoryview:
        """Where the next bytes go; never empty if all frames at hand were taken."""
        if self._large is not None:
            return self._large[self._filled :]
        if len(self._large_memory) > _KEEP_BYTES:
            # The frame in it was taken; an idle connection must not hold on to so much.
            self._large_memory = memoryview(b"")
        if self._start == self._end:
            self._start = self._end = 0
        elif self._start:
            left = self._end - self._start
            self._small[:left] = self._small[self._start : self._end]
            self._start, self._end = 0, left
        return self._small[self._end :]

    def received(self, count: int) -> None:
        """``count`` bytes were put into the last `buffer`."""
        if self._large is not None:
            self._filled += count
        else:
            self._end += count

    def next_frame(self) -> memoryview | None:
        """The next whole frame, without its length field; None if more bytes are needed.

        Raises ProtocolError for a length that no frame has; the stream is lost then.
        """
        if self._large is not None:
            if self._filled < len(self._large):
                return None
            frame, self._large = self._large, None
            return frame
        available = self._end - self._start
        if available < PREFIX.size:
            return None
        (length,) = PREFIX.unpack_from(self._small, self._start)
        if length > self._limit:
            raise ProtocolError(
                f"a frame of {length} bytes is more than the {self._limit} allowed; if this is a"
                " Runnel client, send smaller batches"
            )
        if length < FRAME_HEADER.size:
            raise ProtocolError(f"a frame of {length} bytes is shorter than its header")
        body = self._start + PREFIX.size
        if available - PREFIX.size >= length:
            self._start = body + length
            return self._small[body : self._start]
        if PREFIX.size + length > len(self._small):
            self._begin_large(length, self._small[body : self._end])
            self._start = self._end = 0
        return None

    def _begin_large(self, length: int, first: memoryview) -> None:
        if len(self._large_memory) < length:
            self._large_memory = memoryview(bytearray(length))
        self._large = self._large_memory[:length]
        self._large[: len(first)] = first
        self._filled = len(first)
