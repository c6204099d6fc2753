"""Checking the files of an archive against its list: there, whole, of those offsets."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from runnel.archive.manifest import ArchivedFile, TopicArchive
from runnel.archive.places import ArchivePlace
from runnel.records.tables import int64_values

_CHUNK_BYTES: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class FileProblem:
    """What is wrong with one file."""

    partition: int
    path: str
    reason: str


async def verify_files(
    place: ArchivePlace,
    listed: TopicArchive,
    on_file: Callable[[int, ArchivedFile], None] | None = None,
) -> tuple[FileProblem, ...]:
    """Read every listed file whole. ``on_file`` is told of each that was checked."""
    problems = []
    for index, archive in sorted(listed.partitions.items()):
        for file in archive.files:
            path = place.file(index, file.name)
            reason = await asyncio.to_thread(problem_of, path, place, index, file)
            if reason is not None:
                problems.append(FileProblem(index, str(path), reason))
            if on_file is not None:
                on_file(index, file)
    return tuple(problems)


def problem_of(path: Path, place: ArchivePlace, index: int, file: ArchivedFile) -> str | None:
    """What is wrong with a file; None if nothing is. Blocks."""
    # Arrow's Parquet is needed where files are read alone.
    from runnel.archive.parquet import read_footer, read_records

    try:
        crc, size = 0, 0
        with path.open("rb") as opened:
            while chunk := opened.read(_CHUNK_BYTES):
                crc, size = zlib.crc32(chunk, crc), size + len(chunk)
        if size != file.size:
            return f"it has {size} bytes, and {file.size} were written"
        if crc != file.crc:
            return f"its CRC-32 is {crc:08x}, and {file.crc:08x} was written"
        footer = read_footer(path)
        found = (footer.uid, footer.partition, footer.base, footer.end)
        if found != (place.uid, index, file.base, file.end):
            return f"it is of another place: {footer}"
        rows, last = 0, file.base - 1
        for batch in read_records(path, None, file.base, file.end, _CHUNK_BYTES, frozenset()):
            offsets = int64_values(batch.column("offset"))
            if int(offsets[0]) <= last or not (offsets[1:] > offsets[:-1]).all():
                return f"its offsets do not grow after {last}"
            rows, last = rows + batch.num_rows, int(offsets[-1])
        if rows != file.rows:
            return f"it has {rows} records, and {file.rows} were written"
    except FileNotFoundError:
        return "it is not there"
    except (OSError, ValueError, LookupError, pa.ArrowException) as error:
        return str(error)
    return None
