"""Records of one partition that its log holds no more: they come from files of the archive.

The log is always asked first. Only a position that it refuses is looked for in the archive, and
what follows there is read as far as the log does not reach back; then the log is asked again. So
records that are in both come from the log, and no record comes twice: positions only grow.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from runnel.archive.manifest import ArchivedFile
from runnel.archive.source import ArchiveSource, FileRecords
from runnel.consume.delivered import FetchedChunk
from runnel.records.cursor import Cursor
from schemas.columns.topic_schema import TopicSchema
from schemas.errors import StorageFailedError

#: Bytes of the records that are taken from a file at once, at least.
_LEAST_BYTES: Final = 1 << 20


class ArchivedRecords:
    """See the module's text. Moves the cursor past what it gives. Call `close` at the end."""

    def __init__(self, source: ArchiveSource, cursor: Cursor, batch_bytes: int) -> None:
        self._source = source
        self._cursor = cursor
        self._batch_bytes = max(_LEAST_BYTES, batch_bytes)
        self._files: deque[ArchivedFile] = deque()
        self._reading: FileRecords | None = None

    async def begin(self, log_start: int) -> int | None:
        """The first archived offset from the cursor on and below the log's start; None if there is
        none. If it is where the cursor is, `next` gives the records from there on.

        Raises RetryableErrors.
        """
        self.close()
        cursor = self._cursor
        files = await self._source.files_from(cursor.partition, cursor.position)
        files = tuple(file for file in files if file.base < log_start)
        if not files:
            return None
        if files[0].base <= cursor.position and cursor.position >= self._removed_before:
            self._files = deque(files)
            return cursor.position
        return max(files[0].base, self._removed_before)

    async def next(self) -> FetchedChunk | None:
        """The next records; None if there are no more, or none was begun.

        Raises as `runnel.archive.source.FileRecords.next`, RetryableErrors.
        """
        cursor = self._cursor
        while self._files and not cursor.finished:
            file = self._files[0]
            if file.base > cursor.position:
                # Records between two files are gone. The log says so, and what that means.
                break
            if self._reading is None:
                self._reading = self._source.records(cursor.partition, file, self._rows)
            before = cursor.position
            try:
                rows = await self._reading.next(before, self._batch_bytes, cursor.wanted)
            except StorageFailedError:
                if await self._is_listed(file):
                    raise
                break
            if rows is not None:
                end = rows.column("offset")[rows.num_rows - 1].as_py() + 1
                found = cursor.take_rows(rows, end, 0)
            else:
                found = []
                self._files.popleft()
                self._reading = None
                end = file.until if cursor.stop is None else min(file.until, cursor.stop)
                cursor.position = max(cursor.position, end)
                # If the log goes on here with other records than were archived, its leader says so.
                cursor.term = file.term if cursor.position == file.end else 0
                cursor.term_starts = ((cursor.position - 1, cursor.term),)
            if found or cursor.position > before:
                return FetchedChunk(
                    cursor.partition, found, cursor.position, cursor.term, cursor.term_starts
                )
        self.close()
        return None

    def close(self) -> None:
        """Read no further."""
        self._files.clear()
        if self._reading is not None:
            self._reading.close()
            self._reading = None

    async def _is_listed(self, file: ArchivedFile) -> bool:
        await self._source.refresh()
        listed = self._source.partition(self._cursor.partition).files
        return any(one.name == file.name for one in listed)

    @property
    def _removed_before(self) -> int:
        return self._source.partition(self._cursor.partition).removed_before

    @property
    def _rows(self) -> TopicSchema | None:
        columns = self._cursor.columns
        return None if columns is None else columns.rows
