"""The archive of one topic, as its readers see it: which files hold what, and their records.

What is listed is asked for once, and again only when something is not there: files are listed
before their records leave the log, and taken off the list before they are deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from runnel.archive.manifest import NO_ID, ArchivedFile, PartitionArchive, TopicArchive
from runnel.archive.places import ArchivePlace
from runnel.records.cursor import READ_SCHEMA
from runnel.records.schema_resolution import read_schema
from runnel.records.tables import int64_values
from schemas.columns.topic_schema import TopicSchema
from schemas.errors import CorruptBatchError, StorageFailedError

#: Bytes of the columns that a search for a time or an id reads at once.
_SEARCH_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class ArchivedTopic:
    """The archive of a topic as one client has read it, for itself or for others."""

    place: ArchivePlace
    listed: TopicArchive

    def only(self, partition: int) -> ArchivedTopic:
        """The same about one partition, which is less to send."""
        found = {partition: self.listed.partition(partition)}
        return replace(self, listed=TopicArchive(self.listed.topic, found))


class ArchiveSource:
    """Readers of one topic share it. ``ask`` gives the archive as it is listed now."""

    def __init__(self, known: ArchivedTopic, ask: Callable[[], Awaitable[TopicArchive]]) -> None:
        self._known = known
        self._ask = ask

    @property
    def known(self) -> ArchivedTopic:
        """What is known, for other clients."""
        return self._known

    def partition(self, index: int) -> PartitionArchive:
        """What is known of a partition's archive."""
        return self._known.listed.partition(index)

    async def refresh(self) -> None:
        """Ask again. Raises RetryableErrors."""
        self._known = replace(self._known, listed=await self._ask())

    async def files_from(self, index: int, offset: int) -> tuple[ArchivedFile, ...]:
        """The files with records from an offset on; asks again if none is known to hold it."""
        found = self.partition(index).covering(offset)
        if not found or found[0].base > offset:
            await self.refresh()
            found = self.partition(index).covering(offset)
        return found

    async def find(
        self, index: int, rows: TopicSchema | None, *, time_us: int | None, least_id: int | None
    ) -> int | None:
        """The offset of the first archived record of a time or a later one, or of a transaction id
        or a larger one; None if no file has one. Raises as `FileRecords.next`."""
        start = self.partition(index).removed_before
        for file in self.partition(index).covering(0):
            if time_us is not None and file.last_us < time_us:
                continue
            if least_id is not None and file.last_id < least_id:
                continue
            reader = FileRecords(self, index, file, rows)
            try:
                column = {"timestamp"} if time_us is not None else set[str]()
                while (batch := await reader.next(start, _SEARCH_BYTES, column)) is not None:
                    place = _first(batch, rows, time_us, least_id)
                    if place is not None:
                        return place
            finally:
                reader.close()
        return None

    def records(self, index: int, file: ArchivedFile, rows: TopicSchema | None) -> FileRecords:
        """The records of a file."""
        return FileRecords(self, index, file, rows)

    def path(self, index: int, file: ArchivedFile) -> Path:
        """Where a file is."""
        return self._known.place.file(index, file.name)

    @property
    def topic(self) -> str:
        return self._known.place.topic


class FileRecords:
    """The records of one file, batch by batch, read in threads. Call `close` at the end."""

    def __init__(
        self, source: ArchiveSource, index: int, file: ArchivedFile, rows: TopicSchema | None
    ) -> None:
        self.file = file
        self._source = source
        self._index = index
        self._rows = rows
        self._batches: Iterator[pa.RecordBatch] | None = None

    async def next(
        self, start: int, batch_bytes: int, wanted: Collection[str] | None
    ) -> pa.RecordBatch | None:
        """The next batch; None at the end. Only the first call's arguments count.

        Raises StorageFailedError if the file is not there or cannot be read, CorruptBatchError if
        it is damaged; both name it.
        """
        # Arrow's Parquet is needed by those who read files alone.
        from runnel.archive.parquet import read_records

        path = self._source.path(self._index, self.file)
        place = f"{self._source.topic}/{self._index}"
        try:
            if self._batches is None:
                self._batches = read_records(
                    path, self._rows, start, self.file.until, batch_bytes, wanted
                )
            return await asyncio.to_thread(next, self._batches, None)
        except FileNotFoundError as error:
            raise StorageFailedError(
                f"{place}: file {path} of the archive is not there. Is its directory mounted on"
                " this host?"
            ) from error
        except (pa.ArrowException, OSError, LookupError, TypeError, ValueError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise StorageFailedError(f"{place}: {path} cannot be read: {error}") from error
            raise CorruptBatchError(f"{place}: {path} is damaged: {error}") from error

    def close(self) -> None:
        """Release the file."""
        self._batches = None


def _first(
    batch: pa.RecordBatch, rows: TopicSchema | None, time_us: int | None, least_id: int | None
) -> int | None:
    width = len(READ_SCHEMA if rows is None else read_schema(rows))
    if time_us is not None:
        found = np.flatnonzero(int64_values(batch.column("timestamp")) >= time_us)
    elif batch.num_columns > width:
        ids = batch.column(width).fill_null(NO_ID)
        found = np.flatnonzero(int64_values(ids) >= (least_id or 0))
    else:
        return None
    return int(int64_values(batch.column("offset"))[found[0]]) if len(found) else None
