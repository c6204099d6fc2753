"""Cutting a stream of bytes into frames. No sockets here.

The owner of a connection asks where to receive (`FrameReader.buffer`), says how many bytes arrived
(`FrameReader.received`) and takes frames (`FrameReader.next_frame`) until there is none. Small
frames arrive in one reused buffer. A frame that does not fit it is received straight into memory
of its own size. A length that no frame may have is refused before anything is allocated for it.

There are two policies for the memory of a frame:

- *Lent* (an SPU): a frame is valid until the next call to `buffer`. Nothing is copied, and the
  memory of a large frame is used again, so that a batch is stamped and written from where the
  kernel put it.
- *Owned* (a client): a frame keeps its bytes for as long as anything refers to them; a small one
  is copied out of the buffer. Its length field stays in front of it in memory: with it, the
  batches behind a fixed part of 16 bytes are aligned to 8, as Arrow likes.

Neighbours: `schemas.wire.protocol` packs frames and takes them apart; `runnel.net.connection`,
`spu.server.connection` and `spu.net.peer_connection` own the sockets.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from schemas.errors import ProtocolError
from schemas.wire.protocol import FRAME_HEADER, MAX_FRAME_BYTES, PREFIX

RECEIVE_BYTES: Final = 128 << 10
_LENGTH_BYTES: Final = PREFIX.size
_MIN_BYTES: Final = FRAME_HEADER.size
#: Lent memory for large frames up to this size is kept for the next one.
_KEEP_BYTES: Final = 2 << 20


class FrameReader:
    """One direction of one connection. ``limit`` is the longest frame that is accepted, its length
    field not counted; ``owned`` says whose memory frames are (see the module)."""

    __slots__ = (
        "_end",
        "_filled",
        "_large",
        "_large_memory",
        "_limit",
        "_owned",
        "_small",
        "_start",
    )

    def __init__(
        self,
        limit: int = MAX_FRAME_BYTES,
        *,
        owned: bool = False,
        receive_bytes: int = RECEIVE_BYTES,
    ) -> None:
        self._limit = limit
        self._owned = owned
        self._small = memoryview(bytearray(receive_bytes))
        self._start = 0
        self._end = 0
        self._large_memory = memoryview(b"")
        self._large: memoryview | None = None
        self._filled = 0

    def buffer(self) -> memoryview:
        """Where the next bytes go; never empty if all complete frames were taken."""
        if self._large is not None:
            return self._large[self._filled :]
        if len(self._large_memory) > _KEEP_BYTES:
            # The frame in it was taken; an idle connection must not keep so much memory.
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

        Raises ProtocolError for a length that no frame may have; the stream is then unusable.
        """
        if self._large is not None:
            if self._filled < len(self._large):
                return None
            frame, self._large = self._large, None
            return frame[_LENGTH_BYTES:]
        start = self._start
        if self._end - start < _LENGTH_BYTES:
            return None
        (length,) = PREFIX.unpack_from(self._small, start)
        if not _MIN_BYTES <= length <= self._limit:
            raise _impossible(length, self._limit)
        end = start + _LENGTH_BYTES + length
        if end <= self._end:
            self._start = end
            if self._owned:
                return memoryview(bytes(self._small[start:end]))[_LENGTH_BYTES:]
            return self._small[start + _LENGTH_BYTES : end]
        if _LENGTH_BYTES + length > len(self._small):
            self._begin_large(_LENGTH_BYTES + length)
        return None

    def _begin_large(self, size: int) -> None:
        """Receive the frame at ``_start`` and its length field into memory of that size."""
        if self._owned:
            # Not a bytearray: that would be filled with zeros first.
            self._large = np.empty(size, np.uint8).data
        else:
            if len(self._large_memory) < size:
                self._large_memory = memoryview(bytearray(size))
            self._large = self._large_memory[:size]
        first = self._small[self._start : self._end]
        self._large[: len(first)] = first
        self._filled = len(first)
        self._start = self._end = 0


def _impossible(length: int, limit: int) -> ProtocolError:
    if length < _MIN_BYTES:
        return ProtocolError(f"a frame of {length} bytes is shorter than its header")
    return ProtocolError(
        f"a frame of {length} bytes is more than the {limit} allowed; if a Runnel client sent it,"
        " send smaller batches"
    )
