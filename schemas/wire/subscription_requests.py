"""Reading by push: SUBSCRIBE, UNSUBSCRIBE, CREDIT, and the frames that an SPU pushes.

The fixed parts of their frames (see `schemas.wire.protocol`), and the rows of tails.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import ClassVar, Self

from schemas.errors import ProtocolError
from schemas.ids import PartitionUid, uid_bytes, uid_text
from schemas.wire.protocol import FixedPart
from schemas.wire.record_requests import NO_FLAGS, FetchFlags


@dataclass(frozen=True, slots=True)
class SubscribeRequest(FixedPart):
    """Have partitions pushed to this connection; the tail names them, as `SubscriptionEntry`.

    ``entry_bytes``: the length of an entry of the tail. Answered at once without any fixed part or
    tail; each entry then gets a frame of its own (`PushResponse`), or an error frame. Without
    entries, the answer shows that the SPU is alive.
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

    ``number`` is chosen by the client, is the correlation number of all frames that are pushed
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
        """The entries of a tail; bytes after the known fields of each are ignored. Raises
        ProtocolError."""
        if entry_bytes < cls.LAYOUT.size or len(data) % entry_bytes:
            raise ProtocolError(
                f"{len(data)} bytes are not entries of {entry_bytes} bytes; an entry has at least"
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
            raise ProtocolError(f"{len(data)} bytes are not a whole number of grants")
        return [cls(*row) for row in cls.LAYOUT.iter_unpack(data)]


def pack_numbers(numbers: list[int]) -> bytes:
    """The tail of UNSUBSCRIBE."""
    return struct.pack(f"<{len(numbers)}I", *numbers)


def unpack_numbers(data: memoryview | bytes) -> list[int]:
    """The subscriptions that an UNSUBSCRIBE ends. Raises ProtocolError."""
    if len(data) % 4:
        raise ProtocolError(f"{len(data)} bytes are not a whole number of subscriptions")
    return list(struct.unpack(f"<{len(data) // 4}I", data))


@dataclass(frozen=True, slots=True)
class PushResponse(FixedPart):
    """A frame that an SPU pushes for a subscription; the tail holds whole batches.

    ``log_start`` and ``lac`` as in `FetchResponse`. ``next_offset`` is the position of the
    subscription after these batches.
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
