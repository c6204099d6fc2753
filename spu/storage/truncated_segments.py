"""Files of truncated segments: out of the log, and kept until their grace has passed.

A truncated segment's file gets a name that says which offsets it holds and when it was truncated.
It is no longer part of the log, but an operator who truncated by mistake still finds it. It is
deleted when its grace has passed, or earlier if the SPU needs the room on the disk.

Neighbours: `spu.storage.lifecycle` has the states of a segment, `spu.storage.retention` decides
which segments are truncated.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from spu.storage.file_pool import FilePool
from spu.storage.segment import Segment

TRUNCATED_SUFFIX: Final = ".truncated"


@dataclass(frozen=True, slots=True)
class TruncatedSegment:
    """A file that is no longer part of the log. It holds offsets from ``base_offset`` to below
    ``end_offset``; ``truncated_us`` is wall time."""

    path: str
    base_offset: int
    end_offset: int
    truncated_us: int
    size: int


#: Files that are no longer part of a log.
RetiredFiles = tuple[TruncatedSegment, ...]


class TruncatedSegments:
    """The truncated segments of one log whose files are still there."""

    def __init__(self, files: FilePool, found: Iterable[TruncatedSegment]) -> None:
        self.segments = tuple(found)
        #: How often they have changed.
        self.changes = 0
        self._files = files

    @property
    def size_bytes(self) -> int:
        """Bytes of their files."""
        return sum(one.size for one in self.segments) if self.segments else 0

    def retire_files(
        self, segments: tuple[Segment, ...], grace_ms: int, now_us: int
    ) -> RetiredFiles:
        """Rename the files of ``segments`` out of the log, or delete them if there is no grace;
        pass the result to `add`.

        Blocks; recovery finishes it after a crash. Raises OSError.
        """
        retired = []
        for segment in segments:
            self._files.forget(segment.path)
            if not grace_ms:
                segment.remove()
            elif (one := retire(segment, now_us)) is not None:
                retired.append(one)
        return tuple(retired)

    def add(self, files: RetiredFiles) -> None:
        """Take note of the result of `retire_files`."""
        self.segments = (*self.segments, *files)
        self.changes += 1

    def take_expired(
        self, grace_ms: int, now_us: int, *, all_of_them: bool = False
    ) -> RetiredFiles:
        """Take out those whose grace has passed, or all; pass them to `delete_files`."""
        if not self.segments:
            return ()
        horizon_us = now_us - grace_ms * 1000
        expired = tuple(
            one for one in self.segments if all_of_them or one.truncated_us <= horizon_us
        )
        if expired:
            self.segments = tuple(one for one in self.segments if one not in expired)
            self.changes += 1
        return expired

    @staticmethod
    def delete_files(files: RetiredFiles) -> None:
        """Delete what `take_expired` returned. Blocks. Raises OSError."""
        for one in files:
            Path(one.path).unlink(missing_ok=True)


def retire(segment: Segment, now_us: int) -> TruncatedSegment | None:
    """Give the file of a truncated segment its new name. None if the file no longer exists.

    Blocks. Raises OSError.
    """
    segment.index_path.unlink(missing_ok=True)
    name = f"{segment.base_offset:020d}-{segment.end_offset:020d}-{now_us}{TRUNCATED_SUFFIX}"
    path = f"{segment.directory}/{name}"
    try:
        os.rename(segment.path, path)
        size = os.stat(path).st_size
    except FileNotFoundError:
        return None
    return TruncatedSegment(path, segment.base_offset, segment.end_offset, now_us, size)


def find_truncated(directory: Path) -> tuple[TruncatedSegment, ...]:
    """The truncated segments that are still in a directory, the oldest offsets first. Raises
    OSError."""
    found = []
    for path in directory.glob(f"*{TRUNCATED_SUFFIX}"):
        parts = path.name[: -len(TRUNCATED_SUFFIX)].split("-")
        if len(parts) == 3 and all(part.isdecimal() and part.isascii() for part in parts):
            base, end, truncated_us = map(int, parts)
            # A log that was closed a moment ago may still be deleting them.
            with contextlib.suppress(FileNotFoundError):
                size = path.stat().st_size
                found.append(TruncatedSegment(str(path), base, end, truncated_us, size))
    return tuple(sorted(found, key=lambda one: (one.base_offset, one.truncated_us)))
