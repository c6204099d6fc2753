"""Files of an archive: records of one partition as Parquet, written and read.

A file has what a consumer hands out: partition, offset, timestamp, then key, value and headers, or
the columns of a typed topic; and, last, the transaction id, null where a record has none. The
footer says of which topic and offsets it is, in JSON under the key ``runnel``, and the term of the
last batch, under ``runnel.term``.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from runnel.archive.manifest import NO_ID
from runnel.records.cursor import READ_SCHEMA, READ_TRANSACTION_ID
from runnel.records.record import timestamp_us_of
from runnel.records.schema_resolution import read_schema
from runnel.records.tables import int64_values
from schemas.columns.topic_schema import TopicSchema
from schemas.objects.archive import ArchiveSettings, ParquetCodec

#: The key of the footer's metadata.
FOOTER_KEY: Final = b"runnel"
#: The key of the term, which is known only once all records are written.
_TERM_KEY: Final = b"runnel.term"
_ID: Final = "_transaction_id"
#: These grow by little from record to record.
_DELTA: Final = ("offset", "timestamp")
#: Their values rarely come twice.
_PLAIN: Final = ("value",)
_CHUNK_BYTES: Final = 8 << 20
#: Of each column, read ahead at once.
_READ_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Footer:
    """What a file says of itself: ``schema_id`` is that of the newest version of a typed topic's
    schema that is in it."""

    topic: str
    uid: str
    partition: int
    base: int
    end: int
    schema_id: int | None = None


def file_schema(rows: TopicSchema | None) -> pa.Schema:
    """The columns of a file of a topic with these columns, None for one without a schema."""
    schema = READ_SCHEMA if rows is None else read_schema(rows)
    return schema.append(pa.field(_id_name(schema.names), pa.int64()))


def _id_name(names: Collection[str]) -> str:
    taken = {name.lower() for name in names}
    name = _ID
    while name in taken:
        name = "_" + name
    return name


@dataclass(frozen=True, slots=True)
class Contents:
    """What was written into a file; see `runnel.archive.manifest.ArchivedFile`. ``term``: 0 in
    files of versions that did not write it."""

    rows: int
    size: int
    first_us: int
    last_us: int
    last_id: int
    term: int
    crc: int


class _Checked:
    """A file that is being written, and the CRC-32 of what was written."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.crc = 0
        self.size = 0
        self.closed = False

    def write(self, data: Any) -> int:
        self.crc = zlib.crc32(data, self.crc)
        self.size += memoryview(data).nbytes
        return self._file.write(data)

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self.closed = True


class FileWriter:
    """Writes a consumer's batches into one file; call `close` at the end.

    Holds one row group in memory, as Arrow and as it is written.
    """

    def __init__(
        self,
        file: IO[bytes],
        rows: TopicSchema | None,
        settings: ArchiveSettings,
        footer: Footer,
    ) -> None:
        self._schema = file_schema(rows).with_metadata(
            {FOOTER_KEY: json.dumps(asdict(footer)).encode()}
        )
        self._row_group = settings.row_group
        self._checked = _Checked(file)
        names = self._schema.names
        self._writer = pq.ParquetWriter(
            pa.PythonFile(self._checked, mode="w"),
            self._schema,
            compression=_codec(settings.compression),
            use_dictionary=[name for name in names if name not in (*_DELTA, *_PLAIN)],
            column_encoding=dict.fromkeys(_DELTA, "DELTA_BINARY_PACKED"),
            write_statistics=[name for name in names if name not in _PLAIN],
            write_page_checksum=True,
        )
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._rows = 0
        self._first_us: int | None = None
        self._last_us = 0
        self._last_id = NO_ID

    def write(self, batch: pa.RecordBatch) -> None:
        """Add records. Blocks on the disk now and then. Raises OSError."""
        if not batch.num_rows:
            return
        times = int64_values(batch.column("timestamp"))
        first, last = int(times.min()), int(times.max())
        self._first_us = first if self._first_us is None else min(first, self._first_us)
        self._last_us = max(last, self._last_us) if self._rows else last
        width = len(self._schema)
        columns = list(batch.columns)
        if len(columns) < width:
            columns.append(pa.nulls(batch.num_rows, pa.int64()))
        elif (largest := pc.max(columns[-1]).as_py()) is not None:
            self._last_id = max(self._last_id, largest)
        self._rows += batch.num_rows
        self._held.append(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        self._held_bytes += batch.nbytes
        if self._held_bytes >= self._row_group:
            self._flush()

    def close(self, term: int) -> Contents:
        """Write what is left, and the footer with the term of the last batch; the file itself stays
        open. Raises OSError."""
        self._flush()
        self._writer.add_key_value_metadata({_TERM_KEY: str(term).encode()})
        self._writer.close()
        return Contents(
            self._rows,
            self._checked.size,
            self._first_us or 0,
            self._last_us,
            self._last_id,
            term,
            self._checked.crc,
        )

    def _flush(self) -> None:
        if self._held:
            table = pa.Table.from_batches(self._held, schema=self._schema)
            self._writer.write_table(table, row_group_size=table.num_rows)
            self._held, self._held_bytes = [], 0


def _codec(codec: ParquetCodec) -> str:
    return "none" if codec is ParquetCodec.NONE else str(codec.value)


def _opened(path: Path) -> pq.ParquetFile:
    """A file that is read page by page, each of which has a checksum. It is not mapped into memory:
    where a mounted file system fails, or somebody cuts the file, that would end the process."""
    return pq.ParquetFile(
        path, pre_buffer=False, buffer_size=_READ_BYTES, page_checksum_verification=True
    )


def read_footer(path: Path) -> Footer:
    """What a file says of itself. Raises OSError, ValueError if it is no file of an archive."""
    try:
        metadata = pq.read_schema(path).metadata or {}
        return Footer(**json.loads(metadata[FOOTER_KEY]))
    except (pa.ArrowInvalid, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is no file of an archive: {error}") from error


def read_contents(path: Path) -> Contents:
    """What is in a file. Reads all of it. Raises OSError, ValueError if it is no file of an
    archive."""
    crc, size = 0, 0
    with path.open("rb") as opened:
        while chunk := opened.read(_CHUNK_BYTES):
            crc, size = zlib.crc32(chunk, crc), size + len(chunk)
    first_us, last_us, last_id = [], [], [NO_ID]
    try:
        with _opened(path) as file:
            names = file.schema_arrow.names
            for index in range(file.num_row_groups):
                group = file.metadata.row_group(index)
                times = group.column(names.index("timestamp")).statistics
                first_us.append(timestamp_us_of(times.min))
                last_us.append(timestamp_us_of(times.max))
                ids = group.column(group.num_columns - 1).statistics
                if ids is not None and ids.has_min_max:
                    last_id.append(ids.max)
            rows = file.metadata.num_rows
            term = int((file.metadata.metadata or {}).get(_TERM_KEY, b"0"))
    except (pa.ArrowException, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is no file of an archive: {error}") from error
    return Contents(
        rows, size, min(first_us, default=0), max(last_us, default=0), max(last_id), term, crc
    )


def read_records(
    path: Path,
    rows: TopicSchema | None,
    start: int,
    stop: int,
    batch_bytes: int,
    wanted: Collection[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The records of a file with offsets from ``start`` to below ``stop``, as a consumer hands them
    out, in batches of about ``batch_bytes`` at most. ``wanted``: other columns may be null.

    Blocks. Raises OSError, pyarrow.ArrowException for a damaged file.
    """
    schema = READ_SCHEMA if rows is None else read_schema(rows)
    with _opened(path) as file:
        names = file.schema_arrow.names
        ids = names[-1]
        needed = [
            name
            for name in names
            if name in {"partition", "offset", ids}
            or (name in schema.names and (wanted is None or name in wanted))
        ]
        for index in range(file.num_row_groups):
            group = file.metadata.row_group(index)
            bounds = group.column(names.index("offset")).statistics
            if bounds.max < start or bounds.min >= stop:
                continue
            row_bytes = max(1, group.total_byte_size // max(1, group.num_rows))
            for batch in file.iter_batches(
                batch_size=max(1, batch_bytes // row_bytes), row_groups=[index], columns=needed
            ):
                offsets = int64_values(batch.column("offset"))
                first, last = np.searchsorted(offsets, [start, stop])
                if first < last:
                    yield _as_read(batch.slice(first, last - first), schema, ids)


def _as_read(batch: pa.RecordBatch, schema: pa.Schema, ids: str) -> pa.RecordBatch:
    """A batch of a file in the columns of a consumer."""
    there = dict(zip(batch.schema.names, batch.columns, strict=True))
    columns = [
        _typed(there[field.name], field.type)
        if field.name in there
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    id_column = there[ids]
    if id_column.null_count < batch.num_rows:
        schema = schema.append(READ_TRANSACTION_ID)
        columns.append(id_column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _typed(column: pa.Array, type_: pa.DataType) -> pa.Array:
    # Parquet names the items of lists in its own way.
    return column if column.type == type_ else column.cast(type_)
