"""Requests that look into the log of one replica, and their answers: LIST_SEGMENTS, VERIFY.

The fixed parts of their frames (see `schemas.wire.protocol`), and the rows of tails.
"""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass
from enum import IntEnum
from typing import ClassVar, Self

from schemas.errors import ProtocolError
from schemas.ids import PartitionUid, uid_bytes, uid_text
from schemas.wire.protocol import FixedPart


class SegmentState(IntEnum):
    """The stage of a segment in its life cycle."""

    IN_PROGRESS = 0
    COMPLETED = 1
    PARTIALLY_TRUNCATED = 2
    TRUNCATED = 3


@dataclass(frozen=True, slots=True)
class ListSegmentsRequest(FixedPart):
    """Ask for the segments of a replica's log, now or once they change.

    ``known_version`` is from the last answer, 0 for none: if it is still current, the answer
    comes when a segment begins, is completed, truncated or deleted, else after ``max_wait_ms``.
    """

    uid: PartitionUid
    known_version: int = 0
    max_wait_ms: int = 0
    LAYOUT: ClassVar[struct.Struct] = struct.Struct("<16sQI")

    def pack(self) -> bytes:
        return self.LAYOUT.pack(uid_bytes(self.uid), self.known_version, self.max_wait_ms)

    @classmethod
    def unpack(cls, data: memoryview | bytes) -> Self:
        uid, version, wait_ms = cls._fields(data)
        return cls(uid_text(uid), version, wait_ms)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class ListSegmentsResponse(FixedPart):
    """The bounds of the log; the tail holds a `SegmentInfo` for each segment, in order.

    ``version`` is never 0, and changes with each restart of the SPU.
    """

    version: int
    log_start: int
    lac: int
    LAYOUT: ClassVar[struct.Struct] = struct.Struct("<Qqq")

    def pack(self) -> bytes:
        return self.LAYOUT.pack(self.version, self.log_start, self.lac)

    @classmethod
    def unpack(cls, data: memoryview | bytes) -> Self:
        return cls(*cls._fields(data))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """One segment: offsets from ``base_offset`` to below ``end_offset`` in ``size_bytes``.

    Times are wall time in microseconds, 0 if they are not known, or not known yet; ``opened_us`` is
    the time of the first batch.
    """

    base_offset: int
    end_offset: int
    size_bytes: int
    state: SegmentState
    opened_us: int = 0
    completed_us: int = 0
    truncated_us: int = 0
    LAYOUT: ClassVar[struct.Struct] = struct.Struct("<qqQB7xqqq")

    def pack(self) -> bytes:
        return self.LAYOUT.pack(
            self.base_offset,
            self.end_offset,
            self.size_bytes,
            self.state,
            self.opened_us,
            self.completed_us,
            self.truncated_us,
        )

    @classmethod
    def unpack_all(cls, data: memoryview | bytes) -> list[Self]:
        """The segments of an answer's tail. Raises ProtocolError."""
        if len(data) % cls.LAYOUT.size:
            raise ProtocolError(f"{len(data)} bytes are not a whole number of segments")
        found = []
        for base, end, size, state, opened, completed, truncated in cls.LAYOUT.iter_unpack(data):
            try:
                known = SegmentState(state)
            except ValueError as error:
                raise ProtocolError(f"bad segment: {error}") from error
            found.append(cls(base, end, size, known, opened, completed, truncated))
        return found


@dataclass(frozen=True, slots=True)
class VerifyRequest(FixedPart):
    """Have an SPU check its own replica of a partition against its checksums and indexes.

    ``offset`` is `EARLIEST` to begin, else ``next_offset`` of the previous answer on the same
    connection. The answer comes when all is checked, or after ``max_wait_ms`` with the progress
    so far. Whole batches from ``compare_from`` on and below ``compare_upto`` go into a digest;
    both count when it begins.
    """

    uid: PartitionUid
    offset: int
    compare_from: int
    compare_upto: int
    max_wait_ms: int
    LAYOUT: ClassVar[struct.Struct] = struct.Struct("<16sqqqI")

    def pack(self) -> bytes:
        return self.LAYOUT.pack(
            uid_bytes(self.uid),
            self.offset,
            self.compare_from,
            self.compare_upto,
            self.max_wait_ms,
        )

    @classmethod
    def unpack(cls, data: memoryview | bytes) -> Self:
        uid, *numbers = cls._fields(data)
        return cls(uid_text(uid), *numbers)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class VerifyResponse(FixedPart):
    """The progress of a verification; all numbers count from its beginning. Tail: the problems.

    ``end``: it checks the offsets below. ``compared_from``: base offset of the first batch in
    ``digest``, `NO_OFFSET` if there is none. ``finished`` is 1 at the end; the tail is JSON:
    ``{"problems": [{"file", "position", "reason", "severity", "rebuilt"}]}``.
    """

    log_start: int
    lac: int
    end: int
    next_offset: int
    compared_from: int
    size_bytes: int
    checked_bytes: int
    batches: int
    records: int
    segments: int
    indexes: int
    digest: bytes
    finished: int
    LAYOUT: ClassVar[struct.Struct] = struct.Struct("<qqqqqQQQQII16sB")

    def pack(self) -> bytes:
        return self.LAYOUT.pack(*astuple(self))

    @classmethod
    def unpack(cls, data: memoryview | bytes) -> Self:
        return cls(*cls._fields(data))  # type: ignore[arg-type]
