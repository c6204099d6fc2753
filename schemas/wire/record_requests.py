"""Requests for the records of a partition and their answers: PRODUCE, FETCH, LIST_OFFSETS.

The fixed parts of their frames (see `schemas.wire.protocol`); whole batches are the tails.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import ClassVar, Final, Self

from schemas.errors import ProtocolError
from schemas.ids import PartitionUid, uid_bytes, uid_text
from schemas.wire.protocol import FixedPart

EARLIEST: Final = -2

LATEST: Final = -1

NO_OFFSET: Final = -1


class Acks(IntEnum):
    """When a produce request is answered."""

    NONE = 0
    LEADER = 1
    COMMITTED = 2


class FetchFlags(IntFlag):
    """How a fetch may be answered. Unknown bits are ignored."""

    #: A follower may answer, up to the last add confirmed that it knows.
    FOLLOWER_OK = 1
    #: The reader was sent a damaged batch: the SPU verifies the batches before it sends them again,
    #: and takes a replica that is damaged out of service.
    VERIFIED = 2
    #: The reader knows that what lies below the offset was committed: a leader whose log ends
    #: before it answers OFFSET_OUT_OF_RANGE, and does not wait.
    COMMITTED_BELOW = 4
    #: The reader is on the SPU's host: the SPU may answer where the batches lie, which are many,
    #: instead of sending them (`schemas.wire.located_batches`).
    LOCATE = 8


class AnswerFlags(IntFlag):
    """What an answer to a fetch is. Unknown bits are ignored."""

    #: The tail is a `schemas.wire.located_batches.Place`, as the request allowed.
    LOCATED = 1


NO_FLAGS: Final = FetchFlags(0)
NO_ANSWER_FLAGS: Final = AnswerFlags(0)


class PositionBy(IntEnum):
    """What a position of `ListOffsetsRequest` counts."""

    TIMESTAMP = 0
    TRANSACTION_ID = 1
    #: The answer repeats it, with the term of the batch below it.
    OFFSET = 2


@dataclass(frozen=True, slots=True)
class ProduceRequest(FixedPart):
    """Append one batch (the tail) to a partition.

    ``expected_offset``: append only if this will be the base offset; `NO_OFFSET` for any.
    ``timeout_ms`` bounds the wait for the commit; after it the outcome is unknown.
    """

    uid: PartitionUid
    acks: Acks
    timeout_ms: int
    expected_offset: int = NO_OFFSET
    LAYOUT: ClassVar[struct.Struct] = struct.Struct("<16sB3xIq")

    def pack(self) -> bytes:
        return self.LAYOUT.pack(
            uid_bytes(self.uid), self.acks, self.timeout_ms, self.expected_offset
        )

    @classmethod
    def unpack(cls, data: memoryview | bytes) -> Self:
        uid, acks, timeout_ms, expected = cls._fields(data)
        try:
            return cls(uid_text(uid), Acks(acks), timeout_ms, expected)  # type: ignore[arg-type]
        except ValueError as error:
            raise ProtocolError(f"bad produce request: {error}") from error


@dataclass(frozen=True, slots=True)
class ProduceResponse(FixedPart):
    """Where the batch begins, and the last add confirmed when the answer was written."""

    base_offset: int
    lac: int
    LAYOUT: ClassVar[struct.Struct] = struct.Struct("<qq")

    def pack(self) -> bytes:
        return self.LAYOUT.pack(self.base_offset, self.lac)

    @classmethod
    def unpack(cls, data: memoryview | bytes) -> Self:
        return cls(*cls._fields(data))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class FetchRequest(FixedPart):
    """Read whole batches from ``offset`` on.

    Answered at once when ``min_bytes`` are committed beyond ``offset``, else after
    ``max_wait_ms`` with the batches there are. The first batch is sent whole even when it exceeds
    ``max_bytes``, and may begin before ``offset``. ``term`` is the term of the reader's last
    batch, 0 if it has none: with ``offset`` it identifies what the reader has read, and
    DivergedError says that the log no longer holds that. ``flags``: without FOLLOWER_OK only the
    leader answers; with VERIFIED the SPU checks the batches first.
    """

    uid: PartitionUid
    offset: int
    max_bytes: int
    min_bytes: int
    max_wait_ms: int
    term: int = 0
    flags: FetchFlags = NO_FLAGS
    LAYOUT: ClassVar[struct.Struct] = struct.Struct("<16sqIIIQB")
    ADDED: ClassVar[int] = 1

    def pack(self) -> bytes:
        return self.LAYOUT.pack(
            uid_bytes(self.uid),
            self.offset,
            self.max_bytes,
            self.min_bytes,
            self.max_wait_ms,
            self.term,
            self.flags,
        )

    @classmethod
    def unpack(cls, data: memoryview | bytes) -> Self:
        uid, *numbers, flags = cls._fields(data)
        known = FetchFlags(flags)  # type: ignore[arg-type]
        return cls(uid_text(uid), *numbers, known)  # type: ignore[arg-type, call-arg]


@dataclass(frozen=True, slots=True)
class FetchResponse(FixedPart):
    """The log's bounds, and whole batches as the tail.

    ``log_start`` is the first offset kept; ``lac`` the last one committed (one below
    ``log_start`` in an empty log); readers stop at it. With LOCATED in ``flags``, the tail says
    where the batches lie.
    """

    log_start: int
    lac: int
    flags: AnswerFlags = NO_ANSWER_FLAGS
    LAYOUT: ClassVar[struct.Struct] = struct.Struct("<qqB")
    ADDED: ClassVar[int] = 1

    def pack(self) -> bytes:
        return self.LAYOUT.pack(self.log_start, self.lac, self.flags)

    @classmethod
    def unpack(cls, data: memoryview | bytes) -> Self:
        log_start, lac, flags = cls._fields(data)
        return cls(log_start, lac, AnswerFlags(flags))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class ListOffsetsRequest(FixedPart):
    """Ask for an offset: `EARLIEST`, `LATEST` (one above the last committed), or the first
    record at or after a timestamp in microseconds (0 and up).

    ``by`` says what a position of 0 or more counts. ``term`` is the term of the last batch below
    ``below`` as the asker has read it, 0 if it asks nothing of the kind: DivergedError says that
    the log no longer holds that, as for a `FetchRequest`.
    """

    uid: PartitionUid
    position: int
    by: PositionBy = PositionBy.TIMESTAMP
    below: int = 0
    term: int = 0
    LAYOUT: ClassVar[struct.Struct] = struct.Struct("<16sqBqQ")
    ADDED: ClassVar[int] = 17

    def pack(self) -> bytes:
        return self.LAYOUT.pack(uid_bytes(self.uid), self.position, self.by, self.below, self.term)

    @classmethod
    def unpack(cls, data: memoryview | bytes) -> Self:
        uid, position, by, below, term = cls._fields(data)
        try:
            known = PositionBy(by)  # type: ignore[arg-type]
            return cls(uid_text(uid), position, known, below, term)  # type: ignore[arg-type]
        except ValueError as error:
            raise ProtocolError(f"bad request for an offset: {error}") from error


@dataclass(frozen=True, slots=True)
class ListOffsetsResponse(FixedPart):
    """The offset asked for, and the bounds of the log.

    For a timestamp, the offset is that of the first *batch* whose last timestamp is at or after it;
    for a transaction id, of the first batch whose last id is that or larger. The reader skips the
    earlier records of that batch. ``by`` repeats how the position was understood: an SPU of an
    earlier version takes every position for a timestamp, and does not say so. ``term`` is that of
    the last batch below the offset, 0 if the log does not tell it any more.
    """

    offset: int
    log_start: int
    lac: int
    size_bytes: int
    by: PositionBy = PositionBy.TIMESTAMP
    term: int = 0
    LAYOUT: ClassVar[struct.Struct] = struct.Struct("<qqqQBQ")
    ADDED: ClassVar[int] = 9

    def pack(self) -> bytes:
        return self.LAYOUT.pack(
            self.offset, self.log_start, self.lac, self.size_bytes, self.by, self.term
        )

    @classmethod
    def unpack(cls, data: memoryview | bytes) -> Self:
        *numbers, by, term = cls._fields(data)
        try:
            return cls(*numbers, PositionBy(by), term)  # type: ignore[arg-type, call-arg]
        except ValueError as error:
            raise ProtocolError(f"bad answer with an offset: {error}") from error
