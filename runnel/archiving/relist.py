"""Listing files of an archive from what they say of themselves: once the list is lost, and after a
first run that ended before it listed what it had written.

Several files of a partition are written at once, so one may be there without those before it, and
when it was written says nothing of its place. What the log still holds is not passed over: it is
archived again. A file that begins inside of one with a lower term was written after the log had
diverged, and its records are those that count from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from runnel.archive.manifest import Added, ArchivedFile, Archives, Update, add
from runnel.archive.places import is_file_name, sync_directory
from runnel.archiving.access import ArchiveAccess
from runnel.partition.segments import list_segments
from schemas.errors import StorageFailedError
from schemas.objects.topic import partition_name


def chain(written: Sequence[ArchivedFile], log_start: int) -> list[ArchivedFile]:
    """The list that files make, given in the order in which they were written: it ends before the
    first gap that the log, which begins at ``log_start``, can still fill. Pure."""
    found: list[ArchivedFile] = []
    for file in sorted(written, key=lambda one: one.term):
        found = _with(found, file)
    listed: list[ArchivedFile] = []
    for file in found:
        if file.base > max(listed[-1].until if listed else 0, log_start):
            break
        listed.append(file)
    return listed


def _with(found: Sequence[ArchivedFile], file: ArchivedFile) -> list[ArchivedFile]:
    """Files by their offsets, and one more, whose term is not below theirs."""
    same = [one for one in found if one.term == file.term]
    if file.term and any(one.base <= file.base and one.until >= file.end for one in same):
        return [*found]
    # The same offsets once more, or records that an election has lost.
    before = [
        replace(one, until=min(one.until, file.base)) for one in found if one.base < file.base
    ]
    behind = [one for one in same if one.base >= file.base and one.end > file.end]
    if not file.term:
        # Earlier versions did not write the term: of two files with the same offsets, the one that
        # was written later counts.
        behind = [one for one in behind if one.base >= file.end]
    until = min((one.base for one in behind), default=file.end)
    return [*before, replace(file, until=min(file.end, until)), *behind]


async def relist(access: ArchiveAccess, index: int) -> int:
    """List the files of a partition whose list is empty. Gives how many there are.

    Raises ConflictError if somebody else archives it meanwhile, StorageFailedError if one of them
    cannot be read, RetryableErrors.
    """
    directory = access.place.partition(index)
    try:
        written = await asyncio.to_thread(_read, access, index)
    except (OSError, ValueError) as error:
        raise StorageFailedError(
            f"{directory} has files, and nobody lists them: {error}. Move what is no file of this"
            " archive elsewhere"
        ) from error
    if not written:
        return 0
    partition = await access.partition(partition_name(access.route.name, index))
    if partition.spec.archived_before:
        # That was said of the lost list. Until there is one again, the log keeps what it has.
        await access.note(partition, 0)
    files = chain(written, (await list_segments(access.route, index)).log_start)
    if files:
        await access.store.update(access.uid, lambda state: _adds(access, state, index, files))
    return len(files)


def _adds(
    access: ArchiveAccess, state: Archives, index: int, files: Sequence[ArchivedFile]
) -> list[Update]:
    made: list[Update] = []
    after: int | None = None
    for file in files:
        one = Added(access.uid, access.route.name, index, after, file)
        if after is None:
            # Somebody may have begun meanwhile.
            add(state, one)
        made.append(one)
        after = file.end
    return made


def _read(access: ArchiveAccess, index: int) -> list[ArchivedFile]:
    """The files of a partition, in the order in which they were written."""
    directory = access.place.partition(index)
    paths = [path for path in directory.glob("*.parquet") if is_file_name(path.name)]
    if paths:
        # One that was put there a moment ago may not be durable by its name.
        sync_directory(directory)
    paths.sort(key=lambda path: (path.stat().st_mtime_ns, path.name))
    return [_file(access, index, path) for path in paths]


def _file(access: ArchiveAccess, index: int, path: Path) -> ArchivedFile:
    # Arrow's Parquet is needed where files are read alone.
    from runnel.archive.parquet import read_contents, read_footer

    footer = read_footer(path)
    if (footer.uid, footer.partition) != (access.uid, index):
        raise ValueError(f"{path} is of another partition: {footer}")
    contents = read_contents(path)
    return ArchivedFile(
        name=path.name,
        base=footer.base,
        end=footer.end,
        rows=contents.rows,
        size=contents.size,
        first_us=contents.first_us,
        last_us=contents.last_us,
        last_id=contents.last_id,
        term=contents.term,
        crc=contents.crc,
        until=footer.end,
    )
