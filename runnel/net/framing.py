"""Putting received bytes together into frames, without I/O and without needless copies.

The connection asks where the next bytes may go (`buffer`) and says how many came (`received`).
Small frames are cut out of a shared inbox; a frame that does not fit it gets a buffer of its
own, and the socket writes straight into that. A frame's length field stays in front of it in
memory: with it, the batches behind a fixed part of 16 bytes are aligned to 8, as Arrow likes.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from schemas.errors import ProtocolError
from schemas.wire.protocol import FRAME_HEADER, MAX_FRAME_BYTES, PREFIX

INBOX_BYTES: Final = 64 << 10


class FrameAssembler:
    """The receiving half of one connection. ``limit`` is the longest frame that is accepted."""

    def __init__(self, limit: int = MAX_FRAME_BYTES, inbox_bytes: int = INBOX_BYTES) -> None:
        self._limit = limit
        self._inbox = memoryview(bytearray(inbox_bytes))
        self._target = self._inbox
        self._filled = 0
        self._large = False

    def buffer(self) -> memoryview:
        """Where the next bytes go; never empty."""
        return self._target[self._filled :]

    def received(self, count: int) -> list[memoryview]:
        """The frames that ``count`` more bytes complete, without their length fields.

        Raises ProtocolError for a length that no frame may have.
        """
        self._filled += count
        if self._large:
            if self._filled < len(self._target):
                return []
            frame = self._target[PREFIX.size :]
            self._target, self._filled, self._large = self._inbox, 0, False
            return [frame]
        return self._cut()

    def _cut(self) -> list[memoryview]:
        frames: list[memoryview] = []
        at = 0
        while self._filled - at >= PREFIX.size:
            (length,) = PREFIX.unpack_from(self._inbox, at)
            if not FRAME_HEADER.size <= length <= self._limit:
                raise ProtocolError(
                    f"a frame says it has {length} bytes; {FRAME_HEADER.size} to"
                    f" {self._limit} are possible"
                )
            end = at + PREFIX.size + length
            if end > self._filled:
                if PREFIX.size + length > len(self._inbox):
                    self._start_large(at, PREFIX.size + length)
                    return frames
                break
            frames.append(memoryview(bytes(self._inbox[at:end]))[PREFIX.size :])
            at = end
        if at:
            rest = self._filled - at
            self._inbox[:rest] = self._inbox[at : self._filled]
            self._filled = rest
        return frames

    def _start_large(self, at: int, size: int) -> None:
        have = self._filled - at
        # Not a bytearray: that would be filled with zeros first.
        own = np.empty(size, np.uint8).data
        own[:have] = self._inbox[at : self._filled]
        self._target, self._filled, self._large = own, have, True
