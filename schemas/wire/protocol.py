"""Frames between clients and SPUs: their header, how a connection begins, and errors.

Every frame is ``length`` (4 bytes, of what follows), then a 12-byte frame header, then a body::

    u32 length | u8 api | u8 version | u16 status | u32 correlation | u32 fixed-part length
    fixed part | tail

All integers are little-endian. ``status`` is 0 in requests; in responses it is an `ErrorCode`,
and a response whose status is not OK carries a UTF-8 message as its tail. The fixed part of a
known api and version has a layout (`FixedPart`); a longer one is accepted and its end ignored, so
fields can be added; a shorter one that ends before the added fields is accepted too. The
tail is raw bytes: record batches, never parsed here. The same correlation number ties a response
to its request; responses may come in any order.

A connection starts with HELLO and nothing else; a peer that cannot agree on a version gets an
UNSUPPORTED answer and the connection ends. The layouts of later frames are in
`schemas.wire.record_requests`, `schemas.wire.subscription_requests`,
`schemas.wire.log_requests` and `schemas.wire.log_line_requests`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, Final, Self

from schemas.errors import (
    DivergedError,
    ErrorCode,
    NotReadyError,
    ProtocolError,
    RunnelError,
    TransactionIdTooLowError,
    error_from,
)
from schemas.objects.topic import MAX_BATCH_BYTES

PROTOCOL_VERSION: Final = 1
MIN_PROTOCOL_VERSION: Final = 1
PREFIX: Final = struct.Struct("<I")
FRAME_HEADER: Final = struct.Struct("<BBHII")
#: Length field and frame header together.
FRAME_OVERHEAD: Final = PREFIX.size + FRAME_HEADER.size
#: The longest frame a peer accepts, by its length field.
MAX_FRAME_BYTES: Final = MAX_BATCH_BYTES + (1 << 16)
#: The longest frame that an SPU accepts before it has accepted a HELLO, or another SPU's greeting.
MAX_FIRST_FRAME_BYTES: Final = 4 << 10
#: The most bytes that one fetch may ask for.
MAX_FETCH_BYTES: Final = 32 << 20
#: The longest tail of SUBSCRIBE, UNSUBSCRIBE and CREDIT: many times what a connection may have.
MAX_SUBSCRIPTION_BYTES: Final = 1 << 20
HELLO_MAGIC: Final = b"RNNL"
#: How the greeting of an SPU to another one begins, at their private ports.
PEER_MAGIC: Final = b"RNLR"


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
    LIST_LOG_LINES = 11


@dataclass(frozen=True, slots=True)
class FrameHeader:
    """The fields between the length field and the body."""

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
    elif isinstance(error, NotReadyError) and "expectedSequence" in error.details:
        missing = MissingBatchResponse(error.details["expectedSequence"], error.details["knownEnd"])
        fixed = missing.pack()
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
        raise ProtocolError(
            f"fixed part of {header.fixed_length} bytes does not fit into the frame"
        )
    return header, frame[FRAME_HEADER.size : end], frame[end:]


def raise_for_status(
    header: FrameHeader, tail: memoryview, fixed: memoryview | bytes = b""
) -> None:
    """Raise the error a response carries, if it carries one. ``fixed`` is its fixed part.

    Raises ProtocolError if the error needs a fixed part that is missing.
    """
    if header.status == ErrorCode.OK:
        return
    message = bytes(tail).decode(errors="replace")
    if header.status == ErrorCode.DIVERGED:
        raise DivergedError(message, diverged_at=DivergedResponse.unpack(fixed).diverged_at)
    if header.status == ErrorCode.TRANSACTION_ID_TOO_LOW:
        last = TransactionIdTooLowResponse.unpack(fixed).last_transaction_id
        raise TransactionIdTooLowError(message, last_transaction_id=last)
    if header.status == ErrorCode.NOT_READY and len(fixed) >= MissingBatchResponse.LAYOUT.size:
        missing = MissingBatchResponse.unpack(fixed)
        raise NotReadyError(
            message, expectedSequence=missing.expected_sequence, knownEnd=missing.known_end
        )
    raise error_from(header.status, message)


class FixedPart:
    """A fixed part: a struct layout and the conversion to and from it.

    The last ``ADDED`` bytes of the layout are fields that peers of an earlier version do not
    send; what is missing counts as zero.
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
            data = bytes(data).ljust(size, b"\0")
        return cls.LAYOUT.unpack_from(data)


@dataclass(frozen=True, slots=True)
class HelloRequest(FixedPart):
    """Client → SPU, first frame: magic ``RNNL``, the versions it speaks."""

    min_version: int
    max_version: int
    LAYOUT: ClassVar[struct.Struct] = struct.Struct("<4sHH")

    def pack(self) -> bytes:
        return self.LAYOUT.pack(HELLO_MAGIC, self.min_version, self.max_version)

    @classmethod
    def unpack(cls, data: memoryview | bytes) -> Self:
        if bytes(data[: len(PEER_MAGIC)]) == PEER_MAGIC:
            raise ProtocolError(
                "this is the public port of an SPU, for clients, and an SPU called it; have"
                " privateEndpoint of the called SPU name its private port"
            )
        magic, low, high = cls._fields(data)
        if magic != HELLO_MAGIC:
            raise ProtocolError(
                "this is the public port of an SPU, for clients of Runnel: the first frame does not"
                " say RNNL"
            )
        return cls(low, high)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class HelloResponse(FixedPart):
    """SPU → client: the version to use, the SPU that answers, its limits. Tail: the cluster uid."""

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
class DivergedResponse(FixedPart):
    """The fixed part of an answer with the status DIVERGED.

    ``diverged_at``: from this offset on, the records that the reader got may differ from the log.
    """

    diverged_at: int
    LAYOUT: ClassVar[struct.Struct] = struct.Struct("<q")

    def pack(self) -> bytes:
        return self.LAYOUT.pack(self.diverged_at)

    @classmethod
    def unpack(cls, data: memoryview | bytes) -> Self:
        return cls(*cls._fields(data))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class TransactionIdTooLowResponse(FixedPart):
    """The fixed part of an answer with the status TRANSACTION_ID_TOO_LOW.

    ``last_transaction_id``: the partition accepts no record with an id below it.
    """

    last_transaction_id: int
    LAYOUT: ClassVar[struct.Struct] = struct.Struct("<q")

    def pack(self) -> bytes:
        return self.LAYOUT.pack(self.last_transaction_id)

    @classmethod
    def unpack(cls, data: memoryview | bytes) -> Self:
        return cls(*cls._fields(data))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class MissingBatchResponse(FixedPart):
    """The fixed part of an answer to PRODUCE with the status NOT_READY, if the leader lacks an
    earlier batch of the producer.

    ``expected_sequence``: the sequence of that batch. ``known_end``: the offset after the
    producer's last batch in the log.
    """

    expected_sequence: int
    known_end: int
    LAYOUT: ClassVar[struct.Struct] = struct.Struct("<Iq")

    def pack(self) -> bytes:
        return self.LAYOUT.pack(self.expected_sequence, self.known_end)

    @classmethod
    def unpack(cls, data: memoryview | bytes) -> Self:
        return cls(*cls._fields(data))  # type: ignore[arg-type]
