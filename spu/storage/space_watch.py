"""Watches how much room the log directory has, and refuses records before it is full.

Looked at with every tick: scarce room is logged, and what was truncated is deleted whatever its
grace. Where there is none, records of clients are refused; followers still take what their leader
has, and leaders still write control records: that is what the reserve of `spu.storage.disk_space`
is for. Followers that use that up halt. Clients are let in again by themselves when there is room,
and replicas that a full disk halted are opened again.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from schemas.daemon.logs import get_logger
from schemas.errors import StorageFullError
from schemas.ids import PartitionUid
from spu.storage.disk_space import Room, Space

_log = get_logger("spu.storage.space_watch")


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
