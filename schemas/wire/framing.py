"""Cutting a stream of bytes into frames. No sockets here.

The owner of a connection asks where to receive (`FrameReader.buffer`), says how many bytes arrived
(`FrameReader.received`) and takes frames (`FrameReader.next_frame`) until there is none. Small
frames arrive in one reused buffer. A frame that does not fit it is received straight into memory
of its own size. A length that no frame may have is refused before anything is allocated for it.

Memory follows what has arrived, not what was announced. Memory of a frame's size is only reserved:
the system provides each page when bytes arrive for it. With a budget, a large frame begins in the
small buffer, and gets memory of its own once that is full; what it may use then grows with what has
come. While the budget has no room the reader is *starved*: `buffer` would be empty, so its owner
must not receive, and calls `next_frame` again when the budget says so.

There are two policies for the memory of a frame:

- *Lent* (an SPU): a frame is valid until the next call to `buffer` or `drop_taken`. Nothing is
  copied, and the memory of a large frame is used again, so that a batch is stamped and written from
  where the kernel put it.
- *Owned* (a client): a frame keeps its bytes for as long as anything refers to them; a small one
  is copied out of the buffer. Its length field stays in front of it in memory: with it, the
  batches behind a fixed part of 16 bytes are aligned to 8, as Arrow likes.

Neighbours: `schemas.wire.protocol` packs frames and takes them apart; `schemas.wire.frame_budget`
bounds the memory of many readers; `runnel.net.connection`,
`spu.server.connection` and `spu.net.peer_connection` own the sockets.
"""

from __future__ import annotations

from typing import Final

from schemas.errors import ProtocolError
from schemas.wire.frame_budget import Claim
from schemas.wire.memory import unfilled
from schemas.wire.protocol import FRAME_HEADER, MAX_FRAME_BYTES, PREFIX

RECEIVE_BYTES: Final = 128 << 10
_LENGTH_BYTES: Final = PREFIX.size
_MIN_BYTES: Final = FRAME_HEADER.size
#: Lent memory for large frames up to this size is kept for the next one.
_KEEP_BYTES: Final = 2 << 20
#: How many times the bytes that have arrived of it a large frame may use.
_GROWTH: Final = 4


class FrameReader:
    """One direction of one connection. ``limit`` is the longest frame that is accepted, its length
    field not counted; ``owned`` says whose memory frames are (see the module). ``claim``: what
    large frames use of a budget, for lent memory only."""

    __slots__ = (
        "_claim",
        "_end",
        "_filled",
        "_large",
        "_large_memory",
        "_limit",
        "_owned",
        "_small",
        "_start",
        "starved",
    )

    def __init__(
        self,
        limit: int = MAX_FRAME_BYTES,
        *,
        owned: bool = False,
        receive_bytes: int = RECEIVE_BYTES,
        claim: Claim | None = None,
    ) -> None:
        #: Whether the next bytes have to wait for room in the budget.
        self.starved = False
        self._limit = limit
        self._claim = claim
        self._owned = owned
        self._small = memoryview(bytearray(receive_bytes))
        self._start = 0
        self._end = 0
        self._large_memory = memoryview(b"")
        self._large: memoryview | None = None
        self._filled = 0

    @property
    def mid_frame(self) -> bool:
        """Whether a part of a frame has arrived, and not all of it."""
        return self._large is not None or self._end > self._start

    def widen(self, limit: int, receive_bytes: int = RECEIVE_BYTES) -> None:
        """Accept frames up to ``limit`` from now on, and receive more at once. A lent frame stays
        valid as it would have been."""
        small = memoryview(bytearray(receive_bytes))
        left = self._end - self._start
        small[:left] = self._small[self._start : self._end]
        self._small, self._start, self._end = small, 0, left
        self._limit = limit

    def buffer(self) -> memoryview:
        """Where the next bytes go; never empty if all complete frames were taken and the reader is
        not starved."""
        if self._large is not None:
            end = len(self._large) if self._claim is None else self._claim.bytes
            return self._large[self._filled : end]
        self.drop_taken()
        if self._start == self._end:
            self._start = self._end = 0
        elif self._start:
            left = self._end - self._start
            self._small[:left] = self._small[self._start : self._end]
            self._start, self._end = 0, left
        return self._small[self._end :]

    def drop_taken(self) -> None:
        """The frames taken so far are not used any more. An owner that waits for bytes calls this,
        so that an idle connection does not keep the memory of a large one."""
        if self._large is not None or not self._large_memory:
            return
        claim = self._claim
        kept = claim is None or (claim.may_keep and claim.bytes == len(self._large_memory))
        if len(self._large_memory) > _KEEP_BYTES or not kept:
            self._large_memory = memoryview(b"")
            if claim is not None:
                claim.release()

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
        self.starved = False
        if self._large is not None:
            if self._filled < len(self._large):
                self._claim_more(self._filled, len(self._large))
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
        size = _LENGTH_BYTES + length
        if size > len(self._small) and self._may_begin_large(size):
            self._begin_large(size)
        return None

    def _may_begin_large(self, size: int) -> bool:
        """Whether a frame of ``size`` gets memory of its own now."""
        if self._claim is None or self._claim.bytes >= size:
            return True
        arrived = self._end - self._start
        return arrived == len(self._small) and self._claim_more(arrived, size)

    def _claim_more(self, arrived: int, size: int) -> bool:
        """Claim memory for the bytes after the first ``arrived`` ones of a frame of ``size``."""
        if self._claim is not None and arrived >= self._claim.bytes:
            self.starved = not self._claim.grow_to(min(size, _GROWTH * arrived))
        return not self.starved

    def _begin_large(self, size: int) -> None:
        """Receive the frame at ``_start`` and its length field into memory of that size."""
        if self._owned:
            # Not a bytearray: filling it with zeros would make all of it resident at once.
            self._large = unfilled(size)
        else:
            if len(self._large_memory) < size:
                self._large_memory = unfilled(size)
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
