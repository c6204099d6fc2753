"""What is measured: topics of random rows, the same rows in an archive and as Parquet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

import runnel

_CHUNK_ROWS: Final = 20_000
TYPED_COLUMNS: Final = 20
#: Bytes of a row of the typed topic.
TYPED_BYTES: Final = 8 * TYPED_COLUMNS
PARTITIONS: Final = 2
#: Of a topic whose bytes are those of another one, in more parts.
MANY_PARTITIONS: Final = 100
_TIMEOUT_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Dataset:
    """A topic, all of whose records are in its archive too, and a directory with the same rows as
    Spark writes them."""

    topic: str
    row_bytes: int
    rows: int
    parquet: str
    typed: bool = False
    partitions: int = PARTITIONS


def plain_tables(rows: int, row_bytes: int) -> Iterator[pa.Table]:
    """Tables of random values: incompressible, so that nobody wins by compression."""
    random = np.random.default_rng(7)
    for start in range(0, rows, _CHUNK_ROWS):
        count = min(_CHUNK_ROWS, rows - start)
        data = pa.py_buffer(random.bytes(count * row_bytes))
        ends = pa.py_buffer(np.arange(count + 1, dtype=np.int32) * np.int32(row_bytes))
        values = pa.Array.from_buffers(pa.binary(), count, [None, ends, data])
        keys = pa.array(np.arange(start, start + count)).cast(pa.string()).cast(pa.binary())
        yield pa.table({"key": keys, "value": values})


def typed_tables(rows: int) -> Iterator[pa.Table]:
    """Tables of `TYPED_COLUMNS` columns of random numbers, ``c0`` and so on."""
    random = np.random.default_rng(7)
    for start in range(0, rows, _CHUNK_ROWS):
        count = min(_CHUNK_ROWS, rows - start)
        yield pa.table({f"c{i}": random.integers(0, 1 << 40, count) for i in range(TYPED_COLUMNS)})


def make_dataset(
    spark: SparkSession,
    cluster: runnel.Cluster,
    sc: str,
    directory: Path,
    name: str,
    rows: int,
    row_bytes: int | None,
    partitions: int = PARTITIONS,
) -> Dataset:
    """A new topic with so many rows; ``row_bytes`` None: of the typed topic. Raises ConflictError
    if there is such a topic."""
    schema = {f"c{i}": "int64" for i in range(TYPED_COLUMNS)} if row_bytes is None else None
    topic = runnel.Topic(name, partitions=partitions, schema=schema)
    data = topic.model_dump(mode="json", by_alias=True, exclude_none=True)
    data["spec"]["archive"] = {"path": str(directory / "archive")}
    cluster.create(data)
    cluster.wait("topic", name, "provisioned", timeout=_TIMEOUT_S)
    tables = typed_tables(rows) if row_bytes is None else plain_tables(rows, row_bytes)
    with cluster.producer(name) as producer:
        for table in tables:
            producer.send_table(table)
    parquet = str(directory / f"{name}.parquet")
    frame = spark.read.format("runnel").option("sc", sc).option("topic", name).load()
    frame.write.parquet(parquet)
    cluster.archive(name, everything=True)
    typed, row_bytes = row_bytes is None, row_bytes or TYPED_BYTES
    return Dataset(name, row_bytes, rows, parquet, typed, partitions)
