"""How much room an SPU has left for records: plenty, scarce, or none. Pure.

Two bounds count: what the replicas may take (``storage.size``), and the disk itself, of which a
reserve is kept free, so that checkpoints, the journal, control records and what followers still
get have a place when clients are refused already. Followers are stopped when half of it is gone, or
when they take a tenth more than ``storage.size``: the rest is for the journal and checkpoints. Once
refused clients stay so until a little more than the bound is free: else every deleted segment would
let in one batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from schemas.objects.quantities import format_size

MIB: Final = 1 << 20
#: Of a large disk so much is kept free, of a small one a fiftieth.
MAX_RESERVE_BYTES: Final = 512 * MIB
_WARN_PERCENT: Final = 85
_REOPEN_PERCENT: Final = 95


class Room(Enum):
    """How much there is left."""

    PLENTY = "plenty"
    SCARCE = "scarce"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Space:
    """What was seen of the disk, in bytes. ``used``: by replicas, truncated segments included;
    ``limit``: what they may take, None for all of the disk."""

    used: int
    limit: int | None
    free: int
    total: int

    @property
    def reserve(self) -> int:
        return min(MAX_RESERVE_BYTES, self.total // 50)

    @property
    def available(self) -> int:
        """What may still be written."""
        if self.limit is None:
            return self._of_disk
        return min(self._of_disk, max(0, self.limit - self.used))

    @property
    def is_exhausted(self) -> bool:
        """Whether followers, too, must not write any more."""
        over = 0 if self.limit is None else self.used - self.limit - self.limit // 10
        return self.free < self.reserve // 2 or over > 0

    @property
    def _of_disk(self) -> int:
        return max(0, self.free - self.reserve)

    def room(self, before: Room) -> Room:
        """How much room there is, where it was ``before`` a moment ago."""
        if self.available <= 0:
            return Room.NONE
        limit = self.used + self.available
        # Others may fill the disk: what replicas use says little of it then.
        enough = self.used * 100 <= limit * _REOPEN_PERCENT and self._of_disk >= self.reserve // 4
        if before is Room.NONE and not enough:
            return Room.NONE
        much = self.used * 100 <= limit * _WARN_PERCENT and self._of_disk >= self.reserve
        return Room.PLENTY if much else Room.SCARCE

    def describe(self) -> str:
        """What is used of what, and what helps."""
        if self.limit is not None and self.used >= self.limit:
            what = f"replicas take {format_size(self.used)} of storage.size"
            return f"{what} {format_size(self.limit)}"
        return (
            f"replicas take {format_size(self.used)}, and {format_size(self.free)} of a disk of"
            f" {format_size(self.total)} are free, {format_size(self.reserve)} of them in reserve"
        )
