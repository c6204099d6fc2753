"""What an archive lets go of: what its retention says, and files that nobody lists.

A file leaves the list first, and the disk after that. So a reader that still knows it finds it
missing, asks for the list again, and goes on with what is there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

from runnel.archive.manifest import PartitionArchive, remove
from runnel.archive.places import UNFINISHED, is_file_name, offsets_of
from runnel.archiving.access import ArchiveAccess
from schemas.errors import StorageFailedError
from schemas.objects.archive import ArchiveRetention

#: Another writer may be about to list a file that is younger.
ORPHAN_S: Final = 3_600.0


def expired_before(
    archive: PartitionArchive, retention: ArchiveRetention, now_us: int
) -> int | None:
    """Where the archive of a partition begins by its retention; None if it removes nothing. Pure.

    It removes whole files, the oldest first: those whose records are all too old by their own
    times, and as many as are too much. Of one that the log has diverged from, readers lose what
    they still get from it, and nothing of the file that came in its place.
    """
    before = None
    excess = None if retention.size is None else archive.size - retention.size
    horizon_us = None if retention.time is None else now_us - retention.time * 1000
    for file in archive.files:
        too_old = horizon_us is not None and file.last_us < horizon_us
        if excess is not None and excess > 0:
            excess -= file.size
        elif not too_old:
            break
        if file.until > file.base:
            before = file.until
    return before


async def remove_expired(access: ArchiveAccess, index: int, now_us: int) -> PartitionArchive:
    """Take off the list what retention removes, and what was truncated. Gives what is left.

    Raises RetryableErrors.
    """
    archive = await access.listed_of(index)
    before = expired_before(archive, access.settings.retention, now_us)
    if before is None:
        return archive
    found = await access.store.update(
        access.uid, lambda state: remove(state, access.uid, index, before)
    )
    return found.partition(index)


async def sweep(access: ArchiveAccess, older_than_s: float = ORPHAN_S) -> int:
    """Delete files that are not listed and not young, if listed ones hold all of their offsets.
    Gives how many.

    Other files stay: the list may have been lost. Raises StorageFailedError if the directory cannot
    be read, RetryableErrors.
    """
    directory = access.place.directory
    try:
        # Looked at before the list is read: what is listed meanwhile is not among them.
        found = await asyncio.to_thread(_old_files, directory, time.time() - older_than_s)
        listed = await access.listed()
        needless = [path for index, path in found if is_needless(path, listed.partition(index))]
        return await asyncio.to_thread(_delete, needless)
    except OSError as error:
        raise StorageFailedError(f"the archive in {directory} cannot be read: {error}") from error


def is_needless(path: Path, archive: PartitionArchive) -> bool:
    """Whether nobody can need a file that is not young. Pure."""
    if path.parent.name == UNFINISHED:
        return True
    if any(path.name == file.name for file in archive.files):
        return False
    base, end = offsets_of(path.name)
    at = max(base, archive.removed_before)
    for file in archive.covering(at):
        if file.base > at:
            break
        at = file.until
    return at >= end


def _old_files(directory: Path, before_s: float) -> list[tuple[int, Path]]:
    found = []
    for partition in directory.glob("partition=*"):
        number = partition.name.removeprefix("partition=")
        if not number.isdecimal():
            continue
        for path in (*partition.glob("*"), *(partition / UNFINISHED).glob("*")):
            # Another run may delete it meanwhile.
            with suppress(FileNotFoundError):
                if is_file_name(path.name) and path.stat().st_mtime < before_s:
                    found.append((int(number), path))
    return found


def _delete(files: Collection[Path]) -> int:
    for path in files:
        path.unlink(missing_ok=True)
    return len(files)
