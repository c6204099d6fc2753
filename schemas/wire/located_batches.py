"""Where batches lie, for a reader on the SPU's own host: it reads them from the file itself.

This is the tail of an answer to FETCH with `FetchFlags.LOCATE` whose fixed part says ``located``.
The reader believes none of it: `runnel.short_circuit` says what it checks.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import ClassVar, Final, Self

from schemas.errors import ProtocolError
from schemas.wire.protocol import FixedPart

BOOT_ID_BYTES: Final = 16
#: An SPU sends less than this, which is cheaper than opening a file once more.
LEAST_LOCATED_BYTES: Final = 256 << 10


@dataclass(frozen=True, slots=True)
class LocatedBatches(FixedPart):
    """Whole batches back to back: ``length`` bytes from ``position`` on of a file.

    All were committed, and all are of one ``term``: a segment holds no other. ``boot_id`` is that
    of the SPU's host, ``device`` and ``inode`` are those of the file, as `stat` gives them.
    """

    boot_id: bytes
    device: int
    inode: int
    position: int
    length: int
    term: int
    LAYOUT: ClassVar[struct.Struct] = struct.Struct(f"<{BOOT_ID_BYTES}sQQQQQ")

    def pack(self) -> bytes:
        numbers = (self.device, self.inode, self.position, self.length, self.term)
        return self.LAYOUT.pack(self.boot_id, *numbers)

    @classmethod
    def unpack(cls, data: memoryview | bytes) -> Self:
        return cls(*cls._fields(data))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Place:
    """Batches and the absolute path of their file."""

    batches: LocatedBatches
    path: str

    def pack(self) -> bytes:
        """The tail of the answer."""
        return self.batches.pack() + self.path.encode(errors="surrogateescape")

    @classmethod
    def unpack(cls, data: memoryview | bytes) -> Self:
        """From the tail of an answer. Raises ProtocolError if it names no file."""
        batches = LocatedBatches.unpack(data)
        path = bytes(data[LocatedBatches.LAYOUT.size :]).decode(errors="surrogateescape")
        if not path.startswith("/"):
            raise ProtocolError(f"batches lie in a file, not in {path!r}")
        return cls(batches, path)
