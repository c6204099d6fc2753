"""Files of an archive: what is written is read, whatever the columns, row groups and bounds."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from runnel.archive.parquet import (
    Contents,
    FileWriter,
    Footer,
    file_schema,
    read_contents,
    read_footer,
    read_records,
)
from runnel.records.cursor import READ_SCHEMA, READ_TRANSACTION_ID
from runnel.records.schema_resolution import read_schema
from schemas.columns.topic_schema import Column, TopicSchema
from schemas.objects.archive import ArchiveSettings, ParquetCodec

SETTINGS = ArchiveSettings(path="/mnt/archive")
FOOTER = Footer("orders", "0b0c", 3, 0, 1_000, schema_id=9)
TERM = 7 << 16
BATCH_BYTES = 1 << 20
#: One column of each type, and a value for each.
TYPES: dict[str, Any] = {
    "bool": True,
    "int8": -1,
    "int16": -2,
    "int32": -3,
    "int64": -4,
    "uint8": 200,
    "uint16": 60_000,
    "uint32": 4_000_000_000,
    "uint64": 18_000_000_000_000_000_000,
    "float32": 0.5,
    "float64": 0.25,
    "string": "é",
    "binary": b"\x00\xff",
    "date32": datetime(2026, 1, 31, tzinfo=UTC).date(),
    "timestamp(s)": datetime(2026, 1, 31),  # noqa: DTZ001 - one without a zone
    "timestamp(ms)": datetime(2026, 1, 31),  # noqa: DTZ001
    "timestamp(us, UTC)": datetime(2026, 1, 31, tzinfo=UTC),
    "timestamp(us)": datetime(2026, 1, 31, 1, 2, 3, 4),  # noqa: DTZ001
    "timestamp(s, Europe/Paris)": datetime(2026, 1, 31, tzinfo=UTC),
    "decimal128(12, 2)": Decimal("12.50"),
    "list<int32>": [1, None, 3],
    "struct<a: int32, b: list<string>>": {"a": 1, "b": ["x"]},
    "map<string, int64>": [("k", 1)],
}
TYPED = TopicSchema(
    columns=tuple(Column(name=f"c{i}", type=type_) for i, type_ in enumerate(TYPES))
)


def plain(first: int, rows: int, ids: bool = False) -> pa.RecordBatch:
    """Records whose offsets have a gap of one after every tenth."""
    offsets = [first + i + i // 10 for i in range(rows)]
    columns: list[Any] = [
        [3] * rows,
        offsets,
        [1_000_000 * at for at in offsets],
        [None if at % 3 else b"k" for at in offsets],
        [None if at % 7 == 1 else b"v" * (at % 50) for at in offsets],
        [[{"key": "h", "value": None}] if at % 5 == 0 else None for at in offsets],
    ]
    schema = READ_SCHEMA
    if ids:
        columns.append(offsets)
        schema = schema.append(READ_TRANSACTION_ID)
    arrays = [pa.array(v, field.type) for v, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def typed(rows: TopicSchema, values: Sequence[Any], count: int) -> pa.RecordBatch:
    schema = read_schema(rows)
    columns: list[Any] = [[3] * count, list(range(count)), list(range(count))]
    columns += [[None if i % 4 == 3 else value for i in range(count)] for value in values]
    arrays = [pa.array(v, field.type) for v, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def write(
    path: Path,
    batches: Sequence[pa.RecordBatch],
    rows: TopicSchema | None = None,
    settings: ArchiveSettings = SETTINGS,
) -> Contents:
    with path.open("wb") as file:
        writer = FileWriter(file, rows, settings, FOOTER)
        for batch in batches:
            writer.write(batch)
        return writer.close(TERM)


def read(path: Path, start: int = 0, stop: int = 1 << 40, **more: Any) -> pa.Table:
    rows = more.pop("rows", None)
    size = more.pop("batch_bytes", BATCH_BYTES)
    found = list(read_records(path, rows, start, stop, size, **more))
    return pa.Table.from_batches(found) if found else pa.table({})


def test_given_records_then_read_as_they_were_and_described(tmp_path: Path) -> None:
    path = tmp_path / "f"
    found = write(path, [plain(0, 50), plain(100, 20)])
    assert read(path).equals(pa.Table.from_batches([plain(0, 50), plain(100, 20)]))
    data = path.read_bytes()
    assert found == Contents(70, len(data), 0, 120_000_000, -1, TERM, zlib.crc32(data))
    assert read_footer(path) == FOOTER
    assert read_contents(path) == found


@pytest.mark.parametrize("codec", list(ParquetCodec))
def test_given_a_flipped_bit_then_an_error_or_what_was_written(
    tmp_path: Path, codec: ParquetCodec
) -> None:
    random = Random(7)
    path = tmp_path / "f"
    value = pa.array([random.randbytes(50) for _ in range(2_000)], pa.binary())
    written = plain(0, 2_000, ids=True).set_column(4, READ_SCHEMA.field("value"), value)
    write(path, [written], settings=replace_codec(codec))
    before, data = read(path), path.read_bytes()
    refused = 0
    for _ in range(200):
        at = random.randrange(len(data) - int.from_bytes(data[-8:-4], "little") - 8)
        damaged = bytearray(data)
        damaged[at] ^= 1 << random.randrange(8)
        path.write_bytes(damaged)
        try:
            assert read(path) == before, at
        except (OSError, pa.ArrowException):
            refused += 1
    assert refused > 190


def replace_codec(codec: ParquetCodec) -> ArchiveSettings:
    return SETTINGS.model_copy(update={"compression": codec})


@pytest.mark.parametrize("type_", TYPES)
def test_each_type_of_column(tmp_path: Path, type_: str) -> None:
    rows = TopicSchema(columns=(Column(name="c", type=type_),))
    write(tmp_path / "f", [typed(rows, [TYPES[type_]], 9)], rows)
    assert read(tmp_path / "f", rows=rows).equals(
        pa.Table.from_batches([typed(rows, [TYPES[type_]], 9)])
    )


def test_given_small_row_groups_and_batches_then_the_same(tmp_path: Path) -> None:
    value = pa.array([bytes(1_000)] * 2_000, pa.binary())
    batch = plain(0, 2_000).set_column(4, READ_SCHEMA.field("value"), value)
    settings = SETTINGS.model_copy(update={"row_group": 1 << 20})
    pieces = [batch.slice(at, 300) for at in range(0, 2_000, 300)]
    write(tmp_path / "f", pieces, settings=settings)
    assert pq.ParquetFile(tmp_path / "f").num_row_groups == 2
    assert (
        read(tmp_path / "f", batch_bytes=10_000)
        .combine_chunks()
        .equals(pa.Table.from_batches([batch]))
    )
    for start, stop in ((0, 1), (137, 138), (500, 1_700), (2_000, 2_190), (3_000, 4_000)):
        offsets = [at for at in batch.column("offset").to_pylist() if start <= at < stop]
        found = read(tmp_path / "f", start, stop, batch_bytes=10_000)
        assert (found["offset"].to_pylist() if found.num_columns else []) == offsets


def test_given_transaction_ids_of_some_then_null_for_the_others(tmp_path: Path) -> None:
    found = write(tmp_path / "f", [plain(0, 10), plain(20, 10, ids=True)])
    assert found.last_id == 29
    ids = read(tmp_path / "f").column("transaction_id").to_pylist()
    assert ids == [None] * 10 + list(range(20, 30))
    write(tmp_path / "g", [plain(0, 10)])
    assert "transaction_id" not in read(tmp_path / "g").column_names


def test_given_wanted_columns_then_the_others_are_null(tmp_path: Path) -> None:
    write(tmp_path / "f", [plain(0, 50)])
    found = read(tmp_path / "f", wanted=frozenset({"value"}))
    assert found["value"].equals(pa.Table.from_batches([plain(0, 50)])["value"])
    assert found["offset"].null_count == 0
    assert found["key"].null_count == found["headers"].null_count == 50


def test_given_an_older_file_then_later_columns_are_null(tmp_path: Path) -> None:
    old = TopicSchema(columns=(Column(name="a", type="int32"),))
    new = TopicSchema(columns=(Column(name="a", type="int32"), Column(name="b", type="string")))
    write(tmp_path / "f", [typed(old, [1], 3)], old)
    found = read(tmp_path / "f", rows=new)
    assert found.schema.equals(read_schema(new))
    assert found.to_pydict()["b"] == [None] * 3
    write(tmp_path / "g", [typed(new, [1, "x"], 3)], new)
    assert read(tmp_path / "g", rows=old).schema.equals(read_schema(old))


def test_given_a_column_that_is_called_as_ids_then_ids_are_beside_it() -> None:
    rows = TopicSchema(columns=(Column(name="_Transaction_ID", type="int32"),))
    assert file_schema(rows).names[-2:] == ["_Transaction_ID", "__transaction_id"]


def test_given_nothing_then_a_file_without_records(tmp_path: Path) -> None:
    assert write(tmp_path / "f", []).rows == 0
    assert read(tmp_path / "f").num_rows == 0


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="given-nothing"),
        pytest.param(b"PAR1 nonsense PAR1", id="given-nonsense"),
    ],
)
def test_given_no_file_of_an_archive_then_said(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "f").write_bytes(data)
    with pytest.raises(ValueError, match="is no file of an archive"):
        read_footer(tmp_path / "f")
