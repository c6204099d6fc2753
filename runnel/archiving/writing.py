"""One range of a partition into one file: read by a consumer, written, durable, in its place.

The file is nobody's until it is listed. A task that fails or is repeated leaves files that nobody
reads; `runnel.archiving.upkeep` removes them.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.archive.manifest import ArchivedFile
from runnel.archive.places import ArchivePlace, file_name, make_directory, put_in_place
from runnel.consume.consumer import Consumer
from schemas.columns.topic_schema import TopicSchema
from schemas.errors import DivergedError, StorageFailedError
from schemas.objects.archive import ArchiveSettings

if TYPE_CHECKING:
    from runnel.archive.parquet import Contents


@dataclass(frozen=True, slots=True)
class ArchiveTask:
    """Offsets from ``base`` to below ``end`` of a partition, behind the watermark ``after``, None
    before the first file. ``rows``: the schema of a typed topic."""

    place: ArchivePlace
    settings: ArchiveSettings
    rows: TopicSchema | None
    partition: int
    after: int | None
    base: int
    end: int
    size_bytes: int


async def write_file(task: ArchiveTask, open_consumer: Callable[[], Consumer]) -> ArchivedFile:
    """Write the file of a task. ``open_consumer`` gives a consumer of exactly its offsets.

    Raises what reading raises, StorageFailedError if the directory cannot be written.
    """
    name = file_name(task.base, task.end, secrets.token_hex(4))
    unfinished = task.place.unfinished(task.partition, name)
    try:
        await asyncio.to_thread(make_directory, unfinished.parent)
        contents = await _write(task, unfinished, open_consumer)
        await asyncio.to_thread(put_in_place, unfinished, task.place.file(task.partition, name))
    except OSError as error:
        raise StorageFailedError(
            f"{task.place.topic}/{task.partition}: the archive in {task.settings.path} cannot be"
            f" written: {error}"
        ) from error
    finally:
        # Where it is left, a later run deletes it.
        with suppress(OSError):
            await asyncio.to_thread(unfinished.unlink, missing_ok=True)
    return ArchivedFile(
        name=name,
        base=task.base,
        end=task.end,
        rows=contents.rows,
        size=contents.size,
        first_us=contents.first_us,
        last_us=contents.last_us,
        last_id=contents.last_id,
        term=contents.term,
        crc=contents.crc,
        until=task.end,
    )


async def _write(task: ArchiveTask, path: Path, open_consumer: Callable[[], Consumer]) -> Contents:
    # Arrow's Parquet is needed where files are written alone.
    from runnel.archive.parquet import FileWriter, Footer

    term, position = 0, task.base
    schema_id = None if task.rows is None else task.rows.schema_id
    place = task.place
    footer = Footer(place.topic, place.uid, task.partition, task.base, task.end, schema_id)
    with path.open("xb") as file:
        writer = await asyncio.to_thread(FileWriter, file, task.rows, task.settings, footer)
        async with open_consumer() as consumer:
            while (chunk := await consumer.next_chunk()) is not None:
                for batch in chunk.batches:
                    await asyncio.to_thread(writer.write, batch)
                term, position = chunk.term, chunk.position_after
        if position < task.end:
            raise DivergedError(
                f"{place.topic}/{task.partition} ends at {position} now, and it ended at"
                f" {task.end} or above",
                diverged_at=position,
            )
        contents = await asyncio.to_thread(writer.close, term)
        file.flush()
        await asyncio.to_thread(os.fsync, file.fileno())
    return contents
