"""How much room an SPU has left for records: plenty, scarce, or none; refuses records in time.

Two bounds count: what the replicas may take (``storage.size``), and the disk itself, of which a
reserve is kept free, so that checkpoints, the journal, control records and what followers still
get have a place when clients are refused already. Followers are stopped when half of it is gone, or
when they take a tenth more than ``storage.size``: the rest is for the journal and checkpoints. Once
the SPU refuses clients it goes on doing so until a little more than the bound is free: otherwise
every deleted segment would let in one batch.

`Space` computes from what was seen. `SpaceWatch` looks with every tick: it logs scarce room, and
has replicas delete what was truncated, whatever its grace. Where there is no room, it refuses the
records of clients, and lets them in again by itself when there is some. Followers that use up the
reserve halt; `spu.host.recovery` opens them again.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final, Protocol

from schemas.daemon.logs import get_logger
from schemas.errors import StorageFullError
from schemas.ids import PartitionUid
from schemas.objects.quantities import format_size

_log = get_logger(__name__)

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


class Stored(Protocol):
    """A replica, as far as it takes room."""

    @property
    def stored_bytes(self) -> int: ...

    def free_space(self) -> None: ...


class SpaceWatch:
    """``limit_bytes`` is what ``replicas`` may take together, None for all of the disk. ``room`` is
    how much there was when it was looked last."""

    def __init__(
        self, path: Path, limit_bytes: int | None, replicas: Mapping[PartitionUid, Stored]
    ) -> None:
        self._path = path
        self.limit_bytes = limit_bytes
        self._replicas = replicas
        self.room = Room.PLENTY
        self._seen: Space | None = None
        self._refusal: str | None = None
        self._exhausted: str | None = None

    def look(self) -> Space:
        """What there is now. Raises OSError."""
        disk = shutil.disk_usage(self._path)
        used = sum(replica.stored_bytes for replica in self._replicas.values())
        self._seen = Space(used, self.limit_bytes, disk.free, disk.total)
        return self._seen

    @property
    def seen(self) -> Space:
        """What there was when it was looked last, which is with every tick. Raises OSError."""
        return self.look() if self._seen is None else self._seen

    def require_room(self) -> None:
        """Raise StorageFullError where records are refused."""
        if self._refusal is not None:
            raise StorageFullError(self._refusal)

    def require_last_room(self) -> None:
        """Raise OSError, as of a full disk, where followers may not write any more."""
        if self._exhausted is not None:
            raise OSError(errno.ENOSPC, self._exhausted)

    def tick(self) -> None:
        """Look, free what can be freed, and begin or cease to refuse."""
        space = self.look()
        room = space.room(self.room)
        if room is not Room.PLENTY:
            for replica in self._replicas.values():
                replica.free_space()
        if room is not self.room:
            say = _log.info if room is Room.PLENTY else _log.warning
            say("room for records", room=room.value, before=self.room.value, why=space.describe())
        self.room = room
        self._exhausted = None
        if space.is_exhausted:
            self._exhausted = f"no room for records of leaders either: {space.describe()}"
        self._refusal = None
        if room is Room.NONE:
            self._refusal = (
                f"no room for records: {space.describe()}. Lower the retention of topics, truncate"
                " or delete some, raise storage.size, or add SPUs; producers go on by themselves"
            )
