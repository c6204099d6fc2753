"""Frames between clients and SPUs: fixed headers, fixed fields, raw batches.

Every frame is ``length`` (4 bytes, of what follows), then a 12-byte frame header, then a body::

    u32 length | u8 api | u8 version | u16 status | u32 correlation | u32 fixed-part length
    fixed part | tail

All integers are little-endian. ``status`` is 0 in requests; in responses it is an `ErrorCode`,
and a response whose status is not OK carries a UTF-8 message as its tail. The fixed part of a
known api and version has the layouts below; a longer one is accepted and its end ignored, so
fields can be added; where some were, a shorter one that ends before them is accepted too. The
tail is raw bytes: record batches, never parsed here. The same
correlation number ties a response to its request; responses may come in any order.

A connection starts with HELLO and nothing else; a peer that cannot agree on a version gets an
UNSUPPORTED answer and the connection ends.
"""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass
from enum import IntEnum, IntFlag
from typing import ClassVar, Final, Self

from schemas.errors import (
    DivergedError,
    ErrorCode,
    ProtocolError,
    RunnelError,
    TransactionIdTooLowError,
    error_from,
)
from schemas.ids import PartitionUid, uid_bytes, uid_text
from schemas.topic import MAX_BATCH_BYTES

PROTOCOL_VERSION: Final = 1
MIN_PROTOCOL_VERSION: Final = 1
PREFIX: Final = struct.Struct("<I")
FRAME_HEADER: Final = struct.Struct("<BBHII")
#: Length field and frame header together.
FRAME_OVERHEAD: Final = PREFIX.size + FRAME_HEADER.size
#: The longest frame a peer accepts, by its length field.
MAX_FRAME_BYTES: Final = MAX_BATCH_BYTES + (1 << 16)
#: How much of a fetch answer one request may ask for.
MAX_FETCH_BYTES: Final = 32 << 20
HELLO_MAGIC: Final = b"RNNL"

EARLIEST: Final = -2
LATEST: Final = -1
NO_OFFSET: Final = -1


class Api(IntEnum):
    HELLO = 1
    PRODUCE = 2
    FETCH = 3
    LIST_OFFSETS = 4
    LIST_SEGMENTS = 5
    VERIFY = 6
    SUBSCRIBE = 7
    UNSUBSCRIBE = 8
    CREDIT = 9
    PUSH = 10


class Acks(IntEnum):
    """When a produce request is answered."""

    NONE = 0
    LEADER = 1
    COMMITTED = 2


class FetchFlags(IntFlag):
    """How a fetch may be answered. Bits that are not here are ignored."""

    #: A follower may answer, up to the last add confirmed that it knows.
    FOLLOWER_OK = 1


NO_FLAGS: Final = FetchFlags(0)


class PositionBy(IntEnum):
    """What a position of `ListOffsetsRequest` counts."""

    TIMESTAMP = 0
    TRANSACTION_ID = 1


class SegmentState(IntEnum):
    """How far a segment of a log is in its life."""

    IN_PROGRESS = 0
    COMPLETED = 1
    PARTIALLY_TRUNCATED = 2
    TRUNCATED = 3


@dataclass(frozen=True, slots=True)
class FrameHeader:
    """What stands between the length field and the body."""

    api: int
    version: int
    status: int
    correlation: int
    fixed_length: int


def pack_frame(
    api: int, correlation: int, fixed: bytes, *tail: bytes | bytearray | memoryview, status: int = 0
) -> list[bytes | bytearray | memoryview]:
    """The pieces of one frame, for ``writelines``. Tails are not copied."""
    length = FRAME_HEADER.size + len(fixed) + sum(len(piece) for piece in tail)
    head = PREFIX.pack(length) + FRAME_HEADER.pack(
        api, PROTOCOL_VERSION, status, correlation, len(fixed)
    )
    return [head + fixed, *tail]


def pack_error(
    api: int, correlation: int, error: RunnelError
) -> list[bytes | bytearray | memoryview]:
    """A response that carries an error instead of a result."""
    fixed = b""
    if isinstance(error, DivergedError):
        fixed = DivergedResponse(error.diverged_at).pack()
    elif isinstance(error, TransactionIdTooLowError):
        fixed = TransactionIdTooLowResponse(error.last_transaction_id).pack()
    return pack_frame(
        api, correlation, fixed, error.message.encode(errors="replace")[:4096], status=error.code
    )


def unpack_frame(frame: memoryview) -> tuple[FrameHeader, memoryview, memoryview]:
    """Header, fixed part and tail of a frame without its length field. Raises ProtocolError."""
    if len(frame) < FRAME_HEADER.size:
        raise ProtocolError(f"a frame of {len(frame)} bytes is shorter than its header")
    header = FrameHeader(*FRAME_HEADER.unpack_from(frame))
    end = FRAME_HEADER.size + header.fixed_length
    if end > len(frame):
        raise ProtocolError(f"fixed part of {header.fixed_length} bytes leaves the frame")
    return header, frame[FRAME_HEADER.size : end], frame[end:]


def raise_for_status(
    header: FrameHeader, tail: memoryview, fixed: memoryview | bytes = b""
) -> None:
    """Raise the error a response carries, if it carries one. ``fixed`` is its fixed part.

    Raises ProtocolError where the error needs a fixed part that is not there.
    """
    if header.status == ErrorCode.OK:
        return
    message = bytes(tail).decode(errors="replace")
    if header.status == ErrorCode.DIVERGED:
        raise DivergedError(message, diverged_at=DivergedResponse.unpack(fixed).diverged_at)
    if header.status == ErrorCode.TRANSACTION_ID_TOO_LOW:
        last = TransactionIdTooLowResponse.unpack(fixed).last_transaction_id
        raise TransactionIdTooLowError(message, last_transaction_id=last)
    raise error_from(header.status, message)


class _Fixed:
    """A fixed part: a struct layout and the conversion to and from it.

    The last ``ADDED`` bytes of the layout are fields that peers of an earlier version do not
    send; they count as zero then.
    """

    LAYOUT: ClassVar[struct.Struct]
    ADDED: ClassVar[int] = 0

    @classmethod
    def _fields(cls, data: memoryview | bytes) -> tuple[object, ...]:
        size = cls.LAYOUT.size
        if len(data) < size:
            if len(data) < size - cls.ADDED:
                raise ProtocolError(
                    f"{cls.__name__} needs {size - cls.ADDED} bytes, {len(data)} arrived"
                )
            data = bytes(data[: size - cls.ADDED]).ljust(size, b"\0")
        return cls.LAYOUT.unpack_from(data)


@dataclass(frozen=True, slots=True)
class HelloRequest(_Fixed):
    """Client → SPU, first frame: magic ``RNNL``, the versions it speaks."""

    min_version: int
    max_version: int
    LAYOUT: ClassVar[struct.Struct] = struct.Struct("<4sHH")

    def pack(self) -> bytes:
        return self.LAYOUT.pack(HELLO_MAGIC, self.min_version, self.max_version)

    @classmethod
    def unpack(cls, data: memoryview | bytes) -> Self:
        magic, low, high = cls._fields(data)
        if magic != HELLO_MAGIC:
            raise ProtocolError("this is not a Runnel client: the first frame does not say RNNL")
        return cls(low, high)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class HelloResponse(_Fixed):
    """SPU → client: the version to use, who answers, its limits. Tail: the cluster uid."""

    version: int
    spu_id: int
    max_frame_bytes: int
    LAYOUT: ClassVar[struct.Struct] = struct.Struct("<HII")

    def pack(self) -> bytes:
        return self.LAYOUT.pack(self.version, self.spu_id, self.max_frame_bytes)

    @classmethod
    def unpack(cls, data: memoryview | bytes) -> Self:
        return cls(*cls._fields(data))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class ProduceRequest(_Fixed):
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
class ProduceResponse(_Fixed):
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
class FetchRequest(_Fixed):
    """Read whole batches from ``offset`` on.

    Answered at once when ``min_bytes`` are committed beyond ``offset``, else after
    ``max_wait_ms`` with what there is. The first batch is sent whole even when it exceeds
    ``max_bytes``, and may begin before ``offset``. ``term`` is the term of the reader's last
    batch, 0 if it has none: with ``offset`` it says what the reader has read, and DivergedError
    says that the log does not hold that any more. ``flags``: without FOLLOWER_OK only the
    leader answers.
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
class FetchResponse(_Fixed):
    """The log's bounds, and whole batches as the tail.

    ``log_start`` is the first offset kept; ``lac`` the last one committed (one below
    ``log_start`` in an empty log); readers stop at it.
    """

    log_start: int
    lac: int
    LAYOUT: ClassVar[struct.Struct] = struct.Struct("<qq")

    def pack(self) -> bytes:
        return self.LAYOUT.pack(self.log_start, self.lac)

    @classmethod
    def unpack(cls, data: memoryview | bytes) -> Self:
        return cls(*cls._fields(data))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class SubscribeRequest(_Fixed):
    """Have partitions pushed to this connection; the tail names them, as `SubscriptionEntry`.

    ``entry_bytes``: how long an entry of the tail is. Answered at once without any fixed part or
    tail; each entry then gets a frame of its own (`PushResponse`), or an error frame. Without
    entries it shows that the SPU is there.
    """

    entry_bytes: int
    LAYOUT: ClassVar[struct.Struct] = struct.Struct("<I")

    def pack(self) -> bytes:
        return self.LAYOUT.pack(self.entry_bytes)

    @classmethod
    def unpack(cls, data: memoryview | bytes) -> Self:
        return cls(*cls._fields(data))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class SubscriptionEntry:
    """One subscription: whole batches from ``offset`` on, at most ``credit`` bytes for now.

    ``number`` is chosen by the client, stands as the correlation of all frames that are pushed
    for it, and is not used twice on a connection. ``term`` and ``flags`` are those of a
    `FetchRequest`. A credit of 0 counts as 1.
    """

    number: int
    uid: PartitionUid
    offset: int
    term: int
    credit: int
    flags: FetchFlags = NO_FLAGS
    LAYOUT: ClassVar[struct.Struct] = struct.Struct("<I16sqQIB7x")

    def pack(self) -> bytes:
        uid = uid_bytes(self.uid)
        return self.LAYOUT.pack(self.number, uid, self.offset, self.term, self.credit, self.flags)

    @classmethod
    def unpack_all(cls, data: memoryview | bytes, entry_bytes: int) -> list[Self]:
        """The entries of a tail; what follows the known fields of each is ignored. Raises
        ProtocolError."""
        if entry_bytes < cls.LAYOUT.size or len(data) % entry_bytes:
            raise ProtocolError(
                f"{len(data)} bytes are no entries of {entry_bytes} bytes; an entry has at least"
                f" {cls.LAYOUT.size}"
            )
        found = []
        for at in range(0, len(data), entry_bytes):
            number, uid, offset, term, credit, flags = cls.LAYOUT.unpack_from(data, at)
            found.append(cls(number, uid_text(uid), offset, term, credit, FetchFlags(flags)))
        return found


@dataclass(frozen=True, slots=True)
class Grant:
    """A row of the tail of CREDIT: subscription ``number`` may be sent ``credit`` bytes more."""

    number: int
    credit: int
    LAYOUT: ClassVar[struct.Struct] = struct.Struct("<II")

    def pack(self) -> bytes:
        return self.LAYOUT.pack(self.number, self.credit)

    @classmethod
    def unpack_all(cls, data: memoryview | bytes) -> list[Self]:
        """The rows of a tail. Raises ProtocolError."""
        if len(data) % cls.LAYOUT.size:
            raise ProtocolError(f"{len(data)} bytes are no whole number of grants")
        return [cls(*row) for row in cls.LAYOUT.iter_unpack(data)]


def pack_numbers(numbers: list[int]) -> bytes:
    """The tail of UNSUBSCRIBE."""
    return struct.pack(f"<{len(numbers)}I", *numbers)


def unpack_numbers(data: memoryview | bytes) -> list[int]:
    """The subscriptions that an UNSUBSCRIBE ends. Raises ProtocolError."""
    if len(data) % 4:
        raise ProtocolError(f"{len(data)} bytes are no whole number of subscriptions")
    return list(struct.unpack(f"<{len(data) // 4}I", data))


@dataclass(frozen=True, slots=True)
class PushResponse(_Fixed):
    """What an SPU sends of its own accord for a subscription; the tail holds whole batches.

    ``log_start`` and ``lac`` as in `FetchResponse`. ``next_offset`` is where the subscription
    stands behind these batches.
    """

    log_start: int
    lac: int
    next_offset: int
    LAYOUT: ClassVar[struct.Struct] = struct.Struct("<qqq")

    def pack(self) -> bytes:
        return self.LAYOUT.pack(self.log_start, self.lac, self.next_offset)

    @classmethod
    def unpack(cls, data: memoryview | bytes) -> Self:
        return cls(*cls._fields(data))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class DivergedResponse(_Fixed):
    """What an answer with the status DIVERGED holds beside its message.

    ``diverged_at``: from this offset on what the reader has read may differ from the log.
    """

    diverged_at: int
    LAYOUT: ClassVar[struct.Struct] = struct.Struct("<q")

    def pack(self) -> bytes:
        return self.LAYOUT.pack(self.diverged_at)

    @classmethod
    def unpack(cls, data: memoryview | bytes) -> Self:
        return cls(*cls._fields(data))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class TransactionIdTooLowResponse(_Fixed):
    """What an answer with the status TRANSACTION_ID_TOO_LOW holds beside its message.

    ``last_transaction_id``: no record with an id below it is appended to the partition.
    """

    last_transaction_id: int
    LAYOUT: ClassVar[struct.Struct] = struct.Struct("<q")

    def pack(self) -> bytes:
        return self.LAYOUT.pack(self.last_transaction_id)

    @classmethod
    def unpack(cls, data: memoryview | bytes) -> Self:
        return cls(*cls._fields(data))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class ListOffsetsRequest(_Fixed):
    """Ask for an offset: `EARLIEST`, `LATEST` (one above the last committed), or the first
    record at or after a timestamp in microseconds (0 and up). ``by`` says what a position of 0 and
    up is."""

    uid: PartitionUid
    position: int
    by: PositionBy = PositionBy.TIMESTAMP
    LAYOUT: ClassVar[struct.Struct] = struct.Struct("<16sqB")
    ADDED: ClassVar[int] = 1

    def pack(self) -> bytes:
        return self.LAYOUT.pack(uid_bytes(self.uid), self.position, self.by)

    @classmethod
    def unpack(cls, data: memoryview | bytes) -> Self:
        uid, position, by = cls._fields(data)
        try:
            return cls(uid_text(uid), position, PositionBy(by))  # type: ignore[arg-type]
        except ValueError as error:
            raise ProtocolError(f"bad request for an offset: {error}") from error


@dataclass(frozen=True, slots=True)
class ListOffsetsResponse(_Fixed):
    """The offset asked for, and the bounds of the log.

    For a timestamp the offset is of the first *batch* whose last timestamp is at or after it, for
    a transaction id of the first one whose last id is that or a larger one; the reader skips the
    earlier records of that batch. ``by`` repeats what the position was taken for: an SPU of an
    earlier version takes every position for a timestamp, and does not say so.
    """

    offset: int
    log_start: int
    lac: int
    size_bytes: int
    by: PositionBy = PositionBy.TIMESTAMP
    LAYOUT: ClassVar[struct.Struct] = struct.Struct("<qqqQB")
    ADDED: ClassVar[int] = 1

    def pack(self) -> bytes:
        return self.LAYOUT.pack(self.offset, self.log_start, self.lac, self.size_bytes, self.by)

    @classmethod
    def unpack(cls, data: memoryview | bytes) -> Self:
        *numbers, by = cls._fields(data)
        try:
            return cls(*numbers, PositionBy(by))  # type: ignore[arg-type, call-arg]
        except ValueError as error:
            raise ProtocolError(f"bad answer with an offset: {error}") from error


@dataclass(frozen=True, slots=True)
class ListSegmentsRequest(_Fixed):
    """Ask for the segments of a replica's log, or for what has become of them.

    ``known_version`` is that of the last answer, 0 for none: if it is still the same, the answer
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
class ListSegmentsResponse(_Fixed):
    """The bounds of the log; the tail holds a `SegmentInfo` for each segment, in order.

    ``version`` is never 0, and another one after each restart of the SPU.
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

    Times are wall time in microseconds, 0 where they are not known or not yet; ``opened_us`` is of
    the first batch.
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
            raise ProtocolError(f"{len(data)} bytes are no whole number of segments")
        found = []
        for base, end, size, state, opened, completed, truncated in cls.LAYOUT.iter_unpack(data):
            try:
                known = SegmentState(state)
            except ValueError as error:
                raise ProtocolError(f"bad segment: {error}") from error
            found.append(cls(base, end, size, known, opened, completed, truncated))
        return found


@dataclass(frozen=True, slots=True)
class VerifyRequest(_Fixed):
    """Have an SPU check its own replica of a partition against its checksums and indexes.

    ``offset`` is `EARLIEST` to begin, else ``next_offset`` of the answer before, of the same
    connection. Answered when all is checked, or after ``max_wait_ms`` with what is checked by
    then. Whole batches from ``compare_from`` on and below ``compare_upto`` go into a digest;
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
class VerifyResponse(_Fixed):
    """How far a verification is; all numbers count from its beginning. Tail: what is wrong.

    ``end``: it checks the offsets below. ``compared_from``: base offset of the first batch in
    ``digest``, `NO_OFFSET` where there is none. ``finished`` is 1 at its end; the tail is JSON:
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
