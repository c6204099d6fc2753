"""LIST_LOG_LINES: a client asks an SPU for its own last log lines (not for records).

Neighbour: `schemas.daemon.log_ring` holds the lines and answers.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import ClassVar, Final, Self

from schemas.wire.protocol import FixedPart

#: Most bytes of the causality id in the tail of a request.
MAX_CAUSE_BYTES: Final = 1 << 10


@dataclass(frozen=True, slots=True)
class ListLogLinesRequest(FixedPart):
    """Ask for log lines from ``since_us`` on, of at least ``level`` (Python's numbers: 10 debug to
    50 critical), at most ``limit``.

    ``ring`` and ``after`` are `next` of an earlier answer, 0 for none: only lines behind it. The
    tail is the causality id that the lines are to have, empty for any.
    """

    since_us: int
    limit: int
    level: int
    ring: int = 0
    after: int = 0
    LAYOUT: ClassVar[struct.Struct] = struct.Struct("<QIB3xQQ")

    def pack(self) -> bytes:
        return self.LAYOUT.pack(self.since_us, self.limit, self.level, self.ring, self.after)

    @classmethod
    def unpack(cls, data: memoryview | bytes) -> Self:
        return cls(*cls._fields(data))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class ListLogLinesResponse(FixedPart):
    """Where the lines of the tail end: behind line ``after`` of ``ring``.

    ``complete`` is 0 if lines were left out for the bounds of an answer. ``kept_since_us`` is the
    time of the oldest line that the SPU still has, 0 if it has all since its start. The tail is
    one line of JSON after the other.
    """

    ring: int
    after: int
    kept_since_us: int
    complete: int
    LAYOUT: ClassVar[struct.Struct] = struct.Struct("<QQQB")

    def pack(self) -> bytes:
        return self.LAYOUT.pack(self.ring, self.after, self.kept_since_us, self.complete)

    @classmethod
    def unpack(cls, data: memoryview | bytes) -> Self:
        return cls(*cls._fields(data))  # type: ignore[arg-type]
