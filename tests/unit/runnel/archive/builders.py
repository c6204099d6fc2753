"""Files of archives for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from runnel.archive.manifest import (
    NO_ID,
    Added,
    ArchivedFile,
    Archives,
    ArchivesState,
    PartitionArchive,
    Update,
)
from runnel.archive.places import file_name

STATE = ArchivesState()
UID = "0b0c"


def file_of(base: int, end: int, **changes: Any) -> ArchivedFile:
    """A file of 100 bytes a record, whose records have their offsets as times."""
    made = ArchivedFile(
        name=file_name(base, end, "0123abcd"),
        base=base,
        end=end,
        rows=end - base,
        size=100 * (end - base),
        first_us=base,
        last_us=end - 1,
        last_id=NO_ID,
        term=1,
        crc=7,
        until=end,
    )
    return replace(made, **changes)


def added(after: int | None, base: int, end: int, **changes: Any) -> Added:
    return Added(UID, "orders", 0, after, file_of(base, end, **changes))


def archives_of(*updates: Update) -> Archives:
    state = STATE.empty()
    for update in updates:
        state = STATE.apply(state, update)
    return state


def archive_of(*updates: Update) -> PartitionArchive:
    """That of partition 0 after these updates."""
    return archives_of(*updates)[UID].partition(0)
