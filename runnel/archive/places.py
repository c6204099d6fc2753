"""Where the files of an archive are, below the directory that a topic names.

``topic=NAME/uid=UID/partition=N/BASE-END-ID.parquet``: a topic that is made again has another uid,
and so another directory. Files get their place by a rename, once they are whole and durable; until
then they are in ``_tmp``. ``ID`` is random: two writers of the same offsets never share a file.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

#: Unfinished files are in this directory of their partition.
UNFINISHED: Final = "_tmp"
_FILE: Final = re.compile(r"(\d{20})-(\d{20})-[0-9a-f]{8}\.parquet")


@dataclass(frozen=True, slots=True)
class ArchivePlace:
    """The directory of one topic's files; ``root`` is that of the topic's settings."""

    root: str
    topic: str
    uid: str

    @property
    def directory(self) -> Path:
        return Path(self.root) / f"topic={quote(self.topic, safe='')}" / f"uid={self.uid}"

    def partition(self, index: int) -> Path:
        """The directory of a partition's files."""
        return self.directory / f"partition={index}"

    def file(self, index: int, name: str) -> Path:
        """A file of a partition."""
        return self.partition(index) / name

    def unfinished(self, index: int, name: str) -> Path:
        """Where a file is until it is whole."""
        return self.partition(index) / UNFINISHED / name


def file_name(base: int, end: int, random_id: str) -> str:
    """The name of a file of offsets from ``base`` to below ``end``; ``random_id``: 8 hexadecimal
    digits."""
    return f"{base:020}-{end:020}-{random_id}.parquet"


def is_file_name(name: str) -> bool:
    """Whether it is a name that `file_name` gives."""
    return _FILE.fullmatch(name) is not None


def offsets_of(name: str) -> tuple[int, int]:
    """The first offset of a file, and the one after its last. Raises ValueError for other names."""
    match = _FILE.fullmatch(name)
    if match is None:
        raise ValueError(f"{name!r} is no name of a file of an archive")
    return int(match[1]), int(match[2])


def put_in_place(unfinished: Path, place: Path) -> None:
    """Move a durable file to its place, durably. Blocks. Raises OSError."""
    os.rename(unfinished, place)
    for directory in (place.parent, unfinished.parent):
        sync_directory(directory)


def make_directory(path: Path) -> None:
    """Make a directory and its parents, durably. Blocks. Raises OSError."""
    missing = []
    at = path
    while not at.exists():
        missing.append(at)
        at = at.parent
    path.mkdir(parents=True, exist_ok=True)
    for made in missing:
        sync_directory(made.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable. Blocks. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
