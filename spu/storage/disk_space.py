"""How much room an SPU has left for records: plenty, scarce, or none; refuses records in time.

There are two bounds: the bytes that the replicas may use (``storage.size``), and the disk itself,
of which a reserve is kept free. The reserve leaves room for checkpoints, the journal, control
records and followers' records when clients are already refused. A small disk has a larger share of
it, because a journal takes its room however small the disk is. Followers are stopped when half of
the reserve is used, or when the replicas use a tenth more than ``storage.size``: the rest is for
the journal and checkpoints. Once the SPU refuses clients, it does so until a little more than the
bound is free: otherwise every deleted segment would let in one batch.

`Space` computes from the sizes that were read. `SpaceWatch` reads them with every tick, and again
when the records since then are an eighth of what was left: so records alone never use up the
reserve, however fast they come. If room is scarce, it logs that and tells replicas to delete
truncated segments, whatever their grace. If there is no room, it refuses clients' records, and
accepts them again by itself once there is some. Followers that use up the reserve halt;
`spu.host.recovery` reopens them.
"""

from __future__ import annotations

import contextlib
import errno
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Final, Protocol

from schemas.daemon.logs import get_logger
from schemas.errors import StorageFullError
from schemas.ids import PartitionUid
from schemas.objects.quantities import format_size, readable_size

_log = get_logger(__name__)

MIB: Final = 1 << 20
#: The reserve is a fiftieth of the disk within these bounds, and at most an eighth of the disk.
MIN_RESERVE_BYTES: Final = 8 * MIB
MAX_RESERVE_BYTES: Final = 512 * MIB
_WARN_PERCENT: Final = 85
_REOPEN_PERCENT: Final = 95


class Room(Enum):
    """How much room is left."""

    PLENTY = "plenty"
    SCARCE = "scarce"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Space:
    """Sizes in bytes. ``used``: by replicas, truncated segments included; ``limit``: what they may
    use, None for the whole disk; ``free`` and ``total``: of the disk."""

    used: int
    limit: int | None
    free: int
    total: int

    @property
    def reserve(self) -> int:
        share = max(MIN_RESERVE_BYTES, self.total // 50)
        return min(MAX_RESERVE_BYTES, share, self.total // 8)

    @property
    def available(self) -> int:
        """Bytes that may still be written."""
        if self.limit is None:
            return self._of_disk
        return min(self._of_disk, max(0, self.limit - self.used))

    @property
    def is_exhausted(self) -> bool:
        """Whether followers must stop writing, too."""
        over = 0 if self.limit is None else self.used - self.limit - self.limit // 10
        return self.free < self.reserve // 2 or over > 0

    @property
    def _of_disk(self) -> int:
        return max(0, self.free - self.reserve)

    def room(self, before: Room) -> Room:
        """How much room there is, if it was ``before`` at the last look."""
        if self.available <= 0:
            return Room.NONE
        limit = self.used + self.available
        # Other programs may fill the disk: the replicas' bytes alone do not show that.
        enough = self.used * 100 <= limit * _REOPEN_PERCENT and self._of_disk >= self.reserve // 4
        if before is Room.NONE and not enough:
            return Room.NONE
        much = self.used * 100 <= limit * _WARN_PERCENT and self._of_disk >= self.reserve
        return Room.PLENTY if much else Room.SCARCE

    def after(self, written: int) -> Space:
        """The sizes when replicas have written so many bytes more."""
        return replace(self, used=self.used + written, free=max(0, self.free - written))

    def describe(self) -> str:
        """What is used, and of what, for texts."""
        if self.limit is not None and self.limit - self.used <= self._of_disk:
            what = f"replicas use {readable_size(self.used)} of storage.size"
            return f"{what} {format_size(self.limit)}"
        used, free, total = map(readable_size, (self.used, self.free, self.total))
        return (
            f"replicas use {used}, and {free} of a disk of {total} are free,"
            f" {readable_size(self.reserve)} of them in reserve"
        )


class Stored(Protocol):
    """The part of a replica that this module needs."""

    @property
    def stored_bytes(self) -> int: ...

    def free_space(self) -> None: ...


class SpaceWatch:
    """``limit_bytes`` is what ``replicas`` may use together, None for the whole disk. ``room`` is
    how much room there was at the last look."""

    def __init__(
        self, path: Path, limit_bytes: int | None, replicas: Mapping[PartitionUid, Stored]
    ) -> None:
        self._path = path
        self.limit_bytes = limit_bytes
        self._replicas = replicas
        self.room = Room.PLENTY
        #: Bytes of records that there was room for, in all.
        self.written = 0
        self._seen: Space | None = None
        # What `written` was at the last look, and how many bytes there may be before another one.
        self._written_then = 0
        self._unwatched = 0
        self._refusal: str | None = None
        self._refused_because: str | None = None
        self._exhausted: str | None = None

    def look(self) -> Space:
        """Read the sizes now. Raises OSError."""
        return self._look(sum(replica.stored_bytes for replica in self._replicas.values()))

    @property
    def seen(self) -> Space:
        """The sizes at the last look; every tick looks. Raises OSError."""
        return self.look() if self._seen is None else self._seen

    @property
    def refuses_because(self) -> str | None:
        """Why clients' records are refused, as it was when that began; None if they are not."""
        return self._refused_because

    def require_room(self, length: int) -> None:
        """Raise StorageFullError if a client's batch of ``length`` bytes must not be written."""
        if self._refusal is None:
            space = self._watch(length)
            if space is not None and length > space.available:
                self._judge(space, Room.NONE)
        if self._refusal is not None:
            raise StorageFullError(self._refusal)
        self.written += length

    def require_last_room(self, length: int) -> None:
        """Raise OSError, like that of a full disk, if a follower must not write so many bytes."""
        if self._exhausted is None and (space := self._watch(length)) is not None:
            self._exhausted = _exhaustion(space.after(length))
        if self._exhausted is not None:
            raise OSError(errno.ENOSPC, self._exhausted)
        self.written += length

    def refuse(self, error: OSError) -> StorageFullError:
        """A client's batch met a full disk: refuse others until the next tick finds room. Returns
        the error for the client."""
        self._judge(self.seen, Room.NONE, error)
        return StorageFullError(self._refusal or "")

    def tick(self, used: int | None = None) -> None:
        """Look, free what can be freed, and begin or stop to refuse records. ``used``: the bytes of
        all replicas, if the caller has added them up. Raises OSError."""
        space = self.look() if used is None else self._look(used)
        self._judge(space, space.room(self.room))
        self._exhausted = _exhaustion(space)

    # How

    def _look(self, used: int) -> Space:
        disk = shutil.disk_usage(self._path)
        self._seen = Space(used, self.limit_bytes, disk.free, disk.total)
        self._written_then, self._unwatched = self.written, self._seen.available // 8
        return self._seen

    def _watch(self, length: int) -> Space | None:
        """The sizes now, if ``length`` bytes more need another look."""
        written = self.written - self._written_then
        if self._seen is not None and written + length <= self._unwatched:
            return None
        # If the disk does not say, the write will.
        with contextlib.suppress(OSError):
            return self.look() if self._seen is None else self._look(self._seen.used + written)
        return None

    def _judge(self, space: Space, room: Room, error: OSError | None = None) -> None:
        if room is not Room.PLENTY:
            for replica in self._replicas.values():
                replica.free_space()
        if room is not self.room:
            say = _log.info if room is Room.PLENTY else _log.warning
            say("room for records", room=room.value, before=self.room.value, why=space.describe())
        self.room = room
        self._refusal = None
        if room is not Room.NONE:
            self._refused_because = None
        else:
            why = space.describe() if error is None else f"{error.strerror}; {space.describe()}"
            self._refusal = (
                f"no room for records: {why}. Lower the retention of topics, archive, truncate"
                " or delete some, raise storage.size, or add SPUs; producers then go on by"
                " themselves"
            )
            if self._refused_because is None:
                self._refused_because = f"it refuses records: {why}"


def _exhaustion(space: Space) -> str | None:
    """Why followers must not write; None if they may."""
    if not space.is_exhausted:
        return None
    return f"no room for replicated records either: {space.describe()}"
